// How events, bodies, calls and storage meet the host.
import assert from "node:assert/strict";
import test from "node:test";
import { load, start } from "./host.mjs";

const soon = setTimeout;
const settle = () => new Promise((resolve) => soon(resolve, 5));
const host = await load();
const { DurableObject, WorkerEntrypoint, RpcTarget, env: imported_env } = host.hooks.modules["cloudflare:workers"];
const { AsyncLocalStorage, AsyncResource } = host.hooks.modules["node:async_hooks"];

let handler;
let object; // (instance, ...args) of Cell.run

class Cell extends DurableObject {
  run(...args) {
    return object(this, ...args);
  }
  alarm(info) {
    this.alarmed = info;
  }
}
class Plain {
  constructor(state) {
    this.state = state;
  }
  hello() {}
  fetch() {
    return new Response(this.state.id.name);
  }
}
class Site extends WorkerEntrypoint {
  fetch(request) {
    return new Response(`${this.env.NAME} ${new URL(request.url).pathname} ${typeof this.ctx.waitUntil}`);
  }
}
const worker = { Cell, Plain, Site, default: { fetch: (...args) => handler(...args) } };
start(host, worker, { namespaces: ["Cell", "Plain"], vars: { NAME: "celld" } });

let cells = 0;
const in_cell = (run, ...args) => {
  object = run;
  return new Promise((resolve, reject) => {
    handler = async (_request, env) => {
      try {
        resolve(await env.Cell.getByName(`cell ${++cells}`).run(...args));
      } catch (error) {
        reject(error);
      }
      return new Response();
    };
    host.fetch("http://x/").catch(reject);
  });
};
const in_worker = (run) => new Promise((resolve, reject) => {
  handler = async (...args) => {
    try {
      resolve(await run(...args));
    } catch (error) {
      reject(error);
    }
    return new Response();
  };
  host.fetch("http://x/").catch(reject);
});

// --- entry points ---

test("a class entry point gets ctx and env", async () => {
  assert.equal(await host.text("http://x/p", { entrypoint: "Site" }), "celld /p function");
  assert.equal(imported_env.NAME, "celld");
});

test("a bound class that is not exported is named", () => {
  assert.throws(() => start(host, { default: {} }, { namespaces: ["Missing"] }),
    /class "Missing" \(bound as "Missing"\) is not exported by the main module/);
  start(host, worker, { namespaces: ["Cell", "Plain"], vars: { NAME: "celld" } });
});

test("what is not a response is an error", async () => {
  handler = () => 5;
  await assert.rejects(host.fetch("http://x/"),
    { message: "Callback returned incorrect type; expected 'Promise'" });
  handler = async () => 5;
  await assert.rejects(host.fetch("http://x/"),
    { message: "Incorrect type for Promise: the Promise did not resolve to 'Response'." });
});

test("waitUntil holds the event until its promise settles, and logs its failure", async () => {
  let finish;
  handler = (_request, _env, ctx) => {
    ctx.waitUntil(new Promise((resolve) => { finish = resolve; }));
    ctx.waitUntil(Promise.reject(new Error("late")));
    return new Response();
  };
  await host.fetch("http://x/");
  const io = host.last_io;
  await settle();
  assert.equal(host.events.get(io).holds, 1);
  assert.equal(host.reported.pop().message, "late");
  finish();
  await settle();
  assert.equal(host.events.get(io).holds, 0);
});

test("the calls and timers of an event are forgotten with it", async () => {
  let ran = 0;
  let finish;
  const pipe = host.pipe_of("late");
  host.on_fetch = () => new Promise((resolve) => { finish = () => resolve({ body: pipe }); });
  handler = () => {
    fetch("http://slow/").then(() => ran++);
    setTimeout(() => ran++, 1);
    return new Response();
  };
  await host.fetch("http://x/");
  host.hooks.ended(host.last_io);
  await settle();
  finish();
  await settle();
  assert.equal(ran, 0);
  assert.equal(host.pipes.get(pipe).cancelled, true); // nobody takes it any more
});

