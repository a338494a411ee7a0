// Code that changes the built-ins of its isolate harms what it calls itself, not the runtime: objects
// beside it, there before or activated afterwards, can do everything.
//
// HOSTILE=NAME,NAME runs only these patches, CASE=TEXT only the checks whose name has TEXT in it.
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { hasCommand, scratch, startCelld } from "./lib/celld.mjs";
import { start_origin } from "../parity/lib/origin.mjs";

const skip = hasCommand("dev") ? false : "celld dev does not exist yet";
const fixture = fileURLToPath(new URL("fixtures/hostile", import.meta.url));
const CHECK_MS_MAX = 20_000;

// Each with the checks that cannot work, because the language itself looks at what was changed.
const PATCHES = {
  throw: [],
  corrupt: [],
  deleted: [],
  replaced: [],
  object: [],
  then_is_asked: [],
  // What resolves a promise with an object never comes.
  then_never_comes: ["storage", "transactions", "fetch", "fetch_bodies", "forms", "requests", "streams", "crypto", "rpc", "stubs"],
};

let origin;
before(async () => (origin = await start_origin()));
after(() => origin.close());

for (const [patch, observed] of Object.entries(PATCHES)) {
  if (process.env.HOSTILE && !process.env.HOSTILE.split(",").includes(patch)) continue;
  test(`patch_${patch}_leaves_other_objects_whole`, { skip }, async (t) => {
    const project = join(scratch(), "project");
    cpSync(fixture, project, { recursive: true });
    const host = await startCelld(project, { env: { CELLD_LOOPS: "1" }, args: ["--no-watch"] });
    t.after(() => host.stop());
    const ask = async (object, what, more = {}) => {
      const query = new URLSearchParams({ object, what, origin: origin.url, ...more });
      const response = await fetch(`${host.url}/?${query}`, { signal: AbortSignal.timeout(CHECK_MS_MAX) })
        .catch((error) => new Response(`${error}`));
      return response.text();
    };
    const names = JSON.parse(await ask("attacker", "names"));
    // Unharmed, everything works.
    for (const name of names) assert.equal(await ask("first", name), "ok", name);
    await ask("attacker", "patch", { mode: patch });
    const in_reach = async (prefix) => {
      for (let i = 0; i < 100; i++) if (await ask(`${prefix}${i}`, "state") === patch) return `${prefix}${i}`;
      assert.fail(`no object in the isolate of the attacker: ${await ask(`${prefix}0`, "state")}\n${host.stderr}`);
    };
    const objects = [await ask("first", "state") === patch ? "first" : await in_reach("earlier"), await in_reach("later")];
    for (const name of names) {
      if (process.env.CASE && !name.includes(process.env.CASE)) continue;
      if (observed.includes(name)) continue;
      await t.test(name, async () => {
        for (const object of objects) assert.equal(await ask(object, name), "ok", host.stderr.slice(-2000));
      });
    }
    assert.ok(!host.run.ended(), host.stderr);
  });
}
