// Bad input of any kind gets a clear error that names what and where, and loses nothing.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { spawn, spawnSync } from "node:child_process";
import { request } from "node:http";
import { connect } from "node:net";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Bucket } from "./lib/bucket.mjs";
import { SANITIZER_MB, binary, deploy, freePort, hasCommand, runCelld, scratch, startCelld, startNode, until } from "./lib/celld.mjs";
import { Client, exchangeRaw } from "./lib/client.mjs";
import { ledgerProject } from "./lib/ledger.mjs";
import { makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("deploy") ? false : "celld deploy does not exist yet";
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

describe("a bucket that is none", { skip, concurrency: 2 }, () => {
  const cases = {
    a_file_in_its_place: { make: (dir) => writeFileSync(dir, "x"), says: /directory/i },
    a_parent_that_does_not_exist: { path: "none/such/bucket", says: /none\/such/ },
    a_foreign_folder: { make: (dir) => (mkdirSync(dir), writeFileSync(join(dir, "holiday.jpg"), "x")), says: /./ },
    a_folder_of_a_later_format: {
      make: (dir) => (mkdirSync(join(dir, "objects"), { recursive: true }), writeFileSync(join(dir, "celld-store"), "celld file store, format 99\n")),
      says: /format/,
    },
    a_file_system_that_cannot_be_written: { url: "file:///proc/celld-bucket", says: /proc\/celld-bucket/ },
    a_scheme_that_does_not_exist: { url: "ftp://host/dir", says: /ftp:/ },
    a_relative_path: { url: "file://relative/dir", says: /relative/ },
    no_url_at_all: { url: "just-a-word", says: /just-a-word/ },
  };
  for (const [name, { make, path = "bucket", url, says }] of Object.entries(cases)) {
    for (const command of ["deploy", "node"]) {
      test(`${name}_is_named_by_${command}`, async (t) => {
        const folder = scratch();
        const dir = join(folder, path);
        make?.(dir);
        const bucket = url ?? `file://${dir}`;
        const args = command === "deploy"
          ? ["deploy", ledgerProject, "--bucket", bucket]
          : ["--bucket", bucket, "--listen", "127.0.0.1:0", "--data", join(folder, "data")];
        const { code, signal, stderr } = await runCelld(args, { ms: 20_000 });
        assert.equal(signal, null, stderr);
        assert.ok(code === 1 || code === 2, `code ${code}\n${stderr}`);
        assert.match(stderr, says);
        assert.match(stderr, new RegExp(escaped(url ?? dir)));
      });
    }
  }

  test("a_listening_address_that_is_none_is_named", async (t) => {
    const bucket = `file://${join(scratch(), "bucket")}`;
    for (const address of ["127.0.0.1", "127.0.0.1:99999", "nonsense:80", "8.8.8.8:1"]) {
      const { code, stderr } = await runCelld(["--bucket", bucket, "--listen", address, "--internal-listen", "127.0.0.1:0", "--data", join(scratch(), "d")], { ms: 20_000 });
      assert.ok(code === 1 || code === 2, `${address}: ${code}\n${stderr}`);
      assert.match(stderr, new RegExp(escaped(address)));
    }
  });

  for (const command of [["--bucket", "file:///none"], ["dev", "examples/counter"]]) {
    test(`too_few_files_for_${command[0].replace("--", "")}_are_named_at_the_start`, () => {
      const said = spawnSync("sh", ["-c", 'ulimit -n 256; exec "$@"', "sh", binary, ...command], { encoding: "utf8", timeout: 10_000 });
      assert.equal(said.status, 1, said.stderr);
      assert.match(said.stderr, /at most 256 files .* needs 512: raise/);
    });
  }

  test("a_setting_out_of_range_is_named", async () => {
    for (const [name, value] of [["CELLD_TTL_MS", "5"], ["CELLD_TTL_MS", "soon"], ["CELLD_LOOPS", "-1"], ["CELLD_HEAP_LIMIT_MB", "1"]]) {
      const { code, stderr } = await runCelld(["dev", ledgerProject], { env: { [name]: value }, ms: 20_000 });
      assert.ok(code === 1 || code === 2, `${name}=${value}: ${code}\n${stderr}`);
      assert.match(stderr, new RegExp(name));
    }
  });
});

// Two released objects in a bucket with no node: { bucket, data, serve() }.
async function releasedObjects(t, { end = "SIGTERM", env = {} } = {}) {
  const folder = scratch();
  const bucket = new Bucket(join(folder, "bucket"));
  await deploy(ledgerProject, bucket.url);
  const data = join(folder, "data");
  const port = await freePort();
  const first = await startNode({ bucket: bucket.url, data, port, env });
  const client = new Client(first.url);
  t.after(() => client.close());
  const append = (name, token) => client.json("POST", `/${name}?token=${token}&pad=3000`);
  await append("good", "g1");
  const alone = new Set(bucket.keys("cells/").map((key) => key.split("/")[1]));
  for (let i = 1; i <= 5; i++) await append("bad", `b${i}`);
  await first.kill(end);
  const bad = bucket.keys("cells/").map((key) => key.split("/")[1]).find((cell) => !alone.has(cell));
  const serve = async (options = {}) => {
    const host = await startNode({ bucket: bucket.url, data, port, env, ...options });
    t.after(() => host.kill());
    return host;
  };
  return { folder, bucket, data, client, append, bad, serve };
}

describe("a damaged bucket", { skip, concurrency: 2 }, () => {
  // `damage` answers the key; after the repair everything is as before.
  const damages = {
    a_flipped_bit_in_an_ltx_object: (bucket, cell) => {
      const key = bucket.keys(`cells/${cell}/ltx/`)[0];
      bucket.flip(key);
      return key;
    },
    a_flipped_bit_in_the_header_of_an_ltx_object: (bucket, cell) => {
      const key = bucket.keys(`cells/${cell}/ltx/`)[0];
      bucket.flip(key, 0.001);
      return key;
    },
    an_empty_ltx_object: (bucket, cell) => {
      const key = bucket.keys(`cells/${cell}/ltx/`)[0];
      bucket.replace(key, "");
      return key;
    },
    a_missing_ltx_object: (bucket, cell) => {
      const key = bucket.keys(`cells/${cell}/ltx/`)[0];
      bucket.remove(key);
      return key;
    },
    an_owner_record_that_is_no_json: (bucket, cell) => {
      bucket.replace(`cells/${cell}/own.json`, "{ nonsense");
      return `cells/${cell}/own.json`;
    },
    an_owner_record_of_another_shape: (bucket, cell) => {
      bucket.replace(`cells/${cell}/own.json`, `{"node": 7, "epoch": "many"}`);
      return `cells/${cell}/own.json`;
    },
    an_empty_owner_record: (bucket, cell) => {
      bucket.replace(`cells/${cell}/own.json`, "");
      return `cells/${cell}/own.json`;
    },
    an_object_file_that_was_cut: (bucket, cell) => {
      const key = `cells/${cell}/own.json`;
      writeFileSync(bucket.path(key), readFileSync(bucket.path(key)).subarray(0, 40));
      return key;
    },
  };
  for (const [name, damage] of Object.entries(damages)) {
    test(`${name}_is_named_and_the_other_objects_go_on`, async (t) => {
      const { folder, bucket, client, append, bad, serve } = await releasedObjects(t);
      cpSync(bucket.dir, join(folder, "copy"), { recursive: true });
      const key = damage(bucket, bad);
      const host = await serve();
      const { status } = await client.send("GET", "/bad", { ms: 30_000 });
      assert.ok(status >= 500, `status ${status}`);
      await until(() => `${key} is named\n${host.stderr}`, () => host.stderr.includes(key));
      assert.deepEqual(await append("good", "g2"), { seq: 2 });
      assert.ok((await client.send("POST", "/bad?token=x")).status >= 500, "a damaged object took a write");
      assert.equal((await client.json("GET", "/good")).n, 2);
      await host.kill("SIGTERM");
      // Repaired from the copy, nothing is lost.
      const file = (from) => new Bucket(from).path(key);
      cpSync(file(join(folder, "copy")), file(bucket.dir));
      const repaired = await serve();
      const state = await client.json("GET", "/bad");
      assert.deepEqual(state.tokens, ["b1", "b2", "b3", "b4", "b5"]);
      assert.deepEqual(state.faults, []);
      assert.equal((await client.json("GET", "/good")).n, 2);
      assert.ok(!repaired.run.ended());
    });
  }

  test("a_damaged_journal_slot_is_named_never_skipped_and_harms_only_its_own_objects", async (t) => {
    const env = { CELLD_TTL_MS: "1500" };
    const { folder, bucket, client, data, serve } = await releasedObjects(t, { end: "SIGKILL", env });
    const slots = bucket.keys("journal/");
    assert.ok(slots.length > 0, "nothing was left in the journal");
    cpSync(bucket.dir, join(folder, "copy"), { recursive: true });
    for (const slot of slots) bucket.flip(slot);
    rmSync(data, { recursive: true });
    const host = await serve();
    const { status } = await client.send("GET", "/bad", { ms: 30_000 });
    assert.ok(status >= 500, `status ${status}: an object came back without what was acknowledged`);
    await until("the slot is named", () => slots.some((slot) => host.stderr.includes(slot)));
    assert.equal((await client.json("POST", "/untouched?token=u1")).seq, 1);
    await host.kill("SIGKILL");
    for (const slot of slots) cpSync(new Bucket(join(folder, "copy")).path(slot), bucket.path(slot));
    rmSync(data, { recursive: true, force: true });
    await serve();
    assert.deepEqual((await client.json("GET", "/bad")).tokens, ["b1", "b2", "b3", "b4", "b5"]);
    assert.deepEqual((await client.json("GET", "/good")).tokens, ["g1"]);
    assert.deepEqual((await client.json("GET", "/untouched")).tokens, ["u1"]);
  });

  for (const what of ["current.json", "manifest.json", "module"]) {
    test(`a_damaged_deployment_is_named_(${what})`, async (t) => {
      const folder = scratch();
      const bucket = new Bucket(join(folder, "bucket"));
      await deploy(ledgerProject, bucket.url);
      const key = what === "module"
        ? bucket.keys("deploy-blobs/").sort((a, b) => bucket.size(b) - bucket.size(a))[0]
        : bucket.keys("deploy/").find((k) => k.endsWith(what));
      for (const each of what === "module" ? bucket.keys("deploy-blobs/") : [key]) bucket.flip(each);
      const { code, signal, stderr } = await runCelld(
        ["--bucket", bucket.url, "--listen", "127.0.0.1:0", "--data", join(folder, "data")], { ms: 10_000 });
      // It may wait for a better one; what it may not do is to serve or to crash.
      assert.ok(code === 1 || signal === "SIGKILL", `code ${code}, signal ${signal}\n${stderr}`);
      assert.ok(bucket.keys("deploy").some((k) => stderr.includes(k)), stderr);
    });
  }

  test("a_foreign_fleet_format_is_named", async (t) => {
    const { bucket, data } = await releasedObjects(t);
    for (const body of ["{ nonsense", `{"format": 99, "version": 99, "schema_version": 99}`]) {
      bucket.replace("fleet/format.json", body);
      const { code, stderr } = await runCelld(
        ["--bucket", bucket.url, "--listen", "127.0.0.1:0", "--data", data], { ms: 20_000 });
      assert.equal(code, 1, stderr);
      assert.match(stderr, /fleet\/format\.json/);
    }
  });

  test("a_data_directory_that_is_none_is_named", async (t) => {
    const { folder, bucket } = await releasedObjects(t);
    const file = join(folder, "a-file");
    writeFileSync(file, "x");
    const { code, stderr } = await runCelld(["--bucket", bucket.url, "--listen", "127.0.0.1:0", "--data", file], { ms: 20_000 });
    assert.equal(code, 1, stderr);
    assert.match(stderr, /a-file/);
  });
});

const bodies = objectProject("", {
  worker: `
    if (url.pathname === "/count") {
      let bytes = 0;
      for await (const chunk of request.body ?? []) bytes += chunk.byteLength;
      return Response.json({ bytes });
    }
    if (url.pathname === "/object") return env.OBJECT.getByName("a").fetch(request);
    if (url.pathname === "/whole") return Response.json({ bytes: (await request.arrayBuffer()).byteLength });
    if (url.pathname === "/ignore") return Response.json({ ignored: true });
    if (url.pathname === "/echo") return new Response(request.body);
    if (url.pathname === "/endless") {
      return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65536)) } }));
    }
    return new Response("fine");`,
});
bodies["src/index.js"] = bodies["src/index.js"].replace("extends DurableObject {", `extends DurableObject {
  async fetch(request) {
    let bytes = 0;
    for await (const chunk of request.body) bytes += chunk.byteLength;
    return Response.json({ bytes });
  }`);

const peakMb = (host) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${host.run.child.pid}/status`, "utf8"))[1]) / 1024;

// Sends `bytes` of zeros; answers { status, body }, also when the answer comes before the end.
function upload(url, path, bytes, { chunked = false } = {}) {
  return new Promise((resolve, reject) => {
    const headers = chunked ? {} : { "content-length": String(bytes) };
    const call = request(url + path, { method: "POST", headers, agent: false });
    const timer = setTimeout(() => call.destroy(new Error(`${path}: no answer`)), 120_000);
    let left = bytes;
    const block = Buffer.alloc(1 << 18);
    const more = () => {
      while (left > 0) {
        const part = block.subarray(0, Math.min(left, block.length));
        left -= part.length;
        if (!call.write(part)) return call.once("drain", more);
      }
      call.end();
    };
    let answered = false;
    call.once("response", (response) => {
      answered = true;
      let body = "";
      response.setEncoding("utf8").on("data", (text) => (body += text));
      response.once("close", () => {
        clearTimeout(timer);
        call.destroy();
        resolve({ status: response.statusCode, body, sent: bytes - left });
      });
    });
    call.on("error", (error) => {
      // A connection that is reset after its answer is fine; the answer may be on its way.
      if (!answered) setTimeout(() => answered || (clearTimeout(timer), reject(error)), 500);
    });
    more();
  });
}

describe("requests", { skip }, () => {
  async function serveBodies(t, env = {}) {
    const host = await startCelld(makeProject(join(scratch(), "project"), bodies), { args: ["--no-watch"], env });
    t.after(() => host.stop());
    return host;
  }
  const fine = async (host) => assert.equal(await fetch(`${host.url}/`).then((r) => r.text()), "fine", host.stderr);

  test("a_request_line_of_1_MB_is_answered_with_414", async (t) => {
    const host = await serveBodies(t);
    const line = `GET /${"x".repeat(1 << 20)} HTTP/1.1\r\nhost: x\r\n\r\n`;
    assert.match(await exchangeRaw(host.url, line), /^HTTP\/1\.1 414 /);
    const endless = "x".repeat(1 << 20);  // without an end
    assert.match(await exchangeRaw(host.url, `GET /${endless}`), /^HTTP\/1\.1 414 /);
    await fine(host);
  });

  test("what_is_no_http_is_refused_and_harms_nobody", async (t) => {
    const host = await serveBodies(t);
    const cases = {
      "no request": ["\0\x01\x02\x03 nonsense\r\n\r\n", /^HTTP\/1\.1 400 /],
      "TLS hello": [Buffer.from("16030100c8010000c40303", "hex"), /^(HTTP\/1\.1 400 .*)?/s],
      "no version": ["GET /\r\n\r\n", /^HTTP\/1\.1 (400|505) /],
      "other version": ["GET / HTTP/3.0\r\nhost: x\r\n\r\n", /^HTTP\/1\.1 (400|505) /],
      "no host": ["GET / HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
      "two lengths": ["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", /^HTTP\/1\.1 400 /],
      "length and chunks": ["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", /^HTTP\/1\.1 400 /],
      "negative length": ["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", /^HTTP\/1\.1 400 /],
      "huge length": ["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n", /^HTTP\/1\.1 4(00|13) /],
      "bad chunk": ["POST /count HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", /^HTTP\/1\.1 400 /],
      "space in name": ["GET / HTTP/1.1\r\nhost: x\r\na b: c\r\n\r\n", /^HTTP\/1\.1 400 /],
      "folded header": ["GET / HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n", /^HTTP\/1\.1 400 /],
      "zero byte": ["GET / HTTP/1.1\r\nhost: x\r\na: b\0c\r\n\r\n", /^HTTP\/1\.1 400 /],
      "large header": [`GET / HTTP/1.1\r\nhost: x\r\na: ${"b".repeat(1 << 20)}\r\n\r\n`, /^HTTP\/1\.1 431 /],
      "many headers": [`GET / HTTP/1.1\r\nhost: x\r\n${"a: b\r\n".repeat(100_000)}\r\n`, /^HTTP\/1\.1 431 /],
    };
    for (const [name, [bytes, answer]] of Object.entries(cases)) {
      const received = await exchangeRaw(host.url, bytes, { ms: 5000, enough: (text) => text.includes("\r\n\r\n") });
      assert.match(received, answer, `${name}: ${received.slice(0, 200)}`);
    }
    await fine(host);
  });

  test("more_idle_connections_than_files_do_not_cost_the_lease", async (t) => {
    const folder = makeProject(join(scratch(), "project"), bodies);
    const port = await freePort();
    const args = ["dev", folder, "--port", String(port), "--data", join(scratch(), "data"), "--no-watch"];
    const run = spawn("sh", ["-c", `ulimit -n 512 && exec "$0" "$@"`, binary, ...args], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, CELLD_TTL_MS: "3000", CELLD_LOOPS: "1" },
    });
    t.after(() => run.kill("SIGKILL"));
    let stderr = "";
    run.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
    const fine = () => fetch(`http://127.0.0.1:${port}/`).then((r) => r.text(), () => "");
    await until(() => `ready: ${stderr}`, async () => (await fine()) === "fine");
    const sockets = Array.from({ length: 800 }, () => connect(port, "127.0.0.1").on("error", () => {}));
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    // Twice the life of the lease: it is renewed all the while.
    for (const started = Date.now(); Date.now() - started < 6000; ) {
      assert.equal(run.exitCode, null, stderr);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    sockets.forEach((socket) => socket.destroy());
    await until(() => `answers again: ${stderr}`, async () => (await fine()) === "fine");
    assert.doesNotMatch(stderr, /SELF-FENCE/);
  });

  test("a_body_of_1_GB_streams_through_in_bounded_memory", async (t) => {
    const GB = 1 << 30;
    const host = await serveBodies(t, { CELLD_CPU_LIMIT_MS: "120000" });
    await fine(host);
    const before = peakMb(host);
    for (const [path, chunked] of [["/count", false], ["/object", true]]) {
      const started = Date.now();
      const { status, body } = await upload(host.url, path, GB, { chunked });
      if (status === 413) assert.match(body, /\d/, "413 does not name the limit");
      else assert.deepEqual({ status, ...JSON.parse(body) }, { status: 200, bytes: GB });
      t.diagnostic(`${path}: ${status} in ${Date.now() - started} ms, peak ${Math.round(peakMb(host))} MB`);
    }
    assert.ok(peakMb(host) - before < 256 + SANITIZER_MB, `memory grew from ${before} to ${peakMb(host)} MB`);
    await fine(host);
  });

  test("a_large_body_that_nobody_reads_costs_nothing", async (t) => {
    const host = await serveBodies(t);
    await fine(host);
    const before = peakMb(host);
    const { status, sent } = await upload(host.url, "/ignore", 1 << 28);
    assert.equal(status, 200);
    t.diagnostic(`${sent >> 20} MB were sent`);
    assert.ok(peakMb(host) - before < 64 + SANITIZER_MB, `memory grew from ${before} to ${peakMb(host)} MB`);
    await fine(host);
  });

  test("a_body_read_whole_beyond_the_heap_is_an_error_and_the_process_goes_on", async (t) => {
    const host = await serveBodies(t, { CELLD_HEAP_LIMIT_MB: "64" });
    await fine(host);
    const { status } = await upload(host.url, "/whole", 1 << 29).catch(() => ({ status: 0 }));
    assert.notEqual(status, 200);
    assert.ok(!host.run.ended(), host.stderr);
    assert.ok(peakMb(host) < 1000 + SANITIZER_MB, `${peakMb(host)} MB`);
    await fine(host);
  });

  test("a_slow_reader_of_an_endless_answer_does_not_make_memory_grow", async (t) => {
    const host = await serveBodies(t);
    await fine(host);
    const before = peakMb(host);
    await Promise.all(Array.from({ length: 8 }, () => new Promise((resolve) => {
      const call = request(`${host.url}/endless`, { agent: false }, (response) => {
        response.pause();
        setTimeout(() => (call.destroy(), resolve()), 1500);
      });
      call.on("error", resolve);
      call.end();
    })));
    assert.ok(peakMb(host) - before < 64 + SANITIZER_MB, `memory grew from ${before} to ${peakMb(host)} MB`);
    await fine(host);
  });

  test("clients_that_leave_at_any_moment_harm_nobody", async (t) => {
    const host = await serveBodies(t);
    const whole = `POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n${"y".repeat(1000)}`;
    for (let cut = 1; cut < whole.length; cut += 17) {
      await exchangeRaw(host.url, whole.slice(0, cut), { ms: 3 });
    }
    await fine(host);
  });
});
