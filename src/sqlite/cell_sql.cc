// SQL of the application: cursors, compiled statements and scripts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "sqlite/cell_storage.h"

namespace celld {
namespace {

SqlValueView column_value(sqlite3_stmt* statement, int i) {
  switch (sqlite3_column_type(statement, i)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(statement, i);
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, i);
    case SQLITE_TEXT: {
      auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
      return std::string_view(text, static_cast<size_t>(sqlite3_column_bytes(statement, i)));
    }
    case SQLITE_BLOB: {
      auto* bytes = static_cast<const uint8_t*>(sqlite3_column_blob(statement, i));
      return std::span(bytes, static_cast<size_t>(sqlite3_column_bytes(statement, i)));
    }
    default:
      return nullptr;
  }
}

// Only space, comments and semicolons.
bool is_blank_sql(std::string_view sql) {
  size_t i = 0;
  while (i < sql.size()) {
    if (std::strchr(" \t\n\r\v\f;", sql[i]) != nullptr && sql[i] != '\0') {
      ++i;
    } else if (sql.substr(i, 2) == "--") {
      size_t end = sql.find('\n', i);
      if (end == std::string_view::npos) return true;
      i = end + 1;
    } else if (sql.substr(i, 2) == "/*") {
      size_t end = sql.find("*/", i + 2);
      if (end == std::string_view::npos) return true;
      i = end + 2;
    } else {
      return false;
    }
  }
  return true;
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang 16 does not find it by itself

}  // namespace

// --- cursor ---

SqlCursor::~SqlCursor() { finish(); }

uint64_t SqlCursor::rows_read() const { return storage_ ? celld::rows_read(handle()) : rows_read_; }
uint64_t SqlCursor::rows_written() const {
  return storage_ ? celld::rows_written(handle()) : rows_written_;
}

// Gives the statement back and leaves the list of live cursors.
void SqlCursor::finish() {
  has_row_ = false;
  if (!storage_) return;
  sqlite3_stmt* statement = handle();
  rows_read_ = celld::rows_read(statement);
  rows_written_ = celld::rows_written(statement);
  if (cached_) {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    cached_->lent = false;
    cached_ = nullptr;
  } else {
    own_ = {};
  }
  storage_->cursors_.erase(place_);
  storage_ = nullptr;
}

SqlValueView SqlCursor::value(int i) const {
  CHECK(has_row_) << "no row";
  CHECK(i >= 0 && static_cast<size_t>(i) < columns_.size()) << "column " << i;
  if (!buffered_) return column_value(handle(), i);
  return std::visit(Overloaded{
                        [](const std::string& s) -> SqlValueView { return std::string_view(s); },
                        [](const std::vector<uint8_t>& b) -> SqlValueView { return std::span(b); },
                        [](auto v) -> SqlValueView { return v; },
                    },
                    buffered_->rows[buffered_->at][static_cast<size_t>(i)]);
}

SqlResult<> SqlCursor::next() {
  if (buffered_) {
    has_row_ = ++buffered_->at < buffered_->rows.size();
    if (!has_row_) buffered_.reset();
    if (has_row_ || !broken_) return {};
  }
  if (broken_) return sql_fail(*broken_);
  if (!storage_) return {};
  auto row = storage_->database_.step(statement());
  if (!row) {
    SqlError error = storage_->after_error(std::move(row).error());
    finish();
    return sql_fail(std::move(error));
  }
  has_row_ = *row;
  if (!has_row_) finish();
  return {};
}

// Reads the rest of the rows into memory, so that the statement can go.
void SqlCursor::buffer_rows(size_t bytes_max) {
  auto buffered = std::make_unique<Buffered>();
  auto columns = static_cast<int>(columns_.size());
  size_t bytes = 0;
  while (has_row_) {
    auto& row = buffered->rows.emplace_back();
    row.reserve(columns_.size());
    for (int i = 0; i < columns; ++i) {
      row.push_back(std::visit(Overloaded{
                                   [](std::string_view s) -> OwnedValue { return std::string(s); },
                                   [](std::span<const uint8_t> b) -> OwnedValue {
                                     return std::vector<uint8_t>(b.begin(), b.end());
                                   },
                                   [](auto v) -> OwnedValue { return v; },
                               },
                               column_value(handle(), i)));
      bytes += sizeof(OwnedValue) + static_cast<size_t>(sqlite3_column_bytes(handle(), i));
    }
    if (bytes > bytes_max) {
      // The row at hand can still be read, the next call says why it is the last.
      buffered->rows.resize(1);
      broken_ = SqlError::plain(
          "SQL cursor was closed because it was not read to its end and the statement had to be "
          "finished.");
      break;
    }
    auto more = storage_->database_.step(statement());
    if (!more) {
      broken_ = storage_->after_error(std::move(more).error());
      break;
    }
    if (!*more) break;
  }
  finish();
  has_row_ = !buffered->rows.empty();
  if (has_row_) buffered_ = std::move(buffered);
}

// --- live cursors ---

void CellStorage::settle_cursors(Settle which) {
  for (auto it = cursors_.begin(); it != cursors_.end();) {
    SqlCursor* cursor = *it++;
    if (which == Settle::kWriters && cursor->statement().readonly) continue;
    cursor->buffer_rows(options_.cursor_buffer_bytes_max);
  }
}

void CellStorage::cancel_cursors(const std::string& why) {
  while (!cursors_.empty()) {
    SqlCursor* cursor = cursors_.front();
    cursor->finish();
    cursor->broken_ = SqlError::plain(why);
  }
}

uint32_t SqlCursorTable::add(std::unique_ptr<SqlCursor> cursor) {
  if (is_full()) return 0;
  do {
    ++last_;
  } while (last_ == 0 || cursors_.contains(last_));
  cursors_.emplace(last_, std::move(cursor));
  return last_;
}

SqlCursor* SqlCursorTable::find(uint32_t number) const {
  auto found = cursors_.find(number);
  return found == cursors_.end() ? nullptr : found->second.get();
}

const std::shared_ptr<SqlCursorTable>& CellStorage::open_cursors() {
  if (!open_cursors_) open_cursors_ = std::make_shared<SqlCursorTable>();
  return open_cursors_;
}

// --- compiled statements ---

CachedStatement* CellStorage::find_cached(std::string_view sql, SqlTrust trust) {
  auto& index = cache_index_[static_cast<size_t>(trust)];
  auto found = index.find(sql);
  if (found == index.end()) return nullptr;
  cache_.splice(cache_.begin(), cache_, found->second);
  return &*found->second;
}

CachedStatement* CellStorage::keep(std::string_view sql, SqlStatement statement) {
  auto& index = cache_index_[static_cast<size_t>(statement.trust)];
  cache_.push_front({std::string(sql), std::move(statement)});
  index.emplace(cache_.front().sql, cache_.begin());
  cache_bytes_ += sql.size();
  // Those in use stay; there are as many as live cursors, which JavaScript bounds by its heap.
  auto it = std::prev(cache_.end());
  while (it != cache_.begin() && (cache_bytes_ > options_.statement_cache_bytes_max ||
                                  cache_.size() > options_.statement_cache_count_max)) {
    auto before = std::prev(it);
    if (!it->lent) {
      cache_bytes_ -= it->sql.size();
      cache_index_[static_cast<size_t>(it->statement.trust)].erase(it->sql);
      cache_.erase(it);
    }
    it = before;
  }
  return &cache_.front();
}

void CellStorage::drop_cache() {
  for (auto& index : cache_index_) index = {};
  for (const auto& entry : cache_) CHECK(!entry.lent) << "in use: " << entry.sql;
  cache_.clear();
  cache_bytes_ = 0;
}

// --- running ---

SqlResult<> CellStorage::bind(sqlite3_stmt* statement, std::span<const SqlValueView> bindings) {
  int i = 0;
  for (const SqlValueView& value : bindings) {
    ++i;
    int rc = std::visit(Overloaded{
                            [&](std::nullptr_t) { return sqlite3_bind_null(statement, i); },
                            [&](int64_t v) { return sqlite3_bind_int64(statement, i, v); },
                            [&](double v) { return sqlite3_bind_double(statement, i, v); },
                            [&](std::string_view v) {
                              return sqlite3_bind_text64(statement, i, v.data() ? v.data() : "",
                                                         v.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
                            },
                            [&](std::span<const uint8_t> v) {
                              if (v.empty()) return sqlite3_bind_zeroblob(statement, i, 0);
                              return sqlite3_bind_blob64(statement, i, v.data(), v.size(),
                                                         SQLITE_TRANSIENT);
                            },
                        },
                        value);
    if (rc != SQLITE_OK) {
      return sql_fail(SqlError::of_connection(database_.handle(), rc));
    }
  }
  return {};
}

// Binds, runs to the first row and, if there is one, enters the cursor among the live ones.
SqlResult<> CellStorage::start(SqlCursor& cursor, std::span<const SqlValueView> bindings) {
  SqlStatement& statement = cursor.statement();
  sqlite3_stmt* handle = statement.get();
  cursors_.push_front(&cursor);
  cursor.place_ = cursors_.begin();
  cursor.storage_ = this;
  reset_row_counters(handle);
  if (bindings.size() != static_cast<size_t>(sqlite3_bind_parameter_count(handle))) {
    return sql_fail(SqlError::plain("Wrong number of parameter bindings for SQL query."));
  }
  SQL_TRY(bind(handle, bindings));
  if (statement.changes_schema) {
    cursors_.splice(cursors_.end(), cursors_, cursor.place_);  // all others come first
    while (cursors_.front() != &cursor) {
      cursors_.front()->buffer_rows(options_.cursor_buffer_bytes_max);
    }
  }
  bool writes = !statement.readonly;
  if (writes) SQL_TRY(before_write());
  auto row = database_.step(statement);
  if (!row) return sql_fail(after_error(std::move(row).error()));
  // Only now are the columns certain: a step may compile the statement anew.
  int count = sqlite3_column_count(handle);
  cursor.columns_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const char* name = sqlite3_column_name(handle, i);
    cursor.columns_.emplace_back(name ? name : "");
  }
  cursor.has_row_ = *row;
  if (!*row) cursor.finish();
  if (writes) note_write();
  return {};
}

// Compiles the statements of a script and runs all but the last, whose result is returned.
SqlResult<SqlStatement> CellStorage::run_all_but_last(std::string_view query, bool* only_one) {
  *only_one = true;
  for (;;) {
    std::string_view tail;
    auto compiled = database_.prepare(query, &tail, SqlTrust::kApplication, true);
    if (!compiled) return sql_fail(after_error(std::move(compiled).error()));
    SqlStatement statement = std::move(*compiled);
    if (!statement) return sql_fail(SqlError::plain("SQL code did not contain a statement."));
    if (is_blank_sql(tail)) return statement;
    *only_one = false;
    if (sqlite3_bind_parameter_count(statement.get()) != 0) {
      return sql_fail(SqlError::plain(
          "When executing multiple SQL statements in a single call, only the last statement can "
          "have parameters."));
    }
    if (statement.changes_schema) settle_cursors(Settle::kAll);
    if (!statement.readonly) SQL_TRY(before_write());
    auto row = database_.step(statement);  // rows of it are not wanted
    if (!row) return sql_fail(after_error(std::move(row).error()));
    if (!statement.readonly) note_write();
    query = tail;
  }
}

SqlResult<std::unique_ptr<SqlCursor>> CellStorage::exec(std::string_view query,
                                                        std::span<const SqlValueView> bindings) {
  SQL_TRY(ready());
  std::unique_ptr<SqlCursor> cursor(new SqlCursor);
  CachedStatement* cached = find_cached(query, SqlTrust::kApplication);
  if (cached && !cached->lent) {
    cursor->cached_ = cached;
    cached->lent = true;
  } else {
    // A statement runs once at a time: a second cursor on the same text has its own.
    bool only_one = false;
    auto statement = run_all_but_last(query, &only_one);
    if (!statement) return sql_fail(std::move(statement).error());
    if (!cached && only_one && !statement->is_pragma &&
        query.size() <= options_.statement_cache_bytes_max / 4) {
      cursor->cached_ = keep(query, std::move(*statement));
      cursor->cached_->lent = true;
    } else {
      cursor->own_ = std::move(*statement);
    }
  }
  SQL_TRY(start(*cursor, bindings));
  return cursor;
}

}  // namespace celld
