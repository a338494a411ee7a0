// celld dev: starts, reloads without losing anything, and says clearly what is wrong.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hasCommand, runCelld, scratch, spawnCelld, startCelld, until } from "./lib/celld.mjs";
import { Client } from "./lib/client.mjs";
import { config, makeProject, objectProject } from "./lib/projects.mjs";

const skip = hasCommand("dev") ? false : "celld dev does not exist yet";

const COUNTER = (version) => objectProject(`
  async fetch(request) {
    const n = (this.ctx.storage.kv.get("n") ?? 0) + 1;
    this.ctx.storage.kv.put("n", n);
    return Response.json({ n, version: ${JSON.stringify(version)} });
  }`);

async function startProject(t, files, options = {}) {
  const folder = makeProject(join(scratch(), "project"), files);
  const host = await startCelld(options.start ?? folder, options);
  t.after(() => host.stop());
  const client = new Client(host.url);
  t.after(() => client.close());
  return { folder, host, client, get: (path) => client.json("GET", path), text: async (path) => (await client.send("GET", path)).body };
}

// What celld says about a project it cannot serve.
async function refusal(t, files, { sub = "", args = [] } = {}) {
  const root = makeProject(join(scratch(), "project"), files);
  const { code, stdout, stderr } = await runCelld(["dev", join(root, sub), "--port", "0", "--no-watch", ...args], { ms: 20_000 });
  assert.equal(code, 1, `${stdout}\n${stderr}`);
  return stderr;
}

describe("dev state and configuration", { skip, concurrency: 2 }, () => {
  // The symptom was a home directory that was gone.
  test("clean_refuses_a_folder_that_celld_dev_did_not_make", async (t) => {
    const data = makeProject(join(scratch(), "documents"), { "letter.txt": "dear" });
    const said = await refusal(t, COUNTER("one"), { args: ["--data", data, "--clean"] });
    assert.match(said, new RegExp(`${data} was not made by celld dev .*--clean does not remove it`));
    assert.equal(readFileSync(join(data, "letter.txt"), "utf8"), "dear");
  });

  test("clean_starts_again_from_nothing", async (t) => {
    const data = join(scratch(), "state");
    const folder = makeProject(join(scratch(), "project"), COUNTER("one"));
    for (const [args, n] of [[[], 1], [[], 2], [["--clean"], 1]]) {
      const host = await startCelld(folder, { data, args: ["--no-watch", ...args] });
      t.after(() => host.stop());
      assert.equal((await (await fetch(`${host.url}/a`)).json()).n, n);
      await host.kill("SIGTERM");
    }
  });

  test("a_project_without_compatibility_date_is_warned_about", async (t) => {
    const files = { ...COUNTER("one"), "wrangler.json": config({ compatibility_date: undefined }) };
    const { host } = await startProject(t, files, { args: ["--no-watch"] });
    assert.match(host.stderr, /^warning: \S*wrangler\.json has no compatibility_date: 2021-11-02 is used/m);
  });

  test("a_key_that_is_there_twice_is_named_with_its_place", async (t) => {
    const text = JSON.stringify(config(), null, 2).replace('"name": "tested",', '"name": "tested",\n  "main": "src/other.js",');
    const said = await refusal(t, { ...COUNTER("one"), "wrangler.json": text });
    assert.match(said, /wrangler\.json:4: key 'main' is there twice, first in line 3/);
  });
});

