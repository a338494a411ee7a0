#include "sqlite/cell_storage.h"

#include <gtest/gtest.h>

#include <random>

#include "sqlite/testing.h"

namespace celld {
namespace {

using testing::Cell;
using testing::image_of;
using testing::query_image;

// --- turns ---

TEST(CellStorage, writes_of_one_turn_are_one_commit) {
  Cell cell;
  ASSERT_TRUE(cell.storage.put("a", "1"));
  ASSERT_TRUE(cell.storage.put("b", "2"));
  EXPECT_EQ(cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(7)"), "");
  EXPECT_EQ(cell.sink.commits, 0);
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 1);
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT x FROM t"), "7;");
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT key, value FROM _cf_KV"), "a,1;b,2;");
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 1);
}

TEST(CellStorage, reading_writes_nothing_and_an_untouched_cell_has_no_pages) {
  Cell cell;
  EXPECT_EQ(cell.get("x"), "(none)");
  EXPECT_EQ(cell.keys({}), "");
  EXPECT_EQ(*cell.storage.remove("x"), false);
  EXPECT_EQ(*cell.storage.alarm(), std::nullopt);
  ASSERT_TRUE(cell.storage.set_alarm(std::nullopt));
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 0);
  EXPECT_EQ(cell.storage.pages().committed_page_count(), 0u);
}

TEST(CellStorage, a_refused_commit_undoes_the_turn_and_says_fenced) {
  Cell cell;
  ASSERT_TRUE(cell.storage.put("a", "1"));
  cell.turn();
  cell.sink.allowed = false;
  ASSERT_TRUE(cell.storage.put("a", "2"));
  auto done = cell.storage.end_turn();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, SqlErrorKind::kFenced);
  EXPECT_EQ(cell.get("a"), "1");
  EXPECT_EQ(cell.sink.commits, 1);
  cell.sink.allowed = true;
  ASSERT_TRUE(cell.storage.put("a", "3"));
  cell.turn();
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT value FROM _cf_KV"), "3;");
}

TEST(CellStorage, a_deferred_constraint_that_fails_at_the_end_undoes_the_turn) {
  Cell cell;
  cell.sql(
      "CREATE TABLE p(id INTEGER PRIMARY KEY);"
      "CREATE TABLE c(p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)");
  cell.turn();
  EXPECT_EQ(cell.sql("INSERT INTO c VALUES(1)"), "");
  auto done = cell.storage.end_turn();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().message.find("FOREIGN KEY constraint failed: SQLITE_CONSTRAINT"), 0u)
      << done.error().message;
  EXPECT_EQ(cell.sql("SELECT count(*) FROM c"), "0;");
  EXPECT_EQ(cell.sql("INSERT INTO p VALUES(1)"), "");
  cell.turn();
}

// --- key-value ---

TEST(CellStorage, list_honours_start_end_prefix_reverse_and_limit) {
  Cell cell;
  for (auto key : {"a", "aa", "ab", "b", "ba", "c", "\xff\xff", "é"}) {
    ASSERT_TRUE(cell.storage.put(key, "v"));
  }
  EXPECT_EQ(cell.keys({}), "a aa ab b ba c é \xff\xff ");
  EXPECT_EQ(cell.keys({.start = "aa", .end = "b"}), "aa ab ");
  EXPECT_EQ(cell.keys({.start_after = "aa", .end = "ba"}), "ab b ");
  EXPECT_EQ(cell.keys({.prefix = "a"}), "a aa ab ");
  EXPECT_EQ(cell.keys({.start = "aa", .prefix = "a"}), "aa ab ");
  EXPECT_EQ(cell.keys({.end = "ab", .prefix = "a", .reverse = true}), "aa a ");
  EXPECT_EQ(cell.keys({.prefix = "\xff"}), "\xff\xff ");
  EXPECT_EQ(cell.keys({.reverse = true, .limit = 2}), "\xff\xff é ");
  EXPECT_EQ(cell.keys({.start = "b", .end = "b"}), "");
  EXPECT_EQ(cell.keys({.start = "c", .end = "a"}), "");
}

