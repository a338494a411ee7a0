// Objects leave memory and come back; only what they stored comes back with them.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { join } from "node:path";
import { hasCommand, scratch, startCelld, until } from "./lib/celld.mjs";
import { Client, forEachParallel } from "./lib/client.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("dev") ? false : "celld dev does not exist yet";

const project = objectProject(`
  memory = 0;
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS rows (n INTEGER)");
  }
  async fetch(request) {
    const what = new URL(request.url).pathname.split("/")[2];
    if (what === "write") this.ctx.storage.sql.exec("INSERT INTO rows VALUES (1)");
    if (what === "abort") this.ctx.abort("on request");
    if (what === "block") await this.ctx.blockConcurrencyWhile(() => new Promise((resolve) => setTimeout(resolve, 31_000)));
    if (what === "throw") await this.ctx.blockConcurrencyWhile(() => { throw new Error("in the block") });
    if (what === "hold") await new Promise((resolve) => setTimeout(resolve, 1500));
    return Response.json({ memory: ++this.memory, rows: this.ctx.storage.sql.exec("SELECT count(*) AS n FROM rows").one().n });
  }`);

async function start(t, env = {}) {
  const host = await startCelld(makeProject(join(scratch(), "project"), project), { env, args: ["--no-watch"] });
  t.after(() => host.stop());
  const client = new Client(host.url, 64);
  t.after(() => client.close());
  return { host, client, get: (path) => client.json("GET", path) };
}

describe("eviction", { skip, concurrency: 4 }, () => {
  test("an_idle_object_leaves_memory_and_its_storage_is_the_same_afterwards", async (t) => {
    const { get } = await start(t, { CELLD_IDLE_EVICT_MS: "200" });
    for (let n = 1; n <= 3; n++) assert.deepEqual(await get("/a/write"), { memory: n, rows: n });
    let gaps = 100;
    // Every question keeps it awake, so each one waits longer than the one before.
    const state = await until("it left memory", async () => {
      await new Promise((resolve) => setTimeout(resolve, (gaps += 400)));
      const answer = await get("/a");
      assert.equal(answer.rows, 3);
      return answer.memory === 1 && answer;
    });
    assert.deepEqual(state, { memory: 1, rows: 3 });
  });

  test("an_object_at_work_is_not_evicted", async (t) => {
    const { get } = await start(t, { CELLD_IDLE_EVICT_MS: "200" });
    await get("/a");
    assert.equal((await get("/a/hold")).memory, 2);
  });

  test("many_objects_written_evicted_and_woken_in_turn_keep_every_row", async (t) => {
    const { get } = await start(t, { CELLD_IDLE_EVICT_MS: "50" });
    const rows = new Array(30).fill(0);
    let woken = 0;
    for (let round = 0; round < 6; round++) {
      await forEachParallel(rows.length, 16, async (i) => {
        const answer = await get(`/o${i}/write`);
        assert.equal(answer.rows, ++rows[i]);
        if (round > 0 && answer.memory === 1) woken++;
      });
      // Idle times differ from round to round, so that wakes meet every stage of leaving.
      await new Promise((resolve) => setTimeout(resolve, round * 150));
    }
    assert.ok(woken > 0, "nothing was ever evicted");
    t.diagnostic(`${woken} wakes`);
  });

  test("an_aborted_object_comes_back_with_what_was_acknowledged", async (t) => {
    const { client, get } = await start(t);
    assert.deepEqual(await get("/a/write"), { memory: 1, rows: 1 });
    const { status, body } = await client.send("GET", "/a/abort");
    assert.equal(status, 500);
    assert.match(body, /on request/);
    assert.deepEqual(await get("/a"), { memory: 1, rows: 1 });
  });

  test("a_throw_inside_blockConcurrencyWhile_resets_the_object", async (t) => {
    const { client, get } = await start(t);
    await get("/a/write");
    const { status, body } = await client.send("GET", "/a/throw");
    assert.equal(status, 500);
    assert.match(body, /in the block/);
    assert.deepEqual(await get("/a"), { memory: 1, rows: 1 });
  });

  test("blockConcurrencyWhile_over_30_s_resets_the_object_with_the_message_of_cloudflare", async (t) => {
    const { client, get } = await start(t);
    await get("/a/write");
    const blocked = client.send("GET", "/a/block", { ms: 45_000 });
    const behind = client.send("GET", "/a", { ms: 45_000 });
    const { status, body } = await blocked;
    assert.equal(status, 503);
    assert.match(body, /A call to blockConcurrencyWhile\(\) in a Durable Object waited for too long\. The call was canceled and the Durable Object was reset\./);
    assert.ok((await behind).status >= 500 || (await behind).status === 200);
    assert.deepEqual((await get("/a")).rows, 1);
  });
});
