// When a node may no longer acknowledge it says why and ends; when it may again in time nobody notices.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { join } from "node:path";
import { setTimeout as pass } from "node:timers/promises";
import { Bucket } from "./lib/bucket.mjs";
import { deploy, hasCommand, scratch, startNode, until } from "./lib/celld.mjs";
import { Client, forEachParallel } from "./lib/client.mjs";
import { Record, ledgerProject, startLoad, verify } from "./lib/ledger.mjs";
import { startS3 } from "./lib/s3.mjs";

const skip = hasCommand("deploy") ? false : "celld deploy does not exist yet";
const CODE_SELF_FENCE = 3;

async function nodeUnderLoad(t, env) {
  const folder = scratch();
  const bucket = new Bucket(join(folder, "bucket"));
  await deploy(ledgerProject, bucket.url);
  const host = await startNode({ bucket: bucket.url, data: join(folder, "data"), env });
  t.after(() => host.kill());
  const record = new Record(20);
  const load = startLoad(host.url, record, { connections: 8 });
  await until("100 writes", () => load.acked >= 100);
  const lease = bucket.keys("nodes/")[0];
  return { bucket, host, record, load, lease };
}

async function assertFences(host, reason, withinMs) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`celld runs on after ${withinMs} ms\n${host.stderr}`)), withinMs);
  });
  const { code } = await Promise.race([host.run.exited, late]);
  clearTimeout(timer);
  assert.equal(code, CODE_SELF_FENCE, host.stderr);
  assert.match(host.stderr, new RegExp(`^SELF-FENCE: ${reason}\\b`, "m"));
}

describe("self-fence", { skip }, () => {
  test("a_removed_lease_is_called_missing", async (t) => {
    const { bucket, host, record, load, lease } = await nodeUnderLoad(t, { CELLD_TTL_MS: "3000" });
    bucket.remove(lease);
    await assertFences(host, "missing", 3000);
    await load.stop();
    await host.start();
    await verify(host.url, record);
  });

  test("a_lease_that_another_wrote_is_called_replaced", async (t) => {
    const { bucket, host, record, load, lease } = await nodeUnderLoad(t, { CELLD_TTL_MS: "3000" });
    const body = bucket.json(lease);
    bucket.replace(lease, JSON.stringify({ ...body, seq: (body.seq ?? 0) + 1000 }));
    await assertFences(host, "replaced", 3000);
    await load.stop();
    await host.start();
    await verify(host.url, record);
  });

  test("a_node_that_was_stopped_longer_than_its_lease_acknowledges_nothing_more", async (t) => {
    const ttl = 1500;
    const { bucket, host, record, load } = await nodeUnderLoad(t, { CELLD_TTL_MS: String(ttl) });
    host.run.child.kill("SIGSTOP");
    await pass(ttl + 500);
    const acked = load.acked;
    const second = await startNode({ bucket: bucket.url, data: join(scratch(), "data"), env: { CELLD_TTL_MS: String(ttl) } });
    t.after(() => second.kill());
    const client = new Client(second.url);
    t.after(() => client.close());
    // Taken over, all of them, while the old owner still holds requests.
    await forEachParallel(record.objects, 8, (i) => client.json("GET", `/o${i}/count`));
    host.run.child.kill("SIGCONT");
    await assertFences(host, "(expired|replaced|fenced-journal)", 3000);
    await load.stop();
    assert.equal(load.acked, acked, "the fenced node acknowledged a write");
    await verify(second.url, record);
  });
});

describe("store outage", { skip }, () => {
  const TTL_MS = 4000;

  async function onS3(t) {
    const folder = scratch();
    const s3 = await startS3(["--delay-ms=2"]);
    t.after(() => s3.stop());
    const env = { ...s3.env, CELLD_TTL_MS: String(TTL_MS) };
    await deploy(ledgerProject, "s3://cells/fleet", { env });
    const host = await startNode({ bucket: "s3://cells/fleet", data: join(folder, "data"), env });
    t.after(() => host.kill());
    const record = new Record(20);
    const load = startLoad(host.url, record, { connections: 8 });
    await until("100 writes", () => load.acked >= 100);
    return { s3, host, record, load, folder, env };
  }

  for (const kind of ["hangs", "answers_500", "answers_503", "drops_writes", "loses_the_replies_of_writes"]) {
    test(`of_2_s_in_which_the_store_${kind}_loses_nothing_and_ends_nothing`, async (t) => {
      const { s3, host, record, load, folder, env } = await onS3(t);
      await s3.fail(kind);
      await pass(2000);
      await s3.heal();
      const acked = load.acked;
      await until("100 writes after the outage", () => {
        assert.ok(!host.run.ended(), host.stderr);
        return load.acked >= acked + 100;
      });
      await host.kill("SIGKILL");
      await load.stop();
      const second = await startNode({ bucket: "s3://cells/fleet", data: join(folder, "other"), env });
      t.after(() => second.kill());
      await verify(second.url, record);
    });
  }

  test("longer_than_the_lease_ends_the_node_as_expired_and_loses_nothing", async (t) => {
    const { s3, host, record, load } = await onS3(t);
    await s3.fail("hangs");
    await assertFences(host, "expired", TTL_MS + 3000);
    await s3.heal();
    await load.stop();
    await host.start();
    await verify(host.url, record);
  });
});
