// Code that neither V8 nor a limit can end costs a thread, not the process.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { join } from "node:path";
import { hasCommand, sanitized, scratch, startCelld, until } from "./lib/celld.mjs";
import { Client, forEachParallel } from "./lib/client.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("dev") ? false : "celld dev does not exist yet";

// What V8 answers by ending the process, unless it is kept from it.
const fatal = {
  "split to characters": `return ("x".repeat(2e8) + 1).split("").length`,
  "keys of a huge string": `return Object.keys("x".repeat(2e8)).length`,
};
// Single calls that look at nothing for minutes.
const endless = {
  "fill of a huge array": `return new Array(1.3e8).fill(0).length`,
  "indexOf in a huge array-like": `return Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)`,
  "array of a huge length": `return Array.from({ length: 1.5e8 }).length`,
};
const shapes = { ...fatal, ...endless };

// GET /NAME/PROGRAM runs a program in the object NAME, GET /NAME counts; GET /worker/PROGRAM runs it in the Worker.
function project(list, { members = "", before = "", worker = "" } = {}) {
  const table = Object.entries(list).map(([name, code]) => `${JSON.stringify(name)}: async function () { ${code} \n}`);
  return objectProject(`
  async fetch(request) {
    const name = decodeURIComponent(new URL(request.url).pathname.split("/")[2] ?? "");
    const { kv } = this.ctx.storage;
    if (name === "") {
      kv.put("n", (kv.get("n") ?? 0) + 1);
      return Response.json({ n: kv.get("n"), alarms: kv.get("alarms") ?? 0 });
    }
    return new Response(String(await programs[name].call(this)));
  }
  async echo(value) { return value; }
  ${members}`, {
    before: `const programs = {\n${table.join(",\n")}\n};\n${before}`,
    worker: `${worker}
    if (url.pathname.startsWith("/worker/")) {
      return new Response(String(await programs[decodeURIComponent(url.pathname.split("/")[2])](env)));
    }`,
  });
}

const OBJECTS = 12;

async function start(t, list, { env, ...options } = {}) {
  const host = await startCelld(makeProject(join(scratch(), "project"), project(list, options)), {
    env: { CELLD_LOOPS: "1", CELLD_CPU_LIMIT_MS: sanitized ? "1500" : "300", CELLD_GRACE_MS: "200", ...env },
    args: ["--no-watch"],
  });
  t.after(() => host.stop());
  const client = new Client(host.url, 64);
  t.after(() => client.close());
  const run = async (object, name = "") => {
    const { status, body } = await client.send("GET", `/${object}/${encodeURIComponent(name)}`, { ms: 60_000 });
    return { status, body };
  };
  // Objects of every thread: each answers, and what it answered before is still there.
  const counts = new Map();
  const allCount = () =>
    forEachParallel(OBJECTS, OBJECTS, async (i) => {
      const { status, body } = await run(`o${i}`);
      assert.equal(status, 200, body);
      const n = (counts.get(i) ?? 0) + 1;
      assert.equal(JSON.parse(body).n, n, `o${i}`);
      counts.set(i, n);
    });
  const stop = async () => {
    const { code, signal } = await host.kill("SIGTERM");
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, host.stderr);
    assert.match(host.stderr, /every cell is durable and released/);
  };
  const lost = () => host.stderr.match(/is given up/g)?.length ?? 0;
  return { host, run, allCount, stop, lost };
}

