// Runs a Wrangler project on the celld that is tested: the program that $CELLD names.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const binary = process.env.CELLD ?? new URL("../../../build/release/celld", import.meta.url).pathname;
const READY_MS_MAX = 60_000;

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

// Starts `celld dev` on the project in `folder`. Answers { url, child, stop(), kill(), restart() };
// data lives until stop().
export async function startCelld(folder, { args = [], env = {} } = {}) {
  const data = mkdtempSync(join(tmpdir(), "celld-"));
  const port = await freePort();
  const host = { url: `http://127.0.0.1:${port}`, data, child: null, stderr: "" };
  const start = async () => {
    const child = spawn(binary, ["dev", folder, "--port", String(port), "--data", data, ...args], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, ...env },
    });
    host.child = child;
    child.stderr.setEncoding("utf8").on("data", (chunk) => (host.stderr = (host.stderr + chunk).slice(-65536)));
    for (const started = Date.now(); ; await sleep(25)) {
      if (child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`celld ended: ${child.exitCode ?? child.signalCode}\n${host.stderr}`);
      }
      // Any answer will do, also an error of the project's.
      if (await fetch(`${host.url}/__celld/health`).then((r) => r.arrayBuffer(), () => null)) return;
      if (Date.now() - started > READY_MS_MAX) throw new Error(`celld did not listen in time\n${host.stderr}`);
    }
  };
  host.kill = async (signal = "SIGKILL") => {
    const { child } = host;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((end) => child.once("exit", end));
    child.kill(signal);
    await ended;
  };
  host.restart = async (signal) => {
    await host.kill(signal);
    await start();
  };
  host.stop = async () => {
    await host.kill();
    rmSync(data, { recursive: true, force: true });
  };
  await start();
  return host;
}
