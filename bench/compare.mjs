// celld and workerd with the same program, on the same machine, side by side.
//
//   bench/compare [local] [cluster] [memory] [--runs=3] [--secs=3] [--quiet=0] [--only=NAME,...] [--celld=PATH] [--keep-json=FILE]
//
// local    one process each, storage on the local disk: workerd syncs each write to its files, celld
//          (a node on a file:// bucket) each journal slot to the bucket's
// cluster  both on one bucket in memory that delays every request by 20 ms
// memory   resident and idle objects
//
// Runs of the two alternate; of each scenario the best run counts, since neighbours on the machine only
// ever make a run worse, and CPU per request is the minimum. "x" columns: above 1, celld is better.
import { spawn } from "node:child_process";
import { appendFileSync, copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const options = { build: "build/release", runs: "3", secs: "3", quiet: "0", only: "", celld: "", "keep-json": "" };
const parts = [];
for (const arg of process.argv.slice(2)) {
  const match = /^--([a-z-]+)=(.*)$/.exec(arg);
  if (match && match[1] in options) options[match[1]] = match[2];
  else if (["local", "cluster", "memory"].includes(arg)) parts.push(arg);
  else throw new Error(`unknown argument ${arg}`);
}
if (parts.length === 0) parts.push("local", "cluster");
const only = new Set(options.only.split(",").filter(Boolean));

const CELLD = resolve(options.celld || join(options.build, "celld"));
const HLOAD = resolve(options.build, "bench/hload");
const WORKERD = resolve(here, "../node_modules/@cloudflare/workerd-linux-64/bin/workerd");
const BUCKET_DELAY_MS = 20;
const READY_MS_MAX = 30_000;

const folder = mkdtempSync(join(tmpdir(), "celld-bench-"));
const running = new Set();
async function end() {
  for (const child of running) child.kill("SIGTERM");
  await Promise.all([...running].map((child) => new Promise((gone) => child.once("exit", gone))));
  rmSync(folder, { recursive: true, force: true });
}

function freePort() {
  return new Promise((found) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => found(port));
    });
  });
}

// A server process; rejected when it ends by itself, with what it said.
function launch(name, command, args, env = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => (child.said = (child.said + text).slice(-4000)));
  }
  running.add(child);
  child.once("exit", (code, signal) => {
    running.delete(child);
    if (!child.killed) console.error(`${name} ended (${code ?? signal}): ${child.said}`);
  });
  return child;
}

async function stop(server) {
  if (!running.has(server.child)) return;
  server.child.kill("SIGTERM");
  await new Promise((gone) => server.child.once("exit", gone));
}

async function ready(child, url) {
  for (const started = Date.now(); ; await sleep(20)) {
    if (await fetch(`${url}/hello`).then((r) => r.text().then(() => r.ok), () => false)) return;
    if (child.exitCode !== null) throw new Error(`server ended: ${child.said}`);
    if (Date.now() - started > READY_MS_MAX) throw new Error(`no answer from ${url}: ${child.said}`);
  }
}

async function run(command, args, env = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  let out = "";
  let err = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (err += text));
  const code = await new Promise((ended) => child.once("close", ended));
  return { code, out, err };
}

// app/workerd.capnp names a port for the bucket of the cluster, which may be taken.
function workerdConfig(bucketPort) {
  const file = join(folder, "workerd.capnp");
  copyFileSync(join(here, "app/worker.js"), join(folder, "worker.js"));
  writeFileSync(file, readFileSync(join(here, "app/workerd.capnp"), "utf8").replace("127.0.0.1:9099", `127.0.0.1:${bucketPort}`));
  return file;
}

async function startWorkerd(config, flags = [], bucketPort = 9099) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const data = mkdtempSync(join(folder, "workerd-"));
  const args = ["serve", ...flags, workerdConfig(bucketPort), config, "-d", `do-storage=${data}`, "-s", `http=127.0.0.1:${port}`];
  const child = launch("workerd", WORKERD, args);
  await ready(child, url);
  return { name: "workerd", child, url };
}

async function startCelld(bucket, extra = [], env = {}) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const deployed = await run(CELLD, ["deploy", join(here, "app"), "--bucket", bucket, ...extra], env);
  if (deployed.code !== 0) throw new Error(`celld deploy: ${deployed.out}${deployed.err}`);
  const data = mkdtempSync(join(folder, "celld-"));
  const child = launch("celld", CELLD, ["--bucket", bucket, ...extra, "--listen", `127.0.0.1:${port}`, "--data", data], env);
  await ready(child, url);
  return { name: "celld", child, url };
}

