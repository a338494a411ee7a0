// The counter of examples/counter on a bucket: what was acknowledged is there after kill -9 and without the local
// files.
import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { startCelld } from "./celld.mjs";

const counter = new URL("../../../examples/counter", import.meta.url).pathname;

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

export async function countsThroughKillAndWipe(t, bucket, env) {
  const host = await startCelld(counter, { args: ["--bucket", bucket, "--ttl-ms", "2000"], env });
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
}
