// objects: A B
import { DurableObject } from "cloudflare:workers";
import { object, worker } from "../lib/harness.mjs";

export class A extends object({
  async its_id({ ctx, env, say }) {
    say("id", ctx.id);
    say("name", ctx.id.name);
    say("string", ctx.id.toString());
    say("equals", ctx.id.equals(env.A.idFromName("its_id")));
    say("same string", ctx.id.toString() === env.A.idFromName("its_id").toString());
    say("jurisdiction", ctx.id.jurisdiction);
  },
  async its_context({ ctx, storage, say }) {
    say("ctx", Object.prototype.toString.call(ctx));
    say("storage", Object.prototype.toString.call(storage));
    say("sql", Object.prototype.toString.call(storage.sql));
    say("kv", Object.prototype.toString.call(storage.kv));
    say("props", ctx.props);
    say("keys", Object.keys(ctx));
    say("methods", ["waitUntil", "blockConcurrencyWhile", "acceptWebSocket", "getWebSockets", "abort", "setWebSocketAutoResponse", "getTags", "facets"].map((key) => key in ctx));
    say("storage methods", ["get", "list", "put", "delete", "deleteAll", "transaction", "transactionSync", "getAlarm", "setAlarm", "deleteAlarm", "sync", "sql", "kv", "getCurrentBookmark", "getBookmarkForTime", "onNextSessionRestoreBookmark", "rollback"].map((key) => key in storage));
  },
  async hash_name({ ctx, say }) { say("name", ctx.id.name); },
}) {}

export class B extends DurableObject {
  who() { return [this.ctx.id.toString(), this.ctx.id.name]; }
  fetch(request) { return new Response(`${request.method} ${request.url}`); }
}

export default worker({
  async names({ env, say }) {
    const a = env.A.idFromName("x");
    say("deterministic", a.toString() === env.A.idFromName("x").toString());
    say("different", a.toString() === env.A.idFromName("y").toString());
    say("apart", a.toString() === env.B.idFromName("x").toString());
    say("hex", /^[0-9a-f]{64}$/.test(a.toString()));
    say("equals", [a.equals(env.A.idFromName("x")), a.equals(env.A.idFromName("y")), a.equals(env.B.idFromName("x"))]);
    say("string equals", `${a}` === a.toString());
    say("odd names", ["", " ", "\0", "é", "\u{1F600}", "x".repeat(5000)].map((name) => env.A.idFromName(name).name === name));
    say("lone surrogate", env.A.idFromName("\ud800").name === "\ud800");
    say("loose equality", [a == env.A.idFromName("x"), a == String(a)]);
  },
  async strings({ env, does }) {
    const a = env.A.idFromName("x");
    does("round trip", () => env.A.idFromString(a.toString()).toString() === a.toString());
    does("name is lost", () => env.A.idFromString(a.toString()).name);
    does("equal", () => env.A.idFromString(a.toString()).equals(a));
    does("foreign", () => env.B.idFromString(a.toString()));
    does("short", () => env.A.idFromString("abc"));
    does("empty", () => env.A.idFromString(""));
    does("not hex", () => env.A.idFromString("z".repeat(64)));
    does("zeros", () => env.A.idFromString("0".repeat(64)));
    does("long", () => env.A.idFromString(a.toString() + "00"));
    does("one digit off", () => env.A.idFromString(a.toString().replace(/.$/, (c) => (c === "0" ? "1" : "0"))));
    does("undefined", () => env.A.idFromString(undefined));
    does("null", () => env.A.idFromString(null));
    does("object", () => env.A.idFromString({ toString: () => a.toString() }).equals(a));
    does("white space", () => env.A.idFromString(` ${a}`));
  },
  async unique({ env, does }) {
    const u = env.A.newUniqueId();
    does("hex", () => /^[0-9a-f]{64}$/.test(u.toString()));
    does("name", () => u.name);
    does("differs", () => u.toString() !== env.A.newUniqueId().toString());
    does("round trip", () => env.A.idFromString(u.toString()).equals(u));
    does("foreign", () => env.B.idFromString(u.toString()));
    does("no jurisdiction", () => env.A.newUniqueId({}).name);
  },
  async foreign_ids({ env, does }) {
    does("get", () => env.B.get(env.A.idFromName("x")));
    does("get of a string", () => env.B.get(env.A.idFromName("x").toString()));
    does("get of nothing", () => env.B.get());
    does("get of null", () => env.B.get(null));
  },
  async stubs({ env, tries, say }) {
    const stub = env.B.getByName("n");
    say("id", stub.id);
    say("name", stub.name);
    say("equals", stub.id.equals(env.B.idFromName("n")));
    await tries("who", () => stub.who());
    await tries("who by string", () => env.B.get(env.B.idFromString(stub.id.toString())).who());
    await tries("who by unique", async () => (await env.B.get(env.B.newUniqueId()).who())[1]);
    await tries("fetch url", async () => (await stub.fetch("http://host/path?q=1#hash")).text());
    await tries("fetch URL", async () => (await stub.fetch(new URL("http://host/a b"))).text());
    await tries("fetch request", async () => (await stub.fetch(new Request("http://host/r", { method: "PUT" }))).text());
    await tries("fetch init", async () => (await stub.fetch("http://host/", { method: "delete" })).text());
    await tries("fetch request and init", async () => (await stub.fetch(new Request("http://host/r"), { method: "PATCH" })).text());
    await tries("fetch https", async () => (await stub.fetch("https://host/")).text());
    await tries("fetch relative", () => stub.fetch("/path"));
    await tries("fetch no scheme", () => stub.fetch("host/path"));
    await tries("fetch ftp", async () => (await stub.fetch("ftp://host/path")).text());
    await tries("fetch credentials", async () => (await stub.fetch("http://user:pass@host/")).text());
    await tries("fetch nothing", () => stub.fetch());
    await tries("fetch number", () => stub.fetch(5));
    await tries("response url", async () => (await stub.fetch("http://host/u")).url);
    await tries("get with hint", async () => (await env.B.get(stub.id, { locationHint: "weur" }).who())[1]);
    await tries("getByName of a number", () => env.B.getByName(5).name);
    await tries("stub as key", async () => env.B.getByName("n") === env.B.getByName("n"));
    say("json", JSON.stringify(stub.id));
  },
}, { A });
