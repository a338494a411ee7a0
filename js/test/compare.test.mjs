// The same programs here and on workerd: values, types and texts of errors must be the same.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { pathToFileURL, fileURLToPath } from "node:url";
import { bundle_program, run_on_workerd, workerd_path } from "./workerd.mjs";
import { load, start } from "./host.mjs";

const workerd = workerd_path();
const skip = workerd === undefined ? "workerd is not installed" : false;

// Lines that differ, and why. Those of the test's own host are its stand-ins in Node.
const KNOWN = {
  requests: {
    "illegal": "a private field's own error, of the same type",
    "illegal m": "a private field's own error, of the same type",
    "nonew": "a class's own error, of the same type",
    "nonewH": "a class's own error, of the same type",
  },
  apis: {
    "td labels": "test host: Node lacks x-user-defined",
    "td fatal": "test host: Node's text",
    "btoa bad": "test host: does not check",
    "atob bad": "test host: does not check",
  },
  objects: {},
  storage: {},
};

const file = (name) => fileURLToPath(new URL(`programs/${name}.mjs`, import.meta.url));

async function import_here(name, host) {
  const dir = mkdtempSync(join(tmpdir(), "celld-program-"));
  try {
    let code = await bundle_program(file(name), join(dir, "program.mjs"));
    globalThis.__builtin_modules = host.hooks.modules;
    code = code.replace(/import \{([^}]*)\} from "(cloudflare:[a-z]+)";/g,
      (_all, names, module) => `const {${names}} = globalThis.__builtin_modules["${module}"];`);
    writeFileSync(join(dir, "program.mjs"), code);
    return await import(pathToFileURL(join(dir, "program.mjs")).href);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

// The lines of an answer; a label that comes again gets a number.
function by_label(text) {
  const lines = new Map();
  for (const line of text.split("\n")) {
    const end = line.search(/ (?:=>|!!) /);
    let label = line.slice(0, end);
    for (let again = 2; lines.has(label); again++) label = `${line.slice(0, end)} (${again})`;
    lines.set(label, line.slice(end + 1));
  }
  return lines;
}

let host;
for (const name of Object.keys(KNOWN)) {
  test(`${name}: the same as on workerd`, { skip, timeout: 60000 }, async () => {
    host ??= await load();
    const program = await import_here(name, host);
    const classes = Object.keys(program).filter((key) => typeof program[key] === "function");
    host.cells.clear();
    start(host, program, { namespaces: classes });
    const theirs = by_label((await run_on_workerd(workerd, file(name), classes)).answer);
    const ours = by_label(await host.text("http://x/", { cf: '{"a":1}' }));
    assert.deepEqual([...ours.keys()], [...theirs.keys()]);
    const differences = [];
    for (const [label, line] of theirs) {
      if (label in KNOWN[name] || ours.get(label) === line) continue;
      differences.push({ label, workerd: line, celld: ours.get(label) });
    }
    assert.deepEqual(differences, []);
  });
}

test("console: prints the same as workerd", { skip, timeout: 60000 }, async () => {
  host ??= await load();
  const program = await import_here("console", host);
  start(host, program, {});
  const { out } = await run_on_workerd(workerd, file("console"), []);
  host.logs.length = 0;
  await host.fetch("http://x/");
  assert.deepEqual(host.logs.map(([, text]) => text).join("\n").split("\n"), out.replace(/\n$/, "").split("\n"));
});
