// Key-value storage, transactions, alarms of a Durable Object: values and errors.
import { DurableObject } from "cloudflare:workers";
import { report, show } from "./show.mjs";
export class Store extends DurableObject {
  alarm() {
  }
  async fetch() {
    const ctx = this.ctx, st = ctx.storage, kv = st.kv;
    await show("get none", () => st.get());
    await show("get absent", () => st.get("a"));
    await show("get num", () => st.get(5));
    await show("get []", () => st.get([]));
    await show("put none", () => st.put("a"));
    await show("put undef", () => st.put("a", undefined));
    await show("put fn", () => st.put("a", () => 1));
    await show("put obj", () => st.put({ a: 1, b: { c: 2 } }));
    await show("put obj undef", () => st.put({ a: undefined }));
    await show("get multi", () => st.get(["b", "zz", "a"]));
    await show("put emptykey", () => st.put("", 1));
    await show("get emptykey", () => st.get(""));
    await show("put num", () => st.put(5, 6));
    await show("put null", () => st.put(null));
    await show("put arr", () => st.put(["x"]));
    await show("put sync throws?", () => {
      try {
        const p = st.put("a", () => 1);
        p.catch(() => {
        });
        return "no";
      } catch (e) {
        return "sync " + e.name;
      }
    });
    await show("get sync throws?", () => {
      try {
        const p = st.get("x".repeat(3e3));
        p.catch(() => {
        });
        return "no";
      } catch (e) {
        return "sync " + e.name;
      }
    });
    await show("list sync throws?", () => {
      try {
        const p = st.list({ limit: -1 });
        p.catch(() => {
        });
        return "no";
      } catch (e) {
        return "sync " + e.name;
      }
    });
    await show("put cls", () => st.put("cls", new class Foo {
      x = 1;
    }()));
    await show("get cls", () => st.get("cls"));
    await show("put url", () => st.put("q", new URL("http://x/")));
    await show("put dt", () => st.put("q", { e: new RangeError("z"), d: /* @__PURE__ */ new Date(1), b: 5n, r: /x/, u: undefined }));
    await show("get dt", async () => {
      const v = await st.get("q");
      return [v.e instanceof RangeError, v.e.message, v.d instanceof Date, v.b, v.r instanceof RegExp, "u" in v];
    });
    await show("delete", () => st.delete("a"));
    await show("delete absent", () => st.delete("a"));
    await show("delete multi", () => st.delete(["b", "zz"]));
    await show("delete 129", () => st.delete(Array(129).fill("a")));
    await st.delete("q");
    await st.put({ a: 1, b: 2, c: 3, "c/1": 4, "c/2": 5, d: 6, é: 7, "😀": 8, "￿": 9 });
    for (const o of [undefined, null, {}, { start: "b" }, { startAfter: "b" }, { start: "b", startAfter: "b" }, { end: "c" }, { start: "z", end: "b" }, { start: "b", end: "b" }, { prefix: "c/" }, { prefix: "c", start: "c/2" }, { prefix: "c", reverse: true }, { limit: 2 }, { limit: 0 }, { limit: -1 }, { limit: 1.5 }, { limit: "2" }, { limit: "x" }, { limit: NaN }, { reverse: true, limit: 1 }, { reverse: true, start: "b", end: "c/2" }, { startAfter: "" }, 5, "x", { prefix: 5 }, { reverse: "yes", limit: 1 }, { noCache: true, allowConcurrency: true, limit: 1 }]) {
      await show("list " + JSON.stringify(o), () => st.list(o));
      await show("kv.list " + JSON.stringify(o), () => [...kv.list(o)]);
    }
    await show("list order", async () => [...(await st.list()).keys()]);
    await show("kv", () => [kv.put("k", { a: 1 }), kv.get("k"), kv.get("nope"), kv.delete("k"), kv.delete("k")]);
    await show("kv list type", () => {
      const l = kv.list();
      return [Object.prototype.toString.call(l), typeof l.next, l[Symbol.iterator]() === l, typeof l.toArray];
    });
    await show("kv get arr", () => kv.get(["a"]));
    await show("kv put undef", () => kv.put("a", undefined));
    await show("kv put fn", () => kv.put("a", () => 1));
    await show("kv get none", () => kv.get());
    await show("kv put obj", () => kv.put({ a: 1 }));
    await show("getAlarm", () => st.getAlarm());
    await show("setAlarm none", () => st.setAlarm());
    await show("setAlarm neg", () => st.setAlarm(-5));
    await show("setAlarm 0", () => st.setAlarm(0));
    await show("ga", () => st.getAlarm());
    await show("setAlarm NaN", () => st.setAlarm(NaN));
    await show("setAlarm str", () => st.setAlarm("x"));
    await show("setAlarm inv", () => st.setAlarm(/* @__PURE__ */ new Date(NaN)));
    await show("setAlarm null", () => st.setAlarm(null));
    await show("setAlarm date", () => st.setAlarm(new Date(Date.now() + 1e6)));
    await show("ga", async () => typeof await st.getAlarm());
    await show("setAlarm inf", () => st.setAlarm(Infinity));
    await show("setAlarm float", async () => {
      await st.setAlarm(Date.now() + 1e6 + 0.7);
      const a = await st.getAlarm();
      return Number.isInteger(a);
    });
    await show("deleteAlarm", () => st.deleteAlarm());
    await show("ga", () => st.getAlarm());
    await show("setAlarm huge", () => st.setAlarm(1e300));
    await show("ga", () => st.getAlarm());
    await show("setAlarm bool", () => st.setAlarm(true));
    await show("setAlarm obj", () => st.setAlarm({}));
    await st.deleteAlarm();
    await show("setAlarm sync throws?", () => {
      try {
        const p = st.setAlarm(-5);
        p.catch(() => {
        });
        return "no";
      } catch (e) {
        return "sync " + e.name;
      }
    });
    await show("tx", () => st.transaction(async (tx) => {
      await tx.put("tt", 1);
      return [Object.getOwnPropertyNames(Object.getPrototypeOf(tx)).sort(), tx.constructor.name, tx === st];
    }));
    await show("tt", () => st.get("tt"));
    await show("tx throw", () => st.transaction(async (tx) => {
      await tx.put("tt", 2);
      throw new Error("ee");
    }));
    await show("tt", () => st.get("tt"));
    await show("tx rb", () => st.transaction(async (tx) => {
      await tx.put("tt", 3);
      tx.rollback();
      return 8;
    }));
    await show("tt", () => st.get("tt"));
    await show("tx rb then", () => st.transaction(async (tx) => {
      tx.rollback();
      await tx.put("tt", 4);
      return 9;
    }));
    await show("tx after", async () => {
      let x;
      await st.transaction(async (tx) => {
        x = tx;
      });
      return x.get("a");
    });
    await show("tx sql", () => st.transaction(async (tx) => typeof tx.sql + typeof tx.kv));
    await show("tx nested", () => st.transaction(async (tx) => {
      await st.transaction(async (t2) => {
        await t2.put("tt", 9);
      });
      return st.get("tt");
    }));
    await show("tx sync cl", () => st.transaction(() => 5));
    await show("tx none", () => st.transaction());
    await show("tx deleteAll", () => st.transaction((tx) => tx.deleteAll()));
    await show("tx rb twice", () => st.transaction(async (tx) => {
      tx.rollback();
      tx.rollback();
    }));
    await show("bcw", () => ctx.blockConcurrencyWhile(async () => 7));
    await show("bcw sync", () => ctx.blockConcurrencyWhile(() => 7));
    await show("bcw none", () => ctx.blockConcurrencyWhile());
    await show("sync", () => st.sync());
    await show("deleteAll", () => st.deleteAll());
    await show("ws", () => ctx.getWebSockets());
    await show("waitUntil", () => ctx.waitUntil(5));
    await show("waitUntil none", () => ctx.waitUntil());
    await show("ga in", () => st.getAlarm());
    await show("tsync", () => st.transactionSync((...a) => a.length));
    await show("tsync throw", () => st.transactionSync(() => {
      kv.put("ts", 1);
      throw new Error("zz");
    }));
    await show("ts", () => kv.get("ts") ?? null);
    await show("tsync nest", () => st.transactionSync(() => {
      kv.put("outer", 1);
      try {
        st.transactionSync(() => {
          kv.put("inner", 1);
          throw new Error("in");
        });
      } catch {
      }
      return [kv.get("outer"), kv.get("inner") ?? null];
    }));
    await show("tsync none", () => st.transactionSync());
    return report();
  }
}
export class Quiet extends DurableObject {
  async fetch() {
    await show("setAlarm without a handler", () => this.ctx.storage.setAlarm(Date.now() + 1e6));
    return report();
  }
}
export default { async fetch(request, env) {
  const parts = [];
  for (const name of ["Store", "Quiet"]) parts.push(await (await env[name].getByName("a").fetch(request.url)).text());
  return new Response(parts.join("\n"));
} };