// SQL-05
TEST(CellStorage, list_with_a_bad_limit_is_a_type_error) {
  Cell cell;
  for (int64_t limit : {-1, 0}) {
    auto done = cell.storage.list({.limit = limit}, [](auto, auto) { return true; });
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().kind, SqlErrorKind::kTypeError);
    EXPECT_EQ(done.error().message, "List limit must be positive.");
  }
  EXPECT_EQ(cell.keys({.start = "a", .start_after = "b"}),
            "error: list() cannot be called with both start and startAfter values.");
}

TEST(CellStorage, keys_and_values_of_any_bytes_up_to_the_limits) {
  Cell cell;
  std::string key("k\0k", 3);
  std::string value("\0\xff\0", 3);
  ASSERT_TRUE(cell.storage.put(key, value));
  EXPECT_EQ(cell.get(key), value);
  ASSERT_TRUE(cell.storage.put("empty", ""));
  EXPECT_EQ(cell.get("empty"), "");
  EXPECT_TRUE(*cell.storage.remove(key));
  EXPECT_FALSE(*cell.storage.remove(key));

  ASSERT_TRUE(cell.storage.put(std::string(5000, 'k'), "v"));
  EXPECT_EQ(cell.get(std::string(5000, 'k')), "v");
  ASSERT_TRUE(cell.storage.put("k", std::string(kEntryBytesMax - 1, 'v')));
  auto long_value = cell.storage.put("k", std::string(kEntryBytesMax, 'v'));
  ASSERT_FALSE(long_value.has_value());
  EXPECT_EQ(long_value.error().message, "Values cannot be larger than 2097152 bytes.");
  EXPECT_EQ(cell.get("k").size(), kEntryBytesMax - 1);
  EXPECT_EQ(*cell.storage.remove_all(), 3);
  EXPECT_EQ(cell.keys({}), "");
}

// --- the alarm ---

TEST(CellStorage, a_commit_reports_the_alarm_only_when_it_changed) {
  Cell cell;
  ASSERT_TRUE(cell.storage.set_alarm(1000));
  EXPECT_EQ(*cell.storage.alarm(), 1000);
  cell.turn();
  ASSERT_TRUE(cell.storage.put("a", "1"));
  cell.turn();
  ASSERT_TRUE(cell.storage.set_alarm(2000));
  ASSERT_TRUE(cell.storage.set_alarm(1000));
  ASSERT_TRUE(cell.storage.put("a", "2"));
  cell.turn();
  ASSERT_TRUE(cell.storage.set_alarm(std::nullopt));
  EXPECT_EQ(*cell.storage.alarm(), std::nullopt);
  cell.turn();
  ASSERT_EQ(cell.sink.alarm_changes.size(), 2u);
  EXPECT_EQ(cell.sink.alarm_changes[0], 1000);
  EXPECT_EQ(cell.sink.alarm_changes[1], std::nullopt);
}

TEST(CellStorage, a_rolled_back_alarm_is_not_reported) {
  Cell cell;
  ASSERT_TRUE(cell.storage.begin_transaction());
  ASSERT_TRUE(cell.storage.set_alarm(5000));
  ASSERT_TRUE(cell.storage.rollback_transaction());
  EXPECT_EQ(*cell.storage.alarm(), std::nullopt);
  ASSERT_TRUE(cell.storage.put("a", "1"));
  cell.turn();
  EXPECT_TRUE(cell.sink.alarm_changes.empty());
}

