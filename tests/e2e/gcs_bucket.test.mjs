// celld on Google Cloud Storage, as the strict server of tests/servers has it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { hasCommand } from "./lib/celld.mjs";
import { countsThroughKillAndWipe } from "./lib/counter.mjs";
import { startGcs } from "./lib/gcs.mjs";

const skip = !hasCommand("dev") && "this celld has no `dev`";

test("on Google an acknowledged write survives kill -9 and the loss of the local files", { skip }, async (t) => {
  const gcs = await startGcs();
  t.after(gcs.stop);
  await countsThroughKillAndWipe(t, "gs://cells/fleets/test", gcs.env);
  const counters = await gcs.counters();
  // Three starts, each with one pool of connections for data and one for the lease.
  assert.equal(counters.token, 6, JSON.stringify(counters));
});

test("tokens that live for seconds are renewed under way", { skip }, async (t) => {
  const gcs = await startGcs(["--token-seconds=12"]);
  t.after(gcs.stop);
  await countsThroughKillAndWipe(t, "gs://cells", gcs.env);
  assert.ok((await gcs.counters()).token >= 6);
});
