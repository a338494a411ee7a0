// A small HTTP client over a bounded number of kept connections.
import { Agent, request } from "node:http";
import { connect } from "node:net";

export class Client {
  constructor(url, connections = 32) {
    this.url = new URL(url);
    this.agent = new Agent({ keepAlive: true, maxSockets: connections });
  }

  // { status, headers, body }; rejects when no whole answer came.
  send(method, path, { body, headers = {}, ms = 30_000 } = {}) {
    return new Promise((resolve, reject) => {
      const { hostname, port } = this.url;
      const call = request({ hostname, port, method, path, agent: this.agent, headers });
      const timer = setTimeout(() => call.destroy(new Error(`${method} ${path}: no answer within ${ms} ms`)), ms);
      const fail = (error) => (clearTimeout(timer), reject(error));
      call.once("error", fail);
      call.once("response", (response) => {
        const chunks = [];
        response.on("data", (chunk) => chunks.push(chunk));
        response.once("error", fail);
        response.once("close", () => {
          clearTimeout(timer);
          if (!response.complete) return reject(new Error(`${method} ${path}: the answer was cut off`));
          resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks).toString() });
        });
      });
      call.end(body);
    });
  }

  // The body as JSON; fails unless the status is 200.
  async json(method, path, options) {
    const { status, body } = await this.send(method, path, options);
    if (status !== 200) throw new Error(`${method} ${path}: ${status} ${body.slice(0, 2000)}`);
    return JSON.parse(body);
  }

  close() {
    this.agent.destroy();
  }
}

// Runs `task(index)` for 0 to count - 1, at most `width` at a time.
export async function forEachParallel(count, width, task) {
  let next = 0;
  const worker = async () => {
    while (next < count) await task(next++);
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, worker));
}

// Sends bytes as they are over one connection; answers all that came back until the other side closed or `ms` passed.
export function exchangeRaw(url, parts, { ms = 10_000, enough = () => false } = {}) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let received = "";
    const finish = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve(received);
    };
    const timer = setTimeout(finish, ms);
    socket.on("error", finish).on("close", finish);
    socket.setEncoding("latin1").on("data", (text) => {
      received += text;
      if (enough(received)) finish();
    });
    socket.on("connect", () => {
      for (const part of [parts].flat()) socket.write(part);
    });
  });
}
