// Two nodes on one bucket: the same request to the owner of an object, and to the other node, which forwards it.
//
//   bench/forward [RUNS]
//
// Runs alternate; of each the best counts, since neighbours on the machine only ever make a run worse.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { deploy, scratch, startNode } from "../tests/e2e/lib/celld.mjs";

const [hload, runs = "5"] = process.argv.slice(2);
const SECONDS = 2;
const OBJECTS = 100;
const SCENARIOS = [
  ["answer from memory, fetch", "/do/mem?n=k{i}"],
  ["answer from memory, RPC", "/rpc/mem?n=k{i}"],
  ["SQL read, fetch", "/do/read?n=k{i}"],
];
const CONNECTIONS = [1, 32];

const folder = scratch();
const bucket = `file://${join(folder, "bucket")}`;
await deploy(join(import.meta.dirname, "app"), bucket);
const nodes = [];
try {
  for (const name of ["owner", "other"]) nodes.push(await startNode({ bucket, data: join(folder, name) }));
  const [owner, other] = nodes;
  for (let i = 0; i < OBJECTS; i++) {
    const answer = await fetch(`${owner.url}/do/incr?n=k${i}`);
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  }
  const pids = nodes.map(({ child }) => child.pid).join(",");
  const measure = async (url, path, connections) => {
    const args = ["--url", url + path, "-c", String(connections), "-d", String(SECONDS), "--mod", String(OBJECTS), "--pid", pids];
    return JSON.parse((await promisify(execFile)(hload, args)).stdout);
  };
  console.log("| request | connections | p50 ms at the owner | through the other | more | requests/s | CPU us per request |");
  console.log("| --- | --- | --- | --- | --- | --- | --- |");
  for (const [name, path] of SCENARIOS) {
    for (const connections of CONNECTIONS) {
      const best = [null, null];
      for (let run = 0; run < Number(runs); run++) {
        for (const [i, { url }] of nodes.entries()) {
          const line = await measure(url, path, connections);
          if (!best[i] || line.p50_us < best[i].p50_us) best[i] = line;
        }
      }
      const [a, b] = best;
      const ms = (us) => (us / 1000).toFixed(3);
      console.log(`| ${name} | ${connections} | ${ms(a.p50_us)} | ${ms(b.p50_us)} | ${ms(b.p50_us - a.p50_us)} | ` +
        `${Math.round(a.rps)} : ${Math.round(b.rps)} | ${Math.round(a.server_cpu_us_per_req)} : ${Math.round(b.server_cpu_us_per_req)} |`);
    }
  }
} finally {
  for (const node of nodes) await node.stop();
}
