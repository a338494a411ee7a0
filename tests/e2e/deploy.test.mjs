// celld deploy and the nodes that follow it.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { join } from "node:path";
import { Bucket } from "./lib/bucket.mjs";
import { deploy, hasCommand, runCelld, scratch, startNode, until } from "./lib/celld.mjs";
import { Client } from "./lib/client.mjs";
import { config, makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("deploy") ? false : "celld deploy does not exist yet";
const ADOPTED_MS_MAX = 15_000;

const program = (version) => objectProject(`
  memory = 0;
  async fetch(request) {
    const { storage } = this.ctx;
    if (request.url.endsWith("/slow")) {
      for (let i = 0; i < 40; i++) await new Promise((resolve) => setTimeout(resolve, 100));
    }
    if (request.url.endsWith("/body")) {
      let chunks = 0;
      return new Response(new ReadableStream({
        async pull(controller) {
          await new Promise((resolve) => setTimeout(resolve, 100));
          controller.enqueue(new TextEncoder().encode("${version}"));
          if (++chunks === 40) controller.close();
        },
      }));
    }
    const n = (storage.kv.get("n") ?? 0) + 1;
    storage.kv.put("n", n);
    return Response.json({ n, version: ${JSON.stringify(version)} });
  }`);

async function deployed(t, files) {
  const folder = scratch();
  const bucket = new Bucket(join(folder, "bucket"));
  const project = makeProject(join(folder, "project"), files);
  const version = await deploy(project, bucket.url);
  const host = await startNode({ bucket: bucket.url, data: join(folder, "data") });
  t.after(() => host.kill());
  const client = new Client(host.url);
  t.after(() => client.close());
  return { folder, bucket, project, version, host, client, get: (path) => client.json("GET", path) };
}

describe("deploy", { skip, concurrency: 2 }, () => {
  test("a_second_deployment_is_adopted_while_every_request_succeeds", async (t) => {
    const { bucket, project, get, host } = await deployed(t, program("one"));
    let done = false;
    let requests = 0;
    const seen = new Set();
    const loops = Array.from({ length: 8 }, async (_, i) => {
      for (let n = 0; !done; requests++) {
        const answer = await get(`/o${i}`);
        assert.equal(answer.n, ++n, "state was lost");
        seen.add(answer.version);
      }
    });
    for (const version of ["two", "three"]) {
      makeProject(project, program(version));
      const started = Date.now();
      await Promise.race([deploy(project, bucket.url), ...loops]);
      await Promise.race([until(`${version} is served`, () => seen.has(version), ADOPTED_MS_MAX), ...loops]);
      t.diagnostic(`${version} was served ${Date.now() - started} ms after celld deploy started`);
    }
    done = true;
    await Promise.all(loops);
    t.diagnostic(`${requests} requests`);
    for (let i = 0; i < 8; i++) assert.equal((await get(`/o${i}`)).version, "three");
    assert.ok(!host.run.ended());
  });

  test("a_request_in_flight_and_a_body_that_streams_survive_a_deployment", async (t) => {
    const { bucket, project, get, client } = await deployed(t, program("1"));
    const slow = get("/a/slow");
    const body = client.send("GET", "/b/body");
    makeProject(project, program("2"));
    await deploy(project, bucket.url);
    await until("the new version is served", async () => (await get("/c")).version === "2", ADOPTED_MS_MAX);
    assert.deepEqual(await slow, { n: 1, version: "1" });
    assert.equal((await body).body, "1".repeat(40));
    assert.equal((await get("/a")).version, "2");
  });

  test("a_deployment_that_cannot_start_is_named_and_the_old_one_goes_on", async (t) => {
    const { bucket, project, get, host } = await deployed(t, program("good"));
    const files = program("bad");
    files["src/index.js"] += `\nthrow new Error("cannot start");\n`;
    makeProject(project, files);
    const { code, stderr } = await runCelld(["deploy", project, "--bucket", bucket.url]);
    // Found out before or after it is deployed, but always by name.
    if (code === 0) await until("the node says so", () => host.stderr.includes("cannot start"), ADOPTED_MS_MAX);
    else assert.match(stderr, /cannot start/);
    assert.equal((await get("/a")).version, "good");
  });

  test("the_same_project_again_is_the_same_version", async (t) => {
    const { bucket, project, version } = await deployed(t, program("one"));
    const keys = bucket.keys("deploy");
    assert.equal(await deploy(project, bucket.url), version);
    assert.deepEqual(bucket.keys("deploy"), keys);
  });

  test("secrets_of_dot_dev_vars_are_never_uploaded", async (t) => {
    const { bucket } = await deployed(t, { ...program("one"), ".dev.vars": "SECRET=only-on-this-machine\n" });
    for (const key of bucket.keys()) assert.ok(!bucket.read(key).includes("only-on-this-machine"), key);
  });

  test("a_class_that_is_not_exported_is_named_before_anything_is_served", async (t) => {
    const folder = scratch();
    const files = program("one");
    files["src/index.js"] = files["src/index.js"].replace("export class Tested", "class Tested");
    const project = makeProject(join(folder, "project"), files);
    const bucket = `file://${join(folder, "bucket")}`;
    const first = await runCelld(["deploy", project, "--bucket", bucket]);
    const last = first.code === 0
      ? await runCelld(["--bucket", bucket, "--listen", "127.0.0.1:0", "--data", join(folder, "data")], { ms: 20_000 })
      : first;
    assert.equal(last.code, 1, last.stderr);
    assert.match(last.stderr, /Tested/);
  });

  test("an_unknown_key_is_named_and_nothing_is_written", async (t) => {
    const folder = scratch();
    const bucket = new Bucket(join(folder, "bucket"));
    const project = makeProject(join(folder, "project"), { ...program("one"), "wrangler.json": config({ no_such_key: true }) });
    const { code, stderr } = await runCelld(["deploy", project, "--bucket", bucket.url]);
    assert.equal(code, 1);
    assert.match(stderr, /no_such_key/);
    assert.match(stderr, /wrangler\.json/);
    assert.deepEqual(bucket.keys(), []);
  });

  test("a_node_on_an_empty_bucket_waits_for_the_first_deployment_or_says_so", async (t) => {
    const folder = scratch();
    const bucket = `file://${join(folder, "bucket")}`;
    const project = makeProject(join(folder, "project"), program("one"));
    const run = await runCelld(["--bucket", bucket, "--listen", "127.0.0.1:0", "--data", join(folder, "data")], { ms: 4000 });
    assert.match(run.stderr, /deploy/);
    if (run.code !== null) assert.equal(run.code, 1, run.stderr);
    assert.ok(await deploy(project, bucket));
  });
});
