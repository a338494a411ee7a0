#!/usr/bin/env python3
"""A test over the tree itself: layering, banned calls, sizes, portability.

    tests/tidy/tidy.py [ROOT]

Prints one line per finding, FILE:LINE: [rule] what and why, and exits 1 if there is any.
Every rule is shown to be able to fail by tidy_test.py beside this file.
"""

import os
import re
import subprocess
import sys

# What each folder may include besides itself: the table of docs/architecture.md. CMakeLists.txt
# must say the same.
LAYERS = {
    "base": [],
    "world": ["base"],
    "ltx": ["base"],
    "store": ["base", "world"],
    "core": ["base", "world", "store", "ltx"],
    "peer": ["base", "world", "store", "ltx", "core"],
    "sqlite": ["base", "world", "ltx"],
    "net": ["base", "world"],
    "js": ["base", "world", "sqlite"],
    "deploy": ["base", "world", "store"],
    "node": ["base", "world", "ltx", "store", "core", "peer", "sqlite", "net", "js", "deploy"],
    "cli": ["base", "world", "ltx", "store", "core", "peer", "sqlite", "net", "js", "deploy", "node"],
}
SIM_MAY = ["base", "world", "store", "ltx", "core", "sqlite"]

# Libraries that only some layers may name, by how an #include of them begins.
LIBRARIES = {
    "v8": (re.compile(r"^(v8|libplatform/|cppgc/)"), {"js"}),
    "sqlite": (re.compile(r"^sqlite3"), {"sqlite", "js"}),
    "node": (re.compile(r"^(node|uv)\.h$|^node_"), set()),
    "curl": (re.compile(r"^curl/"), {"store", "net"}),
    "asio": (re.compile(r"^boost/(asio|beast)"), {"world", "store", "net", "node", "cli"}),
}

# Core may know the bucket's interface and what wraps it, never one kind of bucket.
STORE_BACKEND = re.compile(r"^src/store/(file|s3|aws|gcs|azure|memory|http|curl|open)[_./]")

# The code that also runs in the simulator: time, chance, tasks and storage come through interfaces.
SIMULATED = re.compile(r"^src/(core|ltx|peer|sqlite|store)/")
BANNED = [
    (re.compile(r"std::chrono::(\w+_)?clock\b|\b(clock_gettime|gettimeofday)\s*\(|(?<![\w.>:])time\s*\(\s*(NULL|nullptr|0)"),
     "a clock: ask the world"),
    (re.compile(r"std::(jthread|thread|async)\b|\bpthread_create\b"), "a thread: spawn a task in the world"),
    (re.compile(r"std::random_device|\bmt19937|(?<![\w.>:])s?rand(om)?\s*\(\s*\)|\bgetrandom\s*\(|\bRAND_bytes\b"),
     "randomness: ask the world"),
    (re.compile(r"\bsleep_(for|until)\s*\(\s*std::|this_thread|(?<![\w.>:])u?sleep\s*\("), "a sleep: wait in the world"),
    (re.compile(r"\b(fopen|opendir)\s*\(|(?<![\w>])::(open|openat|unlink|rename)\s*\(|std::[io]?fstream\b|std::filesystem\b"),
     "a file: go through an interface"),
    (re.compile(r"(?<![\w>])::(socket|connect|accept)\s*\("), "a socket: go through an interface"),
    (re.compile(r"\b(getenv|system|popen)\s*\("), "the environment: take it as an option"),
]
# Plain open() or time() may be a method, but then nobody includes these.
BANNED_HEADER = re.compile(
    r"\s*#\s*include\s*<(thread|random|fstream|filesystem|fcntl\.h|unistd\.h|pthread\.h|time\.h|sys/\w+\.h)>")

SOURCE_LINES_MAX = 850  # about 800; past that it is two files not separated yet
LINE_CHARS_MAX = 120    # clang-format aims at 100
SOURCES = re.compile(r"^(src|sim|tests|fuzz|bench|js)/.*\.(cc|h|c|ts|js|mjs|py)$")
CPP = re.compile(r"\.(cc|h|c)$")
# Tests and what only tests include.
TEST = re.compile(r"_test\.cc$|_testing\.(cc|h)$")

# Spelled in two halves, so that this file passes its own rule.
MACHINE = [
    (re.compile(r"(?<![\w.*$}\])-])/(" + "|".join(["wo" "rk", "ro" "ot", "ho" "me", "mn" "t"]) + r")/\w"),
     "a path of one machine"),
    (re.compile(r"(registry\." r"npmjs|deb\." r"debian|npm" r"mirror|archive\." r"ubuntu)\b"), "the host of a package registry"),
]
MACHINE_SKIP = re.compile(r"(^|/)(corpus|testdata|fixtures)/|\.(png|bin|ltx|wasm|gz|zst|ico)$")


