// date: 2024-01-01
// objects: Old
// Before the RPC flag: objects without a base class, fetch only.
import { show } from "../lib/harness.mjs";

export class Old {
  constructor(state, env) {
    this.state = state;
    this.env = env;
    this.started = state.blockConcurrencyWhile(async () => { this.n = (await state.storage.get("n")) ?? 0; });
  }
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/throw") throw new TypeError("old throw");
    this.n++;
    this.state.storage.put("n", this.n);
    return Response.json({ n: this.n, url: request.url, id: this.state.id.toString().length, name: this.state.id.name });
  }
}

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    const lines = [];
    const tries = async (label, fn) => {
      try { lines.push(`${label}: ${show(await fn())}`); } catch (error) { lines.push(`${label} threw: ${show(error)}`); }
    };
    if (pathname === "/list") return Response.json(["fetches", "members"]);
    const stub = env.Old.get(env.Old.idFromName("a"));
    if (pathname === "/fetches") {
      await tries("first", async () => (await stub.fetch("http://x/a")).json());
      await tries("second", async () => (await stub.fetch(new Request("http://x/b", { method: "POST", body: "x" }))).json());
      await tries("throws", () => stub.fetch("http://x/throw"));
      await tries("third", async () => (await env.Old.get(env.Old.idFromName("a")).fetch("http://x/c")).json());
    }
    if (pathname === "/members") {
      await tries("typeof", () => [typeof stub.fetch, typeof stub.anything, "anything" in stub]);
      await tries("call", () => stub.anything());
      await tries("id", () => [stub.id.name, stub.name]);
    }
    return new Response(lines.join("\n"));
  },
};
