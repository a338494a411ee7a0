// The strict S3 server of tests/servers as a child process of a test.
import { spawn } from "node:child_process";

const script = new URL("../../servers/s3_server.mjs", import.meta.url).pathname;

// What fail(kind) makes of the store until heal(), beside "hangs", which stops it in the middle of what it does.
const FAILURES = {
  answers_500: { "error-500": 1 },
  answers_503: { throttle: 1 },
  drops_writes: { "fail-before-effect": 1 },
  loses_the_replies_of_writes: { "fail-after-effect": 1 },
};

// Answers { endpoint, env, counters(), reset(), set(options), fail(kind), heal(), stop() }; `env` makes celld use it.
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
    fail: async (kind) => void (kind === "hangs" ? child.kill("SIGSTOP") : await post("/__options", FAILURES[kind])),
    heal: async () => {
      child.kill("SIGCONT");
      const all = Object.assign({}, ...Object.values(FAILURES));
      await post("/__options", Object.fromEntries(Object.keys(all).map((option) => [option, 0])));
    },
    stop: () => {
      child.kill("SIGCONT");
      const ended = new Promise((end) => child.once("exit", end));
      child.stdin.end();
      return ended;
    },
  };
}
