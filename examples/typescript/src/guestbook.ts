// The guest book: one row per name, with how often it was signed.
import { DurableObject } from "cloudflare:workers";
import type { Env } from "./env";

export type Guest = { name: string; visits: number };

export class Guestbook extends DurableObject<Env> {
  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec(`CREATE TABLE IF NOT EXISTS guests (
      name TEXT PRIMARY KEY, visits INTEGER NOT NULL, seq INTEGER NOT NULL)`);
  }

  sign(name: string): number {
    const row = this.ctx.storage.sql
      .exec<{ visits: number }>(
        `INSERT INTO guests VALUES (?1, 1, (SELECT coalesce(max(seq), 0) + 1 FROM guests))
         ON CONFLICT (name) DO UPDATE SET visits = visits + 1, seq = excluded.seq RETURNING visits`,
        name,
      )
      .one();
    return row.visits;
  }

  guests(): Guest[] {
    return this.ctx.storage.sql.exec<Guest>("SELECT name, visits FROM guests ORDER BY seq DESC").toArray();
  }
}
