// GET    /<list>             all items and how many are open
// POST   /<list>             {"title": "milk"} or [{"title": ...}, ...]: all of them or none
// PATCH  /<list>/<id>        {"done": true}
// DELETE /<list>/<id>
import { DurableObject } from "cloudflare:workers";

export class TodoList extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec(`
      CREATE TABLE IF NOT EXISTS items (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL CHECK (length(title) > 0),
        done INTEGER NOT NULL DEFAULT 0
      );
      CREATE INDEX IF NOT EXISTS items_open ON items (id) WHERE done = 0;
    `);
  }

  all() {
    const items = [...this.sql.exec("SELECT id, title, done FROM items ORDER BY id")].map((item) => ({
      ...item,
      done: item.done === 1,
    }));
    const { open } = this.sql.exec("SELECT count(*) AS open FROM items WHERE done = 0").one();
    return { items, open };
  }

  // Adds all titles in one transaction: an empty one undoes those before it.
  add(titles) {
    return this.ctx.storage.transactionSync(() =>
      titles.map((title) => this.sql.exec("INSERT INTO items (title) VALUES (?) RETURNING id", title).one().id),
    );
  }

  setDone(id, done) {
    return this.sql.exec("UPDATE items SET done = ? WHERE id = ?", done ? 1 : 0, id).rowsWritten > 0;
  }

  remove(id) {
    return this.sql.exec("DELETE FROM items WHERE id = ?", id).rowsWritten > 0;
  }
}

export default {
  async fetch(request, env) {
    const [, list, id] = new URL(request.url).pathname.split("/");
    if (!list) return new Response("try /groceries\n", { status: 404 });
    const todo = env.LISTS.getByName(list);
    switch (request.method) {
      case "GET":
        return Response.json(await todo.all());
      case "POST": {
        const items = [await request.json()].flat();
        try {
          return Response.json({ ids: await todo.add(items.map((item) => item.title ?? "")) }, { status: 201 });
        } catch (error) {
          return Response.json({ error: error.message }, { status: 400 });
        }
      }
      case "PATCH": {
        const { done } = await request.json();
        return new Response(null, { status: (await todo.setDone(Number(id), done)) ? 204 : 404 });
      }
      case "DELETE":
        return new Response(null, { status: (await todo.remove(Number(id))) ? 204 : 404 });
      default:
        return new Response("GET, POST, PATCH or DELETE\n", { status: 405 });
    }
  },
};
