// The path that every request takes: worker, Durable Object, answer.
import assert from "node:assert/strict";
import test from "node:test";
import { load, start } from "./host.mjs";

const host = await load();
const { DurableObject } = host.hooks.modules["cloudflare:workers"];

class Counter extends DurableObject {
  async increment(by = 1) {
    const n = ((await this.ctx.storage.get("n")) ?? 0) + by;
    await this.ctx.storage.put("n", n);
    return n;
  }
  get label() {
    return `counter ${this.ctx.id.name}`;
  }
  async fetch(request) {
    const url = new URL(request.url);
    return Response.json({ path: url.pathname, n: await this.increment(), q: url.searchParams.get("q") });
  }
}

start(host, {
  Counter,
  default: {
    async fetch(request, env) {
      const url = new URL(request.url);
      const stub = env.Counter.get(env.Counter.idFromName("a"));
      if (url.pathname === "/rpc") return new Response(String(await stub.increment(10)));
      if (url.pathname === "/label") return new Response(await stub.label);
      if (url.pathname === "/throw") throw new RangeError("boom");
      if (url.pathname === "/var") return new Response(env.GREETING);
      if (url.pathname === "/echo") return new Response(request.body, { headers: { "X-Method": request.method } });
      return stub.fetch(request);
    },
  },
}, { namespaces: ["Counter"], vars: { GREETING: "hello" } });

test("a request reaches an object and comes back", async () => {
  const answer = await host.fetch("http://x/some/path?q=1");
  assert.equal(answer.status, 200);
  assert.equal(answer.headers, "content-type\napplication/json\n");
  assert.equal(await host.body_text(answer.body), '{"path":"/some/path","n":1,"q":"1"}');
});

test("RPC calls and property reads", async () => {
  assert.equal(await host.text("http://x/rpc"), "11");
  assert.equal(await host.text("http://x/label"), "counter a");
});

test("variables", async () => assert.equal(await host.text("http://x/var"), "hello"));

test("what a handler throws is what the event fails with", async () => {
  await assert.rejects(host.fetch("http://x/throw"), { name: "RangeError", message: "boom" });
});

test("an untouched request body is handed over as the pipe it is", async () => {
  const pipe = host.pipe_of("a", "b");
  const answer = await host.fetch("http://x/echo", { method: "POST", body: pipe });
  assert.equal(answer.body, pipe);
  assert.equal(answer.headers, "x-method\nPOST\n");
});
