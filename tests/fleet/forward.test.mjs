// Any node takes any request: what is for an object of another node goes there, and its answer comes back.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { request } from "node:http";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import { setTimeout as pass } from "node:timers/promises";
import { deploy, sanitized, scratch, until } from "../e2e/lib/celld.mjs";
import { Client, forEachParallel } from "../e2e/lib/client.mjs";
import { makeProject, config } from "../e2e/lib/projects.mjs";
import { TTL_MS, startFleet } from "./lib/fleet.mjs";

const GIVE_UP_MS_MAX = sanitized ? 30_000 : TTL_MS + 2000;

const PROJECT = {
  "wrangler.json": config(),
  "src/index.js": `import { DurableObject } from "cloudflare:workers";

export class Tested extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS seen (what TEXT)");
  }
  note(what) {
    this.ctx.storage.sql.exec("INSERT INTO seen VALUES (?)", what);
    return this.ctx.storage.sql.exec("SELECT count(*) AS n FROM seen WHERE what = ?", what).one().n;
  }
  seen(what) {
    return this.ctx.storage.sql.exec("SELECT count(*) AS n FROM seen WHERE what = ?", what).one().n;
  }
  async add(list, map) {
    return { sum: list.reduce((a, b) => a + b, 0), keys: [...map.keys()], date: new Date(0), name: this.ctx.id.name };
  }
  fails(kind) {
    if (kind === "type") throw new TypeError("of its own kind");
    if (kind === "text") throw "only a text";
    throw new Error("broken on purpose");
  }
  // What arrives while it is sent; the answer begins before the body ends.
  async fetch(request) {
    const url = new URL(request.url);
    const what = url.pathname.split("/")[2];
    switch (what) {
      case "note": return Response.json({ n: this.note(url.searchParams.get("what")) });
      case "seen": return Response.json({ n: this.seen(url.searchParams.get("what")) });
      case "echo": return new Response(request.body, { headers: { "content-type": "application/octet-stream" } });
      case "whole": {
        const bytes = await request.arrayBuffer();
        const hash = await crypto.subtle.digest("SHA-256", bytes);
        return Response.json({ size: bytes.byteLength, hash: [...new Uint8Array(hash)].map((b) => b.toString(16).padStart(2, "0")).join("") });
      }
      case "large": {
        let left = Number(url.searchParams.get("bytes"));
        return new Response(new ReadableStream({
          pull(controller) {
            if (left <= 0) return controller.close();
            const size = Math.min(left, 100_000);
            left -= size;
            controller.enqueue(new Uint8Array(size).fill(97));
          },
        }));
      }
      case "about": return new Response(null, {
        status: 418,
        statusText: "Short and stout",
        headers: [["set-cookie", "a=1"], ["set-cookie", "b=2"], ["x-method", request.method], ["x-url", request.url],
          ["x-got", request.headers.get("x-given") ?? "nothing"], ["x-name", this.ctx.id.name],
          ["x-body", String(request.body !== null)]],
      });
      case "waits": {
        this.note("began");
        await this.ctx.storage.sync();
        request.signal.addEventListener("abort", () => this.note("aborted"));
        let beats = 0;
        return new Response(new ReadableStream({
          start: (controller) => void (this.timer = setInterval(() => controller.enqueue(new TextEncoder().encode(\`\${++beats}\\n\`)), 20)),
          cancel: () => {
            clearInterval(this.timer);
            this.note("cancelled");
          },
        }));
      }
      case "silent": {
        this.note("began");
        await this.ctx.storage.sync();
        await new Promise((resolve) => request.signal.addEventListener("abort", resolve));
        this.note("aborted");
        return new Response("too late");
      }
      case "never":
        this.note("began");
        await this.ctx.storage.sync();
        return new Promise((resolve) => setTimeout(() => resolve(new Response("late")), 60_000));
      case "throws": throw new RangeError("thrown by fetch");
      case "breaks": return new Response(new ReadableStream({
        pull(controller) {
          if (this.sent) return controller.error(new Error("the stream broke"));
          this.sent = true;
          controller.enqueue(new Uint8Array(10));
        },
      }));
    }
    return new Response("?", { status: 404 });
  }
}

export class Caller extends DurableObject {
  ask(name) {
    return this.env.OBJECT.getByName(name).seen("anything");
  }
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const [, name, what] = url.pathname.split("/");
    const object = env.OBJECT.getByName(name);
    switch (what) {
      case "rpc": {
        const { sum, keys, date, name: own } = await object.add([1, 2, 3], new Map([["a", 1], ["b", 2]]));
        return Response.json({ sum, keys, isDate: date instanceof Date, own });
      }
      case "rpc-fails":
        try {
          await object.fails(url.searchParams.get("kind"));
        } catch (error) {
          return Response.json({ isError: error instanceof Error, isType: error instanceof TypeError, name: error?.name,
            message: error?.message ?? error, remote: error?.remote });
        }
        break;
      case "through": return Response.json({ n: await env.CALLER.getByName(name).ask(url.searchParams.get("other")) });
      case "never":
        try {
          return await object.fetch(request);
        } catch (error) {
          return Response.json({ message: error.message, retryable: error.retryable ?? false, overloaded: error.overloaded ?? false });
        }
    }
    return object.fetch(request);
  },
};
`,
};
PROJECT["wrangler.json"].durable_objects.bindings.push({ name: "CALLER", class_name: "Caller" });
PROJECT["wrangler.json"].migrations[0].new_sqlite_classes.push("Caller");

