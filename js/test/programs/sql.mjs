// SQL storage of a Durable Object: values and errors. Needs a SQLite behind it.
import { DurableObject } from "cloudflare:workers";
import { report, show } from "./show.mjs";
export class Store extends DurableObject {
  async fetch() {
    const st = this.ctx.storage, sql = st.sql;
    sql.exec("create table if not exists t(a integer primary key,b text,c blob,d real)");
    await show("sql cursor", () => {
      const c = sql.exec("insert into t(b,c,d) values(?,?,?) returning *", "x", new Uint8Array([1]), 1.5);
      return [c.columnNames, c.rowsRead, c.rowsWritten, c.toArray(), c.rowsWritten];
    });
    await show("sql one 0", () => sql.exec("select 1 where 0").one());
    await show("sql one 2", () => sql.exec("select 1 union select 2").one());
    await show("sql one", () => sql.exec("select 1 as x").one());
    await show("sql dup", () => [sql.exec("select 1 as x,2 as x").toArray(), [...sql.exec("select 1 as x,2 as x").raw()], sql.exec("select 1 as x,2 as x").columnNames]);
    await show("sql next", () => {
      const c = sql.exec("select 1 as x");
      return [c.next(), c.next(), c.next()];
    });
    await show("sql iter twice", () => {
      const c = sql.exec("select 1 as x");
      return [[...c], [...c], c.toArray()];
    });
    await show("sql raw", () => {
      const r = sql.exec("select 1 as x").raw();
      return [Object.prototype.toString.call(r), typeof r.toArray, r[Symbol.iterator]() === r, r.toArray()];
    });
    await show("cursor proto", () => {
      const c = sql.exec("select 1");
      return [Object.prototype.toString.call(c), c[Symbol.iterator]() === c, typeof c.map, typeof sql.Cursor, typeof sql.Statement, c instanceof sql.Cursor, typeof sql.prepare, typeof sql.ingest];
    });
    await show("sql err", () => sql.exec("selec"));
    await show("sql none", () => sql.exec());
    await show("sql empty", () => sql.exec(""));
    await show("sql comment", () => sql.exec("-- x").toArray());
    await show("sql bind bool", () => sql.exec("select ?", true).toArray());
    await show("sql bind undef", () => sql.exec("select ? as x", undefined).toArray());
    await show("sql bind big", () => sql.exec("select ? as x", 5n).toArray());
    await show("sql bind obj", () => sql.exec("select ? as x", {}).toArray());
    await show("sql bind few", () => sql.exec("select ? as x").toArray());
    await show("sql bind many", () => sql.exec("select ? as x", 1, 2).toArray());
    await show("sql begin", () => sql.exec("begin"));
    await show("sql savepoint", () => sql.exec("savepoint x"));
    await show("multi", () => sql.exec("select 1 as a; select ? as b", 7).toArray());
    await show("blob", () => Object.prototype.toString.call(sql.exec("select x'01' as b").one().b));
    await show("bigint res", () => sql.exec("select 9007199254740993 as b").one().b);
    await show("constraint", () => sql.exec("insert into t(a) values(1)"));
    await show("mid iter drop", () => {
      const c = sql.exec("select * from t union all select * from t");
      c.next();
      sql.exec("create table z(a)");
      sql.exec("drop table z");
      return c.toArray().length;
    });
    await show("reuse", () => {
      const c = sql.exec("select a from t");
      const c2 = sql.exec("select a from t");
      return [c.toArray(), c2.toArray()];
    });
    await show("dbsize", () => typeof sql.databaseSize);
    await show("row proto", () => {
      const o = sql.exec("select 1 as x").one();
      return [Object.getPrototypeOf(o) === Object.prototype];
    });
    await show("__proto__", () => JSON.stringify(sql.exec("select 1 as __proto__").toArray()));
    await show("tsync throw", () => st.transactionSync(() => {
      sql.exec("insert into t(b) values('q')");
      throw new Error("zz");
    }));
    await show("cnt", () => sql.exec("select count(*) c from t").one().c);
    await show("tsync nest", () => st.transactionSync(() => {
      sql.exec("insert into t(b) values('o')");
      try {
        st.transactionSync(() => {
          sql.exec("insert into t(b) values('i')");
          throw new Error("in");
        });
      } catch (e) {
      }
      return sql.exec("select count(*) c from t").one().c;
    }));
    await show("tsync async", () => st.transactionSync(async () => {
      sql.exec("insert into t(b) values('q')");
      return 5;
    }));
    await show("kvtable", () => sql.exec("select * from _cf_KV").toArray());
    return report();
  }
}
export default { fetch(request, env) {
  return env.Store.getByName("a").fetch(request.url);
} };
