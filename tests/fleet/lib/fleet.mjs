// A fleet: N nodes on one bucket behind a store with 20 ms delay, each with its own data directory.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pass } from "node:timers/promises";
import { deploy, freePort, scratch, startNode } from "../../e2e/lib/celld.mjs";
import { Client } from "../../e2e/lib/client.mjs";
import { ledgerProject } from "../../e2e/lib/ledger.mjs";
import { startS3 } from "../../e2e/lib/s3.mjs";
import { startProxy } from "./proxy.mjs";

export const TTL_MS = 3000;
const BUCKET = "s3://cells/fleet";

// { s3, nodes }. A node is what startNode answers, with wipe(); with the option `proxied` also with the proxies `store`
// and `peers`, its ways to the bucket and from other nodes.
export async function startFleet(t, count, project = ledgerProject, { proxied = false, ...options } = {}) {
  const folder = scratch();
  const s3 = await startS3(["--delay-ms=20"]);
  t.after(() => s3.stop());
  const env = { ...s3.env, CELLD_TTL_MS: String(TTL_MS) };
  await deploy(project, BUCKET, { env });
  const nodes = [];
  for (let i = 0; i < count; i++) {
    const data = join(folder, `data-${i}`);
    const ways = proxied ? await proxies(t, s3) : { env: {}, args: [] };
    const node = await startNode({ bucket: BUCKET, data, env: { ...env, ...ways.env }, args: ways.args, ...options });
    Object.assign(node, { store: ways.store, peers: ways.peers });
    t.after(() => node.kill());
    node.wipe = () => rmSync(data, { recursive: true, force: true });
    nodes.push(node);
  }
  return { s3, nodes };
}

async function proxies(t, s3) {
  const store = await startProxy(Number(new URL(s3.endpoint).port));
  const internal = await freePort();
  const peers = await startProxy(internal);
  t.after(() => (store.close(), peers.close()));
  return {
    store, peers,
    env: { AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${store.port}` },
    args: ["--internal-listen", `127.0.0.1:${internal}`, "--advertise", `127.0.0.1:${peers.port}`],
  };
}

// Asks the nodes in turn, for at most `ms`, until one answers a read with something other than 503. A write is sent to
// another node only after a refused connection: a 503 does not say whether the event had begun, so it is returned, and
// the next request for the object goes to the next node.
export class FleetClient {
  constructor(nodes, connections = 32) {
    this.clients = nodes.map(({ url }) => new Client(url, connections));
    this.owner = new Map();  // first part of the path -> index of who answered last
  }

  async send(method, path, { ms = 30_000, ...options } = {}) {
    const object = path.split(/[/?]/)[1];
    const end = Date.now() + ms;
    let at = this.owner.get(object) ?? 0;
    for (let tries = 1; ; tries++) {
      const left = end - Date.now();
      let refused;
      try {
        const answer = await this.clients[at].send(method, path, { ...options, ms: Math.max(left, 1) });
        if (answer.status !== 503 || answer.headers["x-celld-error"] === "unconfirmed") {
          this.owner.set(object, at);
          return answer;
        }
        this.owner.set(object, (at + 1) % this.clients.length);
        if (method !== "GET") return answer;
        refused = `503 ${answer.body.slice(0, 200)}`;
      } catch (error) {
        this.owner.set(object, (at + 1) % this.clients.length);
        if (method !== "GET" && error.code !== "ECONNREFUSED") throw error;
        refused = error.message;
      }
      if (end - Date.now() <= 0) throw new Error(`${method} ${path}: no node answered within ${ms} ms: ${refused}`);
      at = (at + 1) % this.clients.length;
      if (tries % this.clients.length === 0) await pass(50);
    }
  }

  json(...call) {
    return Client.prototype.json.call(this, ...call);
  }

  close() {
    for (const client of this.clients) client.close();
  }
}