TEST(CellStorage, the_alarm_survives_restore_in_nanoseconds_as_workerd_keeps_it) {
  Cell cell;
  ASSERT_TRUE(cell.storage.set_alarm(1'700'000'000'123));
  cell.turn();
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT key, value FROM _cf_METADATA"),
            "1,1700000000123000000;");
  Cell other;
  std::vector<NumberedPage> pages;
  for (const auto& [pgno, bytes] : cell.sink.replica.pages) {
    pages.push_back({pgno, PageRef::copy_of(reinterpret_cast<const uint8_t*>(bytes.data()))});
  }
  ASSERT_TRUE(other.storage.pages().load(std::move(pages), cell.sink.replica.page_count));
  EXPECT_EQ(*other.storage.alarm(), 1'700'000'000'123);
}

// --- transactions ---

// SQL-07
TEST(CellStorage, an_inner_rollback_undoes_only_its_own_writes) {
  Cell cell;
  ASSERT_TRUE(cell.storage.begin_transaction());
  ASSERT_TRUE(cell.storage.put("outer", "1"));
  ASSERT_TRUE(cell.storage.begin_transaction());
  ASSERT_TRUE(cell.storage.put("inner", "1"));
  ASSERT_TRUE(cell.storage.rollback_transaction());
  EXPECT_EQ(cell.storage.transaction_depth(), 1);
  ASSERT_TRUE(cell.storage.commit_transaction());
  cell.turn();
  EXPECT_EQ(cell.keys({}), "outer ");
}

TEST(CellStorage, a_transaction_left_open_spans_turns) {
  Cell cell;
  ASSERT_TRUE(cell.storage.begin_transaction());
  ASSERT_TRUE(cell.storage.put("a", "1"));
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 0);
  ASSERT_TRUE(cell.storage.put("b", "1"));
  cell.turn();
  ASSERT_TRUE(cell.storage.commit_transaction());
  EXPECT_EQ(cell.sink.commits, 0);
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 1);
  EXPECT_EQ(cell.keys({}), "a b ");
}

TEST(CellStorage, rolling_back_the_creation_of_the_tables_is_noticed) {
  Cell cell;
  ASSERT_TRUE(cell.storage.begin_transaction());
  ASSERT_TRUE(cell.storage.put("a", "1"));
  ASSERT_TRUE(cell.storage.rollback_transaction());
  EXPECT_EQ(cell.get("a"), "(none)");
  ASSERT_TRUE(cell.storage.put("a", "2"));
  cell.turn();
  EXPECT_EQ(cell.get("a"), "2");
}

// SQL-02
TEST(CellStorage, a_full_database_in_a_transaction_reports_the_original_error) {
  CellStorageOptions options;
  options.sql.database_pages_max = 20;
  Cell cell(options);
  cell.sql("CREATE TABLE t(x)");
  cell.turn();
  ASSERT_TRUE(cell.storage.begin_transaction());
  std::string failure;
  for (int i = 0; i < 100 && failure.empty(); ++i) {
    std::string out = cell.sql("INSERT INTO t VALUES(zeroblob(3000))");
    if (out.starts_with("error")) failure = out;
  }
  EXPECT_EQ(failure, "error: database or disk is full: SQLITE_FULL");
  // JavaScript sees that error and rolls back; nothing complains of a missing savepoint.
  auto undone = cell.storage.rollback_transaction();
  EXPECT_TRUE(undone.has_value()) << undone.error().message;
  // No write that had been confirmed outside the transaction went with it: the cell lives on.
  cell.turn();
  EXPECT_EQ(cell.sql("SELECT count(*) FROM t"), "0;");
  EXPECT_EQ(cell.sql("INSERT INTO t VALUES(1)"), "");
  cell.turn();
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT x FROM t"), "1;");
}

