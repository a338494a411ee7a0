// Durable Objects from outside: ids, namespaces, stubs, RPC and its errors.
import { DurableObject } from "cloudflare:workers";
import { report, show } from "./show.mjs";
export class D extends DurableObject {
  inst = () => 1;
  a() {
    return 1;
  }
  get g() {
    return 5;
  }
  echo(x) {
    return x;
  }
  thr() {
    throw new RangeError("boo");
  }
  thr2() {
    throw { a: 1 };
  }
  fn() {
    return () => 5;
  }
  _p() {
    return "p";
  }
  obj() {
    return { a: 1, d: /* @__PURE__ */ new Date(0), m: /* @__PURE__ */ new Map([[1, 2]]), e: new TypeError("x") };
  }
  sym() {
    return /* @__PURE__ */ Symbol("x");
  }
  und() {
  }
  thisfoo() {
    return this.ctx.id.toString().length;
  }
  cls() {
    return new class Foo {
      x = 1;
    }();
  }
  async fetch(r) {
    if (r.url.includes("bad")) return 5;
    if (r.url.includes("throw")) throw new Error("fetch boom");
    return new Response(r.url + " " + r.method + " " + JSON.stringify([...r.headers]));
  }
}
export class NoExt {
  constructor(s) {
    this.s = s;
  }
  a() {
    return 1;
  }
  async fetch() {
    return new Response("x " + this.s.id.name);
  }
}
export class NoFetch extends DurableObject {
}
export default { async fetch(req, env, ctx) {
  const s = env.D.get(env.D.idFromName("a"));
  for (const m of ["a", "g", "inst", "nope", "thr", "_p", "obj", "sym", "und", "thisfoo", "cls", "alarm", "toString", "dup", "webSocketMessage", "hasOwnProperty"])
    await show("rpc " + m, () => s[m]());
  await show("prop g", () => s.g);
  await show("prop inst", () => s.inst);
  await show("prop nope", () => s.nope);
  for (const [n, v] of Object.entries({ date: /* @__PURE__ */ new Date(0), map: /* @__PURE__ */ new Map([[1, 2]]), err: new TypeError("q"), sym: /* @__PURE__ */ Symbol("a"), bigint: undefined, re: /x/g, u8: new Uint8Array([1]), prom: 1, wm: /* @__PURE__ */ new WeakMap(), cls: new class Foo {
    x = 1;
  }(), url: new URL("http://x/"), nul: /* @__PURE__ */ Object.create(null) }))
    await show("arg " + n, () => s.echo(v));
  await show("noext", () => env.NoExt.get(env.NoExt.idFromName("x")).a());
  await show("noext f", async () => (await env.NoExt.get(env.NoExt.idFromName("x")).fetch("http://x/")).text());
  await show("nofetch f", async () => (await env.NoFetch.get(env.NoFetch.idFromName("x")).fetch("http://x/")).text());
  await show("bad f", async () => (await s.fetch("http://x/bad")).text());
  await show("throw f", async () => (await s.fetch("http://x/throw")).text());
  await show("f rel", async () => (await s.fetch("/rel")).text());
  await show("f", async () => (await s.fetch("http://x/?q#h", { method: "post", body: "abc" })).text());
  await show("f none", async () => (await s.fetch()).text());
  const id = env.D.idFromName("a");
  await show("id", () => [id.toString().length, id.name, Object.keys(id), JSON.stringify(id), id.constructor.name, String(id).length, Object.prototype.toString.call(id)]);
  await show("equals", () => [id.equals(env.D.idFromName("a")), id.equals(env.D.newUniqueId())]);
  await show("eq bad", () => id.equals("x"));
  await show("stub", () => [s.id.toString().length, s.name, typeof s, typeof s.foo, Object.keys(s), s.constructor.name, Object.prototype.toString.call(s), s.toString === Object.prototype.toString, typeof s.toString, "foo" in s, "fetch" in s, typeof s.then, String(typeof s.toJSON)]);
  await show("ns", () => [Object.keys(env.D), env.D.constructor.name, Object.prototype.toString.call(env.D)]);
  await show("idFromString bad", () => env.D.idFromString("x"));
  await show("idFromString foreign", () => env.D.idFromString(env.NoExt.idFromName("x").toString()));
  await show("idFromString upper", () => env.D.idFromString(id.toString().toUpperCase()).toString() === id.toString());
  await show("idFromName none", () => env.D.idFromName());
  await show("idFromName num", () => env.D.idFromName(5).name);
  await show("idFromName undefined", () => env.D.idFromName(undefined).name);
  await show("get bad", () => env.D.get("x"));
  await show("get none", () => env.D.get());
  await show("getByName", () => env.D.getByName("q").name);
  await show("newUniqueId name", () => [env.D.newUniqueId().name, "name" in env.D.newUniqueId(), env.D.newUniqueId().jurisdiction]);
  await show("loc", () => env.D.get(id, { locationHint: "enam" }).name);
  await show("pipelined", () => s.obj().a);
  await show("obj.d", async () => {
    const o = await s.obj();
    return [o.d instanceof Date, o.m instanceof Map, o.e instanceof TypeError, Object.keys(o), typeof o[Symbol.dispose]];
  });
  await show("error", async () => {
    try {
      await s.thr();
    } catch (e) {
      return { n: e.name, m: e.message, r: e.remote, c: e.constructor === RangeError };
    }
  });
  return report();
} };
