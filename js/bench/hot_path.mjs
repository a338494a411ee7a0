// What the JavaScript half costs per request, without a host: node js/bench/hot_path.mjs [seconds]
//
// Prints microseconds per operation. The host is a stub that answers at once, so the numbers are
// for the prelude and the microtasks of the program only, in CPU time of the process. Compare runs
// of one machine.
import vm from "node:vm";
import { prelude_text } from "../test/host.mjs";

const seconds = Number(process.argv[2] ?? 1);
const encoder = new TextEncoder();
const BYTES = new Uint8Array(8);
const ID = "a".repeat(64);
let hooks;
let next_io = 1;
const waiting = new Map(); // events that a call waits for

function finish(io, answer) {
  const next = waiting.get(io);
  if (next === undefined) return;
  waiting.delete(io);
  next(answer);
}

const native = {
  install(h) { hooks = h; },
  respond(io, status, text, headers, body) { finish(io, body); },
  replyBytes(io, bytes) { finish(io, bytes); },
  done() {},
  fail(io, error) { throw error; },
  hold() {},
  release() {},
  currentIo: () => 1,
  currentCell: () => -1,
  idFromName: () => ID,
  stubFetch(call, ns, id, name, method, url, headers, body) {
    waiting.set(next_io, (answer) => hooks.callHead(call, 200, "", "content-type\ntext/plain\n", answer));
    hooks.cellFetch(next_io++, 0, method, url, headers, body);
  },
  stubRpc(call, ns, id, name, method, args) {
    waiting.set(next_io, (answer) => hooks.callValue(call, answer));
    hooks.cellRpc(next_io++, 0, method, args);
  },
  // Not the prelude's work: the same bytes and values each time.
  serialize: () => BYTES,
  deserialize: () => [1],
  structuredClone: (value) => value,
  kvGet: () => 1,
  kvPut() {},
  utf8Decode: (bytes) => Buffer.from(bytes).toString(),
  utf8Encode: (text) => encoder.encode(text),
  sqlExec: () => ({ columns: ["id", "name", "n"], rows: [[1, "a", 2.5], [2, "b", 3.5]], cursor: 0, rowsRead: 2, rowsWritten: 0 }),
};

const text = await prelude_text();
globalThis.native = native;
vm.runInThisContext(text, { filename: "prelude.js" });
const { DurableObject } = hooks.modules["cloudflare:workers"];

class Counter extends DurableObject {
  fetch() {
    return new Response("hello");
  }
  async increment() {
    const n = await this.ctx.storage.get("n");
    await this.ctx.storage.put("n", n + 1);
    return n;
  }
  rows() {
    return this.ctx.storage.sql.exec("SELECT id, name, n FROM t WHERE id > ?", 1).toArray();
  }
}

hooks.setWorker({
  Counter,
  default: {
    async fetch(request, env) {
      const url = new URL(request.url);
      switch (url.pathname) {
        case "/hello":
          return new Response("hello");
        case "/json":
          return Response.json({ hello: "world", ua: request.headers.get("user-agent") });
        case "/cell": {
          const name = url.searchParams.get("name");
          return env.NS.get(env.NS.idFromName(name)).fetch(request);
        }
        case "/rpc":
          return new Response(String(await env.NS.getByName("a").increment()));
      }
      throw new Error("not found");
    },
  },
}, { vars: {}, namespaces: [{ binding: "NS", className: "Counter", sql: true }], compatibilityDate: "2026-11-01", compatibilityFlags: [] });
hooks.construct(1, 0, 0, ID, "a");

const HEADERS = "host\nexample.com\nuser-agent\ncurl/8\naccept\n*/*\nx-forwarded-for\n10.0.0.1\n";
const settle = () => new Promise((resolve) => setImmediate(resolve));

const cpu_ms = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};
const print = (line) => process.stdout.write(line + "\n");

async function measure(name, operation) {
  const run = async (ms) => {
    const start = cpu_ms();
    let count = 0;
    while (cpu_ms() - start < ms) {
      for (let i = 0; i < 500; i++) operation(i);
      count += 500;
      await settle();
    }
    return ((cpu_ms() - start) * 1000) / count;
  };
  await run(200);
  print(`${name.padEnd(46)} ${(await run(seconds * 1000)).toFixed(3)} us`);
}

print(`V8 ${process.versions.v8}, prelude ${(text.length / 1024).toFixed(0)} KiB`);
const request = (path) => hooks.fetch(next_io++, "", "GET", "http://example.com" + path, HEADERS, null, "");
await measure("fetch -> Response(text)", () => request("/hello"));
await measure("fetch -> headers.get -> Response.json", () => request("/json"));
await measure("fetch -> idFromName -> stub.fetch -> Response", () => request("/cell?name=abc"));
await measure("fetch -> getByName -> RPC get+put -> Response", () => request("/rpc"));
await measure("new URL(plain), pathname", () => new URL("http://example.com/some/path?x=1").pathname);
await measure("new URL(odd), pathname", () => new URL("http://user@EXAMPLE.com/some/../path?x=1").pathname);
await measure("new URL(plain).searchParams.get", () => new URL("http://example.com/p?a=1&b=2&c=3").searchParams.get("b"));
await measure("new Response(text, {status, headers})", () =>
  new Response("x", { status: 201, headers: { "Content-Type": "application/json", "Cache-Control": "no-store" } }));
await measure("new Request(url, {method, body})", () => new Request("http://example.com/a", { method: "POST", body: "abc" }));
await measure("new Headers(object).get", () => new Headers({ "X-A": "1", "X-B": "2" }).get("x-b"));
await measure("sql.exec().toArray(), 2 rows of 3", () => hooks.cellRpc(next_io++, 0, "rows", BYTES));
await measure("new Response(bytes).body read by reader", () => {
  new Response(new Uint8Array(10)).body.getReader().read();
});
