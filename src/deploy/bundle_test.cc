#include "deploy/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "deploy/glob.h"
#include "deploy/subprocess.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Project {
 public:
  Project() {
    std::string pattern = (fs::temp_directory_path() / "celld-project-XXXXXX").string();
    dir_ = fs::canonical(mkdtemp(pattern.data()));
  }
  ~Project() { fs::remove_all(dir_); }
  Project& file(std::string_view name, std::string_view text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return *this;
  }
  const fs::path& dir() const { return dir_; }

  Result<Bundle> bundle(std::string_view extra = "", std::string_view main = "src/index.ts") {
    file("wrangler.jsonc", "{\"name\": \"test\", \"main\": \"" + std::string(main) + "\"" +
                               std::string(extra) + "}");
    auto config = read_wrangler_config(dir_ / "wrangler.jsonc");
    if (!config) return fail(config.error());
    return bundle_project(*config, {});
  }

 private:
  fs::path dir_;
};

std::string error_of(const Result<Bundle>& r) { return r ? "no error" : r.error().message; }

const BundledModule* find(const Bundle& bundle, BundledKind kind, std::string_view prefix = "") {
  for (const auto& m : bundle.modules) {
    if (m.kind == kind && m.name.starts_with(prefix)) return &m;
  }
  return nullptr;
}

TEST(Bundle, typescript_with_imports_becomes_one_module) {
  Project p;
  p.file("src/index.ts", "import { hi } from './hi';\nimport { DurableObject } from 'cloudflare:workers';\n"
                         "export class Counter extends DurableObject { n: number = 1; }\n"
                         "export default { fetch(): Response { return new Response(hi(VERSION)); } };\n");
  p.file("src/hi.ts", "export const hi = (v: string): string => 'hi ' + v;\n");
  auto bundle = p.bundle(R"(, "define": {"VERSION": "\"one\""})");
  ASSERT_TRUE(bundle) << error_of(bundle);
  EXPECT_EQ(bundle->main, "index.js");
  ASSERT_EQ(bundle->modules.size(), 2u);
  std::string code(bundle->modules[0].content.view());
  EXPECT_THAT(code, HasSubstr("\"hi \" +"));
  EXPECT_THAT(code, HasSubstr("\"one\""));
  EXPECT_THAT(code, HasSubstr("from \"cloudflare:workers\""));
  EXPECT_THAT(*bundle->exports, ::testing::UnorderedElementsAre("Counter", "default"));
  EXPECT_EQ(bundle->modules[1].kind, BundledKind::kSourceMap);
  EXPECT_LT(bundle->took, std::chrono::seconds(30));
}

TEST(Bundle, the_same_sources_give_the_same_bytes_in_any_folder) {
  auto make = [](Project& p) {
    p.file("src/index.ts", "import t from './t.txt'; export default { fetch() { return new Response(t) } };");
    p.file("src/t.txt", "text");
    return p.bundle().value();
  };
  Project one, two;
  auto a = make(one), b = make(two);
  ASSERT_EQ(a.modules.size(), b.modules.size());
  for (size_t i = 0; i < a.modules.size(); ++i) {
    EXPECT_EQ(a.modules[i].name, b.modules[i].name);
    EXPECT_EQ(a.modules[i].content, b.modules[i].content);
  }
  EXPECT_THAT(std::string(find(a, BundledKind::kSourceMap)->content.view()), HasSubstr("\"src/index.ts\""));
}