describe("dev reload", { skip, concurrency: 2 }, () => {
  test("an_edit_is_served_within_a_second_and_the_state_stays", async (t) => {
    const { folder, get } = await startProject(t, COUNTER("one"));
    assert.deepEqual(await get("/a"), { n: 1, version: "one" });
    const took = [];
    for (const version of ["two", "three", "four"]) {
      const { n } = await get("/a");
      const edited = Date.now();
      makeProject(folder, COUNTER(version));
      let asked = 0;
      await until(`version ${version}`, async () => {
        const answer = await get("/a");
        assert.equal(answer.n, n + ++asked, "the counter jumped");
        return answer.version === version;
      });
      took.push(Date.now() - edited);
    }
    t.diagnostic(`reloads took ${took} ms`);
    // The promise is a second; a machine that builds other things at the same time gets more.
    assert.ok(Math.min(...took) < 1000, `reloads took ${took} ms`);
  });

  test("a_hundred_requests_during_reloads_all_succeed", async (t) => {
    const { folder, host, get } = await startProject(t, COUNTER(0));
    let done = false;
    const versions = new Set();
    let requests = 0;
    const loops = [0, 1, 2, 3].map(async (i) => {
      for (let n = 0; !done || requests < 100; ) {
        const answer = await get(`/o${i}`);
        assert.equal(answer.n, ++n);
        versions.add(answer.version);
        requests++;
      }
    });
    for (let version = 1; version <= 5; version++) {
      makeProject(folder, COUNTER(version));
      await Promise.race([until(`version ${version}`, () => versions.has(version)), ...loops]);
    }
    done = true;
    await Promise.all(loops);
    t.diagnostic(`${requests} requests over 5 reloads`);
    assert.ok(!host.run.ended());
  });

  test("a_request_that_runs_while_the_code_changes_ends_on_the_old_code", async (t) => {
    const program = (version) => objectProject(`
      async fetch(request) {
        if (request.url.endsWith("/slow")) await new Promise((resolve) => setTimeout(resolve, 2500));
        return Response.json({ version: ${version} });
      }`);
    const { folder, get } = await startProject(t, program(1));
    const slow = get("/a/slow");
    await until("it runs", () => get("/b").then(() => true));
    makeProject(folder, program(2));
    await until("the new version", async () => (await get("/b")).version === 2);
    assert.deepEqual(await slow, { version: 1 });
    assert.deepEqual(await get("/a"), { version: 2 });
  });

  test("a_syntax_error_is_named_with_file_and_line_and_the_old_version_goes_on", async (t) => {
    const { folder, host, get } = await startProject(t, COUNTER("good"));
    await get("/a");
    const source = readFileSync(join(folder, "src/index.js"), "utf8");
    writeFileSync(join(folder, "src/index.js"), `${source}\nconst broken = ;\n`);
    const line = source.split("\n").length + 1;
    await until("the error", () => host.stderr.includes(`src/index.js:${line}:`));
    assert.deepEqual(await get("/a"), { n: 2, version: "good" });
    // An error when the module runs, not when it is parsed.
    writeFileSync(join(folder, "src/index.js"), `${source}\nthrow new Error("broken at start");\n`);
    await until("the error", () => host.stderr.includes("broken at start"));
    assert.match(host.stderr, new RegExp(`src/index\\.js:${line}\\b`));
    assert.deepEqual(await get("/a"), { n: 3, version: "good" });
    makeProject(folder, COUNTER("mended"));
    await until("the mended version", async () => (await get("/a")).version === "mended");
  });

  test("a_project_that_is_broken_at_the_start_is_served_as_soon_as_it_is_mended", async (t) => {
    const folder = makeProject(join(scratch(), "project"), { ...COUNTER(1), "src/index.js": "export default {\n  fetch( = {}\n" });
    const run = spawnCelld(["dev", folder, "--port", "0"]);
    t.after(() => run.kill());
    await until("the error", () => run.stderr.includes("src/index.js:2:"));
    const [, url] = await until("the address", () => /(http:\/\/127\.0\.0\.1:\d+)/.exec(run.stderr));
    assert.equal((await fetch(url)).status, 503);
    makeProject(folder, COUNTER("mended"));
    await until("it is served", async () => (await fetch(url)).status === 200);
    assert.equal((await fetch(url).then((r) => r.json())).version, "mended");
  });

  test("a_configuration_that_breaks_is_named_and_the_old_version_goes_on", async (t) => {
    const { folder, host, get } = await startProject(t, COUNTER("good"));
    writeFileSync(join(folder, "wrangler.json"), JSON.stringify(config({ no_such_key: 1 })));
    await until("the error", () => host.stderr.includes("no_such_key"));
    assert.equal((await get("/a")).version, "good");
    writeFileSync(join(folder, "wrangler.json"), JSON.stringify(config({ vars: { X: "1" } })));
    makeProject(folder, { "src/index.js": COUNTER("mended")["src/index.js"] });
    await until("the mended version", async () => (await get("/a")).version === "mended");
  });

  test("no_watch_serves_what_was_there_at_the_start", async (t) => {
    const { folder, get } = await startProject(t, COUNTER("one"), { args: ["--no-watch"] });
    makeProject(folder, COUNTER("two"));
    const until = Date.now() + 1200;
    while (Date.now() < until) assert.equal((await get("/a")).version, "one");
  });
});

