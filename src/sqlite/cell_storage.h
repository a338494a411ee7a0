// The storage of one cell: key-value pairs, the alarm, SQL and transactions over one database.
// Everything behind `ctx.storage` that needs no JavaScript engine.
//
// Writes of one turn of the event loop form one commit: the first opens a transaction, `end_turn`
// commits it. All calls are synchronous and made on the thread that owns the cell. What is in the
// database is described in docs/formats/cell-database.md.
//
// Errors are values worded as workerd words them; see sql_error.h.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "sqlite/cell_database.h"
#include "sqlite/page_store.h"

namespace celld {

inline constexpr size_t kEntryBytesMax = 2u << 20;  // key and value of one pair together

// A value of SQL that somebody else keeps alive.
using SqlValueView =
    std::variant<std::nullptr_t, int64_t, double, std::string_view, std::span<const uint8_t>>;

struct CellStorageOptions {
  SqlLimits sql;
  PageStoreOptions pages;
  size_t statement_cache_bytes_max = 256u << 10;  // of SQL text
  size_t statement_cache_count_max = 64;
  // Rows that are read ahead for one half-read cursor when a schema change or an idle close would
  // disturb it, bytes. A cursor with more is closed.
  size_t cursor_buffer_bytes_max = 4u << 20;
};

struct KvListOptions {
  std::optional<std::string> start;        // inclusive
  std::optional<std::string> start_after;  // exclusive; not together with `start`
  std::optional<std::string> end;          // exclusive
  std::optional<std::string> prefix;
  bool reverse = false;
  std::optional<int64_t> limit;  // 1 or more
};

// A compiled statement kept for the next time.
struct CachedStatement {
  std::string sql;
  SqlStatement statement;
  bool lent = false;  // a cursor or a call of the storage runs it
};

class CellStorage;

// The rows of one query. Positioned on a row from the start, unless there is none.
//
// May outlive the CellStorage and the query's statement; it then ends with an error.
class SqlCursor {
 public:
  ~SqlCursor();
  SqlCursor(const SqlCursor&) = delete;
  SqlCursor& operator=(const SqlCursor&) = delete;

  const std::vector<std::string>& columns() const { return columns_; }
  // Whether there is a row to read.
  bool has_row() const { return has_row_; }
  // Column `i` of the row; the view holds until the next call to the cursor or its storage.
  SqlValueView value(int i) const;
  // Moves on. After an error the cursor has no row and is finished.
  SqlResult<> next();

  // Set when something else than its reader closed the cursor and no row is left: what next()
  // reports.
  const SqlError* failure() const { return broken_ && !has_row_ ? &*broken_ : nullptr; }

  // Rows read and written by the query so far, as workerd counts them: each step of a table or
  // index, each entry written to a table or index.
  uint64_t rows_read() const;
  uint64_t rows_written() const;

 private:
  friend class CellStorage;
  using OwnedValue =
      std::variant<std::nullptr_t, int64_t, double, std::string, std::vector<uint8_t>>;
  struct Buffered {
    std::vector<std::vector<OwnedValue>> rows;
    size_t at = 0;
  };
  SqlCursor() = default;
  sqlite3_stmt* handle() const { return cached_ ? cached_->statement.get() : own_.get(); }
  void finish();
  void buffer_rows(size_t bytes_max);

  CellStorage* storage_ = nullptr;     // while the rows come from SQLite
  CachedStatement* cached_ = nullptr;  // the statement, borrowed from the cache of the storage
  SqlStatement own_;                   // or the cursor's own
  SqlStatement& statement() { return cached_ ? cached_->statement : own_; }
  std::list<SqlCursor*>::iterator place_;  // in storage_->cursors_
  std::vector<std::string> columns_;
  bool has_row_ = false;
  std::unique_ptr<Buffered> buffered_;
  std::optional<SqlError> broken_;  // why there are no more rows
  uint64_t rows_read_ = 0;
  uint64_t rows_written_ = 0;
};

// Cursors kept between calls under a number. Goes with its storage, or later when somebody else
// still holds it; the cursors are closed with the storage in any case.
class SqlCursorTable {
 public:
  static constexpr size_t kOpenMax = 1000;
  bool is_full() const { return cursors_.size() >= kOpenMax; }
  // The number, from 1 up; 0 when it is full.
  uint32_t add(std::unique_ptr<SqlCursor> cursor);
  SqlCursor* find(uint32_t number) const;
  void remove(uint32_t number) { cursors_.erase(number); }

 private:
  std::unordered_map<uint32_t, std::unique_ptr<SqlCursor>> cursors_;
  uint32_t last_ = 0;
};

class CellStorage {
 public:
  // Who hears of commits; see CommitSink.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual bool may_commit() = 0;
    virtual std::string refusal() const {
      return "The Durable Object is no longer owned by this node; the write was not stored.";
    }
    // `alarm_change_ms`: set when the commit changed the alarm, to the new time (milliseconds
    // since the Unix epoch) or to nothing.
    virtual void commit(std::vector<NumberedPage> pages, uint32_t page_count,
                        std::optional<std::optional<int64_t>> alarm_change_ms) = 0;
  };

  // `sink` must outlive this. The database is empty; fill pages() before the first use to restore.
  CellStorage(Sink* sink, CellStorageOptions options);
  ~CellStorage();
  CellStorage(const CellStorage&) = delete;
  CellStorage& operator=(const CellStorage&) = delete;