// A commit that the journal does not take must be refused here, while nothing has happened yet.
TEST(CellStorage, a_transaction_larger_than_the_limit_fails_by_name_and_the_cell_lives_on) {
  for (const char* insert : {"INSERT INTO t VALUES(zeroblob(3000))",
                             "INSERT INTO t SELECT zeroblob(3000) FROM (WITH RECURSIVE n(i) AS "
                             "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) SELECT i FROM n)"}) {
    SCOPED_TRACE(insert);
    CellStorageOptions options;
    options.sql.transaction_pages_max = 256;  // 1 MiB
    Cell cell(options);
    cell.sql("CREATE TABLE t(x)");
    cell.sql("INSERT INTO t VALUES('first')");
    cell.turn();
    int commits = cell.sink.commits;
    std::string out;
    for (int i = 0; i < 1000 && !out.starts_with("error"); ++i) out = cell.sql(insert);
    EXPECT_EQ(out, "error: the transaction changes more than the limit of 1 MiB: SQLITE_FULL");
    (void)cell.storage.end_turn();
    EXPECT_EQ(cell.sink.commits, commits);
    EXPECT_EQ(cell.sql("SELECT x FROM t"), "first;");
    // The same in parts.
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(cell.sql("INSERT INTO t VALUES(zeroblob(3000))"), "");
      cell.turn();
    }
    EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT count(*) FROM t"), "401;");
    EXPECT_EQ(query_image(cell.sink.replica.image(), "PRAGMA integrity_check"), "ok;");
  }
}

// Pages that SQLite still keeps in its cache are written at the commit only.
TEST(CellStorage, a_transaction_that_turns_out_too_large_at_its_commit_fails_by_name) {
  CellStorageOptions options;
  options.sql.transaction_pages_max = 10;
  Cell cell(options);
  cell.sql("CREATE TABLE t(x)");
  cell.turn();
  for (int i = 0; i < 14; ++i) EXPECT_EQ(cell.sql("INSERT INTO t VALUES(zeroblob(3000))"), "");
  auto done = cell.storage.end_turn();
  ASSERT_FALSE(done.has_value());
  EXPECT_NE(done.error().message.find("limit of"), std::string::npos) << done.error().message;
  EXPECT_EQ(cell.sql("SELECT count(*) FROM t"), "0;");
  EXPECT_EQ(cell.sql("INSERT INTO t VALUES(1)"), "");
  cell.turn();
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT x FROM t"), "1;");
}

TEST(CellStorage, when_a_full_database_takes_confirmed_writes_with_it_the_turn_fails) {
  CellStorageOptions options;
  options.sql.database_pages_max = 20;
  Cell cell(options);
  cell.sql("CREATE TABLE t(x)");
  cell.turn();
  std::string out;
  for (int i = 0; i < 100 && !out.starts_with("error"); ++i) {
    out = cell.sql("INSERT INTO t VALUES(zeroblob(3000))");
  }
  EXPECT_EQ(out, "error: database or disk is full: SQLITE_FULL");
  EXPECT_EQ(cell.sql("INSERT INTO t VALUES(1)"), out);
  auto done = cell.storage.end_turn();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ("error: " + done.error().message, out);
  EXPECT_EQ(cell.sql("SELECT count(*) FROM t"), "0;");
}

TEST(CellStorage, committing_a_transaction_that_sqlite_undid_is_the_original_error) {
  CellStorageOptions options;
  options.sql.database_pages_max = 20;
  Cell cell(options);
  ASSERT_TRUE(cell.storage.begin_transaction());
  ASSERT_TRUE(cell.storage.begin_transaction());
  std::string big(30000, 'x');
  std::string failure;
  for (int i = 0; i < 10 && failure.empty(); ++i) {
    auto done = cell.storage.put("k" + std::to_string(i), big);
    if (!done) failure = done.error().message;
  }
  EXPECT_EQ(failure, "database or disk is full: SQLITE_FULL");
  auto inner = cell.storage.commit_transaction();
  ASSERT_FALSE(inner.has_value());
  EXPECT_EQ(inner.error().message, failure);
  auto outer = cell.storage.commit_transaction();
  ASSERT_FALSE(outer.has_value());
  EXPECT_EQ(cell.storage.transaction_depth(), 0);
  cell.turn();
  EXPECT_EQ(cell.keys({}), "");
}

