// celld on Ceph's S3 server, which wants ETags without quotes; started by tests/servers/rgw.
import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startCelld } from "../lib/celld.mjs";

const counter = new URL("../../../examples/counter", import.meta.url).pathname;
const env = { AWS_ENDPOINT_URL_S3: process.env.CELLD_TEST_S3_ENDPOINT ?? "" };
const bucket = ["--bucket", `s3://${process.env.CELLD_TEST_S3_BUCKET}/node`, "--ttl-ms", "3000"];

async function increment(host, deadline_ms = 30_000) {
  const end = Date.now() + deadline_ms;
  for (;;) {
    const response = await fetch(`${host.url}/?name=a`).catch((error) => error);
    if (response.ok) return (await response.json()).n;
    if (Date.now() > end) assert.fail(`no answer in time: ${response.status ?? response}\n${host.stderr}`);
    await response.arrayBuffer?.();
    await new Promise((done) => setTimeout(done, 50));
  }
}

test("acknowledged writes survive kill -9, the loss of the local files, and a clean stop", async (t) => {
  const host = await startCelld(counter, { args: bucket, env });
  t.after(host.stop);
  for (let n = 1; n <= 20; ++n) assert.equal(await increment(host), n);
  await host.kill("SIGKILL");
  for (const name of readdirSync(host.data)) rmSync(join(host.data, name), { recursive: true });
  await host.restart();
  assert.equal(await increment(host), 21);
  await host.restart("SIGTERM");
  assert.equal(await increment(host), 22);
});
