// The owner of all objects is cut off, from the bucket or from the other nodes, while it lives.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { sanitized, until } from "../e2e/lib/celld.mjs";
import { Client, forEachParallel } from "../e2e/lib/client.mjs";
import { Record, ledgerProject, startLoad, verify } from "../e2e/lib/ledger.mjs";
import { FleetClient, TTL_MS, startFleet } from "./lib/fleet.mjs";

const OBJECTS = 30;
const TAKEOVER_MS_MAX = sanitized ? 30_000 : TTL_MS + 2000;

describe("cut off", () => {
  test("an_owner_that_is_cut_off_from_the_bucket_ends_itself_and_its_objects_go_on", async (t) => {
    const { nodes } = await startFleet(t, 3, ledgerProject, { proxied: true });
    const record = new Record(OBJECTS);
    const load = startLoad(null, record, { connections: 8, client: new FleetClient(nodes) });
    await until("200 writes", () => load.acked >= 200);
    const since = Date.now();
    nodes[0].store.cut();
    const client = new FleetClient(nodes.slice(1));
    // They forward to the owner as long as it has its lease.
    await until("it has ended", () => nodes[0].run.ended());
    const ended = Date.now() - since;
    await forEachParallel(OBJECTS, OBJECTS, (i) => client.json("GET", `/o${i}/count`));
    const ms = Date.now() - since;
    t.diagnostic(`it ended after ${ended} ms, all objects answered elsewhere after ${ms} ms`);
    assert.equal((await nodes[0].run.exited).code, 3);
    assert.match(nodes[0].stderr, /SELF-FENCE: expired/);
    assert.ok(ms <= TAKEOVER_MS_MAX, `${ms} ms`);
    client.close();
    await load.stop();
    await verify(null, record, { client: new FleetClient(nodes.slice(1)) });
  });

  test("an_owner_that_is_cut_off_from_its_peers_keeps_its_objects", async (t) => {
    const { nodes } = await startFleet(t, 2, ledgerProject, { proxied: true });
    const [owner, other] = nodes.map(({ url }) => new Client(url));
    t.after(() => [owner, other].forEach((client) => client.close()));
    await owner.json("POST", "/o1?token=a");
    assert.equal((await other.json("POST", "/o1?token=b")).seq, 2);
    nodes[0].peers.cut();
    // What is under way may have run; nothing more is sent there, and nothing is taken from a node that lives.
    const cut = other.send("POST", "/o1?token=c", { ms: 60_000 });
    await until("the owner is known to be silent", async () => (await owner.json("GET", "/o1/count")).n === 2);
    const waiting = other.send("GET", "/o1/count", { ms: 60_000 });
    nodes[0].peers.heal();
    for (const { status, body } of [await cut, await waiting]) assert.ok(status === 200 || status === 503, `${status} ${body}`);
    const { tokens, faults } = await owner.json("GET", "/o1");
    assert.deepEqual(faults, []);
    assert.equal(new Set(tokens).size, tokens.length);
    assert.deepEqual(tokens.slice(0, 2), ["a", "b"]);
    await until("the other node reaches it again", async () => (await other.send("POST", "/o1?token=d")).status === 200);
    for (const node of nodes) assert.ok(!node.run.ended(), node.stderr);
  });
});
