// Load for the project fixtures/ledger, and the judgement of what is there afterwards.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { setTimeout as pass } from "node:timers/promises";
import { Client, forEachParallel } from "./client.mjs";

export const ledgerProject = fileURLToPath(new URL("../fixtures/ledger", import.meta.url));

// What the client knows: tokens are numbered over the life of the record, never reused.
export class Record {
  constructor(objects) {
    this.objects = objects;
    this.next = 1;
    this.acked = Array.from({ length: objects }, () => new Map());    // token -> seq
    this.unknown = Array.from({ length: objects }, () => new Set());  // sent, no answer or an error
    this.ackedTotal = 0;
  }
}

// Appends and reads over `connections` until stop() is called or the other side is gone.
// A `client` is used instead of `url`, and closed. `errors` holds what was answered with something other than 200.
export function startLoad(url, record, { connections = 32, padEvery = 16, readEvery = 8, client = new Client(url, connections) } = {}) {
  const load = { acked: 0, errors: [], broken: [], stopped: false };
  const write = async (object) => {
    const number = record.next++;
    const token = `t${number}`;
    const pad = number % padEvery === 0 ? 1000 + ((number * 7919) % 30_000) : 0;
    record.unknown[object].add(token);
    const { status, body } = await client.send("POST", `/o${object}?token=${token}&pad=${pad}`);
    if (status !== 200) return void load.errors.push(`${status} ${body.slice(0, 200)}`);
    record.unknown[object].delete(token);
    record.acked[object].set(token, JSON.parse(body).seq);
    record.ackedTotal++;
    load.acked++;
  };
  const read = async (object) => {
    // An acknowledged state never goes back.
    const least = Math.max(0, ...record.acked[object].values());
    const { status, body } = await client.send("GET", `/o${object}/count`);
    if (status !== 200) return void load.errors.push(`${status} ${body.slice(0, 200)}`);
    const { n } = JSON.parse(body);
    if (n < least) load.broken.push(`o${object}: read ${n} after ${least} was acknowledged`);
  };
  const loop = async (index) => {
    for (let i = index; !load.stopped; i++) {
      const object = Math.floor(Math.random() * record.objects);
      try {
        await (i % readEvery === 0 ? read(object) : write(object));
      } catch {
        if (load.stopped) return;
        await new Promise((resolve) => setTimeout(resolve, 5));  // refused: the process is on its way out
      }
    }
  };
  const loops = Promise.all(Array.from({ length: connections }, (_, i) => loop(i)));
  load.stop = async () => {
    load.stopped = true;
    await loops;
    client.close();
    assert.deepEqual(load.broken, []);
  };
  return load;
}

// Load until at least `acks` writes were acknowledged and then for a random moment more.
export async function loadUntilSomeMoment(host, record, acks, connections = 32) {
  const load = startLoad(host.url, record, { connections });
  const started = Date.now();
  while (load.acked < acks) {
    assert.ok(!host.run.ended(), `celld ended under load\n${host.stderr}`);
    assert.deepEqual(load.errors, [], host.stderr);
    assert.ok(Date.now() - started < 60_000, `only ${load.acked} writes in a minute\n${host.stderr}`);
    await pass(5);
  }
  await pass(Math.random() * 300);  // not a wait for anything: the kill shall hit any moment
  assert.ok(!host.run.ended(), `celld ended under load\n${host.stderr}`);
  assert.deepEqual(load.errors, [], host.stderr);
  return load;
}

// Every acknowledged token is there where it was acknowledged, none twice, none that was never sent; the rest of each
// object agrees with itself. What was in doubt is decided from now on.
export async function verify(url, record, { connections = 32, client = new Client(url, connections) } = {}) {
  const faults = [];
  await forEachParallel(record.objects, connections, async (object) => {
    const acked = record.acked[object];
    const unknown = record.unknown[object];
    const state = await client.json("GET", `/o${object}`, { ms: 60_000 });
    const fault = (what) => faults.push(`o${object}: ${what}`);
    state.faults.forEach(fault);
    const there = new Set(state.tokens);
    if (there.size !== state.tokens.length) fault("a token is there twice");
    for (const [token, seq] of acked) {
      if (state.tokens[seq - 1] !== token) fault(`${token} was acknowledged as ${seq}, there is ${state.tokens[seq - 1]}`);
    }
    state.tokens.forEach((token, i) => {
      if (acked.has(token)) return;
      if (!unknown.has(token)) fault(`${token} is there, but was never sent`);
      acked.set(token, i + 1);
    });
    unknown.clear();
  });
  client.close();
  assert.ok(faults.length === 0, `${faults.length} faults:\n${faults.slice(0, 10).join("\n")}`);
}