test("header values are UTF-8 on the wire and text for user code", async () => {
  const bytes = (text) => Buffer.from(text).toString("latin1");
  handler = (request) => new Response(null, { headers: { "x-out": request.headers.get("x-in") + "\u20ac" } });
  const answer = await host.fetch("http://x/", { headers: `x-in\n${bytes("h\u00e9")}\n` });
  assert.equal(answer.headers, `x-out\n${bytes("h\u00e9\u20ac")}\n`);
});

test("request.signal aborts when the client goes away", async () => {
  let signal;
  handler = (request) => {
    signal = request.signal;
    return new Promise(() => {});
  };
  host.fetch("http://x/");
  host.hooks.disconnected(host.last_io);
  assert.equal(signal.aborted, true);
});

// --- bodies ---

test("RT-02 pass-through bodies are neither decoded nor buffered: the pipe itself goes on", async () => {
  host.on_fetch = async ({ body }) => ({ body, headers: "x\ny\n" });
  const pipe = host.pipe_of("a", "b");
  const ways = {
    "fetch(url, {body: request.body})": (request) => fetch("http://up/", { method: "POST", body: request.body }),
    "fetch(request)": (request) => fetch(new Request("http://up/", request)),
    "new Response(response.body)": async (request) =>
      new Response((await fetch("http://up/", { method: "POST", body: request.body })).body),
    "new Response(request.body, response)": async (request) => new Response(request.body, new Response(null, { status: 201 })),
  };
  for (const [way, run] of Object.entries(ways)) {
    handler = run;
    const answer = await host.fetch("http://x/", { method: "POST", body: pipe });
    assert.equal(answer.body, pipe, way);
  }
});

test("RT-03 a second request.text() is a TypeError, and bodyUsed is true", async () => {
  await in_worker(async () => {
    const request = new Request("http://x/", { method: "POST", body: "a" });
    assert.equal(await request.text(), "a");
    assert.equal(request.bodyUsed, true);
    await assert.rejects(request.text(), { name: "TypeError" });
  });
});

test("text, bytes and json of a pipe", async () => {
  handler = async (request) => new Response(await request.text());
  assert.equal(await host.text("http://x/", { method: "POST", body: host.pipe_of("h\u00e9", "llo") }), "h\u00e9llo");
  handler = async (request) => Response.json((await request.json()).a);
  assert.equal(await host.text("http://x/", { method: "POST", body: host.pipe_of('{"a"', ":5}") }), "5");
  handler = async (request) => new Response(await request.bytes());
  assert.equal(await host.text("http://x/", { method: "POST", body: host.pipe_of("x", "y") }), "xy");
});

test("a pipe is read through its stream, with a reader, for await and byob", async () => {
  handler = async (request) => {
    let text = "";
    for await (const chunk of request.body) text += new TextDecoder().decode(chunk);
    return new Response(text);
  };
  assert.equal(await host.text("http://x/", { method: "POST", body: host.pipe_of("ab", "cd") }), "abcd");
  handler = async (request) => {
    const reader = request.body.getReader({ mode: "byob" });
    const sizes = [];
    for (;;) {
      const { value, done } = await reader.read(new Uint8Array(3));
      if (done) return Response.json(sizes);
      sizes.push(value.length);
    }
  };
  assert.equal(await host.text("http://x/", { method: "POST", body: host.pipe_of("abcd", "e") }), "[3,1,1]");
});

test("a pipe whose bytes come later", async () => {
  const pipe = host.native.pipeCreate(-1);
  handler = async (request) => new Response(await request.text());
  const answer = host.text("http://x/", { method: "POST", body: pipe });
  await settle();
  host.native.pipeWrite(pipe, "late", 0);
  await settle();
  host.native.pipeClose(pipe);
  assert.equal(await answer, "late");
});

test("a stream of user code is pumped into a pipe, with back-pressure, while the event is held", async () => {
  let pulled = 0;
  handler = () => new Response(new ReadableStream({
    pull(controller) {
      if (pulled++ < 20) controller.enqueue(new TextEncoder().encode("x"));
      else controller.close();
    },
  }));
  const answer = await host.fetch("http://x/");
  const io = host.last_io;
  assert.equal(host.events.get(io).holds, 1);
  assert.equal(await host.body_text(answer.body), "x".repeat(20));
  await settle();
  assert.equal(host.events.get(io).holds, 0);
});

