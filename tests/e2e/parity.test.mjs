// The programs of js/test/programs on celld and on workerd: the same values, and the same classes
// and texts of errors.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { hasCommand, startCelld } from "./lib/celld.mjs";
import { startWorkerd } from "./lib/workerd.mjs";

const programs = fileURLToPath(new URL("../../js/test/programs", import.meta.url));

// Program: its Durable Objects, and the lines that differ on purpose, with the reason.
const PRIVATE = "the engine's own error for a private field; TypeError all the same";
const CLASS = "the engine's own error for a class; TypeError all the same";
const cases = {
  requests: { classes: [], known: { illegal: PRIVATE, "illegal m": PRIVATE, nonew: CLASS, nonewH: CLASS } },
  apis: { classes: [], known: {} },
  objects: { classes: ["D", "NoExt", "NoFetch"], known: {} },
  storage: { classes: ["Store", "Quiet"], known: {} },
  sql: {
    classes: ["Store"],
    known: {
      "sql cursor": "rows that RETURNING gives back are not counted as read",
      "mid iter drop": "an open cursor does not lock the schema here",
    },
  },
};

// Label -> the rest of its line; a label that comes again gets a number.
function lines(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const end = line.search(/ (?:=>|!!) /);
    let label = line.slice(0, end);
    for (let again = 2; found.has(label); again++) label = `${line.slice(0, end)} (${again})`;
    found.set(label, line.slice(end + 1));
  }
  return found;
}

async function answer(start, folder) {
  const host = await start(folder);
  try {
    return lines(await (await fetch(host.url)).text());
  } finally {
    await host.stop();
  }
}

for (const [name, { classes, known }] of Object.entries(cases)) {
  test(`${name}_answers_what_workerd_answers`, { skip: hasCommand("dev") ? false : "celld dev does not exist yet" }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "celld-parity-"));
    try {
      cpSync(programs, join(folder, "src"), { recursive: true });
      writeFileSync(join(folder, "wrangler.json"), JSON.stringify({
        name: "parity", main: `src/${name}.mjs`, compatibility_date: "2026-11-01",
        ...(classes.length === 0 ? {} : {
          durable_objects: { bindings: classes.map((each) => ({ name: each, class_name: each })) },
          migrations: [{ tag: "v1", new_sqlite_classes: classes }],
        }),
      }));
      const theirs = await answer(startWorkerd, folder);
      const ours = await answer((project) => startCelld(project, { args: ["--no-watch"] }), folder);
      assert.deepEqual([...ours.keys()], [...theirs.keys()]);
      const different = [];
      for (const [label, line] of theirs) {
        if (!(label in known) && ours.get(label) !== line) different.push({ label, workerd: line, celld: ours.get(label) });
      }
      assert.deepEqual(different, []);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
}
