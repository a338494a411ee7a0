// objects: Early
// What code may do while its module is evaluated.
import { env } from "cloudflare:workers";
import { object, worker } from "../lib/harness.mjs";

const early = [];
const later = [];
function at_start(label, what) {
  const entry = [label, "pending"];
  early.push(entry);
  try {
    const value = what();
    entry[1] = typeof value;
    if (typeof value?.then !== "function") return;
    later.push(value.then((result) => (entry[1] = typeof result), (error) => (entry[1] = error)));
  } catch (error) {
    entry[1] = error;
  }
}
at_start("Math.random", () => Math.random());
at_start("randomUUID", () => crypto.randomUUID());
at_start("getRandomValues", () => crypto.getRandomValues(new Uint8Array(2)));
at_start("digest", () => crypto.subtle.digest("SHA-256", new Uint8Array(2)));
at_start("setTimeout", () => setTimeout(() => {}, 1));
at_start("setInterval", () => setInterval(() => {}, 1));
at_start("clearTimeout", () => clearTimeout(1));
at_start("clearInterval", () => clearInterval(1));
at_start("queueMicrotask", () => queueMicrotask(() => {}));
at_start("scheduler.wait", () => scheduler.wait(1));
at_start("fetch", () => fetch("http://localhost/"));
at_start("fetch of nonsense", () => fetch("nonsense"));
at_start("AbortSignal.timeout", () => AbortSignal.timeout(5));
at_start("new Request", () => new Request("http://localhost/"));
at_start("new AbortController", () => new AbortController().abort());
at_start("new URL", () => new URL("http://localhost/"));
at_start("structuredClone", () => structuredClone({}));
at_start("Date.now", () => Date.now());
at_start("performance.now", () => performance.now());
at_start("import()", () => import("cloudflare:workers"));

at_start("idFromName", () => env.Early.idFromName("a").name);
at_start("newUniqueId", () => env.Early.newUniqueId().toString().length);
at_start("getByName", () => env.Early.getByName("a"));
at_start("get", () => env.Early.get(env.Early.idFromName("a")));
const early_env = Object.keys(env).sort();

export class Early extends object({
  async an_object({ say }) {
    say("env", early_env);
  },
}) {}

export default worker({
  async at_the_start({ say }) {
    await Promise.all(later);
    for (const [label, outcome] of early) say(label, outcome);
  },
  async in_a_handler({ tries }) {
    await tries("randomUUID", () => crypto.randomUUID().length);
    await tries("getRandomValues", () => crypto.getRandomValues(new Uint8Array(2)).length);
    await tries("clearTimeout", () => clearTimeout(setTimeout(() => {}, 1)));
    await tries("scheduler.wait", () => scheduler.wait(1));
    await tries("after it", () => crypto.randomUUID().length);
  },
  async modules_that_are_not_there({ say }) {
    // The text also says who imports; workerd's ends after the name.
    for (const name of ["node:nope", "nope", "cloudflare:nope"]) {
      const error = await import(["", name][1]).catch((e) => e);
      say(name, [error.constructor.name, error.message.includes(`"${name}"`)]);
    }
  },
}, { Early });
