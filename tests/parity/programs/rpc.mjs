// objects: Echo Old Inside
import { DurableObject, RpcTarget } from "cloudflare:workers";
import { object, show, worker } from "../lib/harness.mjs";

const proto = Object.getPrototypeOf(function* () {});
void proto;

export class Echo extends DurableObject {
  #hidden = 1;
  field = "a field";
  static fixed = "static";
  echo(...args) { return args; }
  one(value) { return value; }
  shown(...args) { return args.map((a) => show(a)); }
  count() { return arguments.length; }
  nothing() {}
  nil() { return null; }
  async slow(value) { await scheduler.wait(5); return value; }
  get getter() { return "from a getter"; }
  get throwing() { throw new Error("getter threw"); }
  get promised() { return Promise.resolve("promised"); }
  get func() { return (x) => x + 1; }
  #secret() { return this.#hidden; }
  circular() { const a = { name: "a" }; a.self = a; a.list = [a]; return a; }
  shared() { const s = { n: 1 }; return [s, s]; }
  thenable() { return { then(done) { done("from a thenable"); } }; }
  me() { return this; }
  args() { return [...arguments].map((x) => typeof x); }
  sparse() { const a = [1]; a[3] = 4; return a; }
  arrayProps() { const a = [1, 2]; a.extra = "x"; return a; }
  nullProto() { return Object.assign(Object.create(null), { a: 1 }); }
  accessor() { return { get a() { return "read"; } }; }
  hiddenProps() { return Object.defineProperty({ a: 1 }, "b", { value: 2, enumerable: false }); }
  symbolProps() { return { a: 1, [Symbol("b")]: 2 }; }
  instance() { class Point { x = 1; y = 2; } return new Point(); }
  nested() { class Point { x = 1; } return { points: [new Point()] }; }
  target() { return new (class extends RpcTarget { hi() { return "hi"; } })(); }
  func2() { return () => 1; }
  symbol() { return Symbol("x"); }
  regexp() { return /a+/gi; }
  dates() { return [new Date(0), new Date(NaN), new Date(8.64e15)]; }
  maps() { return new Map([[{ a: 1 }, new Set([1, "x"])], ["k", new Map()]]); }
  numbers() { return [0, -0, NaN, Infinity, -Infinity, 2 ** 53, 1.5, -1, 1e308]; }
  bigints() { return [0n, -1n, 2n ** 64n, -(2n ** 100n)]; }
  strings() { return ["", "\0", "é✓\u{1F600}", "\ud800", "x".repeat(100)]; }
  boxed() { return [new Number(1), new String("s"), new Boolean(false), Object(1n)]; }
  typed() {
    return [new Uint8Array([1, 2]), new Int16Array([-1]), new Float64Array([0.5]), new BigInt64Array([-5n]), new Uint8ClampedArray([300]),
      new DataView(new Uint8Array([9, 8, 7]).buffer, 1), new Uint8Array([1, 2, 3]).buffer];
  }
  view() { const b = new Uint8Array(100); return b.subarray(10, 12); }
  sharedBuffer() { const b = new ArrayBuffer(4); return [new Uint8Array(b), new Uint16Array(b)]; }
  holes() { return { u: undefined, n: null }; }
  deep(n) { let o = {}; const top = o; for (let i = 0; i < n; i++) o = o.x = {}; return top; }
  big(n) { return "x".repeat(n); }
  bytes(n) { return new Uint8Array(n).fill(7); }
  promiseInside() { return { a: Promise.resolve(1) }; }
  errors() { return [new Error("a"), new TypeError("b", { cause: "c" }), Object.assign(new Error("p"), { code: 1 })]; }
  async *gen() { yield 1; }
  *syncGen() { yield 1; }
  response() { return new Response("body", { status: 201, headers: { a: "b" } }); }
  request() { return new Request("http://x/y", { method: "POST", body: "b" }); }
  headers() { return new Headers({ a: "b" }); }
  stream() { return new Response("streamed").body; }
  url() { return new URL("http://x/"); }
  weak() { return new WeakMap(); }
  globalThis() { return globalThis; }
  fetch() { return new Response("fetched"); }
  env_names() { return Object.keys(this.env).sort(); }
  same() { return this.ctx.id.name; }
  constructorName() { return this.constructor.name; }
  "odd name!"() { return "odd"; }
  toJSON() { return "json"; }
  valueOf() { return 5; }
  then2() { return 1; }
}

