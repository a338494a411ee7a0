// The same programs on workerd and on celld give the same answers: ../parity.
//
// PARITY=NAME,NAME runs only these programs, CASE=TEXT only the cases whose name has TEXT in it.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { ask, compare, start_both } from "../parity/lib/compare.mjs";
import { start_origin } from "../parity/lib/origin.mjs";
import { differences } from "../parity/differences.mjs";
import { requests } from "../parity/requests.mjs";

const wanted = process.env.PARITY?.split(",");
const programs = readdirSync(new URL("../parity/programs", import.meta.url))
  .filter((file) => file.endsWith(".mjs")).map((file) => file.slice(0, -4))
  .filter((name) => wanted?.includes(name) ?? true);

let origin;
before(async () => (origin = await start_origin()));
after(() => origin.close());

for (const program of programs) {
  test(program, async (t) => {
    const { workerd, celld, stop } = await start_both(program);
    try {
      const listed = JSON.parse((await ask(workerd.url, { path: "/list" })).body);
      const cases = [...listed.map((name) => ({ name, path: `/${name}` })), ...(requests[program] ?? [])];
      for (const { name, path, ...request } of cases) {
        if (process.env.CASE && !name.includes(process.env.CASE)) continue;
        await t.test(name, async () => {
          request.path = `${path}${path.includes("?") ? "&" : "?"}origin=${encodeURIComponent(origin.url)}`;
          // One after the other, so that they do not disturb each other, unless it is all waiting.
          const asked = ask(workerd.url, request);
          if (!name.endsWith("_seconds")) await asked;
          const ours = await ask(celld.url, request);
          const theirs = await asked;
          const problem = compare(theirs, ours, differences[program]?.[name] ?? {});
          const ended = celld.run.ended();
          if (ended) await celld.start();
          assert.ok(!ended, `celld ended\n${celld.stderr}`);
          if (problem !== "") assert.fail(`\n${problem}`);
        });
      }
      await t.test("ends in good order", async () => {
        const { code, signal } = await celld.kill("SIGTERM");
        assert.equal(code ?? signal, 0, celld.stderr);
      });
    } finally {
      await stop();
    }
  });
}
