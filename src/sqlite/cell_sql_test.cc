#include <gtest/gtest.h>

#include "sqlite/cell_storage.h"
#include "sqlite/testing.h"

namespace celld {
namespace {

using testing::Cell;
using testing::query_image;

TEST(CellSql, values_of_every_type_go_in_and_out) {
  Cell cell;
  std::vector<uint8_t> bytes = {1, 2, 3};
  EXPECT_EQ(cell.sql("SELECT ?, ?, ?, ?, ?, ?",
                     {nullptr, int64_t{-5}, 1.5, std::string_view("é"),
                      std::span<const uint8_t>(bytes), std::span<const uint8_t>()}),
            "null,-5,1.500000,é,blob:3,blob:0;");
  auto cursor = cell.open("SELECT 1 AS a, 2 AS a, 3 AS \"b c\"");
  EXPECT_EQ(cursor->columns(), (std::vector<std::string>{"a", "a", "b c"}));
}

// SQL-03
TEST(CellSql, all_statements_of_a_script_run_and_are_captured) {
  Cell cell;
  EXPECT_EQ(cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2);"
                     "SELECT x FROM t WHERE x >= ?; -- done",
                     {int64_t{1}}),
            "1;2;");
  ASSERT_TRUE(cell.storage.end_turn());
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT x FROM t"), "1;2;");
  EXPECT_EQ(cell.sql("SELECT ?; SELECT 1", {int64_t{1}}),
            "error: When executing multiple SQL statements in a single call, only the last "
            "statement can have parameters.");
}

TEST(CellSql, errors_are_worded_as_workerd_words_them) {
  Cell cell;
  EXPECT_EQ(cell.sql(""), "error: SQL code did not contain a statement.");
  EXPECT_EQ(cell.sql(" ; "), "error: SQL code did not contain a statement.");
  EXPECT_EQ(cell.sql("SELEC 1"), "error: near \"SELEC\": syntax error at offset 0: SQLITE_ERROR");
  EXPECT_EQ(cell.sql("SELECT * FROM nope"), "error: no such table: nope: SQLITE_ERROR");
  EXPECT_EQ(cell.sql("SELECT ?"), "error: Wrong number of parameter bindings for SQL query.");
  cell.sql("CREATE TABLE t(x UNIQUE NOT NULL); INSERT INTO t VALUES(1)");
  EXPECT_EQ(cell.sql("INSERT INTO t VALUES(1)"),
            "error: UNIQUE constraint failed: t.x: SQLITE_CONSTRAINT (extended: "
            "SQLITE_CONSTRAINT_UNIQUE)");
  EXPECT_EQ(cell.sql("INSERT INTO t VALUES(NULL)"),
            "error: NOT NULL constraint failed: t.x: SQLITE_CONSTRAINT (extended: "
            "SQLITE_CONSTRAINT_NOTNULL)");
}

TEST(CellSql, transactions_in_sql_are_refused_with_advice) {
  Cell cell;
  for (auto statement : {"BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "SAVEPOINT s",
                         "RELEASE s", "ROLLBACK TO s", "END", "SELECT 1; BEGIN"}) {
    EXPECT_EQ(cell.sql(statement).find("error: To execute a transaction, please use the "
                                       "state.storage.transaction() or"),
              0u)
        << statement;
  }
}

