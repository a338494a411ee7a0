// SIGTERM finishes what runs, makes everything durable and hands every cell back.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pass } from "node:timers/promises";
import { Bucket } from "./lib/bucket.mjs";
import { deploy, freePort, hasCommand, scratch, startNode } from "./lib/celld.mjs";
import { Client } from "./lib/client.mjs";
import { Record, ledgerProject, loadUntilSomeMoment, verify } from "./lib/ledger.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("deploy") ? false : "celld deploy does not exist yet";
const OBJECTS = 200;

describe("sigterm", { skip }, () => {
  test("under_load_it_exits_0_within_10_s_and_hands_every_cell_back", async (t) => {
    const folder = scratch();
    const bucket = new Bucket(join(folder, "bucket"));
    await deploy(ledgerProject, bucket.url);
    const record = new Record(OBJECTS);
    const data = join(folder, "data");
    // A lease this long shows that nobody waits for it.
    const env = { CELLD_TTL_MS: "60000" };
    const port = await freePort();
    for (let round = 0; round < 3; round++) {
      const host = await startNode({ bucket: bucket.url, data, env, port });
      t.after(() => host.kill());
      const started = Date.now();
      await verify(host.url, record);
      assert.ok(Date.now() - started < 10_000, "the restart waited for the lease");
      const load = await loadUntilSomeMoment(host, record, 400);
      const asked = Date.now();
      const { code, signal } = await host.kill("SIGTERM");
      const took = Date.now() - asked;
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, host.stderr);
      assert.ok(took < 10_000, `the end took ${took} ms`);
      t.diagnostic(`ended in ${took} ms`);
      await load.stop();
      // While it ends it may refuse, but never with a failure of its own making.
      assert.deepEqual(load.errors.filter((e) => !e.startsWith("503")), []);
      const owners = bucket.keys("cells/").filter((key) => key.endsWith("/own.json")).map((key) => bucket.json(key));
      assert.equal(owners.length, OBJECTS);
      assert.deepEqual(owners.filter((own) => own.node !== ""), []);
      rmSync(data, { recursive: true });
    }
    const host = await startNode({ bucket: bucket.url, data, env, port });
    t.after(() => host.kill());
    await verify(host.url, record);
  });

  test("a_request_that_runs_is_finished_first", async (t) => {
    const folder = scratch();
    const project = makeProject(join(folder, "project"), objectProject(`
      async fetch() {
        await new Promise((resolve) => setTimeout(resolve, 1500));
        this.ctx.storage.kv.put("done", true);
        return new Response("finished");
      }`));
    const bucket = `file://${join(folder, "bucket")}`;
    await deploy(project, bucket);
    const host = await startNode({ bucket, data: join(folder, "data") });
    t.after(() => host.kill());
    const client = new Client(host.url);
    t.after(() => client.close());
    const answer = client.send("GET", "/a");
    await pass(300);
    const exited = host.kill("SIGTERM");
    assert.deepEqual((await answer).body, "finished");
    assert.deepEqual(await exited, { code: 0, signal: null });
  });

  test("two_nodes_in_turn_on_one_bucket_see_each_others_writes", async (t) => {
    const folder = scratch();
    const bucket = `file://${join(folder, "bucket")}`;
    await deploy(ledgerProject, bucket);
    const record = new Record(40);
    for (let turn = 0; turn < 4; turn++) {
      const host = await startNode({ bucket, data: join(folder, `data${turn % 2}`) });
      t.after(() => host.kill());
      await verify(host.url, record);
      const load = await loadUntilSomeMoment(host, record, 200);
      await load.stop();
      const { code } = await host.kill("SIGTERM");
      assert.equal(code, 0, host.stderr);
    }
  });
});