describe("dev state", { skip, concurrency: 2 }, () => {
  test("state_is_kept_under_dot_celld_and_clean_wipes_it", async (t) => {
    const folder = makeProject(join(scratch(), "project"), COUNTER(1));
    const data = join(folder, ".celld");
    const host = await startCelld(folder, { data });
    t.after(() => host.stop());
    const get = () => fetch(`${host.url}/a`).then((r) => r.json());
    assert.equal((await get()).n, 1);
    assert.ok(existsSync(data));
    await host.restart("SIGTERM");
    assert.equal((await get()).n, 2);
    await host.restart("SIGKILL");
    assert.equal((await get()).n, 3);
    await host.kill();
    await host.start({ args: ["dev", folder, "--port", String(host.port), "--clean"] });
    assert.equal((await get()).n, 1);
  });

  test("vars_of_dot_dev_vars_win_over_those_of_the_configuration", async (t) => {
    const files = {
      ...objectProject("", {
        changes: { vars: { FROM_CONFIG: "config", BOTH: "config", JSON_VALUE: { a: [1, null, "x"] } } },
        worker: "return Response.json(env);",
      }),
      ".dev.vars": `BOTH="dev"\nFROM_DEV=dev # comment\nMULTI="a\\nb"\n`,
    };
    const { folder, get } = await startProject(t, files);
    const { OBJECT, ...vars } = await get("/");
    assert.deepEqual(vars, { FROM_CONFIG: "config", BOTH: "dev", JSON_VALUE: { a: [1, null, "x"] }, FROM_DEV: "dev", MULTI: "a\nb" });
    writeFileSync(join(folder, ".dev.vars"), "BOTH=changed\n");
    await until("the changed variable", async () => (await get("/")).BOTH === "changed");
  });

  test("a_second_dev_on_the_same_state_is_refused_by_name", async (t) => {
    const { folder, host } = await startProject(t, COUNTER(1));
    const { code, stderr } = await runCelld(["dev", folder, "--port", "0", "--data", host.data], { ms: 20_000 });
    assert.equal(code, 1, stderr);
    assert.match(stderr, new RegExp(host.data.replace(/[.]/g, "\\.")));
  });

  test("a_port_that_is_taken_is_named", async (t) => {
    const { folder, host } = await startProject(t, COUNTER(1));
    const { code, stderr } = await runCelld(
      ["dev", folder, "--port", String(host.port), "--data", join(folder, "other")], { ms: 20_000 });
    assert.equal(code, 1, stderr);
    assert.match(stderr, new RegExp(`${host.port}.*in use`, "is"));
  });
});

