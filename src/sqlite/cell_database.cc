#include "sqlite/cell_database.h"

#include <algorithm>

#include "base/check.h"

namespace celld {

namespace {

// Places of the counters that the build adds to SQLite's.
constexpr int kRowsRead = 9;
constexpr int kRowsWritten = 10;

constexpr int kStepsBetweenChecks = 10'000;  // well under a millisecond

uint64_t counter(sqlite3_stmt* statement, int which) {
  return static_cast<uint32_t>(sqlite3_stmt_status(statement, which, 0));
}

}  // namespace

uint64_t rows_read(sqlite3_stmt* statement) { return counter(statement, kRowsRead); }
uint64_t rows_written(sqlite3_stmt* statement) { return counter(statement, kRowsWritten); }
void reset_row_counters(sqlite3_stmt* statement) {
  sqlite3_stmt_status(statement, kRowsRead, 1);
  sqlite3_stmt_status(statement, kRowsWritten, 1);
}

class CellDatabase::Acting {
 public:
  Acting(CellDatabase& db, SqlTrust trust) : db_(db), before_(db.acting_) {
    db.acting_ = trust;
    db.refusal_.clear();
  }
  ~Acting() { db_.acting_ = before_; }

 private:
  CellDatabase& db_;
  SqlTrust before_;
};

int CellDatabase::authorize(void* self, int code, const char* first, const char* second,
                            const char* database, const char*) {
  auto& db = *static_cast<CellDatabase*>(self);
  if (changes_schema(code)) db.changes_schema_ = true;
  if (db.acting_ == SqlTrust::kHost) return SQLITE_OK;
  if (!application_may({code, first, second, database}, &db.refusal_)) return SQLITE_DENY;
  if (code == SQLITE_PRAGMA) db.is_pragma_ = true;
  if (code == SQLITE_PRAGMA && second != nullptr && is_connection_setting(first) &&
      sqlite3_get_autocommit(db.db_)) {
    db.setting_ = {first, second};
  }
  return SQLITE_OK;
}

SqlError CellDatabase::error(int rc) {
  if ((rc & 0xff) == SQLITE_AUTH && !refusal_.empty()) {
    return SqlError{SqlErrorKind::kError, SQLITE_AUTH, std::move(refusal_)};
  }
  SqlError error = SqlError::of_connection(db_, rc);
  if (file_->refused) {
    error.kind = SqlErrorKind::kFenced;
    error.message = file_->sink ? file_->sink->refusal() : "the write was not stored.";
  } else if (file_->too_large && (rc & 0xff) == SQLITE_FULL) {
    error.message = "the transaction changes more than the limit of " +
                    std::to_string(uint64_t{limits_.transaction_pages_max} * kPageSize >> 20) +
                    " MiB: SQLITE_FULL";
  }
  return error;
}

void CellDatabase::apply_limits() {
  const std::pair<int, int> limits[] = {
      {SQLITE_LIMIT_LENGTH, limits_.value_bytes_max},
      {SQLITE_LIMIT_SQL_LENGTH, limits_.statement_bytes_max},
      {SQLITE_LIMIT_COLUMN, limits_.columns_max},
      {SQLITE_LIMIT_EXPR_DEPTH, limits_.expression_depth_max},
      {SQLITE_LIMIT_COMPOUND_SELECT, limits_.compound_selects_max},
      {SQLITE_LIMIT_VDBE_OP, limits_.program_steps_max},
      {SQLITE_LIMIT_FUNCTION_ARG, limits_.function_arguments_max},
      {SQLITE_LIMIT_ATTACHED, 0},
      {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, limits_.like_pattern_bytes_max},
      {SQLITE_LIMIT_VARIABLE_NUMBER, limits_.parameters_max},
      {SQLITE_LIMIT_TRIGGER_DEPTH, limits_.trigger_depth_max},
      {SQLITE_LIMIT_WORKER_THREADS, 0},
  };
  for (auto [id, value] : limits) sqlite3_limit(db_, id, value);
}

SqlResult<> CellDatabase::open() {
  if (db_) return {};
  init_sqlite();
  file_->transaction_pages_max = limits_.transaction_pages_max;
  file_->refused = file_->too_large = false;
  if (int rc = open_cell_file(file_, &db_); rc != SQLITE_OK) {
    return sql_fail(SqlError{SqlErrorKind::kError, rc & 0xff,
                             std::string("cannot open the database: ") + sqlite3_errstr(rc)});
  }
  // Why these: see the header of cell_vfs.h. Temporary files go to the VFS, which bounds them.
  std::string setup =
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;"
      "PRAGMA temp_store=FILE; PRAGMA cache_size=32; PRAGMA max_page_count=" +
      std::to_string(limits_.database_pages_max) + ";";
  for (const auto& [name, value] : settings_) setup += "PRAGMA " + name + "=" + value + ";";
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_FKEY, 1, nullptr);
  if (auto done = run(setup); !done) {
    close();
    return done;
  }
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  apply_limits();
  sqlite3_set_authorizer(db_, &CellDatabase::authorize, this);
  sqlite3_progress_handler(
      db_, kStepsBetweenChecks,
      [](void* self) {
        auto& db = *static_cast<CellDatabase*>(self);
        return db.stop_check_ && db.stop_check_(db.stop_context_) ? 1 : 0;
      },
      this);
  sqlite3_rollback_hook(
      db_, [](void* self) { static_cast<CellDatabase*>(self)->file_->store->rollback(); }, this);
  return {};
}

