// objects: Busy Slow Aborts Starts Inner
import { DurableObject } from "cloudflare:workers";
import { object, worker } from "../lib/harness.mjs";

// Notes what happens in it, in order.
export class Busy extends DurableObject {
  log = [];
  note(text) { this.log.push(text); }
  take() { return this.log.splice(0); }
  async waits(name, ms) { this.note(`${name} in`); await scheduler.wait(ms); this.note(`${name} out`); return name; }
  async blocks(name, ms) {
    this.note(`${name} in`);
    const result = await this.ctx.blockConcurrencyWhile(async () => {
      this.note(`${name} blocks`);
      await scheduler.wait(ms);
      this.note(`${name} unblocks`);
      return `${name} result`;
    });
    this.note(`${name} out`);
    return result;
  }
  async stores(name) {
    this.note(`${name} in`);
    await this.ctx.storage.put(name, 1);
    this.note(`${name} put`);
    await this.ctx.storage.get(name);
    this.note(`${name} out`);
    return name;
  }
  async increments() {
    const n = (await this.ctx.storage.get("n")) ?? 0;
    await this.ctx.storage.put("n", n + 1);
    return n + 1;
  }
  async fetches(name, target) {
    this.note(`${name} in`);
    await this.env.Busy.getByName(target).waits("remote", 20);
    this.note(`${name} out`);
  }
  async blocks_twice() {
    const log = [];
    const one = this.ctx.blockConcurrencyWhile(async () => { log.push("one in"); await scheduler.wait(10); log.push("one out"); });
    log.push("between");
    const two = this.ctx.blockConcurrencyWhile(async () => { log.push("two in"); await scheduler.wait(1); log.push("two out"); });
    log.push("after");
    await Promise.all([one, two]);
    return log;
  }
  async blocks_nested() {
    const log = [];
    await this.ctx.blockConcurrencyWhile(async () => {
      log.push("outer in");
      await this.ctx.blockConcurrencyWhile(async () => { log.push("inner in"); await scheduler.wait(5); log.push("inner out"); });
      log.push("outer out");
    });
    return log;
  }
  async blocks_synchronously() {
    const log = [];
    const p = this.ctx.blockConcurrencyWhile(() => { log.push("callback"); return 5; });
    log.push("returned");
    log.push(await p);
    return log;
  }
  async timer_while_blocked() {
    const log = [];
    setTimeout(() => log.push("timer"), 1);
    await this.ctx.blockConcurrencyWhile(async () => { log.push("blocked"); await scheduler.wait(30); log.push("unblocked"); });
    await scheduler.wait(5);
    return log;
  }
  async block_fails() {
    await this.ctx.blockConcurrencyWhile(async () => { await this.ctx.storage.put("lost", 1); throw new TypeError("inside the block"); });
  }
  async block_fails_caught() {
    try {
      await this.ctx.blockConcurrencyWhile(async () => { throw new TypeError("inside the block"); });
    } catch (error) {
      return `caught ${error}`;
    }
  }
  async blocks_for_long() { await this.ctx.blockConcurrencyWhile(() => scheduler.wait(31_000)); }
  async get(key) { return this.ctx.storage.get(key); }
  age() { return (this.n = (this.n ?? 0) + 1); }
}

export class Slow extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.log = ["constructor"];
    ctx.blockConcurrencyWhile(async () => { await scheduler.wait(20); this.log.push("ready"); });
    this.log.push("constructed");
  }
  call(n) { this.log.push(`call ${n}`); return n; }
  take() { return this.log; }
}

export class Starts extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.blockConcurrencyWhile(async () => {
      const n = (await ctx.storage.get("starts")) ?? 0;
      await ctx.storage.put("starts", n + 1);
      if (ctx.id.name === "fails") throw new Error("the start failed");
      this.starts = n + 1;
    });
  }
  get_starts() { return this.starts; }
}

export class Aborts extends DurableObject {
  constructor(ctx, env) { super(ctx, env); this.calls = 0; }
  count() { return ++this.calls; }
  async put(key, value) { await this.ctx.storage.put(key, value); }
  get(key) { return this.ctx.storage.get(key); }
  abort(reason) { this.ctx.abort(reason); }
  async abort_after_put(key) { this.ctx.storage.put(key, 1); this.ctx.abort("after put"); }
  async abort_after_sync(key) { await this.ctx.storage.put(key, 1); await this.ctx.storage.sync(); this.ctx.abort("after sync"); }
  async abort_while_syncing(key) { await this.ctx.storage.put(key, 1); const p = this.ctx.storage.sync(); this.ctx.abort("while syncing"); await p; }
  async waits(ms) { await scheduler.wait(ms); return "waited"; }
  abort_caught() { try { this.ctx.abort("caught"); } catch (e) { return `caught ${e}`; } return "went on"; }
  async abort_later() { setTimeout(() => this.ctx.abort("in a timer"), 1); await scheduler.wait(50); return "too late"; }
}