describe("code that cannot be ended", { skip }, () => {
  for (const [name, code] of Object.entries(shapes)) {
    test(`${name}: its request fails and every object goes on`, async (t) => {
      const { host, run, allCount, stop, lost } = await start(t, { [name]: code, fine: "return 1" });
      await allCount();
      for (const [victim, most] of [["o0", 1], ["worker", 2]]) {
        const failing = run(victim, name);
        const others = (async () => {
          do await allCount(); while (lost() < most && !host.run.ended());
        })();
        const { status, body } = await failing;
        assert.equal(status, 500, body);
        assert.match(body, /exceeded (its |)(CPU time|memory) limit/);
        await others;
        assert.equal(lost(), most, host.stderr);
        await allCount();
        assert.equal((await run("worker", "fine")).body, "1");
      }
      await stop();
    });
  }

  test("what_waits_for_the_lost_thread_is_answered", async (t) => {
    const { host, run, allCount, stop } = await start(t, {
      long: endless["indexOf in a huge array-like"],
      "long after write": `this.ctx.storage.kv.put("n", -1); ${endless["indexOf in a huge array-like"]}`,
      "answer, then long": `this.ctx.storage.kv.put("n", -1); queueMicrotask(() => { ${endless["indexOf in a huge array-like"]} }); return "stored"`,
      slow: `globalThis.under = (globalThis.under ?? 0) + 1; await new Promise((r) => setTimeout(r, 600_000)); return 1`,
      "one by one": `globalThis.under = (globalThis.under ?? 0) + 1;
        return this.ctx.blockConcurrencyWhile(async () => { await new Promise((r) => setTimeout(r, 25_000)) })`,
      under: `return globalThis.under ?? 0`,
    });
    await allCount();
    // Events under way in objects of all threads, one of which is lost; those of the others stay.
    const waiting = Array.from({ length: OBJECTS }, (_, i) => run(`w${i}`, i % 2 ? "slow" : "one by one").catch(() => ({})));
    let ended = 0;
    for (const w of waiting) w.then(({ status }) => status && (ended += 1));
    await until("an event waits where o0 lives", async () => Number((await run("o0", "under")).body) > 0);
    const queued = [run("o0", "long after write"), run("o0"), run("o0"), run("o0")];
    assert.equal((await queued[0]).status, 500);
    for (const q of queued.slice(1)) assert.ok([200, 500, 503].includes((await q).status));
    await until("events of the lost isolate have ended", () => ended > 0);
    assert.ok(ended < OBJECTS, "events of other threads have ended too");
    const { n } = JSON.parse((await run("o0")).body);
    assert.ok(n >= 2 && n <= 5, `what the lost turn wrote is there: ${n}`);
    assert.equal((await run("o1", "answer, then long")).status, 500);
    assert.equal(JSON.parse((await run("o1")).body).n, 2);
    await stop();
  });

  test("a_call_that_ends_after_all_changes_nothing", async (t) => {
    const { host, run, allCount, stop } = await start(t, {
      long: `this.ctx.storage.kv.put("n", -1); Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1, 2 ** 53 - 2e7); this.ctx.storage.kv.put("n", -2);
        return "came back"`,
    }, { env: { CELLD_CPU_LIMIT_MS: "50", CELLD_GRACE_MS: "20" } });
    await allCount();
    const tasks = () => readdirSync(`/proc/${host.child.pid}/task`).map((id) => {
      const [, name, state] = /\((.*)\) (.)/.exec(readFileSync(`/proc/${host.child.pid}/task/${id}/stat`, "utf8"));
      return { id, name, state };
    });
    const before = new Set(tasks().map((task) => task.id));
    const { status } = await run("o0", "long");
    assert.equal(status, 500);
    const heirs = tasks().filter(({ id, name }) => name.startsWith("cells-") && !before.has(id));
    assert.equal(heirs.length, 1);
    const lost = tasks().find(({ id, name }) => name === heirs[0].name && before.has(id));
    await until("the call has ended", async () => {
      assert.ok(tasks().some(({ id }) => id === lost.id), "the thread has ended");
      await allCount();
      return tasks().find(({ id }) => id === lost.id).state === "S";
    }, 60_000);
    await allCount();
    await stop();
  });

  test("a_response_that_a_lost_thread_was_writing_is_cut_off", async (t) => {
    const { run, host, allCount, stop } = await start(t, { long: endless["indexOf in a huge array-like"] }, {
      before: `const stream = () => {
        const { readable, writable } = new TransformStream();
        const writer = writable.getWriter();
        (async () => {
          for (;;) { await writer.write(new TextEncoder().encode("tick ")); await new Promise((r) => setTimeout(r, 10)); }
        })().catch(() => {});
        return new Response(readable);
      };`,
      worker: `if (url.pathname === "/stream") return stream();`,
    });
    await allCount();
    const response = await fetch(`${host.url}/stream`);
    const reader = response.body.getReader();
    assert.equal(new TextDecoder().decode((await reader.read()).value).slice(0, 5), "tick ");
    const failing = run("worker", "long");
    await assert.rejects(async () => {
      while (!(await reader.read()).done);
    });
    assert.equal((await failing).status, 500);
    await allCount();
    await stop();
  });

  test("an_alarm_that_cannot_be_ended_is_tried_again", async (t) => {
    const { run, allCount, stop, lost } = await start(t, { arm: "return this.ctx.storage.setAlarm(Date.now())" }, {
      members: `async alarm() {
        this.ctx.storage.kv.put("alarms", (this.ctx.storage.kv.get("alarms") ?? 0) + 1);
        await this.ctx.storage.sync();
        if (this.ctx.storage.kv.get("alarms") === 1) { ${endless["indexOf in a huge array-like"]} }
      }`,
    });
    await run("a", "arm");
    await until("the alarm was tried again", async () => JSON.parse((await run("a")).body).alarms === 2, 40_000);
    assert.equal(lost(), 1);
    await allCount();
    await stop();
  });

  test("a_stop_does_not_wait_for_a_call_that_cannot_be_ended", async (t) => {
    const { host, run, allCount, stop } = await start(t, { long: endless["indexOf in a huge array-like"] }, {
      env: { CELLD_CPU_LIMIT_MS: "600000" },
    });
    await allCount();
    const failing = [run("o0", "long"), run("o1", "long"), run("worker", "long")].map((r) => r.catch((e) => e));
    await stop();
    await Promise.all(failing);
    await host.start();
    await allCount();
  });

  test("a_node_that_lost_too_many_threads_leaves_in_good_order", async (t) => {
    const { host, run, allCount } = await start(t, { split: fatal["split to characters"] }, {
      env: { CELLD_LOST_THREADS_MAX: "2" },
    });
    await allCount();
    for (const object of ["o0", "worker"]) assert.equal((await run(object, "split")).status, 500);
    assert.deepEqual(await host.run.exited, { code: 4, signal: null }, host.stderr);
    assert.match(host.stderr, /2 threads have been given up/);
    assert.match(host.stderr, /every cell is durable and released/);
    await host.start();
    await allCount();
  });
});
