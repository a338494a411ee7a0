// GET /           counts up and answers {"n": 1, "name": "default"}
// GET /?name=x    the same for the counter named x; every name is a Durable Object of its own
import { DurableObject } from "cloudflare:workers";

export class Counter extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 1), n INTEGER NOT NULL)");
  }

  increment() {
    return this.sql
      .exec("INSERT INTO counter VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1 RETURNING n")
      .one().n;
  }
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    if (url.pathname !== "/") return new Response("not found\n", { status: 404 });
    const name = url.searchParams.get("name") ?? "default";
    const n = await env.COUNTER.getByName(name).increment();
    return Response.json({ n, name });
  },
};
