// objects: Bell Silent
import { DurableObject } from "cloudflare:workers";
import { worker } from "../lib/harness.mjs";

export class Bell extends DurableObject {
  constructor(ctx, env) { super(ctx, env); this.instance_rings = 0; }
  async alarm(info) {
    const { storage } = this.ctx;
    const mode = await storage.get("mode");
    const rings = (await storage.get("rings")) ?? [];
    rings.push({
      isRetry: info.isRetry, retryCount: info.retryCount, keys: Object.keys(info), late: Date.now() >= (await storage.get("due")),
      during: await storage.getAlarm(), scheduled: info.scheduledTime >= (await storage.get("due")), running: this.running === true,
    });
    await storage.put("rings", rings);
    this.running = true;
    if (mode === "slow") await scheduler.wait(300);
    this.running = false;
    // A later moment each time: workerd forgets an alarm set for the millisecond of the one that rings.
    if (mode === "again" && rings.length < 3) await this.set(20, "again");
    if (mode === "deletes") await storage.deleteAlarm();
    if (mode === "resets" && rings.length === 1) await storage.setAlarm(Date.now() + 3_600_000);
    if (mode === "fails once" && rings.length === 1) throw new Error("the alarm failed");
    if (mode === "aborts" && rings.length === 1) this.ctx.abort("abort in the alarm");
    if (mode === "deletes all") await storage.deleteAll();
  }
  async set(ms, mode = "plain") {
    const due = Date.now() + ms;
    await this.ctx.storage.put({ due, mode });
    await this.ctx.storage.setAlarm(due);
  }
  async time() { const at = await this.ctx.storage.getAlarm(); return at === null ? null : at - (await this.ctx.storage.get("due")); }
  async rings() { return (await this.ctx.storage.get("rings")) ?? []; }
  async call(name, ...args) { return this.ctx.storage[name](...args); }
  async set_and_throw() { this.ctx.storage.setAlarm(Date.now() + 1e6); throw new Error("thrown"); }
  async in_transaction() {
    const { storage } = this.ctx;
    const seen = [];
    await storage.transaction(async (txn) => { await txn.setAlarm(2.1e12); seen.push(await txn.getAlarm()); txn.rollback(); });
    seen.push(await storage.getAlarm());
    await storage.transaction(async (txn) => { await txn.setAlarm(2e12); });
    seen.push(await storage.getAlarm());
    await storage.transaction(async (txn) => { await txn.deleteAlarm(); throw new Error("x"); }).catch(() => {});
    seen.push(await storage.getAlarm());
    return seen;
  }
  async delete_all(how) {
    const { storage } = this.ctx;
    await storage.setAlarm(2e12);
    await storage.put("a", 1);
    await storage.deleteAll();
    return [await storage.getAlarm(), await storage.get("a")];
  }
}

export class Silent extends DurableObject {
  async set() { await this.ctx.storage.setAlarm(Date.now() + 1000); }
  async get() { return this.ctx.storage.getAlarm(); }
  async remove() { return this.ctx.storage.deleteAlarm(); }
}

async function rung(stub, count) {
  for (let i = 0; i < 200; i++) {
    const rings = await stub.rings();
    if (rings.length >= count) return rings;
    await scheduler.wait(50);
  }
  return [...(await stub.rings()), "gave up"];
}

