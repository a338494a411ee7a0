// Runs a Wrangler project on workerd, the oracle of what a Worker does.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { readProject } from "./project.mjs";

const binary = fileURLToPath(new URL(`../../../node_modules/@cloudflare/workerd-linux-${process.arch === "arm64" ? "arm64" : "64"}/bin/workerd`, import.meta.url));
const READY_MS_MAX = 30_000;

const text = (value) => JSON.stringify(String(value));

function capnp(project) {
  const objects = project.durable_objects?.bindings ?? [];
  const sqlite = new Set((project.migrations ?? []).flatMap((m) => m.new_sqlite_classes ?? []));
  const bindings = [
    ...objects.map((o) => `(name = ${text(o.name)}, durableObjectNamespace = ${text(o.class_name)})`),
    ...Object.entries(project.vars ?? {}).map(([name, value]) =>
      typeof value === "string"
        ? `(name = ${text(name)}, text = ${text(value)})`
        : `(name = ${text(name)}, json = ${text(JSON.stringify(value))})`,
    ),
  ];
  const classes = [...new Set(objects.map((o) => o.class_name))].map(
    (name) => `(className = ${text(name)}, uniqueKey = ${text(`${project.name}-${name}`)}, enableSql = ${sqlite.has(name)})`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "disk", disk = (path = "storage", writable = true)),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const main :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed "index.js")],
  compatibilityDate = ${text(project.compatibility_date)},
  compatibilityFlags = [${(project.compatibility_flags ?? []).map(text).join(", ")}],
  bindings = [${bindings.join(", ")}],
  durableObjectNamespaces = [${classes.join(", ")}],
  durableObjectStorage = (localDisk = "disk"),
);
`;
}

// Starts the project in `folder`. Answers { url, stop(), kill(), restart() }; data lives until stop().
export async function startWorkerd(folder) {
  const project = readProject(folder);
  const work = mkdtempSync(join(tmpdir(), "workerd-"));
  mkdirSync(join(work, "storage"));
  await build({
    entryPoints: [resolve(folder, project.main)],
    bundle: true,
    format: "esm",
    target: "es2024",
    conditions: ["workerd", "worker", "browser"],
    external: ["cloudflare:*", "node:*"],
    outfile: join(work, "index.js"),
    logLevel: "error",
  });
  writeFileSync(join(work, "config.capnp"), capnp(project));

  const host = { url: "", child: null };
  const start = async () => {
    const child = spawn(binary, ["serve", "config.capnp", "--control-fd=3"], {
      cwd: work,
      stdio: ["ignore", "inherit", "inherit", "pipe"],
    });
    host.child = child;
    host.url = await new Promise((ready, fail) => {
      const timer = setTimeout(() => fail(new Error("workerd did not listen in time")), READY_MS_MAX);
      child.once("error", fail);
      child.once("exit", (code, signal) => fail(new Error(`workerd ended: ${code ?? signal}`)));
      createInterface({ input: child.stdio[3] }).on("line", (line) => {
        const message = JSON.parse(line);
        if (message.event !== "listen") return;
        clearTimeout(timer);
        ready(`http://127.0.0.1:${message.port}`);
      });
    });
  };
  host.kill = async (signal = "SIGKILL") => {
    const { child } = host;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((end) => child.once("exit", end));
    child.kill(signal);
    await ended;
  };
  host.restart = async () => {
    await host.kill();
    await start();
  };
  host.stop = async () => {
    await host.kill();
    rmSync(work, { recursive: true, force: true });
  };
  await start();
  return host;
}
