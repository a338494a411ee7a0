// Azurite as a child process of a test: tests/servers/azurite.mjs.
import { spawn } from "node:child_process";

const script = new URL("../../servers/azurite.mjs", import.meta.url).pathname;

// Answers { env, bucket, stop() }; `env` makes celld use it.
export async function startAzurite() {
  const child = spawn(process.execPath, [script], { stdio: ["pipe", "pipe", "inherit"] });
  let text = "";
  const port = await new Promise((found, failed) => {
    child.once("exit", (code) => failed(new Error(`Azurite ended: ${code}`)));
    child.stdout.setEncoding("utf8").on("data", (chunk) => {
      text += chunk;
      if (text.includes("\n")) found(Number(text));
    });
  });
  return {
    bucket: "az://bucket-1",
    env: {
      AZURE_STORAGE_CONNECTION_STRING: `UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://127.0.0.1:${port}`,
      S3_ENDPOINT: "",
    },
    stop: () => {
      const ended = new Promise((end) => child.once("exit", end));
      child.stdin.end();
      return ended;
    },
  };
}
