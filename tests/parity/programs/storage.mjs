// objects: S T
import { object, worker } from "../lib/harness.mjs";

const keys = async (storage, options) => [...(await storage.list(options)).keys()];

export class S extends object({
  async values_of_every_type({ storage, tries }) {
    const circular = { a: 1 };
    circular.self = circular;
    const values = {
      null: null, true: true, zero: 0, minus_zero: -0, nan: NaN, float: 1.5, big: 2 ** 53, bigint: 2n ** 70n, empty: "", nul: "a\0b",
      unicode: "é✓\u{1F600}", surrogate: "\ud800", date: new Date(5), invalid_date: new Date(NaN), regexp: /a/gi,
      map: new Map([[{ k: 1 }, new Set([1])]]), array: [1, , 3], nested: { a: { b: [null, undefined] } }, circular,
      bytes: new Uint8Array([1, 2, 3]), floats: new Float64Array([0.5]), buffer: new Uint8Array([9]).buffer,
      view: new Uint8Array([1, 2, 3, 4]).subarray(1, 3), data: new DataView(new ArrayBuffer(2)), error: new TypeError("t"),
      boxed: [Object(1), Object("s"), Object(1n), Object(true)], string_long: "x".repeat(1000),
    };
    for (const [key, value] of Object.entries(values)) {
      await tries(`put ${key}`, () => storage.put(key, value));
      await tries(key, () => storage.get(key));
    }
  },
  async values_that_are_refused({ storage, tries }) {
    for (const [key, value] of Object.entries({
      fn: () => 1, symbol: Symbol("s"), weak: new WeakMap(), promise: Promise.resolve(), url: new URL("http://x"), response: new Response("x"),
      nested_fn: { a: () => 1 }, stream: new ReadableStream(), generator: (function* () {})(), proxy: new Proxy({}, {}),
    })) {
      await tries(`put ${key}`, () => storage.put(key, value));
      await tries(`get ${key}`, () => storage.get(key));
    }
    await tries("nothing was written", () => keys(storage));
  },
  async storing_a_function_is_a_DataCloneError({ storage, tries }) {
    await tries("put", () => storage.put("k", () => 1));
    await tries("get", () => storage.get("k"));
  },
  async undefined_values({ storage, tries }) {
    await tries("put", () => storage.put("k", undefined));
    await tries("put without", () => storage.put("k"));
    await storage.put("k", 1);
    await tries("put over", () => storage.put("k", undefined));
    await tries("still there", () => storage.get("k"));
    await tries("entries", () => storage.put({ a: 1, b: undefined }));
    await tries("listed", () => keys(storage));
  },
  async keys_of_every_kind({ storage, tries }) {
    for (const key of ["", " ", "a\0b", "é", "\u{1F600}", "x".repeat(2048), "x".repeat(3000)]) {
      await tries(`put ${key.length}`, () => storage.put(key, key.length));
      await tries(`get ${key.length}`, () => storage.get(key));
    }
    await tries("number", () => storage.put(5, "five"));
    await tries("get number", () => storage.get("5"));
    await tries("null", () => storage.put(null, 1));
    await tries("get null", () => storage.get(null));
    await tries("list", async () => (await keys(storage)).map((k) => k.length));
    await tries("surrogate", () => storage.put("\ud800", 1));
    await tries("surrogates are one", () => storage.get("\ufffd"));
  },
  async several_at_once({ storage, tries }) {
    await storage.put({ c: 3, a: 1, b: 2 });
    await tries("get", () => storage.get(["b", "zz", "a", "b"]));
    await tries("get none", () => storage.get([]));
    await tries("delete", () => storage.delete(["a", "zz", "a"]));
    await tries("delete none", () => storage.delete([]));
    await tries("left", () => storage.list());
    const many = Object.fromEntries(Array.from({ length: 129 }, (_, i) => [`k${i}`, i]));
    await tries("put 129", () => storage.put(many));
    await tries("get 129", async () => (await storage.get(Object.keys(many))).size);
    await tries("delete 129", () => storage.delete(Object.keys(many)));
    await tries("put empty", () => storage.put({}));
    await tries("put a map", () => storage.put(new Map([["a", 1]])));
    await tries("put array", () => storage.put(["a", "b"]));
  },
  async deleting({ storage, tries }) {
    await storage.put("a", 1);
    await tries("there", () => storage.delete("a"));
    await tries("gone", () => storage.delete("a"));
    await tries("nothing", () => storage.delete());
  },
  async lists({ storage, tries }) {
    await storage.put({ "a/1": 1, "a/2": 2, "b/1": 3, B: 4, é: 5, "\u{1F600}": 6, "\uffff": 7, 10: 8, 9: 9 });
    for (const options of [
      undefined, {}, { start: "a/2" }, { end: "b" }, { startAfter: "a/1" }, { prefix: "a/" }, { prefix: "" }, { reverse: true },
      { limit: 2 }, { reverse: true, limit: 2 }, { start: "a/2", reverse: true }, { end: "a/2", reverse: true },
      { prefix: "a/", start: "a/2" }, { prefix: "a/", end: "a/2" }, { prefix: "a/", reverse: true, limit: 1 }, { start: "c", end: "a" },
      { prefix: "a/", startAfter: "a/1" }, { start: "", end: "" }, { startAfter: "zz" }, { prefix: "é" }, { prefix: "\u{1F600}" }, { limit: 1e6 },
      { prefix: "a/", start: "0" }, { prefix: "a/", end: "z" }, { limit: 2.9 }, { limit: "1" }, { limit: true },
    ]) await tries(JSON.stringify(options) ?? "undefined", () => keys(storage, options));
  },
  async a_negative_list_limit_is_a_TypeError({ storage, tries }) {
    for (const limit of [-1, 0, NaN, null, "x", -Infinity, Infinity, {}, []]) await tries(String(limit), () => storage.list({ limit }));
  },
  async bad_arguments({ storage, tries }) {
    await tries("get undefined", () => storage.get(undefined));
    await tries("get object", () => storage.get({}));
    await tries("list string", () => storage.list("a"));
    await tries("list null", () => storage.list(null));
    await tries("list both", () => storage.list({ start: "a", startAfter: "b" }));
    await tries("delete undefined", () => storage.delete(undefined));
    await tries("put nothing", () => storage.put());
    await tries("transaction", () => storage.transaction());
    await tries("transactionSync", () => storage.transactionSync());
    await tries("transactionSync of an async", () => storage.transactionSync(async () => 1));
  },
  async large_values({ storage, tries }) {
    await tries("1 MiB", async () => { await storage.put("a", "x".repeat(1 << 20)); return (await storage.get("a")).length; });
    await tries("2 MB less", async () => { await storage.put("b", new Uint8Array(2_000_000)); return (await storage.get("b")).length; });
    await tries("2 MiB", async () => { await storage.put("c", new Uint8Array(2 << 20)); return (await storage.get("c"))?.length; });
    await tries("3 MiB", async () => { await storage.put("d", new Uint8Array(3 << 20)); return (await storage.get("d"))?.length; });
    await tries("works on", async () => { await storage.put("e", 1); return storage.get("e"); });
    await tries("keys", () => keys(storage));
  },
  async mutations_after_a_put_are_not_stored({ storage, tries }) {
    const value = { n: 1 };
    const put = storage.put("a", value);
    value.n = 2;
    await put;
    await tries("stored", () => storage.get("a"));
    const got = await storage.get("a");
    got.n = 3;
    await tries("a copy", () => storage.get("a"));
  },
  async options_are_accepted({ storage, tries }) {
    const options = { allowConcurrency: true, allowUnconfirmed: true, noCache: true };
    await tries("put", () => storage.put("a", 1, options));
    await tries("get", () => storage.get("a", options));
    await tries("put entries", () => storage.put({ b: 1 }, options));
    await tries("list", () => storage.list({ ...options }));
    await tries("delete", () => storage.delete("a", options));
    await tries("deleteAll", () => storage.deleteAll(options));
  },
  async synchronous_keys_and_values({ kv, storage, does, tries }) {
    does("absent", () => kv.get("a"));
    does("put", () => kv.put("a", { x: [1, 2n] }));
    does("get", () => kv.get("a"));
    does("put undefined", () => kv.put("u", undefined));
    does("get undefined", () => kv.get("u"));
    does("delete", () => kv.delete("a"));
    does("delete again", () => kv.delete("a"));
    for (const key of ["c", "a", "b", "b/1", "b/2"]) kv.put(key, key);
    does("list", () => [...kv.list()]);
    does("prefix", () => [...kv.list({ prefix: "b/" })]);
    does("reverse limit", () => [...kv.list({ reverse: true, limit: 2 })]);
    does("start end", () => [...kv.list({ start: "a", end: "b/1" })]);
    does("startAfter", () => [...kv.list({ startAfter: "b" })]);
    does("bad limit", () => [...kv.list({ limit: -1 })]);
    does("iterator", () => { const i = kv.list(); return [i.next(), typeof i[Symbol.iterator], Object.prototype.toString.call(i)]; });
    does("delete while listing", () => { const out = []; for (const [k] of kv.list()) { out.push(k); kv.delete(k); } return out; });
    does("left", () => [...kv.list()]);
    does("function", () => kv.put("f", () => 1));
    await tries("seen by the other API", async () => { kv.put("s", 1); return [await storage.get("s"), await storage.put("t", 2), kv.get("t")]; });
    does("put without a value", () => kv.put("k"));
    does("get without a key", () => kv.get());
    does("delete without a key", () => kv.delete());
  },
  async the_table_behind_the_keys({ storage, sql, tries }) {
    await storage.put("a", 1);
    await tries("tables", () => sql.exec("SELECT name FROM sqlite_master").toArray());
    await tries("select", () => sql.exec("SELECT * FROM _cf_KV").toArray());
    await tries("drop", () => sql.exec("DROP TABLE _cf_KV").toArray());
  },
  async deleteAll_empties_everything({ storage, sql, tries }) {
    await storage.put("a", 1);
    sql.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1); CREATE INDEX i ON t(x); CREATE VIEW v AS SELECT * FROM t");
    sql.exec("CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END");
    await storage.setAlarm?.(Date.now() + 1e6).catch(() => {});
    await tries("deleteAll", () => storage.deleteAll());
    await tries("keys", () => storage.list());
    await tries("tables", () => sql.exec("SELECT name FROM sqlite_master").toArray());
    await tries("alarm", () => storage.getAlarm());
    await tries("usable again", async () => { await storage.put("b", 2); sql.exec("CREATE TABLE t (y)"); return keys(storage); });
    await tries("twice", async () => { await storage.deleteAll(); await storage.deleteAll(); return keys(storage); });
  },
  async what_was_asked_before_deleteAll_is_deleted_too({ storage, tries }) {
    const put = storage.put("a", 1);
    const all = storage.deleteAll();
    const after = storage.put("b", 2);
    await Promise.all([put, all, after]);
    await tries("keys", () => keys(storage));
  },
  async sync({ storage, tries }) {
    storage.put("a", 1);
    await tries("sync", () => storage.sync());
    await tries("sync of nothing", () => storage.sync());
  },
  async many_keys({ storage, tries }) {
    for (let i = 0; i < 2000; i++) storage.put(`key${String(i).padStart(5, "0")}`, { i });
    await tries("count", async () => (await storage.list()).size);
    await tries("some", () => keys(storage, { start: "key01995" }));
    await tries("gone", async () => { await storage.deleteAll(); return (await storage.list()).size; });
  },
  async the_order_of_operations({ storage, say }) {
    const done = [];
    const note = (label) => () => void done.push(label);
    await Promise.all([
      storage.put("a", 1).then(note("put")), storage.get("a").then(note("get")), storage.delete("a").then(note("delete")),
      storage.list().then(note("list")), Promise.resolve().then(note("microtask")), storage.put("b", 1).then(note("put 2")),
    ]);
    say("values seen", [await storage.get("a"), await storage.get("b")]);
    say("all done", done.sort());
  },
  async reads_see_writes_that_were_not_awaited({ storage, say }) {
    storage.put("a", 1);
    storage.put("a", 2);
    say("a", await storage.get("a"));
    storage.delete("a");
    say("deleted", await storage.get("a"));
  },
  async bookmarks({ storage, tries }) {
    await tries("current", async () => typeof (await storage.getCurrentBookmark()));
    await tries("for time", async () => typeof (await storage.getBookmarkForTime(Date.now())));
  },
}) {}

