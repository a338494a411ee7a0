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
  // One for each start: the lease's connections use the same.
  assert.equal(counters.token, 3, JSON.stringify(counters));
});

test("tokens that live for seconds are renewed under way", { skip }, async (t) => {
  const gcs = await startGcs(["--token-seconds=11"]);
  t.after(gcs.stop);
  await countsThroughKillAndWipe(t, "gs://cells", gcs.env);
  assert.ok((await gcs.counters()).token > 3);
});
