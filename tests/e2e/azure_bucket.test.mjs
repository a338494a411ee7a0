// celld on Azure Blob Storage, as Azurite has it: what was acknowledged is there after kill -9 and without the
// local files.
import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { hasCommand, runCelld, scratch, startCelld } from "./lib/celld.mjs";
import { startAzurite } from "./lib/azurite.mjs";

const counter = new URL("../../examples/counter", import.meta.url).pathname;
const skip = !hasCommand("dev") && "this celld has no `dev`";

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

test("on Azure an acknowledged write survives kill -9 and the loss of the local files", { skip }, async (t) => {
  const azurite = await startAzurite();
  t.after(azurite.stop);
  const args = ["--bucket", `${azurite.bucket}/fleets/test`, "--ttl-ms", "2000"];
  const host = await startCelld(counter, { args, env: azurite.env });
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

test("a container that does not exist, a wrong key and a missing account are named", { skip }, async (t) => {
  const azurite = await startAzurite();
  t.after(azurite.stop);
  const failed = async (bucket, env) => {
    const data = ["--listen", "127.0.0.1:0", "--data", join(scratch(), "data")];
    const run = await runCelld(["--bucket", bucket, ...data], { env: { ...azurite.env, ...env } });
    assert.equal(run.code, 1, run.stderr);
    return run.stderr;
  };
  assert.match(await failed("az://not-there", {}), /az:\/\/not-there.*ContainerNotFound/);
  const wrong = azurite.env.AZURE_STORAGE_CONNECTION_STRING.replace(/.*Uri=(.*)$/,
    `AccountName=devstoreaccount1;AccountKey=${Buffer.alloc(64).toString("base64")};BlobEndpoint=$1/devstoreaccount1`);
  assert.match(await failed(azurite.bucket, { AZURE_STORAGE_CONNECTION_STRING: wrong }), /az:\/\/bucket-1.*403/);
  const none = { AZURE_STORAGE_CONNECTION_STRING: "", AZURE_STORAGE_ACCOUNT: "" };
  assert.match(await failed(azurite.bucket, none), /az:\/\/bucket-1.*AZURE_STORAGE_ACCOUNT/);
});
