// Faults that other systems of this kind had, each with the symptom that was reported in its name.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { deploy, hasCommand, sanitized, scratch, startNode, until } from "./lib/celld.mjs";
import { Client, forEachParallel } from "./lib/client.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("deploy") ? false : "celld deploy does not exist yet";

const project = objectProject(`
  memory = 0;
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY, v TEXT CHECK (v != 'bad'), pad BLOB)");
    this.sql.exec("CREATE INDEX IF NOT EXISTS rows_by_v ON rows (v)");
  }
  add(n, bytes) {
    this.sql.exec("INSERT INTO rows VALUES (?, ?, randomblob(?))", n, "v" + n, bytes);
  }
  async fetch(request) {
    const url = new URL(request.url);
    const what = url.pathname.split("/")[2];
    const n = Number(url.searchParams.get("n"));
    const bytes = Number(url.searchParams.get("bytes") ?? 10);
    this.memory++;
    if (what === "add") this.add(n, bytes);
    if (what === "fail") {
      try {
        this.ctx.storage.transactionSync(() => {
          for (let i = 0; i < 1000; i++) this.sql.exec("INSERT INTO rows VALUES (?, ?, NULL)", n + i, i === 998 ? "bad" : "v");
        });
      } catch (error) {
        return new Response(error.message, { status: 409 });
      }
    }
    if (what === "delete") this.sql.exec("DELETE FROM rows WHERE n < ?", n);
    if (what === "deleteAll") {
      await this.ctx.storage.deleteAll();
      this.sql.exec("CREATE TABLE rows (n INTEGER PRIMARY KEY, v TEXT, pad BLOB)");
    }
    if (what === "abort") {
      this.add(n, bytes);
      const synced = this.ctx.storage.sync();
      this.ctx.abort("aborted while it syncs");
      await synced;
    }
    if (what === "drop_and_grow") {
      for (let round = 0; round < 3; round++) {
        this.sql.exec("CREATE TABLE big (x BLOB)");
        for (let i = 0; i < 50; i++) this.sql.exec("INSERT INTO big VALUES (randomblob(20000))");
        this.sql.exec("DROP TABLE big");
      }
      this.add(n, bytes);
    }
    const [check] = this.sql.exec("PRAGMA quick_check").raw().toArray().flat();
    const rows = this.sql.exec("SELECT n, length(pad) AS bytes FROM rows ORDER BY n").toArray();
    const hash = this.sql.exec("SELECT group_concat(hex(substr(pad, 1, 8)), '') AS h FROM (SELECT pad FROM rows ORDER BY n)").one().h;
    return Response.json({ check, rows: rows.map((r) => r.n), bytes: rows.reduce((sum, r) => sum + r.bytes, 0), hash, memory: this.memory });
  }`);

async function node(t, env = {}) {
  const folder = scratch();
  const bucket = `file://${join(folder, "bucket")}`;
  await deploy(makeProject(join(folder, "project"), project), bucket);
  const data = join(folder, "data");
  const host = await startNode({ bucket, data, env: { CELLD_TTL_MS: "1500", ...env } });
  t.after(() => host.kill());
  const client = new Client(host.url);
  t.after(() => client.close());
  const get = (path) => client.json("GET", path, { ms: 60_000 }).catch((error) => {
    throw new Error(`${error.message}\n${host.stderr.slice(-4000)}`);
  });
  const die = async (signal = "SIGKILL") => {
    await host.kill(signal);
    rmSync(data, { recursive: true });
    await host.start();
  };
  return { host, client, get, die };
}

const upTo = (count) => Array.from({ length: count }, (_, i) => i);
const without = ({ memory, ...state }) => state;

