// POST /<who>    {"text": "tea", "in_ms": 3000}    sets a reminder
// GET  /<who>                                      what is pending and what was delivered
//
// A Durable Object has one alarm. Here it always stands at the earliest pending reminder.
import { DurableObject } from "cloudflare:workers";

export class Reminders extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec(`CREATE TABLE IF NOT EXISTS reminders (
      id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, due_ms INTEGER NOT NULL, delivered_ms INTEGER)`);
  }

  async remind(text, due_ms) {
    this.sql.exec("INSERT INTO reminders (text, due_ms) VALUES (?, ?)", text, due_ms);
    await this.#armEarliest();
  }

  async alarm() {
    const now = Date.now();
    this.sql.exec("UPDATE reminders SET delivered_ms = ? WHERE delivered_ms IS NULL AND due_ms <= ?", now, now);
    await this.#armEarliest();
  }

  async list() {
    return {
      alarm_ms: await this.ctx.storage.getAlarm(),
      pending: this.sql.exec("SELECT text, due_ms FROM reminders WHERE delivered_ms IS NULL ORDER BY due_ms").toArray(),
      delivered: this.sql
        .exec("SELECT text, due_ms, delivered_ms FROM reminders WHERE delivered_ms IS NOT NULL ORDER BY due_ms")
        .toArray(),
    };
  }

  async #armEarliest() {
    const { due_ms } = this.sql.exec("SELECT min(due_ms) AS due_ms FROM reminders WHERE delivered_ms IS NULL").one();
    if (due_ms === null) await this.ctx.storage.deleteAlarm();
    else await this.ctx.storage.setAlarm(due_ms);
  }
}

export default {
  async fetch(request, env) {
    const who = new URL(request.url).pathname.slice(1);
    if (!who) return new Response("try /ada\n", { status: 404 });
    const reminders = env.REMINDERS.getByName(who);
    if (request.method === "POST") {
      const { text, in_ms } = await request.json();
      await reminders.remind(text, Date.now() + in_ms);
      return new Response(null, { status: 202 });
    }
    return Response.json(await reminders.list());
  },
};
