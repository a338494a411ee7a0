// What the tests of this folder share: a replica built only from captured commits, and ways to
// look at it.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sqlite/cell_storage.h"
#include "sqlite/cell_vfs.h"

namespace celld::testing {

// A database as a follower would have it.
struct Replica {
  std::map<Pgno, std::string> pages;
  uint32_t page_count = 0;

  void apply(const std::vector<NumberedPage>& changed, uint32_t count) {
    Pgno last = 0;
    for (const auto& [pgno, page] : changed) {
      EXPECT_GT(pgno, last) << "pages out of order";
      EXPECT_LE(pgno, count);
      last = pgno;
      std::string bytes(reinterpret_cast<const char*>(page.data()), kPageSize);
      if (pgno <= page_count) {
        auto old = pages.find(pgno);
        EXPECT_TRUE(old == pages.end() || old->second != bytes) << "unchanged page " << pgno;
      }
      pages[pgno] = std::move(bytes);
    }
    page_count = count;
    pages.erase(pages.upper_bound(count), pages.end());
  }
  std::string image() const {
    std::string out(size_t{page_count} * kPageSize, '\0');
    for (const auto& [pgno, bytes] : pages) {
      std::memcpy(out.data() + size_t{pgno - 1} * kPageSize, bytes.data(), kPageSize);
    }
    return out;
  }
};

// All rows of a query as one text, or the error.
inline std::string query_text(sqlite3* db, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
    return sqlite3_errmsg(db);
  }
  std::string out;
  int rc;
  while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
    for (int i = 0; i < sqlite3_column_count(statement); ++i) {
      auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
      out += std::string(i ? "," : "") + (text ? text : "NULL");
    }
    out += ";";
  }
  if (rc != SQLITE_DONE) out += sqlite3_errmsg(db);
  sqlite3_finalize(statement);
  return out;
}

// The same of a database image, opened by stock SQLite.
inline std::string query_image(const std::string& image, const std::string& sql) {
  init_sqlite();
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE, nullptr), SQLITE_OK);
  std::string copy = image;
  EXPECT_EQ(
      sqlite3_deserialize(db, "main", reinterpret_cast<unsigned char*>(copy.data()),
                          static_cast<sqlite3_int64>(copy.size()),
                          static_cast<sqlite3_int64>(copy.size()), SQLITE_DESERIALIZE_READONLY),
      SQLITE_OK);
  std::string out = query_text(db, sql);
  sqlite3_close(db);
  return out;
}

// The committed content of a store, through a snapshot.
inline std::string image_of(const PageStore& store) {
  PageSnapshot snapshot = store.snapshot();
  std::string out;
  for (Pgno pgno = 1; pgno <= snapshot.page_count(); ++pgno) {
    auto page = snapshot.page(pgno);
    EXPECT_TRUE(page.has_value()) << page.error().message;
    out.append(reinterpret_cast<const char*>(page->data()), kPageSize);
  }
  return out;
}

// A scratch file in memory whose writes can be made to fail.
struct MemoryScratch final : ScratchFile {
  explicit MemoryScratch(const bool* full = nullptr) : full(full) {}
  Result<void> read(uint64_t offset, std::span<uint8_t> out) override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = offset + i < bytes.size() ? bytes[offset + i] : 0;
    }
    return {};
  }
  Result<void> write(uint64_t offset, std::span<const uint8_t> in) override {
    if (full && *full) return fail(Error::unavailable("disk full"));
    if (bytes.size() < offset + in.size()) bytes.resize(offset + in.size());
    std::copy(in.begin(), in.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }
  void truncate(uint64_t size) override {
    if (size < bytes.size()) bytes.resize(size);
  }
  const bool* full;
  std::vector<uint8_t> bytes;
};

inline std::function<Result<std::unique_ptr<ScratchFile>>()> memory_spill(
    const bool* full = nullptr) {
  return [full]() -> Result<std::unique_ptr<ScratchFile>> {
    return std::make_unique<MemoryScratch>(full);
  };
}

// A sink of CellStorage that keeps a replica.
struct RecordingSink final : CellStorage::Sink {
  bool may_commit() override { return allowed; }
  void commit(std::vector<NumberedPage> pages, uint32_t page_count,
              std::optional<std::optional<int64_t>> alarm_change_ms) override {
    ++commits;
    last_pages = pages.size();
    replica.apply(pages, page_count);
    if (alarm_change_ms) alarm_changes.push_back(*alarm_change_ms);
  }
  bool allowed = true;
  int commits = 0;
  size_t last_pages = 0;
  Replica replica;
  std::vector<std::optional<int64_t>> alarm_changes;
};

// One cell with a recording sink, and its answers as text.
struct Cell {
  explicit Cell(CellStorageOptions options = {}) : storage(&sink, std::move(options)) {}

  // The rows of a query as text, or "error: ...".
  std::string sql(std::string_view query, std::vector<SqlValueView> bindings = {}) {
    auto cursor = storage.exec(query, bindings);
    if (!cursor) return "error: " + cursor.error().message;
    return drain(**cursor);
  }
  static std::string drain(SqlCursor& cursor) {
    std::string out;
    while (cursor.has_row()) {
      for (size_t i = 0; i < cursor.columns().size(); ++i) {
        auto value = cursor.value(static_cast<int>(i));
        if (i) out += ",";
        if (auto* v = std::get_if<int64_t>(&value)) out += std::to_string(*v);
        if (auto* v = std::get_if<double>(&value)) out += std::to_string(*v);
        if (auto* v = std::get_if<std::string_view>(&value)) out += *v;
        if (auto* v = std::get_if<std::span<const uint8_t>>(&value)) {
          out += "blob:" + std::to_string(v->size());
        }
        if (std::holds_alternative<std::nullptr_t>(value)) out += "null";
      }
      out += ";";
      if (auto moved = cursor.next(); !moved) return out + "error: " + moved.error().message;
    }
    if (cursor.failure()) out += "error: " + cursor.failure()->message;
    return out;
  }
  void turn() {
    auto done = storage.end_turn();
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }
  std::string get(std::string_view key) {
    auto value = storage.get(key);
    if (!value) return "error: " + value.error().message;
    return value->value_or("(none)");
  }
  std::string keys(const KvListOptions& options) {
    std::string out;
    auto done = storage.list(options, [&](std::string_view key, std::string_view) {
      out += std::string(key) + " ";
      return true;
    });
    return done ? out : "error: " + done.error().message;
  }
  std::unique_ptr<SqlCursor> open(std::string_view query) {
    auto cursor = storage.exec(query, {});
    EXPECT_TRUE(cursor.has_value()) << cursor.error().message;
    return std::move(*cursor);
  }
  RecordingSink sink;
  CellStorage storage;
};

}  // namespace celld::testing