TEST(CellSql, the_tables_of_the_host_are_out_of_reach) {
  Cell cell;
  ASSERT_TRUE(cell.storage.put("a", "1"));
  EXPECT_EQ(cell.sql("SELECT * FROM _cf_KV"),
            "error: access to _cf_KV.key is prohibited: SQLITE_AUTH");
  for (auto statement : {"SELECT value FROM _CF_kv",
                         "DROP TABLE _cf_KV",
                         "DELETE FROM _cf_KV",
                         "UPDATE _cf_KV SET value = 1",
                         "INSERT INTO _cf_KV VALUES('x', 1)",
                         "CREATE TABLE _cf_mine(x)",
                         "CREATE TABLE _CF_mine(x)",
                         "CREATE INDEX i ON _cf_KV(value)",
                         "CREATE TRIGGER t AFTER INSERT ON _cf_KV BEGIN SELECT 1; END",
                         "PRAGMA table_info(_cf_KV)",
                         "SELECT * FROM pragma_table_info('_cf_KV')",
                         "ALTER TABLE _cf_KV RENAME TO mine",
                         "CREATE VIEW _cf_v AS SELECT 1",
                         "SELECT * FROM sqlite_dbpage",
                         "SELECT * FROM dbstat",
                         "SELECT * FROM sqlite_stmt",
                         "ATTACH ':memory:' AS m",
                         "VACUUM",
                         "VACUUM INTO '/tmp/x'",
                         "CREATE TEMP TABLE t(x)",
                         "CREATE VIRTUAL TABLE r USING fts4(a,b,c)",
                         "SELECT load_extension('x')",
                         "SELECT sqlite_version()",
                         "PRAGMA journal_mode=WAL",
                         "PRAGMA locking_mode=NORMAL",
                         "PRAGMA mmap_size=1",
                         "PRAGMA page_size=512",
                         "PRAGMA writable_schema=ON",
                         "PRAGMA cache_size=100000",
                         "PRAGMA synchronous=FULL",
                         "PRAGMA foreign_keys='yes; '",
                         "PRAGMA temp_store=1",
                         "PRAGMA integrity_check"}) {
    std::string out = cell.sql(statement);
    EXPECT_TRUE(out.starts_with("error:")) << statement << ": " << out;
  }
  // Through a view or a trigger of the application, too.
  EXPECT_TRUE(cell.sql("CREATE VIEW peek AS SELECT * FROM _cf_KV; SELECT * FROM peek")
                  .starts_with("error:"));
  cell.sql(
      "CREATE TABLE own(x);"
      "CREATE TRIGGER evil AFTER INSERT ON own BEGIN DELETE FROM _cf_KV; END");
  EXPECT_TRUE(cell.sql("INSERT INTO own VALUES(1)").starts_with("error:"));
  EXPECT_EQ(**cell.storage.get("a"), "1");
  // The same text as a statement of the host does not run with its rights.
  EXPECT_TRUE(cell.sql("SELECT value FROM _cf_KV WHERE key = ?", {std::string_view("a")})
                  .starts_with("error:"));
}

TEST(CellSql, what_cloudflare_allows_works) {
  Cell cell;
  cell.sql("CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT); CREATE INDEX i ON t(x)");
  for (auto statement :
       {"PRAGMA table_list",
        "PRAGMA table_info(t)",
        "PRAGMA table_xinfo(t)",
        "PRAGMA index_list(t)",
        "PRAGMA index_info(i)",
        "PRAGMA index_xinfo(i)",
        "PRAGMA foreign_key_list(t)",
        "PRAGMA foreign_key_check",
        "PRAGMA quick_check",
        "PRAGMA optimize",
        "PRAGMA data_version",
        "PRAGMA defer_foreign_keys=on",
        "PRAGMA case_sensitive_like=0",
        "SELECT * FROM pragma_table_info('t')",
        "ALTER TABLE t ADD COLUMN y",
        "ALTER TABLE t RENAME COLUMN y TO z",
        "ALTER TABLE t DROP COLUMN z",
        "ALTER TABLE t RENAME TO u",
        "ANALYZE",
        "SELECT json_extract('{\"a\":1}', '$.a'), sqrt(2), date('now')",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 5) SELECT * FROM n",
        "CREATE VIRTUAL TABLE f USING fts5(body)",
        "INSERT INTO f VALUES('hello world')",
        "EXPLAIN QUERY PLAN SELECT * FROM u WHERE x = 'a'"}) {
    std::string out = cell.sql(statement);
    EXPECT_FALSE(out.starts_with("error:")) << statement << ": " << out;
  }
  EXPECT_EQ(cell.sql("SELECT highlight(f, 0, '<', '>') FROM f('hello') ORDER BY rank"),
            "<hello> world;");
  ASSERT_TRUE(cell.storage.end_turn());
  EXPECT_EQ(query_image(cell.sink.replica.image(), "PRAGMA integrity_check"), "ok;");
}