describe("storage reports", { skip, concurrency: 2 }, () => {
  test("many_large_transactions_in_one_journal_slot_drop_no_page", async (t) => {
    const { get, die } = await node(t);
    const count = sanitized ? 40 : 200;
    const bytes = 250_000;
    await forEachParallel(count, 8, (i) => get(`/a/add?n=${i}&bytes=${bytes}`));
    const before = await get("/a");
    await die();
    const after = await get("/a");
    assert.equal(after.check, "ok");
    assert.deepEqual(after.rows, upTo(count));
    assert.equal(after.bytes, count * bytes);
    assert.equal(after.hash, before.hash);
  });

  test("an_object_that_was_evicted_and_woken_keeps_what_it_wrote_before_and_after", async (t) => {
    const { get, die } = await node(t, { CELLD_IDLE_EVICT_MS: "50" });
    let n = 0;
    for (let life = 0; life < 3; life++) {
      for (let i = 0; i < 20; i++) await get(`/a/add?n=${n++}`);
      await until("it was evicted", async () => {
        await new Promise((resolve) => setTimeout(resolve, 600));
        return (await get("/a")).memory === 1;
      });
      for (let i = 0; i < 3; i++) await get(`/a/add?n=${n++}`);
      await die(life === 1 ? "SIGTERM" : "SIGKILL");
      const { check, rows } = await get("/a");
      assert.equal(check, "ok");
      assert.deepEqual(rows, upTo(n));
    }
  });

  test("after_a_restore_the_next_write_is_restored_too", async (t) => {
    const { get, die } = await node(t);
    for (let n = 0; n < 5; n++) {
      await get(`/a/add?n=${n}`);
      await die(n % 2 ? "SIGTERM" : "SIGKILL");
      assert.deepEqual((await get("/a")).rows, upTo(n + 1));
    }
  });

  test("a_constraint_that_rolls_a_large_transaction_back_leaves_nothing_behind", async (t) => {
    const { client, get, die } = await node(t);
    await get("/a/add?n=0");
    for (let i = 1; i <= 5; i++) {
      const { status, body } = await client.send("GET", `/a/fail?n=${i * 10_000}`);
      assert.equal(status, 409, body);
      assert.match(body, /CHECK constraint failed/);
      await get(`/a/add?n=${i}`);
    }
    const before = await get("/a");
    await die();
    assert.deepEqual(without(await get("/a")), without(before));
    assert.deepEqual(before.rows, upTo(6));
  });

  test("a_database_that_shrinks_and_grows_is_restored_as_it_was", async (t) => {
    const { get, die } = await node(t);
    for (let n = 0; n < 40; n++) await get(`/a/add?n=${n}&bytes=20000`);
    await get("/a/delete?n=35");
    await get("/a/drop_and_grow?n=100");
    await get("/a/delete?n=38");
    const before = await get("/a");
    assert.deepEqual(before.rows, [38, 39, 100]);
    await die();
    assert.deepEqual(without(await get("/a")), without(before));
    await get("/a/deleteAll");
    await get("/a/add?n=7");
    await die();
    const after = await get("/a");
    assert.deepEqual(after.rows, [7]);
    assert.equal(after.check, "ok");
  });

  test("an_abort_with_a_pending_sync_resets_the_object_and_keeps_what_was_acknowledged", async (t) => {
    const { client, get, die } = await node(t);
    await get("/a/add?n=0");
    const { status } = await client.send("GET", "/a/abort?n=1");
    assert.ok(status >= 500, `status ${status}`);
    const { rows, memory } = await get("/a");
    assert.equal(memory, 1);
    assert.ok(rows[0] === 0 && rows.length <= 2, `rows ${rows}`);
    await die();
    assert.deepEqual((await get("/a")).rows, rows);
  });

  test("a_long_history_of_one_object_is_restored_quickly_and_whole", async (t) => {
    const { host, get, die } = await node(t);
    const count = sanitized ? 600 : 3000;
    await forEachParallel(count, 16, (i) => get(`/a/add?n=${i}`));
    await die();
    const started = Date.now();
    const { check, rows } = await get("/a");
    t.diagnostic(`restored ${count} writes in ${Date.now() - started} ms, lease of the dead included`);
    assert.equal(check, "ok");
    assert.deepEqual(rows, upTo(count));
    assert.ok(!host.run.ended());
  });
});
