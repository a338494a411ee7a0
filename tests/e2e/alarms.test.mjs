// Alarms fire at least once, never early, one at a time, over every kind of restart.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { rmSync, writeFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { deploy, hasCommand, scratch, startCelld, startNode, until } from "./lib/celld.mjs";
import { Client } from "./lib/client.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("deploy") ? false : "celld deploy does not exist yet";

// GET /NAME/log -> [{due, at, retry}] of the runs of alarm(); /NAME/set?in=MS&mode=MODE arms it.
const project = objectProject(`
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS runs (at INTEGER, until INTEGER, due INTEGER, retry INTEGER, seen INTEGER)");
    this.kv = ctx.storage.kv;
  }
  async alarm(info) {
    const at = Date.now();
    const mode = this.kv.get("mode");
    const seen = await this.ctx.storage.getAlarm();
    if (mode === "slow") await new Promise((resolve) => setTimeout(resolve, 1500));
    this.ctx.storage.sql.exec("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", at, Date.now(), this.kv.get("due") ?? null, info?.retryCount ?? null, seen);
    const runs = this.ctx.storage.sql.exec("SELECT count(*) AS n FROM runs").one().n;
    if (mode === "repeat") await this.arm(1000);
    if (mode === "now" && runs < 5) await this.arm(0);
    if (mode === "fails_once_in_memory" && !this.failed) {
      this.failed = true;
      await this.ctx.storage.sync();
      throw new Error("the handler fails for once");
    }
  }
  async arm(ms) {
    const due = Date.now() + ms;
    this.kv.put("due", due);
    await this.ctx.storage.setAlarm(due);
    return due;
  }
  async fetch(request) {
    const url = new URL(request.url);
    const what = url.pathname.split("/")[2];
    if (what === "set") {
      this.kv.put("mode", url.searchParams.get("mode"));
      return Response.json(await this.arm(Number(url.searchParams.get("in"))));
    }
    if (what === "get") return Response.json(await this.ctx.storage.getAlarm());
    if (what === "delete") return Response.json((await this.ctx.storage.deleteAlarm()) ?? null);
    if (what === "move") {
      const t = Date.now() + 900;
      for (const due of [t, t + 60_000, t]) await this.ctx.storage.setAlarm(due);
      this.kv.put("due", t);
      return Response.json(t);
    }
    return Response.json(this.ctx.storage.sql.exec("SELECT * FROM runs ORDER BY at").toArray());
  }`);

async function onNode(t, env = {}) {
  const folder = scratch();
  const bucket = `file://${join(folder, "bucket")}`;
  await deploy(makeProject(join(folder, "project"), project), bucket);
  const data = join(folder, "data");
  const host = await startNode({ bucket, data, env: { CELLD_TTL_MS: "1500", ...env } });
  t.after(() => host.kill());
  const client = new Client(host.url);
  t.after(() => client.close());
  const get = (path) => client.json("GET", path);
  return { host, data, get, runs: (name) => get(`/${name}/log`) };
}