test("a stream that fails aborts its pipe", async () => {
  handler = () => new Response(new ReadableStream({ start: (controller) => controller.error(new Error("broken")) }));
  const answer = await host.fetch("http://x/");
  await assert.rejects(host.body_text(answer.body), { message: "broken" });
});

test("a reader that goes away cancels the stream", async () => {
  let cancelled;
  handler = () => new Response(new ReadableStream({
    async pull(controller) {
      await settle();
      controller.enqueue(new Uint8Array(1));
    },
    cancel: (reason) => { cancelled = reason; },
  }));
  const answer = await host.fetch("http://x/");
  host.native.pipeCancel(answer.body);
  for (let i = 0; i < 50 && cancelled === undefined; i++) await settle();
  assert.match(cancelled.message, /reader has gone/);
});

test("FixedLengthStream announces its length", async () => {
  handler = () => {
    const stream = new FixedLengthStream(3);
    const writer = stream.writable.getWriter();
    writer.write(new TextEncoder().encode("abc"));
    writer.close();
    return new Response(stream.readable);
  };
  const answer = await host.fetch("http://x/");
  assert.equal(host.pipes.get(answer.body).length, 3);
  assert.equal(await host.body_text(answer.body), "abc");
});

test("clones of a pipe body are two pipes", async () => {
  handler = async (request) => {
    const copy = request.clone();
    return new Response((await request.text()) + (await copy.text()));
  };
  assert.equal(await host.text("http://x/", { method: "POST", body: host.pipe_of("ab") }), "abab");
});

test("headers pass through untouched, and are rewritten only when changed", async () => {
  const block = "set-cookie\na=1\nx-a\n1\nset-cookie\nb=2\n";
  host.on_fetch = async () => ({ headers: block });
  handler = () => fetch("http://up/");
  assert.equal((await host.fetch("http://x/")).headers, block);
  handler = async () => {
    const response = new Response(null, await fetch("http://up/"));
    response.headers.set("X-A", "2");
    return response;
  };
  assert.equal((await host.fetch("http://x/")).headers, "set-cookie\na=1\nx-a\n2\nset-cookie\nb=2\n");
});

// --- calls out ---

test("redirects are followed, change the method, and end at twenty", async () => {
  const seen = [];
  host.on_fetch = async ({ method, url, headers, body }) => {
    seen.push([method, url, headers, body]);
    return url === "http://a/1" ? { status: 302, headers: "location\nhttp://b/2#f\n" } : { body: "end" };
  };
  await in_worker(async () => {
    const response = await fetch("http://a/1",
      { method: "POST", body: "x", headers: { authorization: "secret", "x-a": "1" } });
    assert.deepEqual([response.url, response.redirected, await response.text()], ["http://b/2#f", true, "end"]);
    const manual = await fetch("http://a/1", { redirect: "manual" });
    assert.deepEqual([manual.status, manual.redirected], [302, false]);
  });
  assert.deepEqual(seen[0], ["POST", "http://a/1", "authorization\nsecret\nx-a\n1\ncontent-type\ntext/plain;charset=UTF-8\n", "x"]);
  assert.deepEqual(seen[1], ["GET", "http://b/2", "x-a\n1\ncontent-type\ntext/plain;charset=UTF-8\n", null]);
  let count = 0;
  host.on_fetch = async () => ({ status: 307, headers: `location\n/${++count}\n` });
  await in_worker(() => assert.rejects(fetch("http://a/"), /^TypeError: Too many redirects\./));
  assert.equal(count, 21);
  await in_worker(() => assert.rejects(
    fetch("http://a/", { method: "PUT", body: new ReadableStream({ start: (c) => c.close() }) }), /one-time-use body/));
});

test("an abort cancels the call and rejects with its reason", async () => {
  host.on_fetch = () => new Promise(() => {});
  await in_worker(async () => {
    const controller = new AbortController();
    const pending = fetch("http://a/", { signal: controller.signal });
    const before = host.cancelled.length;
    controller.abort(new Error("enough"));
    await assert.rejects(pending, { message: "enough" });
    assert.equal(host.cancelled.length, before + 1);
  });
});

