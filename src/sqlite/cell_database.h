// One SQLite connection of a cell: how it is set up, what application SQL may do on it, and
// compiled statements.
//
// Modes: exclusive locking, journal in memory, no syncs (durability is the journal of the node),
// foreign keys on, few cached pages. Runs on the thread that owns the cell.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sqlite/cell_vfs.h"
#include "sqlite/sql_error.h"
#include "sqlite/sql_policy.h"

namespace celld {

// On whose behalf a statement runs.
enum class SqlTrust : uint8_t { kApplication, kHost };

// A compiled statement. Must not outlive its connection being open.
struct SqlStatement {
  struct Finalize {
    void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> handle;
  SqlTrust trust = SqlTrust::kApplication;
  bool readonly = true;         // writes nothing to the database
  bool changes_schema = false;  // see sql_policy.h
  bool is_pragma = false;       // takes effect when compiled: must be compiled for every run
  std::pair<std::string, std::string> setting;  // pragma that sets the connection: name, value

  explicit operator bool() const { return handle != nullptr; }
  sqlite3_stmt* get() const { return handle.get(); }
};

// Rows that the present run of a statement has read and written, as workerd counts them; see
// cmake/sqlite_row_counters.cmake. `reset` starts anew.
uint64_t rows_read(sqlite3_stmt* statement);
uint64_t rows_written(sqlite3_stmt* statement);
void reset_row_counters(sqlite3_stmt* statement);

class CellDatabase {
 public:
  // `file` must outlive this.
  CellDatabase(CellFile* file, const SqlLimits& limits) : file_(file), limits_(limits) {}
  ~CellDatabase() { close(); }
  CellDatabase(const CellDatabase&) = delete;
  CellDatabase& operator=(const CellDatabase&) = delete;

  // Opens the connection unless it is open. Settings that the application made on an earlier
  // connection hold again.
  SqlResult<> open();
  // All statements must have been finalised; an open transaction is rolled back.
  void close();
  bool is_open() const { return db_ != nullptr; }
  sqlite3* handle() const { return db_; }
  const SqlLimits& limits() const { return limits_; }

  // Compiles the first statement of `sql`; `*tail` is what follows it. The statement is empty
  // (false) when there is only space and comments. `persistent`: it will be kept and run often.
  SqlResult<SqlStatement> prepare(std::string_view sql, std::string_view* tail, SqlTrust trust,
                                  bool persistent);

  // true: a row is there. false: the statement is done.
  SqlResult<bool> step(SqlStatement& statement);

  // Runs host SQL without rows.
  SqlResult<> run(std::string_view sql);

  // Undoes the open transaction, if there is one. Statements that are half read end with
  // SQLITE_ABORT_ROLLBACK at their next step if the schema goes back too.
  void roll_back();

  // Whether SQLite has no transaction open: after an error it may have rolled back by itself.
  bool autocommit() const { return db_ == nullptr || sqlite3_get_autocommit(db_) != 0; }

  // See CellStorage::set_stop_check. Holds for later connections too.
  void set_stop_check(bool (*check)(void*), void* context) {
    stop_check_ = check;
    stop_context_ = context;
  }

  // Gives cached pages back.
  void release_memory() {
    if (db_) sqlite3_db_release_memory(db_);
  }

 private:
  // Lets the authorizer know on whose behalf SQLite compiles: prepare, and step, which may
  // compile again.
  class Acting;

  static int authorize(void* self, int code, const char* first, const char* second,
                       const char* database, const char* trigger);
  SqlError error(int rc);
  void apply_limits();

  CellFile* file_;
  SqlLimits limits_;
  sqlite3* db_ = nullptr;
  std::vector<std::pair<std::string, std::string>> settings_;

  bool (*stop_check_)(void*) = nullptr;
  void* stop_context_ = nullptr;

  SqlTrust acting_ = SqlTrust::kHost;
  std::string refusal_;          // of the authorizer, when it has a message of its own
  bool changes_schema_ = false;  // seen by the authorizer
  bool is_pragma_ = false;
  std::pair<std::string, std::string> setting_;
};

}  // namespace celld
