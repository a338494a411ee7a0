// POST /rooms/<room>            {"from": "ada", "text": "hello"}   says something in a room
// GET  /rooms/<room>?after=<id>                                    what was said since, oldest first
import { DurableObject } from "cloudflare:workers";

const TEXT_CHARS_MAX = 2000;

export class Room extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec(`CREATE TABLE IF NOT EXISTS messages (
      id INTEGER PRIMARY KEY AUTOINCREMENT, sender TEXT NOT NULL, text TEXT NOT NULL)`);
  }

  async fetch(request) {
    if (request.method === "POST") {
      const { from, text } = await request.json();
      if (typeof from !== "string" || typeof text !== "string" || text.length > TEXT_CHARS_MAX) {
        return Response.json({ error: "from and text must be strings" }, { status: 400 });
      }
      const { id } = this.sql
        .exec("INSERT INTO messages (sender, text) VALUES (?, ?) RETURNING id", from, text)
        .one();
      return Response.json({ id }, { status: 201 });
    }
    const after = Number(new URL(request.url).searchParams.get("after") ?? 0);
    const messages = this.sql
      .exec('SELECT id, sender AS "from", text FROM messages WHERE id > ? ORDER BY id LIMIT 100', after)
      .toArray();
    return Response.json({ messages });
  }
}

export default {
  async fetch(request, env) {
    const room = new URL(request.url).pathname.match(/^\/rooms\/([^/]+)$/)?.[1];
    if (!room) return new Response("try /rooms/lobby\n", { status: 404 });
    if (request.method !== "GET" && request.method !== "POST") {
      return new Response("GET or POST\n", { status: 405, headers: { Allow: "GET, POST" } });
    }
    return env.ROOMS.get(env.ROOMS.idFromName(decodeURIComponent(room))).fetch(request);
  },
};