void CellDatabase::close() {
  if (!db_) return;
  roll_back();
  int rc = sqlite3_close(db_);
  CHECK(rc == SQLITE_OK) << "a statement of the database is still open: " << rc;
  db_ = nullptr;
}

SqlResult<SqlStatement> CellDatabase::prepare(std::string_view sql, std::string_view* tail,
                                              SqlTrust trust, bool persistent) {
  CHECK(db_ != nullptr) << "prepare on a closed database";
  Acting acting(*this, trust);
  changes_schema_ = is_pragma_ = false;
  setting_ = {};
  // SQLite answers SQLITE_TOOBIG by itself, but only for lengths that fit an int.
  int length = static_cast<int>(std::min<size_t>(sql.size(), 1u << 30));
  sqlite3_stmt* raw = nullptr;
  const char* end = nullptr;
  int rc = sqlite3_prepare_v3(db_, sql.data(), length, persistent ? SQLITE_PREPARE_PERSISTENT : 0,
                              &raw, &end);
  if (rc != SQLITE_OK) return sql_fail(error(rc));
  if (tail) *tail = sql.substr(static_cast<size_t>(end - sql.data()));
  SqlStatement statement;
  statement.handle.reset(raw);
  statement.trust = trust;
  statement.changes_schema = changes_schema_;
  statement.is_pragma = is_pragma_;
  statement.setting = std::move(setting_);
  if (raw) statement.readonly = sqlite3_stmt_readonly(raw) != 0;
  return statement;
}

SqlResult<bool> CellDatabase::step(SqlStatement& statement) {
  Acting acting(*this, statement.trust);
  file_->refused = file_->too_large = false;
  int rc = sqlite3_step(statement.get());
  if (rc == SQLITE_ROW) return true;
  if (rc != SQLITE_DONE) return sql_fail(error(rc));
  if (!statement.setting.first.empty()) {
    std::erase_if(settings_, [&](const auto& s) { return s.first == statement.setting.first; });
    settings_.push_back(statement.setting);
  }
  return false;
}

void CellDatabase::roll_back() {
  if (autocommit()) return;
  file_->undoing = true;
  Acting acting(*this, SqlTrust::kHost);
  sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  file_->undoing = false;
  CHECK(autocommit()) << "ROLLBACK left a transaction open: " << sqlite3_errmsg(db_);
}

SqlResult<> CellDatabase::run(std::string_view sql) {
  while (!sql.empty()) {
    std::string_view tail;
    auto statement = prepare(sql, &tail, SqlTrust::kHost, false);
    if (!statement) return sql_fail(std::move(statement).error());
    if (!*statement) break;
    for (;;) {
      auto row = step(*statement);
      if (!row) return sql_fail(std::move(row).error());
      if (!*row) break;
    }
    sql = tail;
  }
  return {};
}

}  // namespace celld
