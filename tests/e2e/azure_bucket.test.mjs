// celld on Azure Blob Storage, as Azurite has it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { hasCommand, runCelld, scratch } from "./lib/celld.mjs";
import { countsThroughKillAndWipe } from "./lib/counter.mjs";
import { startAzurite } from "./lib/azurite.mjs";

const skip = !hasCommand("dev") && "this celld has no `dev`";

test("on Azure an acknowledged write survives kill -9 and the loss of the local files", { skip }, async (t) => {
  const azurite = await startAzurite();
  t.after(azurite.stop);
  await countsThroughKillAndWipe(t, `${azurite.bucket}/fleets/test`, azurite.env);
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