describe("alarms", { skip, concurrency: 4 }, () => {
  test("an_alarm_fires_on_time_and_is_gone_while_it_runs", async (t) => {
    const { get, runs } = await onNode(t);
    const due = await get("/a/set?in=400");
    assert.equal(await get("/a/get"), due);
    const [run] = await until("the alarm", async () => (await runs("a")).length && runs("a"));
    assert.ok(run.at >= due, `${due - run.at} ms early`);
    assert.ok(run.at < due + 1000, `${run.at - due} ms late`);
    assert.equal(run.seen, null);
    assert.equal(run.retry, 0);
    assert.equal(await get("/a/get"), null);
    await get("/b/set?in=300");
    await get("/b/delete");
    await get("/c/set?in=900");
    await until("the later alarm", async () => (await runs("c")).length === 1);
    assert.deepEqual(await runs("b"), [], "a deleted alarm fired");
    assert.equal((await runs("a")).length, 1);
  });

  test("an_alarm_set_before_a_kill_and_a_wiped_disk_fires_without_anybody_asking", async (t) => {
    const { host, data, get, runs } = await onNode(t);
    const due = await get("/a/set?in=600");
    const later = await get("/b/set?in=4500");
    await host.kill("SIGKILL");
    rmSync(data, { recursive: true });
    await host.start();
    // The first run of the later object is what proves that nobody woke it by asking.
    await until("both are over", async () => Date.now() > later + 1000, 10_000, 100);
    const [a] = await runs("a");
    const [b] = await runs("b");
    assert.ok(a && a.at >= due, `a ran at ${a?.at}, due ${due}`);
    assert.ok(b && b.at >= later && b.at < later + 1000, `b ran at ${b?.at}, due ${later}`);
    assert.equal((await runs("a")).length, 1);
    assert.equal((await runs("b")).length, 1);
  });

  test("an_alarm_of_a_released_object_fires_after_a_clean_restart", async (t) => {
    const { host, data, get, runs } = await onNode(t);
    const due = await get("/a/set?in=2500");
    assert.equal((await host.kill("SIGTERM")).code, 0, host.stderr);
    rmSync(data, { recursive: true });
    await host.start();
    await until("it is over", async () => Date.now() > due + 1500, 10_000, 100);
    const all = await runs("a");
    assert.equal(all.length, 1);
    assert.ok(all[0].at >= due && all[0].at < due + 1500, `ran ${all[0].at - due} ms after its time`);
  });

  test("an_alarm_of_an_evicted_object_wakes_it", async (t) => {
    const { get, runs } = await onNode(t, { CELLD_IDLE_EVICT_MS: "100" });
    const due = await get("/a/set?in=2000");
    await until("it is over", async () => Date.now() > due + 700, 10_000, 100);
    const [run] = await runs("a");
    assert.ok(run && run.at >= due && run.at < due + 700, `ran at ${run?.at}, due ${due}`);
  });

  test("a_failed_handler_is_tried_again_after_about_2_s", async (t) => {
    const { get, runs } = await onNode(t);
    await get("/a/set?in=100&mode=fails_once_in_memory");
    const [first, second] = await until("two runs", async () => (await runs("a")).length >= 2 && runs("a"), 10_000);
    assert.equal(first.retry, 0);
    assert.equal(second.retry, 1);
    const pause = second.at - first.at;
    assert.ok(pause >= 1500 && pause < 4000, `the second try came after ${pause} ms`);
  });

  test("setAlarm_now_inside_the_handler_fires_again_at_once", async (t) => {
    const { get, runs } = await onNode(t);
    await get("/a/set?in=0&mode=now");
    const all = await until("five runs", async () => (await runs("a")).length >= 5 && runs("a"), 8000);
    assert.ok(all[4].at - all[0].at < 4000, `five runs took ${all[4].at - all[0].at} ms`);
    assert.equal(await get("/a/get"), null);
  });

  test("at_most_one_handler_runs_at_a_time_however_often_the_alarm_is_set", async (t) => {
    const { get, runs } = await onNode(t);
    await get("/a/set?in=0&mode=slow");
    for (let i = 0; i < 20; i++) {
      await get("/a/get");
      await get("/a/set?in=0&mode=slow");
    }
    const all = await until("it is quiet", async () => (await get("/a/get")) === null && (await runs("a")).length >= 2 && runs("a"));
    all.sort((x, y) => x.at - y.at);
    for (let i = 1; i < all.length; i++) assert.ok(all[i].at >= all[i - 1].until, `run ${i} began before the one before had ended`);
    assert.ok(all.length <= 4, `${all.length} runs`);
  });

  test("an_alarm_moved_away_and_back_before_a_kill_fires_once", async (t) => {
    const { host, data, get, runs } = await onNode(t);
    const due = await get("/a/move");
    await host.kill("SIGKILL");
    rmSync(data, { recursive: true });
    await host.start();
    await until("it ran", async () => Date.now() > due + 3500, 10_000, 100);
    const all = await runs("a");
    assert.equal(all.length, 1, JSON.stringify(all));
    assert.ok(all[0].at >= due);
  });

  test("a_repeating_alarm_goes_on_through_a_reload_and_a_restart_of_dev", async (t) => {
    const folder = makeProject(join(scratch(), "project"), project);
    const host = await startCelld(folder);
    t.after(() => host.stop());
    const client = new Client(host.url);
    t.after(() => client.close());
    const runs = async () => client.json("GET", "/a/log");
    await client.json("GET", "/a/set?in=300&mode=repeat");
    await until("it repeats", async () => (await runs()).length >= 2);
    const source = join(folder, "src/index.js");
    writeFileSync(source, `${readFileSync(source, "utf8")}\n// changed\n`);
    const before = (await runs()).length;
    await until("it repeats after the reload", async () => (await runs()).length >= before + 3);
    await host.restart("SIGKILL");
    const again = (await runs()).length;
    await until("it repeats after the restart", async () => (await runs()).length >= again + 2);
    const all = await runs();
    for (const { at, due } of all) assert.ok(at >= due, "early");
    const gaps = all.slice(1).map((run, i) => run.at - all[i].at);
    assert.ok(Math.min(...gaps) >= 990, `fired twice within ${Math.min(...gaps)} ms`);
  });
});