describe("dev errors", { skip, concurrency: 2 }, () => {
  test("an_unknown_key_stops_and_names_key_and_file", async (t) => {
    const stderr = await refusal(t, { ...COUNTER(1), "wrangler.json": config({ durable_objcts: {} }) });
    assert.match(stderr, /durable_objcts/);
    assert.match(stderr, /wrangler\.json/);
  });

  test("a_key_that_is_not_supported_yet_stops_and_names_key_and_file", async (t) => {
    const files = { ...COUNTER(1), "wrangler.json": config({ hyperdrive: [{ binding: "DB", id: "x" }] }) };
    const stderr = await refusal(t, files);
    assert.match(stderr, /hyperdrive/);
    assert.match(stderr, /wrangler\.json/);
  });

  test("a_class_that_is_not_exported_is_named", async (t) => {
    const files = COUNTER(1);
    files["src/index.js"] = files["src/index.js"].replace("export class Tested", "class Tested");
    assert.match(await refusal(t, files), /Tested/);
  });

  test("a_class_without_a_migration_is_named", async (t) => {
    assert.match(await refusal(t, { ...COUNTER(1), "wrangler.json": config({ migrations: [] }) }), /Tested/);
  });

  test("a_broken_bundle_is_named_with_file_and_line", async (t) => {
    const files = { ...COUNTER(1), "src/index.js": `import { x } from "./missing.js";\nexport default { fetch() { return x } };\n` };
    const stderr = await refusal(t, files);
    assert.match(stderr, /src\/index\.js:1:/);
    assert.match(stderr, /missing\.js/);
  });

  test("a_module_that_throws_at_start_is_named_with_file_and_line", async (t) => {
    const files = COUNTER(1);
    files["src/index.js"] = `throw new Error("not today");\n${files["src/index.js"]}`;
    const stderr = await refusal(t, files);
    assert.match(stderr, /not today/);
    assert.match(stderr, /src\/index\.js:1\b/);
  });

  test("an_endless_loop_at_start_ends_within_the_limit", async (t) => {
    const files = COUNTER(1);
    files["src/index.js"] += "\nfor (;;) {}\n";
    const root = makeProject(join(scratch(), "project"), files);
    const { code, stderr } = await runCelld(["dev", root, "--port", "0", "--no-watch"], { ms: 20_000, env: { CELLD_CPU_LIMIT_MS: "500" } });
    assert.equal(code, 1, stderr);
    assert.match(stderr, /CPU/);
  });

  test("a_folder_without_a_configuration_is_named", async (t) => {
    const folder = join(scratch(), "empty");
    mkdirSync(folder);
    const { code, stderr } = await runCelld(["dev", folder], { ms: 20_000 });
    assert.equal(code, 1);
    assert.match(stderr, /empty/);
    assert.match(stderr, /wrangler/);
  });

  test("a_configuration_with_broken_syntax_is_named_with_its_line", async (t) => {
    const stderr = await refusal(t, { ...COUNTER(1), "wrangler.json": '{\n  "name": "x",\n  oops\n}\n' });
    assert.match(stderr, /wrangler\.json:3/);
  });

  test("a_configuration_in_a_parent_folder_is_found_and_its_dev_vars_with_it", async (t) => {
    const folder = makeProject(join(scratch(), "project"), {
      ...objectProject("", { changes: { vars: { A: "config" } }, worker: "return Response.json(env.A);" }),
      ".dev.vars": "A=dev\n",
    });
    const host = await startCelld(join(folder, "src"));
    t.after(() => host.stop());
    assert.equal(await fetch(host.url).then((r) => r.json()), "dev");
    assert.match(host.stderr, /wrangler\.json/, "the file that was found is not named");
  });

  test("an_error_in_typescript_shows_the_lines_of_the_source", async (t) => {
    const { host, text } = await startProject(t, {
      "wrangler.json": config({ main: "src/index.ts" }),
      "src/deep.ts": "interface Wide {\n  a: number;\n}\n\nexport function fail(wide: Wide): never {\n  throw new TypeError(`too wide: ${wide.a}`);\n}\n",
      "src/index.ts": `import { DurableObject } from "cloudflare:workers";
import { fail } from "./deep";

type Env = { OBJECT: DurableObjectNamespace<Tested> };
export class Tested extends DurableObject<Env> {
  override async fetch(_: Request): Promise<Response> {
    return fail({ a: 7 } as { a: number });
  }
}
export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (request.url.endsWith("/worker")) fail({ a: 8 });
    return env.OBJECT.getByName("a").fetch(request);
  },
};
`,
    });
    const worker = await text("/worker");
    assert.match(worker, /TypeError: too wide: 8/);
    assert.match(worker, /src\/deep\.ts:6:\d+/);
    assert.match(worker, /src\/index\.ts:12:\d+/);
    await text("/object");
    await until("the stack of the object", () => /src\/index\.ts:7:\d+/.test(host.stderr), 3000);
    assert.match(host.stderr, /TypeError: too wide: 7/);
    assert.doesNotMatch(worker, /index\.js/);
  });
});