// Sends a request whose body is under our control: { write, end, destroy, response } with the chunks of the answer.
function open(url, path, { method = "POST" } = {}) {
  const call = request(new URL(path, url), { method, agent: false });
  const answer = { status: 0, text: "", ended: false, error: undefined };
  call.on("error", (error) => (answer.error = error));
  call.on("response", (response) => {
    answer.status = response.statusCode;
    response.setEncoding("latin1").on("data", (chunk) => (answer.text += chunk));
    response.on("error", (error) => (answer.error = error));
    response.on("close", () => (answer.ended = response.complete));
  });
  if (method === "GET") call.end();
  return { call, answer };
}

describe("forward", { concurrency: false }, () => {
  let fleet, owner, other;
  const undo = [];
  before(async () => {
    fleet = await startFleet({ after: (step) => undo.push(step) }, 2, makeProject(scratch(), PROJECT));
    [owner, other] = fleet.nodes.map(({ url }) => new Client(url));
    undo.push(() => [owner, other].forEach((client) => client.close()));
  });
  after(async () => {
    for (const step of undo.reverse()) await step();
  });
  const owned = async (name) => {
    await owner.json("POST", `/${name}/note?what=owned`);
    return name;
  };

  test("a_node_that_does_not_own_an_object_answers_for_it", async () => {
    const name = await owned("plain");
    for (let n = 2; n < 20; n++) assert.deepEqual(await (n % 2 ? owner : other).json("POST", `/${name}/note?what=owned`), { n });
    assert.deepEqual(await other.json("GET", `/${name}/rpc`), { sum: 6, keys: ["a", "b"], isDate: true, own: name });
  });

  test("heads_arrive_as_they_were_sent_in_both_directions", async () => {
    const name = await owned("heads");
    for (const [client, method] of [[owner, "DELETE"], [other, "DELETE"], [owner, "PROPFIND"], [other, "PROPFIND"]]) {
      const { status, headers } =
        await client.send(method, `/${name}/about?a=%20b`, { headers: { "x-given": "caf\xc3\xa9", host: "example.com" } });
      assert.equal(status, 418);
      assert.deepEqual(headers["set-cookie"], ["a=1", "b=2"]);
      assert.equal(headers["x-method"], method);
      assert.equal(headers["x-url"], `http://example.com/${name}/about?a=%20b`);
      assert.equal(headers["x-got"], "caf\xc3\xa9");
      assert.equal(headers["x-name"], name);
      assert.equal(headers["x-body"], String(method === "PROPFIND"));  // Node.js sends one of no bytes
      assert.deepEqual(Object.keys(headers).filter((key) => key.startsWith("x-celld") || key.startsWith("h-")), []);
    }
  });

  test("errors_of_an_object_keep_their_kind", async () => {
    const name = await owned("errors");
    for (const kind of ["plain", "type", "text"]) {
      const [here, there] = await Promise.all([owner, other].map((client) => client.json("GET", `/${name}/rpc-fails?kind=${kind}`)));
      assert.deepEqual(there, here, kind);
    }
    for (const client of [owner, other]) assert.equal((await client.send("GET", `/${name}/throws`)).status, 500);
  });

  test("bodies_stream_in_both_directions_at_once", async () => {
    const name = await owned("stream");
    const { call, answer } = open(fleet.nodes[1].url, `/${name}/echo`);
    for (let i = 1; i <= 5; i++) {
      call.write(`part ${i};`);
      await until(`part ${i} came back`, () => answer.text.endsWith(`part ${i};`));
    }
    call.end();
    await until("the end", () => answer.ended);
  });

  test("large_bodies_arrive_whole", async () => {
    const name = await owned("large");
    for (const size of [0, 1, 65_536, 65_537, 5_000_000]) {
      const body = Buffer.alloc(size, "0123456789abcdef-");
      const hash = createHash("sha256").update(body).digest("hex");
      assert.deepEqual(await other.json("POST", `/${name}/whole`, { body }), { size, hash });
      const echo = await other.send("POST", `/${name}/echo`, { body });
      assert.equal(createHash("sha256").update(echo.body).digest("hex"), hash);
    }
    const { body } = await other.send("GET", `/${name}/large?bytes=20000000`);
    assert.equal(body.length, 20_000_000);
  });

  test("an_answer_that_breaks_off_there_breaks_off_here", async () => {
    const name = await owned("breaks");
    await assert.rejects(other.send("GET", `/${name}/breaks`));
  });

  test("a_client_that_leaves_ends_the_call_on_the_other_node", async () => {
    const name = await owned("aborts");
    for (const [i, [what, node]] of [["silent", 0], ["silent", 1], ["waits", 0], ["waits", 1]].entries()) {
      const { call, answer } = open(fleet.nodes[node].url, `/${name}/${what}`, { method: "GET" });
      if (what === "waits") await until("the answer began", () => answer.text.includes("1\n"));
      else await until("it began", async () => (await owner.json("GET", `/${name}/seen?what=began`)).n === i + 1);
      call.socket.resetAndDestroy();  // who only closes its sending side may still read
      const noted = what === "waits" ? "cancelled" : "aborted";
      await until(`${what} was ${noted}`, async () => (await owner.json("GET", `/${name}/seen?what=${noted}`)).n === 1 + node);
    }
  });

  test("objects_call_objects_of_other_nodes", async () => {
    const name = await owned("callee");
    assert.deepEqual(await other.json("GET", `/caller/through?other=${name}`), { n: 0 });
    assert.deepEqual(await owner.json("GET", `/caller/through?other=${name}`), { n: 0 });
  });

  test("many_objects_of_both_nodes_answer_through_both", async () => {
    await forEachParallel(60, 12, (i) => (i % 2 ? owner : other).json("POST", `/m${i}/note?what=x`));
    await forEachParallel(240, 24, async (i) => {
      const { n } = await (i % 4 < 2 ? owner : other).json("POST", `/m${i % 60}/note?what=y`);
      assert.ok(n >= 1 && n <= 4, `${n}`);
    });
    await forEachParallel(60, 12, async (i) => assert.deepEqual(await owner.json("GET", `/m${i}/seen?what=y`), { n: 4 }));
  });
});