// TOOL-01: deploy refuses wrangler define / rules.
TEST(Bundle, text_data_and_wasm_are_modules_of_their_kind) {
  Project p;
  p.file("src/index.ts", "import a from './a.txt'; import b from './b.bin'; import c from './c.wasm';\n"
                         "import d from './c.wasm?module'; import e from '../e.md';\n"
                         "export default { fetch() { return new Response([a, b, c, d, e]); } };\n");
  p.file("src/a.txt", "text").file("src/b.bin", std::string("\0\1", 2)).file("e.md", "# e");
  p.file("src/c.wasm", std::string("\0asm\1\0\0\0", 8));
  auto bundle = p.bundle(R"(, "rules": [{"type": "Text", "globs": ["**/*.md"], "fallthrough": true}])");
  ASSERT_TRUE(bundle) << error_of(bundle);
  EXPECT_EQ(find(*bundle, BundledKind::kText, "a-")->content.view(), "text");
  EXPECT_EQ(find(*bundle, BundledKind::kText, "e-")->content.view(), "# e");
  EXPECT_EQ(find(*bundle, BundledKind::kData, "b-")->content.size(), 2u);
  std::string code(find(*bundle, BundledKind::kEsm)->content.view());
  size_t wasm = 0;
  for (const auto& m : bundle->modules) {
    if (m.kind == BundledKind::kSourceMap || m.kind == BundledKind::kEsm) continue;
    wasm += m.kind == BundledKind::kWasm;
    EXPECT_THAT(code, HasSubstr("\"./" + m.name + "\"")) << "every module is imported by its name";
  }
  EXPECT_EQ(wasm, 2u) << "by its name, and by its name with ?module";
}

TEST(Bundle, a_file_without_a_rule_is_explained) {
  Project p;
  p.file("src/index.ts", "import a from './a.md'; export default { fetch() { return a } };");
  p.file("src/a.md", "x");
  EXPECT_THAT(error_of(p.bundle()), HasSubstr("need a rule in wrangler.jsonc"));
  // The extension has a rule, but not in this folder.
  EXPECT_THAT(error_of(p.bundle(R"(, "rules": [{"type": "Text", "globs": ["docs/*.md"]}])")),
              HasSubstr("src/a.md: is imported, but no rule"));
}

TEST(Bundle, errors_in_user_code_have_file_and_line) {
  Project p;
  p.file("src/index.ts", "export default {\n  fetch() { return ; ) }\n};\n");
  EXPECT_THAT(error_of(p.bundle()), HasSubstr("src/index.ts:2:"));
  p.file("src/index.ts", "import x from './missing';\nexport default { fetch() { return x } };\n");
  auto message = error_of(p.bundle());
  EXPECT_THAT(message, HasSubstr("Could not resolve \"./missing\""));
  EXPECT_THAT(message, HasSubstr("src/index.ts:1:14"));
}

TEST(Bundle, a_class_that_is_not_exported_is_named) {
  Project p;
  p.file("src/index.ts", "class Counter {}\nexport default { fetch() { return Counter } };\n");
  auto message = error_of(p.bundle(R"(, "migrations": [{"tag": "v1", "new_sqlite_classes": ["Counter"]}])"));
  EXPECT_THAT(message, HasSubstr("'Counter'"));
  EXPECT_THAT(message, HasSubstr("is not exported"));
}

TEST(Bundle, a_script_that_exports_nothing_is_refused) {
  Project p;
  p.file("src/index.ts", "addEventListener('fetch', () => {});\n");
  EXPECT_THAT(error_of(p.bundle()), HasSubstr("service-worker syntax"));
}

TEST(Bundle, a_main_that_is_not_there_is_named) {
  Project p;
  EXPECT_THAT(error_of(p.bundle()), HasSubstr("src/index.ts, which is not there"));
}

TEST(Bundle, node_modules_of_node_need_the_flag) {
  Project p;
  p.file("src/index.ts", "import { join } from 'path'; export default { fetch() { return join('a') } };");
  EXPECT_THAT(error_of(p.bundle()), HasSubstr("nodejs_compat"));
  auto bundle = p.bundle(R"(, "compatibility_flags": ["nodejs_compat"])");
  ASSERT_TRUE(bundle) << error_of(bundle);
  EXPECT_THAT(std::string(bundle->modules[0].content.view()), HasSubstr("from \"node:path\""));
}

// TOOL-02: no_bundle needed for Vite output.
TEST(Bundle, no_bundle_takes_the_entry_and_its_siblings_as_they_are) {
  Project p;
  std::string code = "import './assets/chunk.js'; export default { fetch() {} };//  untouched";
  p.file("dist/index.js", code).file("dist/assets/chunk.js", "1").file("dist/index.js.map", "{}");
  p.file("dist/page.html", "<p>").file("dist/other.css", "x").file("dist/node_modules/a.js", "x");
  p.file("src/index.ts", "not taken");
  auto bundle = p.bundle(R"(, "no_bundle": true)", "dist/index.js");
  ASSERT_TRUE(bundle) << error_of(bundle);
  std::vector<std::string> names;
  for (const auto& m : bundle->modules) names.push_back(m.name);
  EXPECT_THAT(names, ::testing::ElementsAre("assets/chunk.js", "index.js", "index.js.map", "page.html"));
  EXPECT_EQ(bundle->modules[1].content.view(), code);
  EXPECT_EQ(bundle->main, "index.js");
  EXPECT_FALSE(bundle->exports);
}

TEST(Bundle, no_bundle_refuses_typescript) {
  Project p;
  p.file("src/index.ts", "");
  EXPECT_THAT(error_of(p.bundle(R"(, "no_bundle": true)")), HasSubstr("must be a JavaScript ES module"));
}

TEST(Bundle, a_bundler_that_cannot_be_started_is_named) {
  Project p;
  p.file("src/index.ts", "export default {};").file("wrangler.json", R"({"name":"a","main":"src/index.ts"})");
  auto config = read_wrangler_config(p.dir() / "wrangler.json").value();
  BundleOptions options;
  options.esbuild = p.dir() / "nothing";
  EXPECT_THAT(error_of(bundle_project(config, options)), HasSubstr("cannot start"));
}

TEST(Subprocess, a_program_that_hangs_is_killed_with_its_children) {
  SubprocessCall call;
  call.program = "/bin/sh";
  call.arguments = {"-c", "sleep 60 & sleep 60"};
  call.timeout = std::chrono::milliseconds(50);
  auto start = std::chrono::steady_clock::now();
  auto result = run_subprocess(call);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadline);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Subprocess, output_and_status_are_reported_within_bounds) {
  SubprocessCall call;
  call.program = "/bin/sh";
  call.arguments = {"-c", "echo out; echo err >&2; exit 3"};
  auto result = run_subprocess(call);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->exit_status, 3);
  EXPECT_EQ(result->output, "out\nerr\n");
  call.arguments = {"-c", "yes | head -c 100000; kill -9 $$"};
  call.output_bytes_max = 1000;
  result = run_subprocess(call);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->output.size(), 1000u);
  EXPECT_EQ(result->exit_status, 137);
}

TEST(Glob, matches_as_wrangler_rules_do) {
  EXPECT_TRUE(glob_matches("**/*.txt", "a.txt"));
  EXPECT_TRUE(glob_matches("**/*.txt", "./a/b/c.txt"));
  EXPECT_TRUE(glob_matches("./docs/*.md", "docs/a.md"));
  EXPECT_TRUE(glob_matches("a?.{js,mjs}", "ab.mjs"));
  EXPECT_TRUE(glob_matches("**/*.wasm?module", "x/a.wasm?module"));
  EXPECT_TRUE(glob_matches("docs/**", "docs/a/b"));
  EXPECT_FALSE(glob_matches("*.txt", "a/b.txt"));
  EXPECT_FALSE(glob_matches("docs/*.md", "docs/a/b.md"));
  EXPECT_FALSE(glob_matches("a?b", "a/b"));
  EXPECT_FALSE(glob_matches("**/*.txt", "a.txt2"));
  EXPECT_FALSE(glob_matches(std::string(200, '*') + "x", std::string(5000, 'a')));
  EXPECT_EQ(glob_extension("**/*.txt"), ".txt");
  EXPECT_EQ(glob_extension("a/*.wasm?module"), ".wasm");
  EXPECT_EQ(glob_extension("**/*"), "");
  EXPECT_EQ(glob_extension("LICENSE"), "");
}

}  // namespace
}  // namespace celld
