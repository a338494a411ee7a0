// objects: Q
import { object, worker } from "../lib/harness.mjs";

export class Q extends object({
  async types_in_and_out({ sql, does }) {
    const round = (value) => sql.exec("SELECT ? AS v, typeof(?) AS t", value, value).one();
    for (const [label, value] of Object.entries({
      null: null, undefined: undefined, zero: 0, minus_zero: -0, one: 1, float: 1.5, nan: NaN, infinity: Infinity, max: Number.MAX_SAFE_INTEGER,
      beyond: 2 ** 53 + 2, huge: 1e308, string: "text", empty: "", nul: "a\0b", unicode: "é✓\u{1F600}", surrogate: "\ud800", true: true, false: false,
      bytes: new Uint8Array([1, 2]), buffer: new Uint8Array([3]).buffer, view: new Uint8Array([1, 2, 3, 4]).subarray(1, 3), empty_bytes: new Uint8Array(0),
      floats: new Float32Array([1]), data: new DataView(new ArrayBuffer(2)), date: new Date(0), array: [1], object: { a: 1 }, bigint: 1n, symbol: Symbol("s"),
      fn: () => 1, boxed: Object(5), map: new Map(),
    })) does(label, () => round(value));
  },
  async values_from_sql({ sql, does }) {
    for (const expression of [
      "1", "1.0", "-0.0", "9007199254740993", "-9223372036854775808", "9223372036854775807", "1e400", "-1e400", "0.1", "NULL", "''", "'a'", "x''", "x'0102'",
      "'a' || char(0) || 'b'", "CAST('5' AS INTEGER)", "1/0", "1 = 1", "typeof(1.0)", "zeroblob(3)", "hex('a')", "1 || 'x'", "abs(-9007199254740993)",
    ]) does(expression, () => sql.exec(`SELECT ${expression} AS v`).one());
  },
  async column_types({ sql, does }) {
    sql.exec("CREATE TABLE t (i INTEGER, r REAL, t TEXT, b BLOB, n NUMERIC, a)");
    does("numbers", () => sql.exec("INSERT INTO t VALUES (1, 1, 1, 1, 1, 1)").toArray());
    does("strings", () => sql.exec("INSERT INTO t VALUES ('2', '2', '2', '2', '2', '2')").toArray());
    does("bound", () => sql.exec("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", 3, 3, 3, 3, 3, 3).toArray());
    does("rows", () => sql.exec("SELECT * FROM t").toArray());
    does("types", () => sql.exec("SELECT typeof(i), typeof(r), typeof(t), typeof(b), typeof(n), typeof(a) FROM t").raw().toArray());
    does("strict", () => { sql.exec("CREATE TABLE s (i INTEGER) STRICT"); return sql.exec("INSERT INTO s VALUES ('x')").toArray(); });
  },
  async cursors({ sql, does }) {
    sql.exec("CREATE TABLE t (a, b)");
    sql.exec("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')");
    does("toArray", () => sql.exec("SELECT * FROM t").toArray());
    does("iteration", () => [...sql.exec("SELECT * FROM t")]);
    does("raw", () => [...sql.exec("SELECT * FROM t").raw()]);
    does("raw toArray", () => sql.exec("SELECT * FROM t").raw().toArray());
    does("one of three", () => sql.exec("SELECT * FROM t").one());
    does("one of none", () => sql.exec("SELECT * FROM t WHERE a > 9").one());
    does("one", () => sql.exec("SELECT * FROM t WHERE a = 2").one());
    does("next", () => { const c = sql.exec("SELECT a FROM t"); return [c.next(), c.next(), c.next(), c.next(), c.next()]; });
    does("toArray twice", () => { const c = sql.exec("SELECT a FROM t"); return [c.toArray(), c.toArray()]; });
    does("next then toArray", () => { const c = sql.exec("SELECT a FROM t"); c.next(); return c.toArray(); });
    does("next then one", () => { const c = sql.exec("SELECT a FROM t"); c.next(); return c.one(); });
    does("raw then objects", () => { const c = sql.exec("SELECT a FROM t"); return [c.raw().next(), c.next()]; });
    does("names", () => sql.exec("SELECT a, b AS c, a + 1, count(*) FROM t").columnNames);
    does("names of none", () => sql.exec("CREATE TABLE u (x)").columnNames);
    does("duplicates", () => { const c = sql.exec("SELECT a, a, b AS a FROM t"); return [c.columnNames, c.toArray()]; });
    does("duplicates raw", () => sql.exec("SELECT a, b AS a FROM t").raw().toArray());
    does("__proto__", () => { const row = sql.exec("SELECT 1 AS __proto__, 2 AS x").one(); return Object.getOwnPropertyNames(row); });
    does("row", () => { const row = sql.exec("SELECT 1 AS a").one(); return [Object.getPrototypeOf(row) === Object.prototype, Object.keys(row)]; });
    does("numeric names", () => sql.exec('SELECT 1 AS "2", 2 AS "1"').one());
    does("tags", () => { const c = sql.exec("SELECT 1"); return [c, c.raw(), c[Symbol.iterator]()].map((o) => Object.prototype.toString.call(o)); });
    does("for of break", () => { for (const row of sql.exec("SELECT * FROM t")) { return row; } });
    does("iterator helpers", () => sql.exec("SELECT a FROM t")[Symbol.iterator]().map((r) => r.a).toArray());
    does("spread raw", () => Math.max(...sql.exec("SELECT a FROM t").raw().toArray().flat()));
  },
  async rows_read_and_written({ sql, does }) {
    const counts = (query, ...args) => { const c = sql.exec(query, ...args); c.toArray(); return [c.rowsRead, c.rowsWritten]; };
    does("create", () => counts("CREATE TABLE t (id INTEGER PRIMARY KEY, x, y)"));
    does("index", () => counts("CREATE INDEX i ON t (x)"));
    does("insert", () => counts("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)"));
    does("select", () => counts("SELECT * FROM t"));
    does("where", () => counts("SELECT * FROM t WHERE y = 2"));
    does("by key", () => counts("SELECT * FROM t WHERE id = 2"));
    does("by index", () => counts("SELECT * FROM t WHERE x = 'b'"));
    does("covered", () => counts("SELECT x FROM t WHERE x = 'b'"));
    does("count", () => counts("SELECT count(*) FROM t"));
    does("join", () => counts("SELECT * FROM t a JOIN t b ON a.id < b.id"));
    does("limit", () => counts("SELECT * FROM t LIMIT 1"));
    does("order", () => counts("SELECT * FROM t ORDER BY y DESC"));
    does("update", () => counts("UPDATE t SET y = y + 1"));
    does("update indexed", () => counts("UPDATE t SET x = 'z' WHERE id = 1"));
    does("upsert", () => counts("INSERT INTO t VALUES (1, 'q', 9) ON CONFLICT (id) DO UPDATE SET y = 10"));
    does("replace", () => counts("REPLACE INTO t VALUES (2, 'r', 3)"));
    does("ignore", () => counts("INSERT OR IGNORE INTO t VALUES (3, 'r', 3)"));
    does("delete", () => counts("DELETE FROM t WHERE id = 3"));
    does("delete all", () => counts("DELETE FROM t"));
    does("several", () => counts("INSERT INTO t VALUES (10, 1, 1); INSERT INTO t VALUES (11, 1, 1)"));
    does("insert select", () => counts("INSERT INTO t SELECT id + 100, x, y FROM t"));
    does("before reading", () => { const c = sql.exec("SELECT * FROM t"); const before = c.rowsRead; c.toArray(); return [before, c.rowsRead]; });
    does("drop", () => counts("DROP TABLE t"));
    does("pragma", () => counts("PRAGMA table_list"));
  },
  async several_statements({ sql, does }) {
    does("both", () => sql.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1); SELECT x FROM t").toArray());
    does("last counts", () => sql.exec("SELECT 1; SELECT 2, 3").raw().toArray());
    does("trailing", () => sql.exec("SELECT 1;  -- comment\n ; ").toArray());
    does("empty", () => sql.exec("").toArray());
    does("only comment", () => sql.exec("-- nothing").toArray());
    does("semicolons", () => sql.exec(";;").toArray());
    does("bindings", () => sql.exec("INSERT INTO t VALUES (5); SELECT ?", 7).raw().toArray());
    does("bindings of the first", () => sql.exec("INSERT INTO t VALUES (?); SELECT 1", 7).raw().toArray());
    does("second fails", () => sql.exec("INSERT INTO t VALUES (8); SELECT * FROM missing").toArray());
    does("what stayed", () => sql.exec("SELECT x FROM t").raw().toArray());
    does("nul", () => sql.exec("SELECT 1;\0 SELECT 2").toArray());
    does("nul inside", () => sql.exec("SELECT 'a\0b'").toArray());
  },
  async errors({ sql, does }) {
    sql.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, u UNIQUE, n NOT NULL DEFAULT 1, c CHECK (c > 0)); INSERT INTO t (id, u, c) VALUES (1, 1, 1)");
    sql.exec("CREATE TABLE child (p REFERENCES t(id))");
    for (const query of [
      "SELEC 1", "SELECT", "SELECT * FROM missing", "SELECT missing FROM t", "INSERT INTO t (id, c) VALUES (1, 1)", "INSERT INTO t (u, c) VALUES (1, 1)",
      "INSERT INTO t (n, c) VALUES (NULL, 1)", "INSERT INTO t (c) VALUES (-1)", "INSERT INTO child VALUES (99)", "CREATE TABLE t (x)", "DROP TABLE missing",
      "SELECT nofunction(1)", "SELECT abs(1, 2)", "INSERT INTO t VALUES (1)", "SELECT 'unterminated", "SELECT (1", "ALTER TABLE missing ADD COLUMN x",
      "SELECT json('bad')", "SELECT abs(-9223372036854775808)", "SELECT 1 FROM t GROUP BY", "UPDATE t SET id = 'x'", "SELECT raise(abort, 'x')",
      "SELECT likelihood(1, 2)", "SELECT x'0'", "SELECT 1 LIMIT 'x'", "WITH RECURSIVE a AS (SELECT 1) SELECT * FROM b", "SELECT sum(9223372036854775807) FROM (SELECT 1 UNION ALL SELECT 2)",
      "SELECT zeroblob(3000000000)", "CREATE TABLE _cf_x (y)", "SELECT * FROM _cf_KV", "CREATE TABLE sqlite_x (y)", "INSERT INTO sqlite_master VALUES (1)",
    ]) does(query, () => sql.exec(query).toArray());
  },
  async what_is_forbidden({ sql, does }) {
    for (const query of [
      "BEGIN", "COMMIT", "SAVEPOINT x", "ATTACH ':memory:' AS a", "DETACH main", "VACUUM", "VACUUM INTO '/tmp/x'", "SELECT load_extension('x')",
      "CREATE TEMP TABLE tt (x)", "CREATE TEMP VIEW tv AS SELECT 1", "SELECT writefile('/tmp/x', 'y')", "SELECT readfile('/etc/passwd')", "REINDEX", "ANALYZE", "EXPLAIN SELECT 1",
      "EXPLAIN QUERY PLAN SELECT 1", "SELECT sqlite_version()", "SELECT sqlite_source_id()", "SELECT sqlite_compileoption_get(0)", "SELECT changes()", "SELECT total_changes()", "SELECT last_insert_rowid()",
      "CREATE VIRTUAL TABLE v USING rtree(a, b, c)", "CREATE VIRTUAL TABLE c USING csv(filename='x')", "CREATE VIRTUAL TABLE d USING dbstat",
      "CREATE VIRTUAL TABLE e USING fts4(x)", "SELECT * FROM dbstat", "SELECT * FROM pragma_table_list", "SELECT * FROM generate_series(1, 3)", "SELECT * FROM sqlite_schema",
      "SELECT * FROM json_each('[1]')", "SELECT randomblob(0)", "SELECT unixepoch('2020-01-01')", "SELECT typeof(random())", "SELECT printf('%d', 5)", "SELECT soundex('x')", "SELECT sqrt(4)", "SELECT 'a' REGEXP 'b'",
      "SELECT fts5_source_id()", "SELECT timediff('2020-01-02', '2020-01-01')", "SELECT concat('a', 'b')", "SELECT unhex('00')", "SELECT string_agg(1, ',')", "SELECT median(1)", "SELECT octet_length('é')",
    ]) does(query, () => sql.exec(query).raw().toArray().length);
  },
  async pragmas({ sql, does }) {
    sql.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, x UNIQUE); CREATE INDEX i ON t (x); CREATE TABLE c (p REFERENCES t(id))");
    for (const query of [
      "data_version", "foreign_keys", "foreign_keys = OFF", "defer_foreign_keys = ON", "table_info(t)", "table_xinfo(t)", "table_list", "table_list(t)", "index_list(t)", "index_info(i)", "index_xinfo(i)", "foreign_key_list(c)",
      "foreign_key_check", "foreign_key_check(c)", "integrity_check", "quick_check", "quick_check(t)", "optimize", "case_sensitive_like = ON", "ignore_check_constraints = ON", "legacy_alter_table = ON", "recursive_triggers = ON",
      "reverse_unordered_selects = ON", "writable_schema = ON", "journal_mode", "journal_mode = WAL", "page_size", "page_count", "cache_size", "user_version", "user_version = 5", "application_id", "encoding", "database_list",
      "compile_options", "function_list", "module_list", "pragma_list", "collation_list", "max_page_count", "auto_vacuum", "synchronous", "temp_store", "locking_mode", "secure_delete", "freelist_count", "schema_version", "nonsense", "main.table_info(t)",
    ]) does(query, () => { const rows = sql.exec(`PRAGMA ${query}`).raw().toArray(); return query.endsWith("_list") || query === "compile_options" ? rows.length > 0 : rows; });
  },
  async full_text_search({ sql, does }) {
    does("create", () => sql.exec("CREATE VIRTUAL TABLE f USING fts5(title, body)").toArray());
    does("insert", () => sql.exec("INSERT INTO f VALUES ('one', 'the quick brown fox'), ('two', 'lazy dogs'), ('three', 'quick dogs')").toArray());
    does("match", () => sql.exec("SELECT title FROM f WHERE f MATCH 'quick' ORDER BY rank").raw().toArray());
    does("prefix", () => sql.exec("SELECT title FROM f WHERE f MATCH 'do*'").raw().toArray());
    does("column", () => sql.exec("SELECT title FROM f WHERE f MATCH 'title: one'").raw().toArray());
    does("highlight", () => sql.exec("SELECT highlight(f, 1, '[', ']') FROM f WHERE f MATCH 'fox'").raw().toArray());
    does("snippet", () => sql.exec("SELECT snippet(f, 1, '<', '>', '...', 2) FROM f WHERE f MATCH 'fox'").raw().toArray());
    does("bm25", () => sql.exec("SELECT bm25(f) < 0 FROM f WHERE f MATCH 'quick'").raw().toArray());
    does("bad query", () => sql.exec("SELECT * FROM f WHERE f MATCH '\"'").raw().toArray());
    does("porter", () => { sql.exec("CREATE VIRTUAL TABLE p USING fts5(x, tokenize = 'porter')"); sql.exec("INSERT INTO p VALUES ('running')"); return sql.exec("SELECT x FROM p WHERE p MATCH 'run'").raw().toArray(); });
    does("trigram", () => { sql.exec("CREATE VIRTUAL TABLE g USING fts5(x, tokenize = 'trigram')"); sql.exec("INSERT INTO g VALUES ('abcdef')"); return sql.exec("SELECT x FROM g WHERE g MATCH 'cde'").raw().toArray(); });
    does("contentless", () => sql.exec("CREATE VIRTUAL TABLE h USING fts5(x, content='')").toArray());
    does("external", () => { sql.exec("CREATE TABLE ext (id INTEGER PRIMARY KEY, x); CREATE VIRTUAL TABLE k USING fts5(x, content='ext', content_rowid='id')"); return 1; });
    does("vocab", () => { sql.exec("CREATE VIRTUAL TABLE v USING fts5vocab(f, 'row')"); return sql.exec("SELECT term, doc FROM v ORDER BY term LIMIT 3").raw().toArray(); });
    does("delete", () => sql.exec("DELETE FROM f WHERE f MATCH 'fox'").toArray());
    does("optimize", () => sql.exec("INSERT INTO f(f) VALUES ('optimize')").toArray());
    does("integrity", () => sql.exec("INSERT INTO f(f) VALUES ('integrity-check')").toArray());
    does("drop", () => sql.exec("DROP TABLE f").toArray());
  },
  async json({ sql, does }) {
    for (const expression of [
      `json('{"a": [1, 2]}')`, `json_extract('{"a": [1, 2]}', '$.a[1]')`, `'{"a": {"b": "x"}}' -> '$.a'`, `'{"a": {"b": "x"}}' ->> '$.a.b'`, "json_array(1, 'x', NULL)",
      "json_object('a', 1, 'b', json('[2]'))", "json_set('{}', '$.a', 5)", "json_remove('{\"a\": 1}', '$.a')", "json_type('[1]')", "json_valid('x')", "json_valid('{}')", "json_quote('\"')", "json_array_length('[1,2]')", "json_patch('{\"a\":1}', '{\"b\":2}')",
      "(SELECT json_group_array(value) FROM json_each('[3,1]'))", "(SELECT json_group_object(key, value) FROM json_each('{\"a\":1}'))", "(SELECT count(*) FROM json_tree('{\"a\":[1,2]}'))", "json_extract('bad', '$')", "json('{a:1}')", "typeof(jsonb('[1]'))", "json_pretty('[1]')", "json_error_position('{')",
    ]) does(expression, () => sql.exec(`SELECT ${expression} AS v`).one());
  },
  async a_cursor_that_was_never_drained_does_not_lock({ sql, does }) {
    sql.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2), (3)");
    does("drop", () => { sql.exec("SELECT * FROM t"); return sql.exec("DROP TABLE t").toArray(); });
    sql.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2), (3)");
    does("alter", () => { sql.exec("SELECT * FROM t"); sql.exec("ALTER TABLE t ADD COLUMN y"); return sql.exec("SELECT * FROM t").toArray(); });
    does("half read, then write", () => { const c = sql.exec("SELECT x FROM t"); c.next(); sql.exec("INSERT INTO t VALUES (4, 4)"); return c.toArray().length >= 2; });
    does("half read, then delete", () => { const c = sql.exec("SELECT x FROM t ORDER BY x"); c.next(); sql.exec("DELETE FROM t WHERE x = 2"); return c.next(); });
    does("left", () => sql.exec("SELECT x FROM t ORDER BY x").raw().toArray());
  },
  async the_same_statement_twice_at_once({ sql, does }) {
    sql.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2), (3)");
    does("interleaved", () => {
      const a = sql.exec("SELECT x FROM t");
      const b = sql.exec("SELECT x FROM t");
      return [a.next().value, b.next().value, a.next().value, b.next().value, a.toArray(), b.toArray()];
    });
    does("nested", () => { const out = []; for (const a of sql.exec("SELECT x FROM t")) for (const b of sql.exec("SELECT x FROM t")) out.push(a.x * b.x); return out; });
    does("insert while reading", () => { const seen = []; for (const { x } of sql.exec("SELECT x FROM t")) { seen.push(x); if (seen.length < 6) sql.exec("INSERT INTO t VALUES (?)", x + 10); } return seen.length >= 3; });
  },
  async a_cursor_over_awaits({ sql, tries }) {
    sql.exec("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2), (3)");
    const cursor = sql.exec("SELECT x FROM t");
    cursor.next();
    await scheduler.wait(5);
    await tries("goes on", () => cursor.toArray());
  },
  async bindings({ sql, does }) {
    does("too few", () => sql.exec("SELECT ?, ?", 1).toArray());
    does("too many", () => sql.exec("SELECT ?", 1, 2).toArray());
    does("none for one", () => sql.exec("SELECT ?").toArray());
    does("numbered", () => sql.exec("SELECT ?2, ?1", "a", "b").raw().toArray());
    does("repeated", () => sql.exec("SELECT ?1, ?1", "a").raw().toArray());
    does("named", () => sql.exec("SELECT :a", 1).raw().toArray());
    does("at", () => sql.exec("SELECT @a", 1).raw().toArray());
    does("dollar", () => sql.exec("SELECT $a", 1).raw().toArray());
    does("object", () => sql.exec("SELECT :a", { a: 1 }).raw().toArray());
    does("array", () => sql.exec("SELECT ?", [1, 2]).raw().toArray());
    does("100", () => sql.exec(`SELECT ${new Array(100).fill("?").join()}`, ...new Array(100).fill(1)).columnNames.length);
    does("101", () => sql.exec(`SELECT ${new Array(101).fill("?").join()}`, ...new Array(101).fill(1)).columnNames.length);
    does("?101", () => sql.exec("SELECT ?101", 1).toArray());
    does("query of another type", () => sql.exec(5).toArray());
    does("query object", () => sql.exec({ toString: () => "SELECT 5 AS x" }).toArray());
    does("no query", () => sql.exec());
    does("null query", () => sql.exec(null));
  },
  async limits_are_those_of_workerd({ sql, does }) {
    does("100 columns", () => sql.exec(`CREATE TABLE a (${Array.from({ length: 100 }, (_, i) => `c${i}`).join()})`).toArray());
    does("101 columns", () => sql.exec(`CREATE TABLE b (${Array.from({ length: 101 }, (_, i) => `c${i}`).join()})`).toArray());
    does("101 result columns", () => sql.exec(`SELECT ${Array.from({ length: 101 }, (_, i) => i).join()}`).columnNames.length);
    does("long statement", () => sql.exec(`SELECT '${"x".repeat(99_900)}' AS v`).one().v.length);
    does("longer statement", () => sql.exec(`SELECT '${"x".repeat(101_000)}' AS v`).one().v.length);
    does("50 byte like", () => sql.exec(`SELECT 'a' LIKE '${"%".repeat(50)}' AS v`).one());
    does("51 byte like", () => sql.exec(`SELECT 'a' LIKE '${"%".repeat(51)}' AS v`).one());
    does("51 byte glob", () => sql.exec(`SELECT 'a' GLOB '${"*".repeat(51)}' AS v`).one());
    sql.exec("CREATE TABLE t (x)");
    does("2 MB", () => sql.exec("INSERT INTO t VALUES (?)", "x".repeat(2_000_000)).rowsWritten);
    does("2.3 MB", () => sql.exec("INSERT INTO t VALUES (?)", "x".repeat(2_300_000)).rowsWritten);
    does("2.3 MB blob", () => sql.exec("INSERT INTO t VALUES (zeroblob(2300000))").rowsWritten);
    does("concatenation", () => sql.exec("SELECT length(x || x) FROM t").raw().toArray());
    does("deep expression", () => sql.exec(`SELECT ${"(".repeat(150)}1${")".repeat(150)}`).raw().toArray());
    does("long sum", () => sql.exec(`SELECT ${new Array(150).fill("1").join("+")} AS v`).one());
    does("compound", () => sql.exec(new Array(6).fill("SELECT 1").join(" UNION ALL ")).raw().toArray().length);
    does("many compounds", () => sql.exec(new Array(600).fill("SELECT 1").join(" UNION ALL ")).raw().toArray().length);
    does("function arguments", () => sql.exec(`SELECT max(${new Array(33).fill(1).join()}) AS v`).one());
    does("trigger depth", () => { sql.exec("CREATE TABLE r (n); CREATE TRIGGER g AFTER INSERT ON r WHEN new.n > 0 BEGIN INSERT INTO r VALUES (new.n - 1); END"); return sql.exec("INSERT INTO r VALUES (5)").rowsWritten; });
  },
  async foreign_keys_are_enforced({ sql, does }) {
    sql.exec("CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p(id) ON DELETE CASCADE); CREATE TABLE d (p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)");
    does("orphan", () => sql.exec("INSERT INTO c VALUES (1)").toArray());
    sql.exec("INSERT INTO p VALUES (1); INSERT INTO c VALUES (1)");
    does("cascade", () => { sql.exec("DELETE FROM p"); return sql.exec("SELECT count(*) AS n FROM c").one(); });
    does("deferred", () => sql.exec("INSERT INTO d VALUES (7)").toArray());
  },
  async statements_of_ddl({ sql, does }) {
    for (const query of [
      "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT DEFAULT (lower('X')), g AS (b || '!') STORED)", "INSERT INTO t (b) VALUES ('q') RETURNING *", "CREATE UNIQUE INDEX u ON t (b)", "CREATE INDEX e ON t (length(b)) WHERE b <> ''",
      "CREATE VIEW v AS SELECT b FROM t", "SELECT * FROM v", "CREATE TRIGGER g AFTER UPDATE ON t BEGIN SELECT 1; END", "ALTER TABLE t RENAME COLUMN b TO bb", "ALTER TABLE t ADD COLUMN c DEFAULT 5", "ALTER TABLE t DROP COLUMN c", "ALTER TABLE t RENAME TO t2",
      "SELECT * FROM t2", "CREATE TABLE IF NOT EXISTS t2 (x)", "CREATE TABLE w (k PRIMARY KEY, v) WITHOUT ROWID", "CREATE TABLE x AS SELECT 1 AS one", "DROP VIEW v", "DROP INDEX e", "DROP TRIGGER g", "DROP TABLE IF EXISTS nope", "SELECT name, type FROM sqlite_master ORDER BY name",
      "UPDATE t2 SET bb = 'z' RETURNING a, bb", "DELETE FROM t2 RETURNING a", "SELECT * FROM sqlite_sequence", "WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT x FROM n", "SELECT row_number() OVER (ORDER BY x) FROM (SELECT 3 AS x UNION SELECT 4)",
      "VALUES (1, 2), (3, 4)", "INSERT INTO w VALUES (1, 1) ON CONFLICT DO NOTHING RETURNING v", "SELECT * FROM w FULL OUTER JOIN x ON 1 = 0", "SELECT 1 IS DISTINCT FROM 2",
    ]) does(query, () => sql.exec(query).toArray());
  },
  async the_size_of_the_database({ sql, does }) {
    does("grows", () => { const before = sql.databaseSize; sql.exec("CREATE TABLE t (x)"); sql.exec("INSERT INTO t VALUES (zeroblob(100000))"); return [typeof before, before % 4096, sql.databaseSize - before > 100000]; });
    does("read only", () => { "use strict"; sql.databaseSize = 5; });
    does("classes", () => [typeof sql.Cursor, typeof sql.Statement, sql.exec("SELECT 1") instanceof sql.Cursor]);
  },
  async dates_of_sql_are_the_clock_of_the_worker({ sql, does }) {
    does("close", () => Math.abs(sql.exec("SELECT unixepoch('subsec') * 1000 AS t").one().t - Date.now()) < 60_000);
    does("format", () => /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(sql.exec("SELECT CURRENT_TIMESTAMP AS t").one().t));
    does("local", () => sql.exec("SELECT datetime('2020-01-01 00:00:00', 'localtime') AS t").one());
  },
  async sql_and_alarm_and_kv_share_a_transaction({ sql, kv, storage, does }) {
    sql.exec("CREATE TABLE t (x)");
    does("rolled back", () => storage.transactionSync(() => { sql.exec("INSERT INTO t VALUES (1)"); kv.put("k", 1); throw new Error("no"); }));
    does("t", () => sql.exec("SELECT count(*) AS n FROM t").one());
    does("k", () => kv.get("k"));
    does("create in a transaction", () => storage.transactionSync(() => { sql.exec("CREATE TABLE u (x)"); throw new Error("no"); }));
    does("u", () => sql.exec("SELECT * FROM u").toArray());
  },
}) {}

export default worker({}, { Q });