describe("forward to a node that is lost", () => {
  for (const [signal, name] of [["SIGKILL", "killed"], ["SIGSTOP", "frozen"]]) {
    test(`a_call_under_way_when_its_node_is_${name}_fails_as_retryable_and_is_not_run_again`, async (t) => {
      const { nodes } = await startFleet(t, 2, makeProject(scratch(), PROJECT));
      const [owner, other] = nodes.map(({ url }) => new Client(url));
      t.after(() => [owner, other].forEach((client) => client.close()));
      t.after(() => t.diagnostic(nodes[1].stderr));
      await owner.json("POST", "/o/note?what=owned");
      const call = other.json("GET", "/o/never");
      await until("it began", async () => (await owner.json("GET", "/o/seen?what=began")).n === 1);
      const since = Date.now();
      nodes[0].child.kill(signal);
      const error = await call;
      const ms = Date.now() - since;
      t.diagnostic(`told after ${ms} ms`);
      assert.deepEqual(error, { message: "Network connection lost.", retryable: true, overloaded: false });
      assert.ok(ms <= GIVE_UP_MS_MAX, `${ms} ms`);
      // The object goes on here, and what had begun did not begin again.
      assert.deepEqual(await other.json("POST", "/o/note?what=owned"), { n: 2 });
      assert.deepEqual(await other.json("GET", "/o/seen?what=began"), { n: 1 });
      nodes[0].child.kill("SIGCONT");
      if (signal === "SIGSTOP") assert.equal((await nodes[0].run.exited).code, 3, nodes[0].stderr);
    });
  }
});

