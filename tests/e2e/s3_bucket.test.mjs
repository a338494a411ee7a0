// celld on an S3 bucket: what was acknowledged is there after kill -9 and without the local files, and a
// store that cannot be trusted is refused by name.
import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { hasCommand, startCelld } from "./lib/celld.mjs";
import { startS3 } from "./lib/s3.mjs";

const counter = new URL("../../examples/counter", import.meta.url).pathname;
const skip = !hasCommand("dev") && "this celld has no `dev`";
const bucket = ["--bucket", "s3://celld/fleets/test"];

async function increment(host, name, deadline_ms = 30_000) {
  const end = Date.now() + deadline_ms;
  for (;;) {
    const response = await fetch(`${host.url}/?name=${name}`).catch((error) => error);
    if (response.ok) return (await response.json()).n;
    // A refusal is retryable while the predecessor's lease runs out.
    if (Date.now() > end) assert.fail(`no answer in time: ${response.status ?? response}\n${host.stderr}`);
    await response.arrayBuffer?.();
    await new Promise((done) => setTimeout(done, 50));
  }
}

async function failedStart(t, s3_args, env = {}) {
  const s3 = await startS3(s3_args);
  t.after(s3.stop);
  try {
    const host = await startCelld(counter, { args: bucket, env: { ...s3.env, ...env } });
    t.after(host.stop);
  } catch (error) {
    return error.message;
  }
  assert.fail("celld started");
}

test("an acknowledged write survives kill -9 and the loss of the local files", { skip }, async (t) => {
  const s3 = await startS3(["--bucket=celld"]);
  t.after(s3.stop);
  const host = await startCelld(counter, { args: [...bucket, "--ttl-ms", "2000"], env: s3.env });
  t.after(host.stop);
  for (let n = 1; n <= 5; ++n) assert.equal(await increment(host, "a"), n);
  assert.equal(await increment(host, "b"), 1);

  await host.kill("SIGKILL");
  for (const name of readdirSync(host.data)) rmSync(join(host.data, name), { recursive: true });
  await host.restart();
  assert.equal(await increment(host, "a"), 6);
  assert.equal(await increment(host, "b"), 2);

  await host.restart("SIGTERM");
  assert.equal(await increment(host, "a"), 7);
});

test("a store that throttles, fails and drops replies loses nothing", { skip }, async (t) => {
  const s3 = await startS3(["--bucket=celld"]);
  t.after(s3.stop);
  const host = await startCelld(counter, { args: bucket, env: s3.env });
  t.after(host.stop);
  assert.equal(await increment(host, "a"), 1);
  // Not the lease: losing that ends the node, which is another test's matter.
  await s3.set({ "fail-after-effect": 3, "error-500": 7, throttle: 11, spare: "/nodes/" });
  let last = 1;
  for (let i = 0; i < 20; ++i) {
    const n = await increment(host, "a");
    assert.ok(n > last, `${n} after ${last}`);
    last = n;
  }
  await s3.set({ "fail-after-effect": 0, "error-500": 0, throttle: 0 });
  await host.restart("SIGTERM");
  assert.equal(await increment(host, "a"), last + 1);
});

// Writes to ten counters at a fixed rate for 20 s, longer than three leases last, whatever the store answers meanwhile.
async function requestsOf(t, per_second, throttling) {
  const s3 = await startS3(["--bucket=celld", "--delay-ms=20"]);
  t.after(s3.stop);
  const host = await startCelld(counter, { args: [...bucket, "--ttl-ms", "6000"], env: s3.env });
  t.after(host.stop);
  for (let i = 0; i < 10; ++i) assert.equal(await increment(host, `n${i}`), 1);
  await s3.set(throttling);
  await s3.reset();
  const writes = [];
  const began = Date.now();
  for (let i = 0; i < 20 * per_second; ++i) {
    writes.push(increment(host, `n${i % 10}`));
    const wait = began + ((i + 1) * 1000) / per_second - Date.now();
    await new Promise((done) => setTimeout(done, wait));
  }
  const { total } = await s3.counters();
  const values = await Promise.all(writes);
  await s3.set({ "slow-down": 0 });
  // The last value of each counter holds all of its writes.
  for (let i = 0; i < 10; ++i) {
    const last = Math.max(...values.filter((_, at) => at % 10 === i));
    assert.equal(await increment(host, `n${i}`), last + 1);
  }
  assert.doesNotMatch(host.stderr, /SELF-FENCE/);
  return total;
}

// 503 SlowDown by chance, leases included; without a Retry-After as Amazon does it, and with one.
test("a store that throttles half of all requests for 20 s sees no more than two for one, and no lease is lost", { skip }, async (t) => {
  const [offered, unsaid, said] = await Promise.all([
    requestsOf(t, 3, {}),
    requestsOf(t, 3, { "slow-down": 0.5, "retry-after": 0 }),
    requestsOf(t, 3, { "slow-down": 0.5, "retry-after": 1 }),
  ]);
  t.diagnostic(`${offered} offered; ${unsaid} seen without Retry-After, ${said} with it`);
  assert.ok(unsaid <= 2 * offered, `${unsaid} requests where ${offered} were offered`);
  assert.ok(said <= 2 * offered, `${said} requests where ${offered} were offered, with Retry-After`);
});

test("a store that ignores conditions is refused at the start", { skip }, async (t) => {
  const message = await failedStart(t, ["--ignore-if-match"]);
  assert.match(message, /s3:\/\/celld\/fleets\/test/);
  assert.match(message, /'reject-stale'/);
});

test("a bucket that does not exist is named", { skip }, async (t) => {
  const message = await failedStart(t, ["--bucket=another"]);
  assert.match(message, /s3:\/\/celld.*NoSuchBucket/);
});

test("wrong and missing keys are named", { skip }, async (t) => {
  assert.match(await failedStart(t, [], { AWS_SECRET_ACCESS_KEY: "wrong" }), /s3:\/\/celld.*SignatureDoesNotMatch/);
  assert.match(await failedStart(t, [], { AWS_ACCESS_KEY_ID: "" }), /s3:\/\/celld.*fleets\/test.*AWS_ACCESS_KEY_ID/);
});