// --- everything ---

// SQL-09
TEST(CellStorage, delete_all_empties_the_database_in_one_commit_and_keeps_the_alarm) {
  Cell cell;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(cell.storage.put("k" + std::to_string(i), std::string(200, 'v')));
  }
  cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1); CREATE VIEW v AS SELECT x FROM t");
  ASSERT_TRUE(cell.storage.set_alarm(1000));
  cell.turn();
  ASSERT_GT(cell.sink.replica.page_count, 100u);
  ASSERT_TRUE(cell.storage.delete_all(false));
  ASSERT_TRUE(cell.storage.put("after", "1"));
  EXPECT_EQ(cell.sink.commits, 1);
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 2);
  EXPECT_LT(cell.sink.replica.page_count, 8u);
  EXPECT_EQ(cell.sink.alarm_changes.size(), 1u);
  EXPECT_EQ(*cell.storage.alarm(), 1000);
  EXPECT_EQ(cell.keys({}), "after ");
  std::string image = cell.sink.replica.image();
  EXPECT_EQ(query_image(image, "PRAGMA integrity_check"), "ok;");
  EXPECT_EQ(query_image(image, "SELECT count(*) FROM sqlite_schema WHERE name IN ('t','v')"), "0;");
  EXPECT_EQ(image_of(cell.storage.pages()), image);

  ASSERT_TRUE(cell.storage.delete_all(true));
  cell.turn();
  ASSERT_EQ(cell.sink.alarm_changes.size(), 2u);
  EXPECT_EQ(cell.sink.alarm_changes[1], std::nullopt);
  EXPECT_EQ(cell.keys({}), "");
}

TEST(CellStorage, a_delete_all_whose_commit_is_refused_deletes_nothing) {
  Cell cell;
  ASSERT_TRUE(cell.storage.put("a", "1"));
  ASSERT_TRUE(cell.storage.set_alarm(7));
  cell.turn();
  ASSERT_TRUE(cell.storage.delete_all(true));
  EXPECT_EQ(cell.get("a"), "(none)");
  cell.sink.allowed = false;
  EXPECT_FALSE(cell.storage.end_turn().has_value());
  cell.sink.allowed = true;
  EXPECT_EQ(cell.get("a"), "1");
  EXPECT_EQ(*cell.storage.alarm(), 7);
  ASSERT_TRUE(cell.storage.put("a", "2"));
  cell.turn();
  EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT value FROM _cf_KV"), "2;");
  EXPECT_EQ(cell.sink.alarm_changes.size(), 1u);
}

TEST(CellStorage, delete_all_is_refused_inside_a_transaction_and_harmless_on_nothing) {
  Cell cell;
  ASSERT_TRUE(cell.storage.delete_all(true));
  cell.turn();
  EXPECT_EQ(cell.sink.commits, 0);
  ASSERT_TRUE(cell.storage.set_alarm(9));
  ASSERT_TRUE(cell.storage.put("dropped", "1"));
  ASSERT_TRUE(cell.storage.delete_all(false));
  cell.turn();
  EXPECT_EQ(*cell.storage.alarm(), 9);
  EXPECT_EQ(cell.keys({}), "");
  ASSERT_TRUE(cell.storage.begin_transaction());
  EXPECT_FALSE(cell.storage.delete_all(false).has_value());
  ASSERT_TRUE(cell.storage.rollback_transaction());
}

// --- idle ---