describe("forward to a node that is full", () => {
  test("a_node_without_connections_for_its_peers_is_overloaded_and_keeps_its_lease", async (t) => {
    const { nodes } = await startFleet(t, 2, makeProject(scratch(), PROJECT), { files: 512 });
    const [owner, other] = nodes.map(({ url }) => new Client(url));
    t.after(() => [owner, other].forEach((client) => client.close()));
    await owner.json("POST", "/o/note?what=x");
    const [, port] = nodes[0].stderr.match(/other nodes reach this one at 127\.0\.0\.1:(\d+)/);
    const sockets = Array.from({ length: 300 }, () => connect(Number(port), "127.0.0.1").on("error", () => {}));
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    await until("the node refuses its peer", async () => {
      const { status, headers } = await other.send("POST", "/o/note?what=refused");
      return status === 503 && headers["x-celld-overload"];
    });
    await pass(TTL_MS);
    assert.deepEqual(await owner.json("POST", "/o/note?what=x"), { n: 2 });
    sockets.forEach((socket) => socket.destroy());
    await until("the node answers its peer", async () => (await other.send("GET", "/o/seen?what=x")).status === 200);
  });
});

describe("forward to a node that leaves", () => {
  test("its_objects_go_on_elsewhere_and_no_call_is_lost", async (t) => {
    const { nodes } = await startFleet(t, 2, makeProject(scratch(), PROJECT));
    const [owner, other] = nodes.map(({ url }) => new Client(url));
    t.after(() => [owner, other].forEach((client) => client.close()));
    const OBJECTS = 20;
    await forEachParallel(OBJECTS, 10, (i) => owner.json("POST", `/o${i}/note?what=x`));
    const done = new Array(OBJECTS).fill(1);
    let stopped = false;
    let worst = 0;
    const load = Promise.all(Array.from({ length: OBJECTS }, async (_, i) => {
      while (!stopped) {
        const since = Date.now();
        assert.deepEqual(await other.json("POST", `/o${i}/note?what=x`), { n: ++done[i] });
        worst = Math.max(worst, Date.now() - since);
      }
    }));
    await until("the load runs", () => done.every((n) => n > 3));
    nodes[0].child.kill("SIGTERM");
    assert.equal((await nodes[0].run.exited).code, 0, nodes[0].stderr);
    const then = [...done];
    await until("every object goes on", () => done.every((n, i) => n > then[i] + 3));
    stopped = true;
    await load;
    t.diagnostic(`worst ${worst} ms`);
  });
});
