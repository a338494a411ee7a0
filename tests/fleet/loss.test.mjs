// Nodes of a fleet are killed or frozen under load: what was acknowledged is there, once, on those that are left.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as pass } from "node:timers/promises";
import { sanitized, until } from "../e2e/lib/celld.mjs";
import { forEachParallel } from "../e2e/lib/client.mjs";
import { Record, startLoad, verify } from "../e2e/lib/ledger.mjs";
import { FleetClient, TTL_MS, startFleet } from "./lib/fleet.mjs";

const OBJECTS = 30;
const TAKEOVER_MS_MAX = sanitized ? 30_000 : TTL_MS + 2000;

// Three nodes; the first owns every object, since it was asked first.
async function underLoad(t) {
  const { s3, nodes } = await startFleet(t, 3);
  const record = new Record(OBJECTS);
  const load = startLoad(null, record, { connections: 8, client: new FleetClient(nodes) });
  await until("200 writes", () => load.acked >= 200);
  return { s3, nodes, record, load };
}

async function answersElsewhere(t, nodes, since) {
  const client = new FleetClient(nodes);
  await forEachParallel(OBJECTS, OBJECTS, (i) => client.json("GET", `/o${i}/count`));
  client.close();
  const ms = Date.now() - since;
  t.diagnostic(`all objects answered elsewhere after ${ms} ms`);
  return ms;
}

describe("fleet", () => {
  test("kill_9_of_the_owner_with_its_disk_wiped_loses_nothing", async (t) => {
    const { nodes, record, load } = await underLoad(t);
    const killed = Date.now();
    await nodes[0].kill("SIGKILL");
    nodes[0].wipe();
    const ms = await answersElsewhere(t, nodes.slice(1), killed);
    await load.stop();
    await verify(null, record, { client: new FleetClient(nodes.slice(1)) });
    assert.ok(ms <= TAKEOVER_MS_MAX, `${ms} ms`);
  });

  test("an_owner_that_was_frozen_longer_than_its_lease_ends_and_loses_nothing", async (t) => {
    const { nodes, record, load } = await underLoad(t);
    nodes[0].child.kill("SIGSTOP");
    await pass(TTL_MS);
    await answersElsewhere(t, nodes.slice(1), Date.now());
    nodes[0].child.kill("SIGCONT");
    const { code } = await nodes[0].run.exited;
    assert.equal(code, 3, nodes[0].stderr);
    await load.stop();
    await verify(null, record, { client: new FleetClient(nodes.slice(1)) });
  });
});