async function load(server, label, path, connections, bounds) {
  const args = ["--url", server.url + path, "-c", String(connections), "--pid", String(server.child.pid), "--label", label, ...bounds];
  const { out, err } = await run(HLOAD, args);
  if (!out) throw new Error(`hload ${label} on ${server.name}: ${err}`);
  const result = JSON.parse(out);
  if (options["keep-json"]) appendFileSync(options["keep-json"], JSON.stringify({ server: server.name, ...result }) + "\n");
  if (result.errors + result.non2xx > 0) {
    console.error(`${server.name} ${label}: ${result.errors} errors, ${result.non2xx} refused: ${result.first_error}`);
  }
  return result;
}

// Runs that alternate between the servers: { celld: best, workerd: best }.
async function versus(servers, label, path, connections, bounds = []) {
  const measured = Object.fromEntries(servers.map((server) => [server.name, []]));
  for (const server of servers) await load(server, "warm-up", path, connections, [...bounds, "-d", "1"]);
  for (let i = 0; i < Number(options.runs); i++) {
    for (const server of servers) {
      const how = [...bounds, "-d", options.secs, "--seed", String(i + 1), "--quiet", options.quiet];
      measured[server.name].push(await load(server, label, path, connections, how));
    }
  }
  const best = {};
  for (const [name, runs] of Object.entries(measured)) {
    const fastest = runs.reduce((a, b) => (b.rps > a.rps ? b : a));
    best[name] = {
      ...fastest,
      p50_us: Math.min(...runs.map((r) => r.p50_us)),
      p99_us: Math.min(...runs.map((r) => r.p99_us)),
      cpu_us: Math.min(...runs.map((r) => r.server_cpu_us_per_req)),
      other: Math.min(...runs.map((r) => r.other_cores)),
    };
  }
  return best;
}

const ratio = (a, b) => (b > 0 ? (a / b).toFixed(2) : "-");
function table(rows) {
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => String(row[i]).length)));
  for (const row of rows) console.log(row.map((cell, i) => (i ? String(cell).padStart(widths[i]) : String(cell).padEnd(widths[i]))).join("  "));
  console.log();
}

async function local() {
  const servers = [await startCelld(`file://${join(folder, "bucket")}`), await startWorkerd("local")];
  const scenarios = [
    ["hello c1", "/hello", 1], ["hello c32", "/hello", 32],
    ["object in memory c32", "/do/mem", 32], ["object rpc c32", "/rpc/mem", 32],
    ["object SQL read c1", "/do/read", 1], ["object SQL read c32", "/do/read", 32],
    ["SQL read of 200 objects c32", "/do/read?n=k{r}", 32, ["--mod", "200"]],
    ["SQL write c1", "/do/incr", 1], ["SQL write c32", "/do/incr", 32], ["SQL write c128", "/do/incr", 128],
    ["kv get and put c32", "/kv/incr", 32],
    ["SQL write to 200 objects c32", "/do/incr?n=k{r}", 32, ["--mod", "200"]],
  ];
  for (const server of servers) await load(server, "create 200", "/do/incr?n=k{i}", 16, ["-n", "200", "--mod", "200"]);
  const rows = [["local", "celld rps", "workerd rps", "rps x", "celld cpu us", "workerd cpu us", "cpu x", "celld p99 ms", "workerd p99 ms", "other cores"]];
  for (const [label, path, connections, bounds] of scenarios) {
    if (only.size && ![...only].some((part) => label.includes(part))) continue;
    const { celld, workerd } = await versus(servers, label, path, connections, bounds);
    rows.push([label, celld.rps, workerd.rps, ratio(celld.rps, workerd.rps), celld.cpu_us.toFixed(0), workerd.cpu_us.toFixed(0), ratio(workerd.cpu_us, celld.cpu_us), (celld.p99_us / 1e3).toFixed(1), (workerd.p99_us / 1e3).toFixed(1), Math.max(celld.other, workerd.other).toFixed(2)]);
  }
  table(rows);
  for (const server of servers) await stop(server);
}

