// Runs a program on workerd, as the reference for behaviour.
import { build } from "esbuild";
import { spawn } from "node:child_process";
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const DATE = "2026-11-01";

// The workerd program of the npm package, undefined where that is not installed.
export function workerd_path() {
  try {
    return createRequire(import.meta.url)("workerd").default;
  } catch {
    return undefined;
  }
}

// One module from a program and what it imports; "cloudflare:" modules stay outside.
export async function bundle_program(file, outfile) {
  await build({
    entryPoints: [file], outfile, bundle: true, format: "esm", target: "es2022", charset: "utf8",
    external: ["cloudflare:*"], logLevel: "error",
  });
  return readFileSync(outfile, "utf8");
}

// Taken before a prelude replaces it.
const timer = setTimeout;
const nap = (ms) => new Promise((resolve) => timer(resolve, ms));

const answers = (port) => new Promise((resolve) => {
  const socket = connect(port, "127.0.0.1", () => { socket.destroy(); resolve(true); });
  socket.on("error", () => resolve(false));
});

// Answer to GET / and standard output of the program on workerd. `classes`: its Durable Objects.
export async function run_on_workerd(workerd, file, classes) {
  const dir = mkdtempSync(join(tmpdir(), "celld-workerd-"));
  const port = 20000 + (process.pid % 20000);
  let child;
  try {
    await bundle_program(file, join(dir, "worker.js"));
    mkdirSync(join(dir, "do"));
    const each = (text) => classes.map(text).join(", ");
    writeFileSync(join(dir, "config.capnp"), `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "do", disk = (path = "${dir}/do", writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")]
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "${DATE}",
  bindings = [${each((name) => `(name = "${name}", durableObjectNamespace = "${name}")`)}],
  durableObjectNamespaces = [${each((name) => `(className = "${name}", uniqueKey = "${name}", enableSql = true)`)}],
  durableObjectStorage = (localDisk = "do")
);
`);
    let out = "";
    let err = "";
    child = spawn(workerd, ["serve", "--experimental", join(dir, "config.capnp"), "config"]);
    child.stdout.on("data", (data) => { out += data; });
    child.stderr.on("data", (data) => { err += data; });
    const exit = new Promise((resolve) => child.on("exit", resolve));
    for (let left = 1200; !(await answers(port)); left--) {
      if (left === 0 || child.exitCode !== null) throw new Error(`workerd did not start: ${err}`);
      await nap(25);
    }
    const answer = await http_get(port);
    child.kill();
    await exit;
    child = undefined;
    return { answer, out };
  } finally {
    child?.kill();
    rmSync(dir, { recursive: true, force: true });
  }
}

// Without fetch(), which a test may have replaced.
async function http_get(port) {
  const { request } = await import("node:http");
  return new Promise((resolve, reject) => {
    request({ port, host: "127.0.0.1", path: "/" }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (data) => { text += data; });
      response.on("end", () => resolve(text));
    }).on("error", reject).end();
  });
}