export class Old {
  constructor(state) { this.state = state; }
  fetch() { return new Response("old style"); }
  method() { return 1; }
}

export class Inside extends object({
  async stub_from_inside({ env, tries }) {
    await tries("other", () => env.Echo.getByName("x").one("from inside"));
    await tries("fetch", async () => (await env.Echo.getByName("x").fetch("http://x/")).text());
  },
  async calls_to_itself({ env, ctx, tries }) {
    await tries("fetch of itself", async () => (await env.Inside.get(ctx.id).fetch("http://x/Inside/plain")).text());
  },
  async plain({ say }) {
    say("plain", 1);
  },
}) {}

const value_methods = ["nothing", "nil", "circular", "shared", "thenable", "me", "sparse", "arrayProps", "nullProto", "accessor",
  "hiddenProps", "symbolProps", "instance", "nested", "symbol", "regexp", "dates", "maps", "numbers", "bigints",
  "strings", "boxed", "typed", "view", "sharedBuffer", "holes", "promiseInside", "errors", "weak", "url", "globalThis",
  "gen", "syncGen", "toJSON", "valueOf", "env_names", "same", "constructorName"];

export default worker({
  async results({ env, tries }) {
    const stub = env.Echo.getByName("results");
    for (const method of value_methods) await tries(method, () => stub[method]());
  },
  async results_that_are_platform_objects({ env, tries }) {
    const stub = env.Echo.getByName("results");
    await tries("response", async () => { const r = await stub.response(); return [r.status, r.headers, await r.text()]; });
    await tries("request", async () => { const r = await stub.request(); return [r.method, r.url, await r.text()]; });
    await tries("headers", async () => [...(await stub.headers())]);
    await tries("stream", async () => new Response(await stub.stream()).text());
  },
  async results_that_stay_where_they_are({ env, tries }) {
    const stub = env.Echo.getByName("results");
    await tries("function", async () => (await stub.func2())());
    await tries("target", async () => (await stub.target()).hi());
  },
  async arguments_of_every_kind({ env, tries }) {
    const stub = env.Echo.getByName("args");
    const circular = { a: 1 };
    circular.self = circular;
    for (const [label, args] of Object.entries({
      none: [], undefined: [undefined], several: [1, "two", null, undefined, [3]], numbers: [0, -0, NaN, Infinity],
      bigints: [1n, -(2n ** 70n)], strings: ["\0", "é✓", "\ud800"], circular: [circular], date: [new Date(5)],
      map: [new Map([[1, new Set([2])]])], typed: [new Uint8Array([1]), new Float32Array([0.5]).buffer], regexp: [/x/y],
      error: [new RangeError("e")], props: [Object.assign(new Error("e"), { code: 5 })], sparse: [[, 1]],
      boxed: [Object(1), Object("s")], undefinedMember: [{ a: undefined }], nullProto: [Object.assign(Object.create(null), { a: 1 })],
    })) await tries(label, () => stub.shown(...args));
  },
  async arguments_that_are_refused({ env, tries }) {
    const stub = env.Echo.getByName("args");
    class Point { x = 1; }
    for (const [label, arg] of Object.entries({
      symbol: Symbol("s"), instance: new Point(), weak: new WeakSet(), url: new URL("http://x"), proxy: new Proxy({}, {}),
      nested: { deep: [new Point()] }, promise: Promise.resolve(1), generator: (function* () {})(), event: new Event("e"),
      params: new URLSearchParams("a=1"), formdata: new FormData(), blob: new Blob(["x"]), id: env.Echo.newUniqueId(), namespace: env.Echo,
    })) await tries(label, () => stub.shown(arg));
  },
  async arguments_that_are_platform_objects({ env, tries }) {
    const stub = env.Echo.getByName("args");
    await tries("headers", () => stub.shown(new Headers({ a: "b" })));
    await tries("request", () => stub.count(new Request("http://x/")));
    await tries("response", () => stub.count(new Response("x")));
    await tries("stream", () => stub.count(new Response("x").body));
    await tries("function", () => stub.count(() => 1));
    await tries("stub", () => stub.count(env.Echo.getByName("other")));
  },
  async counts({ env, tries }) {
    const stub = env.Echo.getByName("args");
    await tries("0", () => stub.count());
    await tries("3", () => stub.count(1, undefined, 3));
    await tries("types", () => stub.args(undefined, null, 1));
    await tries("many", () => stub.count(...new Array(1000).fill(1)));
  },
  async members({ env, tries, say }) {
    const stub = env.Echo.getByName("members");
    await tries("getter", () => stub.getter);
    await tries("throwing getter", () => stub.throwing);
    await tries("promised getter", () => stub.promised);
    await tries("field", () => stub.field);
    await tries("missing", () => stub.missing);
    await tries("missing call", () => stub.missing());
    await tries("getter call", () => stub.getter());
    await tries("method as property", async () => typeof (await stub.nothing));
    await tries("function of a getter", async () => (await stub.func(1)));
    await tries("odd name", () => stub["odd name!"]());
    await tries("constructor", () => stub.constructor());
    await tries("static", () => stub.fixed);
    await tries("ctx", () => stub.ctx);
    await tries("env", () => stub.env);
    await tries("hasOwnProperty", () => stub.hasOwnProperty("x"));
    await tries("alarm", () => stub.alarm());
    await tries("private", () => stub["#secret"]());
    await tries("__proto__", () => typeof stub.__proto__);
    await tries("index", () => stub[0]());
    await tries("empty name", () => stub[""]());
    say("symbol", stub[Symbol("x")]);
    say("then", stub.then);
    say("typeof", [typeof stub, typeof stub.echo, typeof stub.fetch]);
    await tries("extracted", async () => { const { one } = stub; return one("extracted"); });
    await tries("call", () => stub.one.call(null, "called"));
    await tries("apply", () => stub.one.apply(null, ["applied"]));
    await tries("bind", () => stub.one.bind(null)("bound"));
  },
  async pipelining({ env, tries }) {
    const stub = env.Echo.getByName("pipe");
    await tries("member", () => stub.one({ a: { b: 5 } }).a.b);
    await tries("missing member", () => stub.one({ a: 1 }).zzz);
    await tries("member of undefined", () => stub.nothing().x);
    await tries("member of null", () => stub.nil().x);
    await tries("index", () => stub.echo("x", "y")[1]);
    await tries("length", () => stub.echo("x", "y").length);
    await tries("twice", async () => { const p = stub.one({ a: 1, b: 2 }); return [await p.a, await p.b, await p]; });
    await tries("rejected", () => stub.missing().x.y);
  },
  async promises({ env, tries, say }) {
    const stub = env.Echo.getByName("promises");
    const p = stub.one(1);
    say("thenable", [typeof p.then, typeof p.catch, typeof p.finally]);
    say("awaited", await p);
    say("awaited again", await p);
    await tries("then", () => stub.one(1).then((x) => x + 1));
    await tries("catch", () => stub.missing().catch((e) => e.message));
    await tries("finally", () => stub.one(1).finally(() => {}));
    await tries("all", () => Promise.all([stub.one(1), stub.slow(2), stub.one(3)]));
    await tries("allSettled", () => Promise.allSettled([stub.one(1), stub.missing()]));
    await tries("race", () => Promise.race([stub.slow("slow"), "now"]));
    const result = await stub.one({ a: 1 });
    say("disposer", typeof result[Symbol.dispose]);
    say("disposers of primitives", typeof (await stub.one(5))[Symbol.dispose]);
    say("array", typeof (await stub.one([1]))[Symbol.dispose]);
  },
  async order_of_calls({ env, say }) {
    const stub = env.Echo.getByName("order");
    const done = [];
    await Promise.all([3, 1, 2, 5, 4].map((n) => stub.one(n).then((x) => done.push(x))));
    say("done", done);
  },
  async large({ env, tries }) {
    const stub = env.Echo.getByName("large");
    await tries("1 MiB string", async () => (await stub.big(1 << 20)).length);
    await tries("4 MiB bytes", async () => (await stub.bytes(4 << 20)).length);
    await tries("argument", async () => (await stub.one(new Uint8Array(4 << 20))).length);
    await tries("deep", async () => { let n = 0; for (let o = await stub.deep(500); o.x; o = o.x) n++; return n; });
    await tries("too large result", async () => (await stub.big(33 << 20)).length);
    await tries("too large argument", async () => stub.count("x".repeat(33 << 20)));
  },
  async old_style({ env, tries }) {
    const stub = env.Old.getByName("a");
    await tries("fetch", async () => (await stub.fetch("http://x/")).text());
    await tries("rpc", () => stub.method());
    await tries("property", () => stub.state);
  },
  async a_stub_outlives_its_use({ env, tries }) {
    const stub = env.Echo.getByName("again");
    await tries("first", () => stub.one(1));
    await scheduler.wait(20);
    await tries("second", () => stub.one(2));
  },
}, { Inside });