def strip_comments(text, keep_strings=False):
    """C++ without comments and, normally, without the insides of strings; lines stay lines."""

    def blank(match):
        token = match.group(0)
        if token[0] == "/":
            return re.sub(r"[^\n]", " ", token)
        if keep_strings:
            return token
        return token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1]

    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    # A digit separator (1'000) is no character literal.
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", text)
    return re.sub(pattern, blank, text, flags=re.S)


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = self._list()
        self.findings = []

    def _list(self):
        try:
            out = subprocess.run(
                ["git", "-C", self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                capture_output=True, check=True).stdout.decode()
            names = [n for n in out.split("\0") if n]
        except (OSError, subprocess.CalledProcessError):
            names = []
            for folder, folders, files in os.walk(self.root):
                folders[:] = [d for d in folders if d not in ("build", "node_modules", ".deps", ".git", ".celld")]
                names += [os.path.relpath(os.path.join(folder, f), self.root) for f in files]
        return sorted(n for n in set(names) if os.path.isfile(os.path.join(self.root, n)))

    def read(self, name):
        with open(os.path.join(self.root, name), "rb") as f:
            return f.read().decode("utf-8", "replace")

    def found(self, rule, name, line, what):
        self.findings.append(f"{name}:{line}: [{rule}] {what}")


def check_includes(tree, name, text):
    top, _, rest = name.partition("/")
    layer = rest.split("/")[0] if top == "src" else top
    if top == "src":
        may = set(LAYERS.get(layer, [])) | {layer}
        if layer not in LAYERS:
            tree.found("layers", name, 1, f"src/{layer} is no layer of docs/architecture.md")
            return
    elif top == "sim":
        may = set(SIM_MAY)
    else:
        return
    test = TEST.search(name) is not None
    if test:
        may |= set(tree.test_deps.get(layer, []))
    for number, line in enumerate(strip_comments(text, keep_strings=True).split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        kind, path = match.groups()
        for library, (pattern, layers) in LIBRARIES.items():
            if pattern.match(path) and kind == "<" and layer not in layers and not test:
                tree.found("layers", name, number, f"{layer} may not use {library} ({path})")
        if kind == "<":
            continue
        target = path.split("/")[0]
        if path.startswith("js_prelude/"):
            target = "js"
        elif target == "sim" and top == "sim":
            continue
        elif f"src/{path}" not in tree.file_set:
            tree.found("layers", name, number,
                       f'"{path}" is no file of src/: include paths of ours start there, others are in <>')
            continue
        if target not in may:
            tree.found("layers", name, number, f"{layer} may not include {target} ({path})")
        elif layer in ("core", "sim") and STORE_BACKEND.match("src/" + path) and top == "src" and not test:
            tree.found("layers", name, number, f"{layer} may include only the bucket's interface ({path})")


def check_banned(tree, name, text):
    if not SIMULATED.match(name) or STORE_BACKEND.match(name) or TEST.search(name):
        return
    for number, line in enumerate(strip_comments(text).split("\n"), 1):
        for pattern, what in BANNED:
            match = pattern.search(line)
            if match:
                tree.found("banned", name, number, f"{match.group(0).strip()} is {what}")
        match = BANNED_HEADER.match(line)
        if match:
            tree.found("banned", name, number, f"<{match.group(1)}> has no use here: go through an interface")


def check_size(tree, name, text):
    lines = text.count("\n")
    if lines > SOURCE_LINES_MAX:
        tree.found("size", name, lines, f"{lines} lines, at most {SOURCE_LINES_MAX}: separate it")
    if CPP.search(name):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > LINE_CHARS_MAX and "http" not in line:
                tree.found("size", name, number, f"{len(line)} characters, at most {LINE_CHARS_MAX}: run tools/format")
            if line.endswith((" ", "\r")):
                tree.found("size", name, number, "space at the end of the line")


def check_machine(tree, name, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in MACHINE:
            match = pattern.search(line)
            if match:
                tree.found("machine", name, number, f"{match.group(0)}: {what} has no place in the repository")


def check_folders(tree):
    folders = {os.path.dirname(n) for n in tree.files if n.startswith(("src/", "sim/", "js/")) and SOURCES.match(n)}
    for folder in sorted(folders - {"src"}):
        if f"{folder}/README.md" in tree.file_set:
            continue
        headers = [n for n in tree.files if os.path.dirname(n) == folder and n.endswith((".h", ".ts"))]
        if folder.count("/") <= 1 and folder.startswith("src/") or not headers:
            tree.found("folders", folder, 1, "no README.md that says what lives here")
        elif not all(tree.read(h).lstrip().startswith(("//", "/*")) for h in headers):
            tree.found("folders", folder, 1, "no README.md, and not every header says what it is")


def check_headers(tree, name, text):
    if name.endswith(".h") and name.startswith(("src/", "sim/")):
        if not text.startswith("//"):
            tree.found("headers", name, 1, "a header begins with a comment that says what it is")
        if "#pragma once" not in text:
            tree.found("headers", name, 1, "no #pragma once")


def read_cmake(tree):
    """DEPS and TEST_DEPS of every celld_module in CMakeLists.txt."""
    tree.test_deps = {}
    if "CMakeLists.txt" not in tree.file_set:
        return
    text = re.sub(r"#[^\n]*", "", tree.read("CMakeLists.txt"))
    for match in re.finditer(r"celld_module\(([^)]*)\)", text):
        words, key, said = match.group(1).split(), None, {}
        for word in words[1:]:
            if word in ("DEPS", "LIBS", "OPTIONS", "TEST_DEPS"):
                key = word
            else:
                said.setdefault(key, []).append(word)
        layer = words[0]
        tree.test_deps[layer] = said.get("TEST_DEPS", [])
        if set(said.get("DEPS", [])) != set(LAYERS.get(layer, [])):
            tree.found("layers", "CMakeLists.txt", 1, f"DEPS of {layer} differ from the table in tests/tidy/tidy.py")


def run(root):
    tree = Tree(root)
    tree.file_set = set(tree.files)
    read_cmake(tree)
    for name in tree.files:
        if MACHINE_SKIP.search(name):
            continue
        text = tree.read(name)
        check_machine(tree, name, text)
        if not SOURCES.match(name):
            continue
        check_size(tree, name, text)
        if CPP.search(name):
            check_includes(tree, name, text)
            check_banned(tree, name, text)
            check_headers(tree, name, text)
    check_folders(tree)
    return tree


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    tree = run(os.path.abspath(root))
    for finding in tree.findings:
        print(finding)
    print(f"tidy: {len(tree.files)} files, {len(tree.findings)} findings")
    return 1 if tree.findings else 0


if __name__ == "__main__":
    sys.exit(main())
