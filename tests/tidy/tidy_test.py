#!/usr/bin/env python3
"""Shows that every rule of tidy.py can fail, and that clean code passes."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
sys.dont_write_bytecode = True
import tidy  # noqa: E402

CLEAN = {
    "src/base/README.md": "Results and ids.\n",
    "src/base/result.h": "// Results.\n#pragma once\n",
    "src/world/README.md": "The door.\n",
    "src/world/world.h": '// World.\n#pragma once\n#include "base/result.h"\n',
    "src/store/README.md": "Buckets.\n",
    "src/store/object_store.h": "// The bucket.\n#pragma once\n",
    "src/store/s3_store.h": "// S3.\n#pragma once\n#include <curl/curl.h>\n",
    "src/core/README.md": "The protocol.\n",
}


class Tidy(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**CLEAN, **files}.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as f:
                    f.write(text)
            return tidy.run(root).findings

    def rejects(self, rule, name, text):
        findings = self.findings({name: text})
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(f"[{rule}]", findings[0])
        self.assertTrue(findings[0].startswith(name if rule != "folders" else os.path.dirname(name)), findings)

    def accepts(self, name, text):
        self.assertEqual(self.findings({name: text}), [])

    def test_clean_tree_passes(self):
        self.assertEqual(self.findings({}), [])

    def test_include_against_the_layers(self):
        self.rejects("layers", "src/base/a.cc", '#include "world/world.h"\n')
        self.rejects("layers", "src/store/a.cc", '  #  include "core/lease.h"\n')
        self.rejects("layers", "src/core/a.cc", '#include "store/s3_store.h"\n')
        self.rejects("layers", "src/core/a.cc", '#include "object_store.h"\n')
        self.rejects("layers", "src/core/a.cc", "#include <v8.h>\n")
        self.rejects("layers", "src/core/a.cc", "#include <sqlite3.h>\n")
        self.rejects("layers", "src/core/a.cc", "#include <boost/asio.hpp>\n")
        self.accepts("src/core/a.cc", '#include "store/object_store.h"\n#include <vector>\n')
        self.accepts("src/core/a.cc", '// #include "net/server.h"\n')

    def test_unknown_layer(self):
        findings = self.findings({"src/misc/README.md": "Things.\n", "src/misc/a.cc": "int x;\n"})
        self.assertEqual(len(findings), 1, findings)

    def test_cmake_that_disagrees(self):
        self.rejects("layers", "CMakeLists.txt", "celld_module(base DEPS world)\n")
        self.accepts("CMakeLists.txt", "celld_module(world DEPS base LIBS x)\n")

    def test_test_deps_are_for_tests_only(self):
        cmake = "celld_module(base TEST_DEPS world)\n"
        self.assertEqual(self.findings({"CMakeLists.txt": cmake, "src/base/a_test.cc": '#include "world/world.h"\n'}), [])
        self.assertEqual(len(self.findings({"CMakeLists.txt": cmake, "src/base/a.cc": '#include "world/world.h"\n'})), 1)

    def test_banned_calls(self):
        for text in (
            "auto t = std::chrono::steady_clock::now();",
            "auto t = std::chrono::system_clock::now();",
            "auto t = time(nullptr);",
            "#include <thread>",
            "#include <fcntl.h>",
            "std::thread t(f);",
            "std::jthread t(f);",
            "std::random_device d;",
            "std::mt19937 g;",
            "std::this_thread::yield();",
            "usleep(5);",
            "int fd = ::open(p, 0);",
            "auto* f = fopen(p, m);",
            "std::ifstream f(p);",
            "std::filesystem::path p;",
            "int s = ::socket(1, 2, 3);",
            'auto* h = getenv("HOME");',
        ):
            with self.subTest(text):
                self.rejects("banned", "src/core/a.cc", text + "\n")
                self.rejects("banned", "src/store/retry_store.cc", text + "\n")

    def test_calls_that_only_look_banned(self):
        for text in (
            "std::chrono::nanoseconds n;",
            "// std::thread is banned",
            'log("std::thread open(x)");',
            "co_await sleep_for(world, 5ms);",
            "db.open(path); file->open(x); Database::open(x); Result<Db> open(Path p);",
            "constexpr int k = 1'000'000;",
        ):
            with self.subTest(text):
                self.accepts("src/core/a.cc", text + "\n")

    def test_backends_touch_the_world(self):
        self.accepts("src/store/file_store.cc", "int fd = ::open(p, 0); std::filesystem::path q;\n")
        self.accepts("src/core/a_test.cc", "std::thread t(f);\n")
        self.accepts("src/core/core_testing.cc", "std::filesystem::path p;\n")
        self.accepts("src/world/README.md", "std::thread\n")

    def test_sizes(self):
        self.rejects("size", "src/core/a.cc", "int x;\n" * 900)
        self.rejects("size", "src/core/a.cc", "int " + "x" * 130 + ";\n")
        self.rejects("size", "src/core/a.cc", "int x; \n")

    def test_machine_paths_and_hosts(self):
        self.rejects("machine", "docs/a.md", "see /" + "work/main\n")
        self.rejects("machine", "docs/a.md", "in `/" + "root/x`\n")
        self.rejects("machine", "package-lock.json", '"https://registry.' + 'npmjs.org/x"\n')
        self.accepts("docs/a.md", "the network/" + "work/x and build/work\n")

    def test_folders_say_what_they_are(self):
        self.rejects("folders", "src/ltx/a.cc", "int x;\n")
        self.rejects("folders", "src/core/deep/a.cc", "int x;\n")
        self.accepts("src/core/deep/a.h", "// What it is.\n#pragma once\n")

    def test_headers(self):
        self.rejects("headers", "src/core/a.h", "#pragma once\n")
        self.rejects("headers", "src/core/a.h", "// A.\n")


if __name__ == "__main__":
    unittest.main()