TEST(CellStorage, an_idle_close_is_not_noticed) {
  Cell cell;
  cell.sql("CREATE TABLE t(x); INSERT INTO t VALUES(1),(2),(3); ");
  EXPECT_EQ(cell.sql("PRAGMA recursive_triggers=ON"), "");
  cell.turn();
  EXPECT_EQ(cell.sql("PRAGMA recursive_triggers=ON"), "");
  auto cursor = cell.storage.exec("SELECT x FROM t", {});
  ASSERT_TRUE(cursor.has_value());
  cell.storage.close_idle();
  EXPECT_TRUE(cell.storage.is_idle());
  EXPECT_EQ(Cell::drain(**cursor), "1;2;3;");
  EXPECT_EQ(cell.sql("SELECT count(*) FROM t"), "3;");
  EXPECT_EQ(cell.sql("PRAGMA recursive_triggers"), "1;");
  EXPECT_EQ(cell.sql("PRAGMA foreign_keys"), "1;");

  ASSERT_TRUE(cell.storage.put("a", "1"));
  cell.storage.close_idle();  // a turn is open
  EXPECT_FALSE(cell.storage.is_idle());
  cell.turn();
  EXPECT_EQ(cell.get("a"), "1");
}

// Random use of everything; after each turn a replica is the database, and the model holds.
TEST(CellStorage, random_use_keeps_replica_and_model) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    CellStorageOptions options;
    if (seed % 2)
      options.pages = {.heap_bytes_max = 4 * kPageSize, .open_spill = testing::memory_spill()};
    Cell cell(options);
    using Model = std::map<std::string, std::string>;
    std::vector<Model> levels(1);  // the last is what the cell sees
    Model committed;
    for (int step = 0; step < 600; ++step) {
      Model& model = levels.back();
      std::string key = "k" + std::to_string(random() % 40);
      switch (random() % 16) {
        case 0:
          if (levels.size() < 4) {
            ASSERT_TRUE(cell.storage.begin_transaction());
            levels.push_back(model);
          }
          break;
        case 1:
          if (levels.size() > 1) {
            ASSERT_TRUE(cell.storage.commit_transaction());
            Model top = levels.back();
            levels.pop_back();
            levels.back() = top;
          }
          break;
        case 2:
          if (levels.size() > 1) {
            ASSERT_TRUE(cell.storage.rollback_transaction());
            levels.pop_back();
          }
          break;
        case 3:
          if (levels.size() == 1 && random() % 4 == 0) {
            ASSERT_TRUE(cell.storage.delete_all(false));
            model.clear();
          }
          break;
        case 4:
          cell.storage.close_idle();
          break;
        case 5:
        case 6: {
          cell.sink.allowed = random() % 5 != 0;
          bool ends = levels.size() == 1;
          auto done = cell.storage.end_turn();
          cell.sink.allowed = true;
          if (!done) {
            levels = {committed};
          } else if (ends) {
            committed = levels.back();
          }
          break;
        }
        case 7: {
          bool there = model.erase(key) > 0;
          EXPECT_EQ(*cell.storage.remove(key), there);
          break;
        }
        case 8: {
          auto it = model.find(key);
          EXPECT_EQ(cell.get(key), it == model.end() ? "(none)" : it->second);
          break;
        }
        default: {
          std::string value(random() % (random() % 10 ? 100 : 9000), char('a' + random() % 26));
          ASSERT_TRUE(cell.storage.put(key, value));
          model[key] = value;
        }
      }
      if (step % 20 == 0) {
        std::string expected;
        for (const auto& [k, v] : levels.back()) expected += k + " ";
        ASSERT_EQ(cell.keys({}), expected);
        ASSERT_EQ(image_of(cell.storage.pages()), cell.sink.replica.image());
      }
    }
    cell.storage.abandon();
    std::string expected;
    for (const auto& [k, v] : committed) expected += k + "," + v + ";";
    if (!expected.empty()) {
      EXPECT_EQ(query_image(cell.sink.replica.image(), "SELECT key, value FROM _cf_KV"), expected);
      EXPECT_EQ(query_image(cell.sink.replica.image(), "PRAGMA integrity_check"), "ok;");
    }
    EXPECT_EQ(cell.keys({}).empty(), expected.empty());
  }
}

}  // namespace
}  // namespace celld