export class T extends object({
  async transaction_commits({ storage, tries }) {
    await tries("result", () => storage.transaction(async (txn) => { await txn.put("a", 1); return [await txn.get("a"), await txn.list(), await txn.delete("zz")]; }));
    await tries("after", () => storage.get("a"));
  },
  async transaction_rolls_back_when_it_throws({ storage, sql, tries }) {
    sql.exec("CREATE TABLE t (x)");
    await storage.put("a", 1);
    await tries("throws", () => storage.transaction(async (txn) => { await txn.put("a", 2); await txn.delete("b"); sql.exec("INSERT INTO t VALUES (1)"); throw new Error("no"); }));
    await tries("a", () => storage.get("a"));
    await tries("t", () => sql.exec("SELECT count(*) AS n FROM t").one());
    await tries("throws at once", () => storage.transaction((txn) => { txn.put("a", 3); throw new Error("at once"); }));
    await tries("a again", () => storage.get("a"));
  },
  async rollback({ storage, tries }) {
    await storage.put("a", 1);
    await tries("rollback", () => storage.transaction(async (txn) => { await txn.put("a", 2); txn.rollback(); return "done"; }));
    await tries("a", () => storage.get("a"));
    await tries("then put", () => storage.transaction(async (txn) => { txn.rollback(); await txn.put("a", 3); }));
    await tries("then get", () => storage.transaction(async (txn) => { txn.rollback(); return txn.get("a"); }));
    await tries("twice", () => storage.transaction(async (txn) => { txn.rollback(); txn.rollback(); return 1; }));
    await tries("throws after", () => storage.transaction(async (txn) => { txn.rollback(); throw new Error("after"); }));
    await tries("a", () => storage.get("a"));
  },
  async the_transaction_after_its_end({ storage, tries }) {
    let kept;
    await storage.transaction(async (txn) => void (kept = txn));
    for (const [name, ...args] of [["get", "a"], ["put", "a", 1], ["delete", "a"], ["list"], ["getAlarm"], ["rollback"], ["deleteAll"]]) await tries(name, () => kept[name](...args));
  },
  async nested_transactions({ storage, tries }) {
    await tries("inner fails", () => storage.transaction(async (outer) => {
      await outer.put("a", 1);
      await storage.transaction(async (inner) => { await inner.put("b", 1); throw new Error("inner"); }).catch(() => {});
      await outer.put("c", 1);
    }));
    await tries("keys", () => keys(storage));
    await tries("outer fails", () => storage.transaction(async (outer) => {
      await storage.transaction(async (inner) => void (await inner.put("d", 1)));
      throw new Error("outer");
    }));
    await tries("keys", () => keys(storage));
  },
  async two_transactions_at_once({ storage, say, tries }) {
    const log = [];
    const one = storage.transaction(async (txn) => {
      log.push("one begins");
      const n = (await txn.get("n")) ?? 0;
      await scheduler.wait(10);
      await txn.put("n", n + 1);
      log.push("one ends");
    });
    const two = storage.transaction(async (txn) => {
      log.push("two begins");
      const n = (await txn.get("n")) ?? 0;
      await scheduler.wait(5);
      await txn.put("n", n + 1);
      log.push("two ends");
    });
    await tries("both", () => Promise.all([one, two]));
    say("log", log);
    await tries("n", () => storage.get("n"));
  },
  async one_of_two_transactions_fails({ storage, tries }) {
    const one = storage.transaction(async (txn) => { await txn.put("one", 1); await scheduler.wait(10); throw new Error("one fails"); });
    const two = storage.transaction(async (txn) => { await txn.put("two", 1); await scheduler.wait(1); });
    await tries("settled", () => Promise.allSettled([one, two]));
    await tries("keys", () => keys(storage));
  },
  async a_put_beside_a_transaction({ storage, tries }) {
    const txn = storage.transaction(async (t) => { await t.put("in", 1); await scheduler.wait(5); throw new Error("no"); });
    const put = storage.put("beside", 1);
    await tries("settled", () => Promise.allSettled([txn, put]));
    await tries("in", () => storage.get("in"));
  },
  async transactionSync_commits_and_rolls_back({ storage, sql, kv, does }) {
    sql.exec("CREATE TABLE t (x)");
    does("result", () => storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (1)"); kv.put("a", 1); return "result"; }));
    does("throws", () => storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (2)"); kv.put("a", 2); throw new Error("no"); }));
    does("rows", () => sql.exec("SELECT x FROM t").toArray());
    does("a", () => kv.get("a"));
  },
  async nested_transactionSync_rolls_back_only_its_own_writes({ storage, sql, does }) {
    sql.exec("CREATE TABLE t (x)");
    does("arity", () => storage.transactionSync((...args) => args.length));
    does("inner throws", () => storage.transactionSync(() => {
      sql.exec("INSERT INTO t VALUES (1)");
      try {
        storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (2)"); throw new Error("inner"); });
      } catch {}
      sql.exec("INSERT INTO t VALUES (3)");
    }));
    does("rows", () => sql.exec("SELECT x FROM t").toArray());
    does("outer throws", () => storage.transactionSync(() => {
      storage.transactionSync(() => sql.exec("INSERT INTO t VALUES (4)"));
      throw new Error("outer");
    }));
    does("rows", () => sql.exec("SELECT x FROM t").toArray());
    does("deep", () => { const nest = (n) => storage.transactionSync(() => (n === 0 ? sql.exec("INSERT INTO t VALUES (5)") && "bottom" : nest(n - 1))); return nest(20); });
  },
  async transactionSync_in_a_transaction({ storage, sql, tries }) {
    sql.exec("CREATE TABLE t (x)");
    await tries("both", () => storage.transaction(async () => { storage.transactionSync(() => sql.exec("INSERT INTO t VALUES (1)")); throw new Error("outer"); }));
    await tries("rows", () => sql.exec("SELECT x FROM t").toArray());
  },
  async a_transaction_in_transactionSync({ storage, sql, tries }) {
    sql.exec("CREATE TABLE t (x)");
    let inner;
    await tries("outer", () => storage.transactionSync(() => { inner = storage.transaction(async (txn) => { await txn.put("a", 1); return "inner"; }); return 1; }));
    await tries("inner", () => inner);
    await tries("a", () => storage.get("a"));
  },
  async statements_that_manage_transactions_are_refused({ sql, does }) {
    for (const statement of ["BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "END", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"]) {
      does(statement, () => sql.exec(statement).toArray());
    }
  },
  async what_throws_in_transactionSync_reaches_the_caller({ storage, sql, does }) {
    sql.exec("CREATE TABLE t (x INTEGER PRIMARY KEY, y CHECK (y > 0))");
    does("constraint", () => storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (1, 1)"); sql.exec("INSERT INTO t VALUES (2, -1)"); }));
    does("rows", () => sql.exec("SELECT * FROM t").toArray());
    does("too large", () => storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (3, 1)"); sql.exec("INSERT INTO t VALUES (4, ?)", new Uint8Array(3 << 20)); }));
    does("rows", () => sql.exec("SELECT * FROM t").toArray());
    does("conflict rollback", () => storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (5, 1)"); sql.exec("INSERT OR ROLLBACK INTO t VALUES (5, 1)"); }));
    does("rows", () => sql.exec("SELECT * FROM t").toArray());
  },
  async deleteAll_in_a_transaction({ storage, tries }) {
    await storage.put("a", 1);
    await tries("storage.deleteAll", () => storage.transaction(async () => storage.deleteAll()));
    await tries("a", () => storage.get("a"));
    await tries("sync", () => storage.transactionSync(() => storage.deleteAll()));
    await tries("a (2)", () => storage.get("a"));
  },
}) {}

export default worker({}, { S, T });