export default worker({
  async an_alarm_rings({ env, say }) {
    const stub = env.Bell.getByName("a");
    await stub.set(50);
    say("set", await stub.time());
    say("rings", await rung(stub, 1));
    say("gone", await stub.time());
  },
  async an_alarm_in_the_past_rings_at_once({ env, say }) {
    const stub = env.Bell.getByName("b");
    await stub.set(-100_000);
    say("rings", await rung(stub, 1));
  },
  async setAlarm_replaces({ env, say }) {
    const stub = env.Bell.getByName("c");
    await stub.set(3_600_000);
    await stub.set(7_200_000);
    await stub.set(50);
    say("rings", await rung(stub, 1));
    await scheduler.wait(200);
    say("once", (await stub.rings()).length);
    say("gone", await stub.time());
  },
  async deleteAlarm({ env, say }) {
    const stub = env.Bell.getByName("d");
    await stub.set(150);
    say("deleted", await stub.call("deleteAlarm"));
    say("gone", await stub.time());
    await scheduler.wait(400);
    say("rings", await stub.rings());
  },
  async an_alarm_that_sets_itself_again({ env, say }) {
    const stub = env.Bell.getByName("e");
    await stub.set(0, "again");
    say("rings", await rung(stub, 3));
    await scheduler.wait(100);
    say("gone", await stub.time());
  },
  async an_alarm_that_sets_a_later_one({ env, say }) {
    const stub = env.Bell.getByName("f");
    await stub.set(0, "resets");
    say("rings", await rung(stub, 1));
    await scheduler.wait(100);
    say("set", (await stub.time()) > 3_000_000);
  },
  async an_alarm_that_deletes_itself({ env, say }) {
    const stub = env.Bell.getByName("g");
    await stub.set(0, "deletes");
    say("rings", await rung(stub, 1));
    await scheduler.wait(100);
    say("gone", await stub.time());
  },
  async an_alarm_that_fails_is_tried_again({ env, say }) {
    const stub = env.Bell.getByName("h");
    await stub.set(0, "fails once");
    say("rings", await rung(stub, 2));
    await scheduler.wait(100);
    say("gone", await stub.time());
  },
  async an_alarm_that_aborts_is_tried_again({ env, say }) {
    const stub = env.Bell.getByName("i");
    await stub.set(0, "aborts");
    for (let i = 0; i < 100; i++) {
      const rings = await env.Bell.getByName("i").rings().catch(() => []);
      if (rings.length >= 2) break;
      await scheduler.wait(50);
    }
    const rings = await env.Bell.getByName("i").rings();
    say("rings", rings.map((r) => [r.isRetry, r.retryCount]));
  },
  async only_one_alarm_runs_at_a_time({ env, say }) {
    const stub = env.Bell.getByName("j");
    await stub.set(0, "slow");
    await Promise.all(Array.from({ length: 20 }, () => scheduler.wait(Math.random() * 200).then(() => stub.time())));
    say("rings", await rung(stub, 1));
    await scheduler.wait(400);
    say("once", (await stub.rings()).length);
  },
  async an_alarm_that_deletes_all({ env, say }) {
    const stub = env.Bell.getByName("k");
    await stub.set(0, "deletes all");
    for (let i = 0; i < 60 && (await stub.call("get", "mode")) !== undefined; i++) await scheduler.wait(50);
    say("left", [await stub.call("get", "mode"), await stub.call("getAlarm")]);
  },
  async without_a_handler({ env, tries }) {
    const stub = env.Silent.getByName("a");
    await tries("set", () => stub.set());
    await tries("get", () => stub.get());
    await tries("delete", () => stub.remove());
  },
  async set_in_an_event_that_throws({ env, tries }) {
    const stub = env.Bell.getByName("l");
    await tries("throws", () => stub.set_and_throw());
    await tries("set", async () => typeof (await stub.call("getAlarm")));
  },
  async alarms_and_transactions({ env, tries }) { await tries("seen", () => env.Bell.getByName("m").in_transaction()); },
  async alarms_and_deleteAll({ env, tries }) { await tries("left", () => env.Bell.getByName("n").delete_all()); },
  async times_of_every_kind({ env, tries }) {
    const stub = env.Bell.getByName("o");
    for (const at of [2e12, 2e12 + 0.9, new Date(2e12), 0, -5, NaN, Infinity, "2030-01-01", null, undefined, 5n, {}, 8.64e15, 6942000000000, 6942000000001, 7e12, new Date(NaN)]) {
      await tries(`set ${String(at)}`, () => stub.call("setAlarm", at));
      await tries(`get ${String(at)}`, () => stub.call("getAlarm"));
      await stub.call("deleteAlarm");
    }
  },
});
