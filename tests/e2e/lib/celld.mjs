// Runs the celld that is tested: the program that $CELLD names.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const binary = process.env.CELLD ?? new URL("../../../build/release/celld", import.meta.url).pathname;
// A build with sanitizers is several times slower, and what it freed waits for a while: so many megabytes more.
export const sanitized = Boolean(process.env.CELLD_SANITIZE);
export const SANITIZER_MB = sanitized ? 1500 : 0;
const READY_MS_MAX = 60_000;
const OUTPUT_CHARS_MAX = 1 << 20;  // of each stream; the oldest go first

// Whether this build has `celld NAME`.
export function hasCommand(name) {
  const help = spawnSync(binary, ["--help"], { encoding: "utf8" });
  return new RegExp(`^\\s+${name}\\b`, "m").test(help.stdout ?? "");
}

export function freePort() {
  return new Promise((found, fail) => {
    const server = createServer();
    server.once("error", fail);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => found(port));
    });
  });
}

const scratches = [];

// An empty folder. Removed when this process ends: hooks of a test run in the order in which they
// were made, so that one made here would run while the test's processes still write.
export function scratch() {
  if (scratches.length === 0) {
    process.once("exit", () => {
      for (const folder of scratches) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    });
  }
  const folder = mkdtempSync(join(tmpdir(), "celld-e2e-"));
  scratches.push(folder);
  return folder;
}

// Asks `condition` until it answers something truthy, which is returned. Fails after `ms`, naming `what`.
export async function until(what, condition, ms = 20_000, pause = 20) {
  for (const started = Date.now(); ; await sleep(pause)) {
    const value = await condition();
    if (value) return value;
    if (Date.now() - started > ms) {
      throw new Error(`not within ${ms} ms: ${typeof what === "function" ? what() : what}`);
    }
  }
}

// A started celld: { child, stdout, stderr, exited, kill(signal), ended() }. `exited` resolves to { code, signal }.
// With `files` it may have so many open.
export function spawnCelld(args, { env = {}, cwd, files } = {}) {
  const command = files ? ["sh", "-c", `ulimit -n ${files} && exec "$0" "$@"`, binary] : [binary];
  const child = spawn(command[0], [...command.slice(1), ...args], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env }, cwd });
  const run = { child, stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"]) {
    child[stream].setEncoding("utf8").on("data", (text) => (run[stream] = (run[stream] + text).slice(-OUTPUT_CHARS_MAX)));
  }
  // "close" comes after the last output.
  run.exited = new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
  run.exited.catch(() => {});
  run.ended = () => child.exitCode !== null || child.signalCode !== null;
  run.kill = async (signal = "SIGKILL") => {
    if (!run.ended()) child.kill(signal);
    return run.exited;
  };
  return run;
}

// Runs celld to its end: { code, signal, stdout, stderr }. Killed after `ms`.
export async function runCelld(args, { ms = 60_000, ...options } = {}) {
  const run = spawnCelld(args, options);
  const timer = setTimeout(() => run.kill(), ms);
  const { code, signal } = await run.exited;
  clearTimeout(timer);
  return { code, signal, stdout: run.stdout, stderr: run.stderr };
}

async function waitUntilReady(run, url) {
  await until(
    () => `${url} answers health with 200\n${run.stderr}`,
    async () => {
      if (run.ended()) {
        const { code, signal } = await run.exited;
        throw new Error(`celld ended: ${code ?? signal}\n${run.stderr}`);
      }
      const options = { signal: AbortSignal.timeout(5000) };
      return fetch(`${url}/__celld/health`, options).then((r) => r.text().then(() => r.status === 200), () => false);
    },
    READY_MS_MAX,
  );
}

// A host that can be killed and started again with the same arguments:
// { url, run, child, stderr, start({args, env}), kill(signal), restart(signal), stop() }.
async function startHost(args, port, { env = {}, cwd, files } = {}) {
  const host = { url: `http://127.0.0.1:${port}`, port, run: null };
  let earlier = "";
  Object.defineProperty(host, "stderr", { get: () => earlier + (host.run?.stderr ?? "") });
  Object.defineProperty(host, "child", { get: () => host.run?.child });
  host.start = async (changed = {}) => {
    if (host.run) earlier += host.run.stderr;
    host.run = spawnCelld(changed.args ?? args, { env: { ...env, ...changed.env }, cwd, files });
    await waitUntilReady(host.run, host.url);
  };
  host.kill = (signal) => host.run.kill(signal);
  host.restart = async (signal) => {
    await host.kill(signal);
    await host.start();
  };
  host.stop = () => host.kill();
  await host.start().catch(async (error) => {
    await host.kill();
    throw error;
  });
  return host;
}

// Starts `celld dev` on the project in `folder`. Without `data` the state is in a folder of its own, which stop() removes.
export async function startCelld(folder, { args = [], env = {}, data } = {}) {
  const own = data === undefined ? scratch() : undefined;
  const port = await freePort();
  const host = await startHost(["dev", folder, "--port", String(port), "--data", data ?? own, ...args], port, { env });
  host.data = data ?? own;
  host.stop = async () => {
    await host.kill();
    if (own) rmSync(own, { recursive: true, force: true, maxRetries: 5 });
  };
  return host;
}

// Starts a node that serves what is deployed to `bucket`.
export async function startNode({ bucket, data, port, env = {}, args = [], files }) {
  port ??= await freePort();
  return startHost(["--bucket", bucket, "--listen", `127.0.0.1:${port}`, "--data", data, ...args], port, { env, files });
}

// Deploys the project in `folder`; answers the version. Fails with what celld said.
export async function deploy(folder, bucket, { env } = {}) {
  const { code, stdout, stderr } = await runCelld(["deploy", folder, "--bucket", bucket], { env });
  if (code !== 0) throw new Error(`celld deploy ended with ${code}\n${stderr}`);
  return stdout.trim();
}
