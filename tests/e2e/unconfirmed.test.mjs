// A bucket that takes leases and refuses data: nothing fences, and yet nobody waits for ever. When it heals, the
// same node goes on; what was acknowledged is there, what was not may or may not be.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { hasCommand, scratch, startCelld, until } from "./lib/celld.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";
import { startS3 } from "./lib/s3.mjs";

const skip = !hasCommand("dev") && "this celld has no `dev`";
const bucket = ["--bucket", "s3://celld/fleets/test"];

// GET /NAME/add adds one and answers the sum, /NAME/sum only answers it, /NAME/rpc says how a caller sees the error,
// /NAME/fill writes 40 MiB, a MiB each time.
const project = objectProject(`
  async add() {
    const n = (this.ctx.storage.kv.get("n") ?? 0) + 1;
    this.ctx.storage.kv.put("n", n);
    return n;
  }
  async fetch(request) {
    const what = new URL(request.url).pathname.split("/")[2];
    if (what === "add") return Response.json(await this.add());
    if (what === "fill") {
      this.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS big (x)");
      for (let i = 0; i < 40; ++i) {
        this.ctx.storage.sql.exec("INSERT INTO big VALUES (randomblob(1048576))");
        await scheduler.wait(1);
      }
    }
    if (what === "huge") {
      this.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS big (x)");
      for (let i = 0; i < 20; ++i) this.ctx.storage.sql.exec("INSERT INTO big VALUES (randomblob(1048576))");
    }
    return Response.json(this.ctx.storage.kv.get("n") ?? 0);
  }`, {
  worker: `if (url.pathname.endsWith("/rpc")) {
      try {
        return Response.json(await env.OBJECT.getByName(url.pathname.split("/")[1]).add());
      } catch (e) {
        return Response.json({ message: e.message, retryable: e.retryable, unconfirmed: e.unconfirmed });
      }
    }`,
});

async function start(t, env = {}) {
  const s3 = await startS3(["--bucket=celld"]);
  t.after(s3.stop);
  const host = await startCelld(makeProject(join(scratch(), "project"), project), {
    env: { ...s3.env, CELLD_CONFIRM_TIMEOUT_MS: "2000", ...env },
    args: ["--no-watch", ...bucket],
  });
  t.after(() => host.stop());
  const get = (path) => fetch(host.url + path, { signal: AbortSignal.timeout(60_000) });
  const refuse = () => s3.set({ "error-500": 1, spare: "/nodes/" });
  const heal = () => s3.set({ "error-500": 0, spare: "" });
  return { s3, host, get, refuse, heal };
}

test("a write that the bucket does not confirm is answered in bounded time, and the node goes on", { skip }, async (t) => {
  const { host, get, refuse, heal } = await start(t);
  assert.equal(await (await get("/a/add")).json(), 1);
  assert.equal(await (await get("/b/add")).json(), 1);
  await refuse();
  const [write, call] = await Promise.all([get("/a/add"), get("/b/rpc")]);
  assert.equal(write.status, 503);
  assert.equal(write.headers.get("x-celld-error"), "unconfirmed");
  assert.equal(write.headers.get("retry-after"), "1");
  assert.match(await write.text(), /may or may not have been stored/);
  const error = await call.json();
  assert.match(error.message, /^Durable Object storage operation exceeded timeout: the bucket has confirmed nothing/);
  assert.deepEqual([error.retryable, error.unconfirmed], [true, true]);
  // A read could tell of the write: it waits, and ends, too.
  assert.equal((await get("/a/sum")).status, 503);
  await until("the trouble is logged", () => /STORE-TROUBLE: journal: /.test(host.stderr));

  await heal();
  const healed = await until("it serves again", async () => {
    const answer = await get("/a/sum");
    const sum = await answer.text();
    return answer.status === 200 && { sum: Number(sum) };
  });
  assert.ok(healed.sum === 1 || healed.sum === 2, `${healed.sum}`);
  assert.equal(await (await get("/a/add")).json(), healed.sum + 1);
  await until("the end of the trouble is logged", () => /STORE-RECOVERED: journal: /.test(host.stderr));
  assert.equal(host.stderr.match(/STORE-TROUBLE: journal: /g).length, 1);
  assert.doesNotMatch(host.stderr, /SELF-FENCE/);
  await host.kill("SIGKILL");
  await host.restart();
  assert.equal(await (await get("/a/sum")).json(), healed.sum + 1);
});

test("a journal that is full makes writers wait instead of growing, and then refuses", { skip }, async (t) => {
  const { host, get, refuse, heal } = await start(t, { CELLD_JOURNAL_LIMIT_MB: "16" });
  assert.equal(await (await get("/a/add")).json(), 1);
  await refuse();
  const answer = await get("/a/fill");
  assert.equal(answer.status, 503);
  await answer.text();
  const other = await get("/c/sum");
  assert.equal(other.status, 503);
  assert.equal(other.headers.get("x-celld-overload"), "cell");
  await heal();
  await until("it serves again", async () => {
    const sum = await get("/a/sum");
    return (await sum.text()) === "1" && sum.status === 200;
  });
  assert.equal(await (await get("/c/add")).json(), 1);
  assert.doesNotMatch(host.stderr, /SELF-FENCE/);
});

test("a transaction over the limit fails by name and nothing of it stays", { skip }, async (t) => {
  const { host, get } = await start(t, { CELLD_TRANSACTION_LIMIT_MB: "16" });
  assert.equal(await (await get("/a/add")).json(), 1);
  const huge = await get("/a/huge");
  assert.equal(huge.status, 500);
  assert.match(await huge.text(), /the transaction changes more than the limit of 16 MiB: SQLITE_FULL/);
  assert.equal(await (await get("/a/add")).json(), 2);
  assert.equal((await get("/a/fill")).status, 200, "the same in parts");
  await host.kill("SIGKILL");
  await host.restart();
  assert.equal(await (await get("/a/sum")).json(), 2);
});