// A bucket in memory: { port, stats(), server }, and how celld is told of it.
async function startBucket(delayMs) {
  const port = await freePort();
  const child = launch("minis3", process.execPath, [join(here, "minis3.mjs"), `--port=${port}`, `--delay-ms=${delayMs}`]);
  const endpoint = `http://127.0.0.1:${port}`;
  const stats = () => fetch(`${endpoint}/__stats`).then((r) => r.json());
  while (!(await stats().catch(() => false))) await sleep(20);
  const env = { AWS_ACCESS_KEY_ID: "k", AWS_SECRET_ACCESS_KEY: "s", AWS_REGION: "us-east-1" };
  return { child, port, stats, celld: ["s3://bench/celld", ["--endpoint", endpoint], env] };
}

async function cluster() {
  const bucket = await startBucket(BUCKET_DELAY_MS);
  const { stats } = bucket;
  const starts = [() => startCelld(...bucket.celld), () => startWorkerd("cluster", ["--experimental"], bucket.port)];
  const scenarios = [
    ["one object c1", "/do/incr", 1], ["one object c100", "/do/incr", 100],
    ["300 objects c128", "/do/incr?n=k{r}", 128, ["--mod", "300"]],
  ];
  const rows = [["cluster, bucket 20 ms", "writes/s", "p50 ms", "p99 ms", "cond. PUTs/write", "requests/write", "cpu us"]];
  const rates = new Map();
  // One after the other: they share the bucket, whose own process must not be the limit.
  for (const start of starts) {
    const server = await start();
    await load(server, "create 300", "/do/incr?n=k{i}", 32, ["-n", "300", "--mod", "300"]);
    for (const [label, path, connections, bounds = []] of scenarios) {
      if (only.size && ![...only].some((part) => label.includes(part))) continue;
      await load(server, "warm-up", path, connections, [...bounds, "-d", "1"]);
      let best;
      for (let i = 0; i < Number(options.runs); i++) {
        await stats();
        const result = await load(server, label, path, connections, [...bounds, "-d", options.secs, "--seed", String(i + 1)]);
        const { requests, classes } = await stats();
        result.requests_per_write = requests / result.requests;
        result.puts_per_write = Object.entries(classes).reduce((n, [name, c]) => n + (name.startsWith("PUT if-") ? c.requests : 0), 0) / result.requests;
        if (!best || result.rps > best.rps) best = { ...result, classes };
      }
      if (options["keep-json"]) appendFileSync(options["keep-json"], JSON.stringify({ server: server.name, label, classes: best.classes }) + "\n");
      rows.push([`${server.name}: ${label}`, best.rps, (best.p50_us / 1e3).toFixed(1), (best.p99_us / 1e3).toFixed(1), best.puts_per_write.toFixed(3), best.requests_per_write.toFixed(2), best.server_cpu_us_per_req.toFixed(0)]);
      const rate = rates.get(label);
      if (rate) rows.push([`celld / workerd: ${label}`, `${ratio(rate.rps, best.rps)} x`, `${ratio(best.p50_us, rate.p50_us)} x`, "", "", "", ""]);
      else rates.set(label, best);
    }
    await stop(server);
  }
  table(rows);
  await stop(bucket);
}

const rssKb = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);

async function memory() {
  const OBJECTS = 10_000;
  const WORKERD_OBJECTS = 3_000; // it opens files for each, of 20,000 that a process may open here
  const IDLE_S = 45; // idle instances are evicted after 10 s, some hundreds at a time, and commits drained within 30 s
  const rows = [["memory", "objects", "KiB an object, awake", "KiB an object, idle"]];
  for (const route of ["mem", "sql"]) {
    const bucket = await startBucket(0);
    for (const start of [() => startCelld(...bucket.celld), () => startWorkerd("pinned")]) {
      const server = await start();
      const objects = server.name === "workerd" ? WORKERD_OBJECTS : OBJECTS;
      await load(server, "warm-up", `/wake/${route}?n=warm`, 8, ["-n", "5000"]);
      await sleep(1000);
      const before = rssKb(server.child.pid);
      await load(server, "wake", `/wake/${route}?n=o{i}`, 16, ["-n", String(objects)]);
      const awake = rssKb(server.child.pid);
      await sleep(IDLE_S * 1000);
      const idle = rssKb(server.child.pid);
      rows.push([`${server.name} /wake/${route}`, objects, ((awake - before) / objects).toFixed(1), server.name === "workerd" ? "(pinned)" : ((idle - before) / objects).toFixed(1)]);
      await stop(server);
    }
    await stop(bucket);
  }
  table(rows);
}

try {
  for (const part of parts) await { local, cluster, memory }[part]();
} finally {
  await end();
}