export class Inner extends object({
  async increments_without_awaiting({ storage, say }) {
    const once = async () => { const n = (await storage.get("n")) ?? 0; await storage.put("n", n + 1); };
    await Promise.all([once(), once(), once()]);
    say("n", await storage.get("n"));
  },
}) {}

export default worker({
  async concurrent_requests_interleave_at_timers({ env, say }) {
    const stub = env.Busy.getByName("a");
    say("results", await Promise.all([stub.waits("one", 20), stub.waits("two", 1)]));
    say("log", await stub.take());
  },
  async blockConcurrencyWhile_keeps_others_out({ env, say }) {
    const stub = env.Busy.getByName("b");
    say("results", await Promise.all([stub.blocks("one", 20), stub.waits("two", 1), stub.waits("three", 1)]));
    say("log", await stub.take());
  },
  async blocks_queue_up({ env, say }) {
    const stub = env.Busy.getByName("c");
    say("results", await Promise.all([stub.blocks("one", 10), stub.blocks("two", 1)]));
    say("log", await stub.take());
  },
  async storage_does_not_let_others_in_between({ env, say }) {
    const stub = env.Busy.getByName("d");
    say("results", await Promise.all([stub.increments(), stub.increments(), stub.increments(), stub.increments()]));
    say("n", await stub.get("n"));
  },
  async calls_to_others_let_others_in({ env, say }) {
    const stub = env.Busy.getByName("e");
    await Promise.all([stub.fetches("one", "f"), stub.waits("two", 1)]);
    say("log", await stub.take());
  },
  async two_blocks_in_one_event({ env, tries }) { await tries("log", () => env.Busy.getByName("g").blocks_twice()); },
  async nested_blocks({ env, tries }) { await tries("log", () => env.Busy.getByName("h").blocks_nested()); },
  async a_block_with_a_synchronous_callback({ env, tries }) { await tries("log", () => env.Busy.getByName("i").blocks_synchronously()); },
  async timers_wait_for_a_block({ env, tries }) { await tries("log", () => env.Busy.getByName("j").timer_while_blocked()); },
  async a_block_that_fails_resets_the_object({ env, tries }) {
    await env.Busy.getByName("k").age();
    await tries("fails", () => env.Busy.getByName("k").block_fails());
    await tries("age", () => env.Busy.getByName("k").age());
    await tries("lost", () => env.Busy.getByName("k").get("lost"));
    await tries("caught", () => env.Busy.getByName("k").block_fails_caught());
    await tries("age", () => env.Busy.getByName("k").age());
  },
  async a_block_ends_after_30_seconds({ env, tries }) {
    const stub = env.Busy.getByName("l");
    const block = stub.blocks_for_long();
    const waiting = stub.age();
    await tries("block", () => block);
    await tries("waiting", () => waiting);
    await tries("works again", () => env.Busy.getByName("l").age());
  },
  async the_constructor_blocks({ env, say }) {
    const stub = env.Slow.getByName("a");
    say("results", await Promise.all([stub.call(1), stub.call(2)]));
    say("log", await stub.take());
  },
  async a_start_that_fails({ env, tries }) {
    await tries("first", () => env.Starts.getByName("fails").get_starts());
    await tries("again", () => env.Starts.getByName("fails").get_starts());
    await tries("good", () => env.Starts.getByName("good").get_starts());
    await tries("good again", () => env.Starts.getByName("good").get_starts());
  },
  async abort_resets_the_object({ env, tries }) {
    const fresh = () => env.Aborts.getByName("a");
    await fresh().put("kept", 1);
    await tries("count", () => fresh().count());
    await tries("count", () => fresh().count());
    await tries("abort", () => fresh().abort("my reason"));
    await tries("count", () => fresh().count());
    await tries("kept", () => fresh().get("kept"));
  },
  async abort_reasons({ env, tries }) {
    for (const reason of ["text", undefined, null, 5, "", { message: "object" }]) {
      await tries(JSON.stringify(reason) ?? "undefined", () => env.Aborts.getByName("r").abort(reason));
    }
    await tries("error", () => env.Aborts.getByName("r").abort(new TypeError("an error")));
  },
  async abort_fails_what_runs({ env, say }) {
    const stub = env.Aborts.getByName("b");
    await stub.count();
    const settled = await Promise.allSettled([stub.waits(200), stub.abort("others too")]);
    say("settled", settled);
    say("count", await env.Aborts.getByName("b").count());
  },
  async abort_keeps_what_was_written_before({ env, tries }) {
    const fresh = () => env.Aborts.getByName("c");
    await tries("after put", () => fresh().abort_after_put("x"));
    await tries("x", () => fresh().get("x"));
    await tries("after sync", () => fresh().abort_after_sync("y"));
    await tries("y", () => fresh().get("y"));
    await tries("while syncing", () => fresh().abort_while_syncing("z"));
    await tries("z", () => fresh().get("z"));
  },
  async abort_cannot_be_caught({ env, tries }) {
    await tries("caught", () => env.Aborts.getByName("d").abort_caught());
    await tries("later", () => env.Aborts.getByName("d").abort_later());
    await tries("works again", () => env.Aborts.getByName("d").count());
  },
}, { Inner });
