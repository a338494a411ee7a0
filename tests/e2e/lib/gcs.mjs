// The strict Google Cloud Storage of tests/servers as a child process of a test.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { scratch } from "./celld.mjs";

const script = new URL("../../servers/gcs_server.mjs", import.meta.url).pathname;

// Answers { env, endpoint, counters(), stop() }; `env` makes celld use it, with the key of a service account.
export async function startGcs(args = []) {
  const child = spawn(process.execPath, [script, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  let text = "";
  const port = await new Promise((found, failed) => {
    child.once("exit", (code) => failed(new Error(`the server ended: ${code}`)));
    child.stdout.setEncoding("utf8").on("data", (chunk) => {
      text += chunk;
      if (text.includes("\n")) found(Number(text));
    });
  });
  const endpoint = `http://127.0.0.1:${port}`;
  const key = join(scratch(), "key.json");
  writeFileSync(key, await (await fetch(`${endpoint}/__key`)).text(), { mode: 0o600 });
  return {
    endpoint,
    env: { STORAGE_EMULATOR_HOST: `127.0.0.1:${port}`, GOOGLE_APPLICATION_CREDENTIALS: key },
    counters: async () => (await fetch(`${endpoint}/__counters`)).json(),
    stop: () => {
      const ended = new Promise((end) => child.once("exit", end));
      child.stdin.end();
      return ended;
    },
  };
}
