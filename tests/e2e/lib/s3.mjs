// The strict S3 server of tests/servers as a child process of a test.
import { spawn } from "node:child_process";

const script = new URL("../../servers/s3_server.mjs", import.meta.url).pathname;

// Answers { endpoint, env, counters(), reset(), set(options), stop() }; `env` makes celld use it.
export async function startS3(args = []) {
  const child = spawn(process.execPath, [script, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  let text = "";
  const port = await new Promise((found, failed) => {
    child.once("exit", (code) => failed(new Error(`the S3 server ended: ${code}`)));
    child.stdout.setEncoding("utf8").on("data", (chunk) => {
      text += chunk;
      if (text.includes("\n")) found(Number(text));
    });
  });
  const endpoint = `http://127.0.0.1:${port}`;
  const post = (path, body) => fetch(endpoint + path, { method: "POST", body: JSON.stringify(body) });
  return {
    endpoint,
    env: {
      AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "secret", AWS_SESSION_TOKEN: "",
      AWS_ENDPOINT_URL_S3: endpoint, AWS_REGION: "us-east-1", S3_ENDPOINT: "",
    },
    counters: async () => (await fetch(`${endpoint}/__counters`)).json(),
    reset: () => post("/__counters/reset", {}),
    set: (options) => post("/__options", options),
    stop: () => {
      const ended = new Promise((end) => child.once("exit", end));
      child.stdin.end();
      return ended;
    },
  };
}
