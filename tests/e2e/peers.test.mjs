// The internal listener of a node answers those who hold the secret of the fleet, and nobody else. Signed here as
// docs/peer-signature.md says it, without the code of celld.
import assert from "node:assert/strict";
import { createHmac, randomBytes } from "node:crypto";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { deploy, runCelld, scratch, startNode, until } from "./lib/celld.mjs";
import { Client, exchangeRaw } from "./lib/client.mjs";
import { Bucket } from "./lib/bucket.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const SECONDS = 1000;
const PING = "/__celld/peer/ping";

const PROJECT = objectProject(`
  fetch(request) { return new Response(new URL(request.url).pathname); }
  hello(name) { return "hello " + name; }`,
{ worker: 'if (url.pathname.startsWith("/__celld/")) return new Response("the Worker has " + url.pathname);' });

// The head of a request to `node` as its peers write it; `lies` changes what is signed, `more` what is sent.
function signedHead({ key, node, method = "GET", target = PING, headers = [], time = Date.now(), nonce, source = "f".repeat(32) }) {
  nonce ??= randomBytes(16).toString("hex");
  const signed = `1 ${source} ${node} ${time} ${nonce}`;
  const lines = ["celld-peer-request-1", signed, method, target, ...headers.flat()];
  const mac = createHmac("sha256", Buffer.from(key, "hex")).update(lines.map((line) => `${line}\n`).join("")).digest("hex");
  return { method, target, headers: [...headers, ["x-celld-peer-signature", `${signed} ${mac}`]] };
}

