// celld diagnose bucket, and the nodes that refuse what it finds broken.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { hasCommand, runCelld, scratch } from "./lib/celld.mjs";
import { Bucket } from "./lib/bucket.mjs";
import { startAzurite } from "./lib/azurite.mjs";
import { startS3 } from "./lib/s3.mjs";

const skip = !hasCommand("diagnose") && "this celld has no `diagnose`";
const steps = ["create", "reject-create", "update", "reject-stale", "read-after-write", "ranged-read",
  "list-after-write", "list-order", "list-after-delete", "racing-creates", "racing-swaps", "large-object", "list",
  "read", "delete"];

function diagnose(bucket, env = {}, more = []) {
  return runCelld(["diagnose", "bucket", "--bucket", bucket, ...more], { env });
}

// step -> ok, BROKEN, FAILED, skipped
function outcomes(stdout) {
  const found = [...stdout.matchAll(/^(ok|BROKEN|FAILED|skipped) +(\S+) /gm)];
  return Object.fromEntries(found.map(([, outcome, step]) => [step, outcome]));
}
const all_ok = Object.fromEntries(steps.map((step) => [step, "ok"]));

test("a directory, S3 and Azurite keep every promise", { skip }, async (t) => {
  const s3 = await startS3(["--bucket=celld"]);
  t.after(s3.stop);
  const azurite = await startAzurite();
  t.after(azurite.stop);
  const dir = new Bucket(join(scratch(), "bucket"));
  for (const [bucket, env] of [[dir.url, {}], ["s3://celld/prefix", s3.env], [azurite.bucket, azurite.env]]) {
    const run = await diagnose(bucket, env);
    assert.deepEqual(outcomes(run.stdout), all_ok, run.stdout + run.stderr);
    assert.equal(run.code, 0);
    assert.match(run.stdout, new RegExp(`^${bucket}: keeps every promise`, "m"));
  }
  assert.deepEqual(dir.keys(), [], "nothing stays");
});

test("what only reads needs no right to write, and says what it did not try", { skip }, async (t) => {
  const s3 = await startS3(["--bucket=celld"]);
  t.after(s3.stop);
  await s3.reset();
  const run = await diagnose("s3://celld", s3.env, ["--read-only"]);
  assert.equal(run.code, 0, run.stdout + run.stderr);
  assert.equal(outcomes(run.stdout).create, "skipped");
  assert.equal(outcomes(run.stdout).list, "ok");
  assert.deepEqual(Object.keys((await s3.counters()).by_class), ["list"]);
});

// The dangerous kind: stores that answer 200 and do something else.
for (const [mode, broken, at_start] of [
  ["--ignore-if-none-match", ["reject-create", "racing-creates"], "reject-create"],
  ["--ignore-if-match", ["reject-stale", "racing-swaps"], "reject-stale"],
  ["--ignore-conditions", ["reject-create", "reject-stale", "racing-creates", "racing-swaps"], "reject-create"],
  ["--stale-list", ["list-after-write", "list-order", "list-after-delete"], "list-after-write"],
  ["--not-implemented", ["create", "racing-creates", "racing-swaps"], "create"],
]) {
  test(`a store with ${mode} is found out, named and refused`, { skip }, async (t) => {
    const s3 = await startS3(["--bucket=celld", mode]);
    t.after(s3.stop);
    const run = await diagnose("s3://celld", s3.env);
    assert.equal(run.code, 1, run.stdout);
    const found = Object.entries(outcomes(run.stdout)).filter(([, outcome]) => outcome === "BROKEN").map(([step]) => step);
    assert.deepEqual(found, broken, run.stdout);
    assert.match(run.stdout, /^s3:\/\/celld: the store does not do what a fleet needs/m);
    const node = await runCelld(["--bucket", "s3://celld", "--listen", "127.0.0.1:0", "--data", join(scratch(), "data")],
      { env: s3.env });
    assert.equal(node.code, 1);
    assert.match(node.stderr, new RegExp(`s3://celld: the store breaks its contract at step '${at_start}'.*what it would mean`));
  });
}

test("nobody there, wrong keys and no bucket end with 1 and a reason", { skip }, async (t) => {
  const s3 = await startS3(["--bucket=celld"]);
  t.after(s3.stop);
  const wrong = await diagnose("s3://celld", { ...s3.env, AWS_SECRET_ACCESS_KEY: "wrong" });
  assert.equal(wrong.code, 1);
  assert.match(wrong.stdout, /^FAILED +create .*SignatureDoesNotMatch/m);
  const nobody = await diagnose("s3://celld", s3.env, ["--endpoint", "http://127.0.0.1:1"]);
  assert.equal(nobody.code, 1);
  assert.match(nobody.stdout, /^FAILED +create .*127\.0\.0\.1:1/m);
  const no_kind = await diagnose("ftp://celld");
  assert.equal(no_kind.code, 2);
});