test("a late head of a cancelled call gives its pipe back", () => {
  const pipe = host.pipe_of("x");
  host.hooks.callHead(999999, 200, "", "", pipe);
  assert.equal(host.pipes.get(pipe).cancelled, true);
});

// --- objects ---

test("errors keep their class across the call and say where they come from", async () => {
  await assert.rejects(in_cell(() => { throw new RangeError("far"); }),
    (error) => error instanceof RangeError && error.message === "far" && error.remote === true);
});

test("what RPC cannot carry yet is named", async () => {
  for (const [value, name] of [
    [() => 1, /A function as the result of an RPC call is not supported by celld yet/],
    [new (class extends RpcTarget {})(), /RpcTarget over RPC is not supported by celld yet/],
    [{ deep: [new Response()] }, /Response over RPC is not supported by celld yet/],
    [new (class Foo {})(), /Could not serialize object of type "Foo"/],
  ]) {
    await assert.rejects(in_cell(() => value), name);
  }
  await assert.rejects(in_cell(() => 1, () => 2), /A function as an argument of an RPC call/);
});

test("results with cycles and every structured type arrive whole", async () => {
  const result = await in_cell(() => {
    const value = { date: new Date(5), map: new Map([["k", new Set([1n])]]), error: new TypeError("e"), bytes: new Uint8Array([1]), re: /x/g };
    value.self = value;
    return value;
  });
  assert.equal(result.self, result);
  assert.equal(result.date.getTime(), 5);
  assert.equal(result.map.get("k").has(1n), true);
  assert.equal(result.error instanceof TypeError, true);
  assert.equal(typeof result[Symbol.dispose], "function");
  assert.deepEqual(Object.keys(result), ["date", "map", "error", "bytes", "re", "self"]);
});

test("a failing blockConcurrencyWhile resets the object, a good one opens the gate", async () => {
  await assert.rejects(in_cell((self) => self.ctx.blockConcurrencyWhile(async () => { throw new RangeError("start"); })),
    { message: "start" });
  assert.equal([...host.aborted.values()].pop().message, "start");
  assert.equal(await in_cell((self) => self.ctx.blockConcurrencyWhile(async () => 7)), 7);
  assert.equal(host.sections.pop(), undefined);
});

test("abort() resets with its reason", async () => {
  await assert.rejects(in_cell((self) => self.ctx.abort("why")),
    (error) => error.message === "why" && error.durableObjectReset === true);
});

test("alarm() gets its retry count and the time it was set for", async () => {
  const cell = await host.cell(0, "f".repeat(64), "alarms");
  await host.event((io) => host.hooks.cellAlarm(io, cell, 2, 1234), cell);
  assert.deepEqual(await new Promise((resolve) => {
    object = (self) => resolve(self.alarmed);
    host.event((io) => host.hooks.cellRpc(io, cell, "run", host.native.serialize([])), cell);
  }), { scheduledTime: 1234, retryCount: 2, isRetry: true });
});

test("SQL-06 storing a function is a DataCloneError, and nothing is written", async () => {
  await in_cell(async (self) => {
    for (const value of [() => 1, { f: () => 1 }, Symbol("s"), new Headers()]) {
      await assert.rejects(self.ctx.storage.put("k", value), { name: "DataCloneError" });
    }
    assert.equal((await self.ctx.storage.list()).size, 0);
  });
});

test("SQL-05 list({limit: -1}) is a TypeError", async () => {
  await in_cell((self) => assert.rejects(self.ctx.storage.list({ limit: -1 }), { name: "TypeError" }));
});

test("SQL-07 an inner transactionSync undoes only its own writes; callbacks get no argument", async () => {
  await in_cell((self) => {
    const { storage } = self.ctx;
    storage.transactionSync((...args) => {
      assert.equal(args.length, 0);
      storage.kv.put("outer", 1);
      assert.throws(() => storage.transactionSync(() => {
        storage.kv.put("inner", 1);
        throw new Error("undo");
      }), { message: "undo" });
    });
    assert.deepEqual([...storage.kv.list()], [["outer", 1]]);
  });
});