// SQL-15
TEST(CellSql, limits_are_cloudflares_and_can_be_raised) {
  auto columns = [](int n) {
    std::string out = "CREATE TABLE t(c0";
    for (int i = 1; i < n; ++i) out += ",c" + std::to_string(i);
    return out + ")";
  };
  auto parameters = [](int n) {
    std::string out = "SELECT ?1";
    for (int i = 2; i <= n; ++i) out += "+?" + std::to_string(i);
    return out;
  };
  auto statement = [](size_t n) { return "SELECT '" + std::string(n - 9, 'x') + "'"; };
  auto like = [](size_t n) { return "SELECT 'a' LIKE '" + std::string(n, '%') + "'"; };
  std::string compound = "SELECT 1";
  for (int i = 1; i < 5; ++i) compound += " UNION SELECT 1";

  Cell cell;
  EXPECT_EQ(cell.sql(columns(100)), "");
  EXPECT_EQ(cell.sql("DROP TABLE t; " + columns(101)).find("error: too many columns on t"), 0u);
  EXPECT_EQ(cell.sql(parameters(100), std::vector<SqlValueView>(100, int64_t{1})), "100;");
  EXPECT_TRUE(cell.sql(parameters(101)).starts_with("error: variable number must be between"));
  EXPECT_FALSE(cell.sql(statement(100'000)).starts_with("error"));
  EXPECT_EQ(cell.sql(statement(100'001)), "error: statement too long: SQLITE_TOOBIG");
  EXPECT_EQ(cell.sql(like(50)), "1;");
  EXPECT_EQ(cell.sql(like(51)), "error: LIKE or GLOB pattern too complex: SQLITE_ERROR");
  EXPECT_EQ(cell.sql(compound), "1;");
  EXPECT_TRUE(
      cell.sql(compound + " UNION SELECT 1").starts_with("error: too many terms in compou"));
  std::string value(2'200'001, 'v');
  EXPECT_EQ(cell.sql("SELECT length(?)", {std::string_view(value).substr(0, 2'097'152)}),
            "2097152;");
  EXPECT_EQ(cell.sql("SELECT length(?)", {std::string_view(value)}),
            "error: string or blob too big: SQLITE_TOOBIG");
  cell.sql("CREATE TABLE b(x, y)");
  std::string_view half(value.data(), 1'200'000);
  EXPECT_EQ(cell.sql("INSERT INTO b VALUES(?, ?)", {half, half}),
            "error: string or blob too big: SQLITE_TOOBIG");

  CellStorageOptions raised;
  raised.sql.columns_max = 101;
  raised.sql.parameters_max = 101;
  raised.sql.statement_bytes_max = 100'001;
  raised.sql.like_pattern_bytes_max = 51;
  raised.sql.compound_selects_max = 6;
  raised.sql.value_bytes_max = 4'000'000;
  Cell wide(raised);
  EXPECT_EQ(wide.sql(columns(101)), "");
  EXPECT_EQ(wide.sql(parameters(101), std::vector<SqlValueView>(101, int64_t{1})), "101;");
  EXPECT_FALSE(wide.sql(statement(100'001)).starts_with("error"));
  EXPECT_EQ(wide.sql(like(51)), "1;");
  EXPECT_EQ(wide.sql(compound + " UNION SELECT 1"), "1;");
  EXPECT_EQ(wide.sql("SELECT length(?)", {std::string_view(value)}), "2200001;");
}

// SQL-01
TEST(CellSql, a_cursor_left_undrained_does_not_block_a_schema_change) {
  Cell cell;
  cell.sql("CREATE TABLE t(x, y); INSERT INTO t VALUES(1,'a'),(2,'b'),(3,'c')");
  auto cursor = cell.open("SELECT x, y FROM t");
  auto other = cell.open("SELECT x FROM t");
  EXPECT_EQ(cell.sql("ALTER TABLE t ADD COLUMN z"), "");
  EXPECT_EQ(cell.sql("CREATE INDEX i ON t(x); DROP INDEX i"), "");
  EXPECT_EQ(cell.sql("DROP TABLE t"), "");
  ASSERT_TRUE(cell.storage.end_turn());
  // What they had selected can still be read.
  EXPECT_EQ(Cell::drain(*cursor), "1,a;2,b;3,c;");
  EXPECT_EQ(Cell::drain(*other), "1;2;3;");
}

TEST(CellSql, a_cursor_with_too_many_rows_left_is_closed_by_name) {
  CellStorageOptions options;
  options.cursor_buffer_bytes_max = 1000;
  Cell cell(options);
  cell.sql(
      "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 100)"
      "INSERT INTO t SELECT randomblob(100) FROM n");
  auto cursor = cell.open("SELECT x FROM t");
  EXPECT_EQ(cell.sql("DROP TABLE t"), "");
  EXPECT_EQ(Cell::drain(*cursor).find("blob:100;error: SQL cursor was closed because"), 0u);
  EXPECT_NE(cursor->failure(), nullptr);
}

TEST(CellSql, a_half_read_insert_returning_does_not_block_the_commit) {
  Cell cell;
  cell.sql("CREATE TABLE t(x)");
  auto cursor = cell.open("INSERT INTO t VALUES(1),(2),(3) RETURNING x");
  ASSERT_TRUE(cell.storage.end_turn());
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT count(*) FROM t"), "3;");
  EXPECT_EQ(Cell::drain(*cursor), "1;2;3;");
}

TEST(CellSql, the_same_query_can_be_read_twice_at_once) {
  Cell cell;
  cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1),(2)");
  auto first = cell.open("SELECT x FROM t");
  auto second = cell.open("SELECT x FROM t");
  EXPECT_EQ(Cell::drain(*first), "1;2;");
  EXPECT_EQ(Cell::drain(*second), "1;2;");
  auto third = cell.open("SELECT x FROM t");
  EXPECT_EQ(Cell::drain(*third), "1;2;");
}

TEST(CellSql, a_cursor_outlives_delete_all_and_the_storage) {
  auto cell = std::make_unique<Cell>();
  cell->sql("CREATE TABLE t(x); INSERT INTO t VALUES(1),(2)");
  auto first = cell->open("SELECT x FROM t");
  ASSERT_TRUE(cell->storage.delete_all(true));
  EXPECT_EQ(Cell::drain(*first),
            "error: SQLite query was canceled because the database was deleted.");
  cell->sql("CREATE TABLE t(x); INSERT INTO t VALUES(1),(2)");
  auto second = cell->open("SELECT x FROM t");
  cell.reset();
  EXPECT_NE(second->failure(), nullptr);
  EXPECT_FALSE(second->next().has_value());
}

TEST(CellSql, statements_are_kept_within_bounds) {
  CellStorageOptions options;
  options.statement_cache_count_max = 4;
  options.statement_cache_bytes_max = 400;
  Cell cell(options);
  cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1),(2)");
  auto held = cell.open("SELECT x FROM t");
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(cell.sql("SELECT " + std::to_string(i)), std::to_string(i) + ";");
  }
  std::string long_query = "SELECT '" + std::string(300, 'x') + "'";
  EXPECT_EQ(cell.sql(long_query).size(), 301u);
  EXPECT_EQ(Cell::drain(*held), "1;2;");
  // A statement kept from before a schema change is compiled anew.
  EXPECT_EQ(cell.sql("SELECT * FROM t"), "1;2;");
  cell.sql("ALTER TABLE t ADD COLUMN y DEFAULT 9");
  auto again = cell.open("SELECT * FROM t");
  EXPECT_EQ(again->columns(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(Cell::drain(*again), "1,9;2,9;");
}

TEST(CellSql, a_pragma_takes_effect_each_time_it_is_run) {
  Cell cell;
  for (auto value : {"0", "1", "0"}) {
    EXPECT_EQ(cell.sql(std::string("PRAGMA foreign_keys=") + value), "");
    EXPECT_EQ(cell.sql("PRAGMA foreign_keys"), std::string(value) + ";");
  }
}

TEST(CellSql, rows_read_and_written_are_counted) {
  Cell cell;
  auto counts = [&](std::string_view query) {
    auto cursor = cell.open(query);
    Cell::drain(*cursor);
    return std::to_string(cursor->rows_read()) + "r" + std::to_string(cursor->rows_written()) + "w";
  };
  cell.sql(
      "CREATE TABLE plain(id INTEGER PRIMARY KEY, x);"
      "CREATE TABLE indexed(id INTEGER PRIMARY KEY, x); CREATE INDEX i ON indexed(x)");
  EXPECT_EQ(counts("INSERT INTO plain(x) VALUES(1)"), "0r1w");
  EXPECT_EQ(counts("INSERT INTO plain(x) VALUES(2),(3),(4)"), "0r3w");
  EXPECT_EQ(counts("INSERT INTO indexed(x) VALUES(1),(2),(3),(4)"), "0r8w");
  EXPECT_EQ(counts("SELECT * FROM plain"), "4r0w");
  EXPECT_EQ(counts("SELECT * FROM plain"), "4r0w");
  EXPECT_EQ(counts("SELECT * FROM plain WHERE id = 2"), "1r0w");
  EXPECT_EQ(counts("SELECT * FROM plain WHERE id = 99"), "0r0w");
  EXPECT_EQ(counts("SELECT count(*) FROM plain"), "4r0w");
  // The entry after the last that matches is read to see that it does not.
  EXPECT_EQ(counts("SELECT id FROM indexed WHERE x = 3"), "2r0w");
  EXPECT_EQ(counts("SELECT x FROM plain ORDER BY x DESC"), "4r0w");
  EXPECT_EQ(counts("DELETE FROM plain WHERE id = 1"), "1r1w");
  EXPECT_EQ(counts("DELETE FROM plain"), "0r3w");
  // Before it is drained a cursor tells what it has read so far.
  auto cursor = cell.open("SELECT * FROM indexed");
  EXPECT_EQ(cursor->rows_read(), 1u);
  ASSERT_TRUE(cursor->next().has_value());
  EXPECT_EQ(cursor->rows_read(), 2u);
}

TEST(CellSql, an_endless_query_can_be_stopped) {
  Cell cell;
  cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1)");
  ASSERT_TRUE(cell.storage.end_turn());
  int asked = 0;
  cell.storage.set_stop_check([](void* n) { return ++*static_cast<int*>(n) > 5; }, &asked);
  EXPECT_EQ(cell.sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) "
                     "SELECT count(*) FROM n"),
            "error: interrupted: SQLITE_INTERRUPT");
  cell.storage.set_stop_check(nullptr, nullptr);
  EXPECT_EQ(cell.sql("SELECT x FROM t"), "1;");
}

TEST(CellSql, open_cursors_have_numbers_within_a_bound) {
  Cell cell;
  cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1),(2)");
  SqlCursorTable& table = *cell.storage.open_cursors();
  uint32_t first = table.add(cell.open("SELECT x FROM t"));
  EXPECT_EQ(Cell::drain(*table.find(first)), "1;2;");
  for (size_t i = 1; i < SqlCursorTable::kOpenMax; ++i) {
    EXPECT_NE(table.add(cell.open("SELECT x FROM t")), 0u);
  }
  EXPECT_EQ(table.add(cell.open("SELECT x FROM t")), 0u);
  table.remove(first);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_NE(table.add(cell.open("SELECT x FROM t")), 0u);
  ASSERT_TRUE(cell.storage.end_turn());
  cell.storage.close_idle();  // a thousand half-read cursors do not hold it
  EXPECT_TRUE(cell.storage.is_idle());
}

TEST(CellSql, database_size_counts_pages_in_use) {
  Cell cell;
  EXPECT_EQ(*cell.storage.database_size(), 0u);
  cell.sql("CREATE TABLE t(x)");
  EXPECT_EQ(*cell.storage.database_size(), 2 * kPageSize);
  cell.sql("INSERT INTO t VALUES(zeroblob(100000))");
  uint64_t full = *cell.storage.database_size();
  EXPECT_GT(full, 100000u);
  cell.sql("DELETE FROM t");
  EXPECT_LT(*cell.storage.database_size(), full);
}

}  // namespace
}  // namespace celld