describe("peers", () => {
  let node, client, internal, key, id;
  before(async () => {
    const folder = scratch();
    const bucket = new Bucket(join(folder, "bucket"));
    await deploy(makeProject(join(folder, "project"), PROJECT), bucket.url);
    node = await startNode({ bucket: bucket.url, data: join(folder, "data") });
    client = new Client(node.url);
    const [, port] = await until("the address is told", () => node.stderr.match(/other nodes reach this one at 127\.0\.0\.1:(\d+)/));
    internal = `http://127.0.0.1:${port}`;
    key = bucket.json("fleet/peer-auth.json").key;
    [id] = bucket.keys("nodes/").map((path) => path.match(/^nodes\/([0-9a-f]{32})\.json$/)?.[1]).filter(Boolean);
    assert.equal((await client.send("GET", "/a/owned")).status, 200);
  });
  after(async () => {
    client?.close();
    await node?.stop();
  });

  const send = ({ method, target, headers }, { change = (list) => list, body } = {}) => new Promise((resolve, reject) => {
    const call = request(internal + target, { method, headers: [["host", "peer"], ...change(headers)].flat(), agent: false });
    call.on("error", reject).on("response", (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => resolve({ status: response.statusCode, refused: response.headers["x-celld-refused"],
        headers: response.headers, body: Buffer.concat(chunks) }));
    });
    call.end(body);
  });
  const outcome = async (...call) => {
    const { status, refused } = await send(...call);
    return refused ? `${status} ${refused}` : status;
  };
  const head = (changes = {}) => signedHead({ key, node: id, ...changes });

  test("who_holds_the_secret_is_answered", async () => {
    const { status, headers } = await send(head());
    assert.equal(status, 200);
    assert.equal(headers["x-celld-reply"], "pong");
    assert.ok(Number(headers["x-celld-authority-ms"]) > 0);
  });

  test("who_does_not_is_told_nothing", async () => {
    assert.equal(await outcome({ method: "GET", target: PING, headers: [] }), "401 unsigned");
    assert.equal(await outcome({ method: "GET", target: "/", headers: [] }), "401 unsigned");
    assert.equal(await outcome({ method: "GET", target: "/.well-known/celld/health", headers: [] }), "401 unsigned");
    assert.equal(await outcome(head({ key: randomBytes(32).toString("hex") })), "401 signature");
    // Whether the other claims are true is told only to holders of the secret.
    const wrong = { key: randomBytes(32).toString("hex"), node: "0".repeat(32), time: 0 };
    assert.equal(await outcome(head(wrong)), "401 signature");
    for (const value of ["", "1", "x".repeat(300), `1 a b c d ${"0".repeat(64)}`]) {
      assert.match(String(await outcome({ method: "GET", target: PING, headers: [["x-celld-peer-signature", value]] })), /^401 /);
    }
  });

  test("what_was_signed_for_another_time_node_or_request_is_refused", async () => {
    assert.equal(await outcome(head({ node: "0".repeat(32) })), "409 wrong-node");
    for (const seconds of [-31, 31, -3600, 3600]) {
      assert.equal(await outcome(head({ time: Date.now() + seconds * SECONDS })), "401 clock", `${seconds} s`);
    }
    assert.equal(await outcome(head({ time: Date.now() - 25 * SECONDS })), 200);
    assert.equal(await outcome({ ...head(), target: `${PING}?x` }), "401 signature");
    assert.equal(await outcome({ ...head(), method: "POST" }), "401 signature");
    const other = head({ headers: [["x-celld-cell", "a"]] });
    assert.equal(await outcome(other, { change: (list) => list.map(([name, value]) => [name, value === "a" ? "b" : value]) }), "401 signature");
    assert.equal(await outcome(head(), { change: (list) => [...list, ["x-celld-more", "1"]] }), "401 signature");
  });

  test("a_request_that_is_sent_again_is_refused", async () => {
    const first = head();
    assert.equal(await outcome(first), 200);
    assert.equal(await outcome(first), "409 replayed");
    assert.equal(await outcome(first), "409 replayed");
    const many = Array.from({ length: 50 }, () => head());
    assert.deepEqual(await Promise.all(many.map((each) => outcome(each))), many.map(() => 200));
    assert.deepEqual(await Promise.all(many.map((each) => outcome(each))), many.map(() => "409 replayed"));
  });

  test("what_is_no_part_of_a_node_is_not_found", async () => {
    assert.equal(await outcome(head({ target: "/" })), "404 unknown");
    assert.equal(await outcome(head({ target: "/__celld/peer/rpc" })), "404 unknown");  // a GET
    assert.equal(await outcome(head({ method: "POST", target: "/__celld/peer/fetch" })), "400 malformed");
    assert.equal(await outcome(head({ method: "POST", target: "/__celld/peer/rpc", headers: [["x-celld-cell", "../x"]] })), "400 malformed");
  });

  test("a_cell_that_is_not_here_is_not_claimed_for_a_peer", async () => {
    const cell = `Tested:${"0".repeat(64)}`;
    const { status, headers } = await send(head({ method: "POST", target: "/__celld/peer/rpc",
      headers: [["x-celld-cell", cell], ["x-celld-method", "hello"]] }), { body: "" });
    assert.equal(status, 200);
    assert.equal(headers["x-celld-reply"], "error");
  });

  test("garbage_on_the_internal_listener_ends_the_connection", async () => {
    for (const bytes of ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", `GET / HTTP/1.1\r\nhost: x\r\n${"a: b\r\n".repeat(100_000)}`]) {
      const answer = await exchangeRaw(internal, bytes, { ms: 20_000 });
      assert.match(answer, /^(HTTP\/1\.1 4\d\d |$)/);
    }
    assert.equal((await send(head())).status, 200);
  });

  test("the_public_side_knows_nothing_of_it", async () => {
    for (const target of [PING, "/__celld/peer/fetch", "/__celld/peer/rpc"]) {
      const { body } = await client.send("GET", target, { headers: Object.fromEntries(head({ target }).headers) });
      assert.equal(body, `the Worker has ${target}`);
    }
  });

  test("a_node_that_would_expose_it_does_not_start", async () => {
    for (const [args, why] of [
      [["--listen", "0.0.0.0:0"], "--internal-listen"],
      [["--listen", "0.0.0.0:0", "--internal-listen", "0.0.0.0:0"], "--advertise"],
      [["--advertise", "10.0.0.1:1"], "needs --internal-listen"],
      [["--internal-listen", "0.0.0.0:0", "--advertise", "8.8.8.8:1"], "public address"],
      [["--internal-listen", "0.0.0.0:0", "--advertise", "0.0.0.0:1"], "cannot connect"],
    ]) {
      const { code, stderr } = await runCelld(["--bucket", "file:///nowhere/at/all", ...args]);
      assert.equal(code, 2, stderr);
      assert.ok(stderr.includes(why), stderr);
    }
  });
});