  PageStore& pages() { return pages_; }
  const PageStore& pages() const { return pages_; }

  // --- key-value ---
  SqlResult<std::optional<std::string>> get(std::string_view key);
  SqlResult<> put(std::string_view key, std::string_view value);
  // Whether the key was there.
  SqlResult<bool> remove(std::string_view key);
  // Calls `row` in byte order of the keys until it returns false; it must not use the storage.
  SqlResult<> list(const KvListOptions& options,
                   const std::function<bool(std::string_view key, std::string_view value)>& row);
  // Removes all pairs; how many there were.
  SqlResult<int64_t> remove_all();

  // --- the alarm, in milliseconds since the Unix epoch ---
  SqlResult<std::optional<int64_t>> alarm();
  SqlResult<> set_alarm(std::optional<int64_t> at_ms);

  // --- SQL ---
  // Runs all statements of `query`; bindings belong to the last, whose rows the cursor reads.
  SqlResult<std::unique_ptr<SqlCursor>> exec(std::string_view query,
                                             std::span<const SqlValueView> bindings);
  // For cursors that are read over several calls.
  const std::shared_ptr<SqlCursorTable>& open_cursors();
  // `check(context)` is asked now and then while SQL runs (every few thousand steps of its
  // program): true ends the statement with SQLITE_INTERRUPT. None: null.
  void set_stop_check(bool (*check)(void* context), void* context) {
    database_.set_stop_check(check, context);
  }
  // Bytes of pages in use, including those of the open transaction.
  SqlResult<uint64_t> database_size();

  // --- everything ---
  // Empties the database in the present turn's commit, all or nothing. Refused inside a
  // transaction. The alarm stays unless `also_alarm`.
  SqlResult<> delete_all(bool also_alarm);

  // --- transactions ---
  // Commits what the turn wrote, unless a transaction is open: then it waits for that.
  // On an error everything since the last commit is undone and the cell must be reset.
  SqlResult<> end_turn();
  // Nested transactions. One left open spans turns: its writes and all others wait for the
  // outermost commit and the end of that turn.
  SqlResult<> begin_transaction();
  // An error leaves the transaction rolled back and closed.
  SqlResult<> commit_transaction();
  SqlResult<> rollback_transaction();
  int transaction_depth() const { return depth_; }
  // Undoes everything since the last commit and closes all transactions.
  void abandon();

  // --- memory ---
  // Drops the connection and compiled statements; the pages stay. Nothing happens while a
  // transaction is open. The next call opens again by itself.
  void close_idle();
  bool is_idle() const { return !database_.is_open(); }

 private:
  friend class SqlCursor;

  struct Gate final : CommitSink {
    explicit Gate(CellStorage& s) : storage(s) {}
    bool may_commit() override;
    std::string refusal() const override;
    void on_commit(std::vector<NumberedPage> pages, uint32_t page_count) override;
    CellStorage& storage;
  };
  class HostStatement;
  using CacheList = std::list<CachedStatement>;
  enum class Settle : uint8_t { kAll, kWriters };

  SqlResult<> ready();
  SqlResult<> before_write();
  void note_write();
  SqlError after_error(SqlError error);

  SqlResult<bool> has_table(const char* name, std::optional<bool>& known);
  SqlResult<> create_table(const char* sql, std::optional<bool>& known);
  SqlResult<std::optional<int64_t>> read_alarm();
  SqlResult<> write_alarm(std::optional<int64_t> at_ms);
  SqlResult<> learn_committed_alarm();

  CachedStatement* find_cached(std::string_view sql, SqlTrust trust);
  CachedStatement* keep(std::string_view sql, SqlStatement statement);
  void drop_cache();
  SqlResult<SqlStatement> run_all_but_last(std::string_view query, bool* only_one);
  SqlResult<> bind(sqlite3_stmt* statement, std::span<const SqlValueView> bindings);
  SqlResult<> start(SqlCursor& cursor, std::span<const SqlValueView> bindings);
  void settle_cursors(Settle which);
  void cancel_cursors(const std::string& why);

  SqlResult<> commit_turn();
  void transaction_ended();
  void transaction_undone();

  Sink* sink_;
  CellStorageOptions options_;
  PageStore pages_;
  Gate gate_;
  CellFile file_;
  CellDatabase database_;

  CacheList cache_;  // most recently used first
  std::unordered_map<std::string_view, CacheList::iterator> cache_index_[2];  // by SqlTrust
  size_t cache_bytes_ = 0;
  std::list<SqlCursor*> cursors_;  // live ones that read from SQLite
  std::shared_ptr<SqlCursorTable> open_cursors_;

  bool writing_ = false;           // the turn's transaction is open
  int depth_ = 0;                  // nested transactions
  bool wrote_outside_ = false;     // the open transaction has writes from depth 0
  std::optional<SqlError> lost_;   // why SQLite undid the transaction by itself
  bool lost_writes_ = false;       // and writes that had been acknowledged went with it
  bool emptied_ = false;           // delete_all waits for its commit
  bool stale_connection_ = false;  // it saw an emptied file that is full again

  std::optional<bool> kv_table_;  // known to exist or not
  std::optional<bool> metadata_table_;
  std::optional<std::optional<int64_t>> committed_alarm_;  // as of the last commit, once known
  bool alarm_touched_ = false;
  std::optional<std::optional<int64_t>> alarm_change_;  // for the commit that runs
};

}  // namespace celld