test("SQL-02 the error inside transactionSync reaches the caller even when its rollback fails", async () => {
  await in_cell((self) => {
    assert.throws(() => self.ctx.storage.transactionSync(() => {
      host.transactions.pop(); // as when SQLite has rolled back by itself
      throw new Error("database or disk is full: SQLITE_FULL");
    }), { message: "database or disk is full: SQLITE_FULL" });
  });
});

test("a transaction releases its gate whether it commits or fails", async () => {
  await in_cell(async (self) => {
    await self.ctx.storage.transaction(async (txn) => { await txn.put("a", 1); });
    await assert.rejects(self.ctx.storage.transaction(async (txn) => {
      await txn.put("a", 2);
      throw new Error("no");
    }), { message: "no" });
    assert.equal(await self.ctx.storage.get("a"), 1);
    await self.ctx.storage.sync();
  });
  assert.deepEqual(host.sections.filter((cell) => cell !== undefined).length, 0);
});

test("a cursor reads in batches", async () => {
  host.on_sql = (_cell, query, bindings) => {
    assert.deepEqual([query, bindings], ["SELECT ?", ["true", null, 1, "x"]]);
    return { columns: ["n"], rows: [[1], [2]], cursor: 7, rowsRead: 2, rowsWritten: 0 };
  };
  let left = 2;
  host.on_more = (_cell, cursor, result) => {
    assert.equal(cursor, 7);
    result.rows = [[3], [4]];
    result.rowsRead += 2;
    if (--left === 0) result.cursor = 0;
  };
  await in_cell((self) => {
    const cursor = self.ctx.storage.sql.exec("SELECT ?", true, undefined, 1, "x");
    assert.equal(cursor.rowsRead, 2);
    assert.deepEqual(cursor.next(), { done: false, value: { n: 1 } });
    assert.deepEqual([...cursor.raw()], [[2], [3], [4], [3], [4]]);
    assert.equal(cursor.rowsRead, 6);
  });
});

// --- the rest ---

test("AsyncLocalStorage follows awaits and timers, and AsyncResource keeps its own", async () => {
  await in_worker(async () => {
    const als = new AsyncLocalStorage();
    let resource;
    const seen = await als.run("a", async () => {
      await settle();
      resource = new AsyncResource("r");
      const in_timer = await new Promise((resolve) => setTimeout(() => resolve(als.getStore()), 1));
      return [als.getStore(), in_timer, als.run("b", () => als.getStore()), als.exit(() => als.getStore())];
    });
    assert.deepEqual(seen, ["a", "a", "b", undefined]);
    assert.equal(als.getStore(), undefined);
    assert.equal(resource.runInAsyncScope(() => als.getStore()), "a");
    const snapshot = als.run("c", () => AsyncLocalStorage.snapshot());
    assert.equal(snapshot(() => als.getStore()), "c");
  });
});

test("an exception in a timer goes to the log and stops nothing", async () => {
  await in_worker(() => new Promise((resolve) => {
    setTimeout(() => { throw new Error("in a timer"); }, 0);
    setTimeout(resolve, 2);
  }));
  assert.equal(host.reported.pop().message, "in a timer");
});

test("what is not there yet throws its name at first use", () => {
  for (const use of [
    () => new WebSocketPair(), () => new HTMLRewriter(), () => new CompressionStream("gzip"), () => caches.default.match("x"),
    () => new EventSource("http://x"), () => new MessageChannel(),
  ]) {
    assert.throws(use, /(WebSocketPair|HTMLRewriter|CompressionStream|caches|EventSource|MessageChannel) is not supported by celld yet/);
  }
  return assert.rejects(crypto.subtle.sign("HMAC"), /crypto.subtle.sign\(\) is not supported by celld yet/);
});

test("a class without DurableObject serves fetch, but no RPC", async () => {
  await in_worker(async (_request, env) => {
    const stub = env.Plain.getByName("p");
    assert.equal(await (await stub.fetch("http://x/")).text(), "p");
    await assert.rejects(stub.hello(), /does not support RPC, because its class was not declared with `extends DurableObject`/);
  });
});
