// What happens to a whole fleet at once, under load: what was acknowledged is there, once, when it is over.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as pass } from "node:timers/promises";
import { until } from "../e2e/lib/celld.mjs";
import { Record, startLoad, verify } from "../e2e/lib/ledger.mjs";
import { FleetClient, TTL_MS, startFleet } from "./lib/fleet.mjs";

const OBJECTS = 30;

async function underLoad(t) {
  const { s3, nodes } = await startFleet(t, 3);
  const record = new Record(OBJECTS);
  const load = startLoad(null, record, { connections: 8, client: new FleetClient(nodes) });
  await until("200 writes", () => load.acked >= 200);
  return { s3, nodes, record, load };
}

async function goesOn(load, what) {
  const before = load.acked;
  await until(`writes are acknowledged ${what}`, () => load.acked > before + 100, 60_000);
}

async function nothingIsLost({ nodes, record, load }) {
  await load.stop();
  await verify(null, record, { client: new FleetClient(nodes) });
}

describe("outages", () => {
  test("a_store_that_fails_for_less_than_a_lease_costs_no_node", async (t) => {
    const fleet = await underLoad(t);
    await fleet.s3.fail("answers_500");
    await pass(TTL_MS / 3);
    await fleet.s3.heal();
    await goesOn(fleet.load, "again");
    for (const node of fleet.nodes) assert.ok(!node.run.ended(), node.stderr);
    await nothingIsLost(fleet);
  });

  test("a_store_that_hangs_for_longer_than_a_lease_ends_all_nodes_and_they_come_back", async (t) => {
    const fleet = await underLoad(t);
    await fleet.s3.fail("hangs");
    for (const node of fleet.nodes) assert.equal((await node.run.exited).code, 3, node.stderr);
    await fleet.s3.heal();
    await Promise.all(fleet.nodes.map((node) => node.start()));
    await goesOn(fleet.load, "again");
    await nothingIsLost(fleet);
  });

  test("nodes_that_are_all_killed_at_once_come_back_with_everything", async (t) => {
    const fleet = await underLoad(t);
    for (const wiped of [false, true]) {
      await Promise.all(fleet.nodes.map((node) => node.kill("SIGKILL")));
      if (wiped) fleet.nodes.forEach((node) => node.wipe());
      await Promise.all(fleet.nodes.map((node) => node.start()));
      await goesOn(fleet.load, wiped ? "on empty disks" : "again");
    }
    await nothingIsLost(fleet);
  });

  test("a_rolling_restart_under_load_loses_nothing", async (t) => {
    const fleet = await underLoad(t);
    for (const node of fleet.nodes) {
      await node.kill("SIGTERM");
      assert.equal((await node.run.exited).code, 0, node.stderr);
      await node.start();
      await goesOn(fleet.load, "with the next one started");
    }
    t.diagnostic(`${fleet.load.acked} acknowledged, ${fleet.load.errors.length} refused`);
    await nothingIsLost(fleet);
  });
});
