// .dev.vars and --var: stronger than vars while developing, and never in the bucket (TOOL-06).
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { startCelld } from "./lib/celld.mjs";

function holds(folder, text) {
  return readdirSync(folder, { withFileTypes: true }).some((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? holds(path, text) : entry.isFile() && readFileSync(path).includes(text);
  });
}

test(".dev.vars override vars, follow their file, and stay out of the bucket", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "celld-vars-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const config = {
    name: "vars",
    main: "index.js",
    compatibility_date: "2026-01-01",
    vars: { A: "from-config", B: "from-config", C: { deep: 1 } },
  };
  writeFileSync(join(folder, "wrangler.json"), JSON.stringify(config));
  writeFileSync(join(folder, "index.js"), "export default { fetch: (request, env) => Response.json(env) };");
  writeFileSync(join(folder, ".dev.vars"), "A=hidden-one\nB=hidden-two # comment\n");

  const celld = await startCelld(folder, { args: ["--var", "B:from:option"] });
  t.after(() => celld.stop());
  const vars = () => fetch(celld.url).then((r) => r.json());
  assert.deepEqual(await vars(), { A: "hidden-one", B: "from:option", C: { deep: 1 } });

  writeFileSync(join(folder, ".dev.vars"), "A=hidden-three\n");
  for (const started = Date.now(); (await vars()).A !== "hidden-three"; await sleep(20)) {
    assert.ok(Date.now() - started < 20_000, "the change was not taken over");
  }
  assert.ok(holds(celld.data, "from-config"), "the search finds what is there");
  assert.ok(!holds(celld.data, "hidden-"), "a secret reached the bucket");
  assert.ok(!holds(celld.data, "from:option"), "a secret reached the bucket");
});
