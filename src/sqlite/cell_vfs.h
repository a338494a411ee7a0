// SQLite's file system for cells: the database is a PageStore, every commit goes to a CommitSink,
// and nothing reaches the operating system.
//
// A commit happens in two steps. SQLite asks for a sync when all pages of the transaction are
// written: there `may_commit` can refuse, COMMIT then fails and the transaction is rolled back.
// When SQLite declares the commit done, the pages that differ are handed to `on_commit`.
// Connections must run with locking_mode=EXCLUSIVE, journal_mode=MEMORY, synchronous=OFF (see
// cell_database.h): then SQLite makes no lock calls and has no file but the database itself.
//
// Temporary files (sorting, materialised views) live in memory; one that grows past
// kTempFileBytesMax, or all of the process past kTempBytesMax, fails with SQLITE_FULL.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/page.h"
#include "sqlite/page_store.h"

struct sqlite3;

namespace celld {

inline constexpr uint64_t kTempFileBytesMax = 64u << 20;
inline constexpr uint64_t kTempBytesMax = 512u << 20;

// Who hears of commits. Called on the thread of the database, inside a SQLite call: it must not
// use the database.
class CommitSink {
 public:
  virtual ~CommitSink() = default;
  // false: this node has lost the cell; the commit fails and nothing is emitted.
  virtual bool may_commit() = 0;
  // Why it said no, for the program.
  virtual std::string refusal() const {
    return "The Durable Object is no longer owned by this node; the write was not stored.";
  }
  // The pages that differ from the commit before, sorted by number, never empty unless the size
  // changed. They belong to the journal from now on.
  virtual void on_commit(std::vector<NumberedPage> sorted_dirty, uint32_t page_count) = 0;
};

// What SQLite needs from the machine. Any thread.
struct SqliteHost {
  void (*random)(std::span<uint8_t> out);
  WallMs (*wall_now)();
};

// Configures SQLite for the process and registers the VFS. Call before anything else of this
// folder; calls after the first have no effect. Any thread. Without a host: the machine's.
void init_sqlite();
void init_sqlite(SqliteHost host);

// One database file of the VFS. Must outlive the connection opened on it.
struct CellFile {
  PageStore* store = nullptr;
  CommitSink* sink = nullptr;
  uint32_t transaction_pages_max = UINT32_MAX;
  bool refused = false;    // the sink refused the commit that ran last
  bool too_large = false;  // the transaction reached its limit in the step that ran last: SQLITE_FULL
  bool undoing = false;  // a transaction is being rolled back: no commit, so nothing to refuse
};

// Opens a connection. The result is an SQLite code; `*db` is null unless it is SQLITE_OK.
int open_cell_file(CellFile* file, sqlite3** db);

// Bytes of temporary files of the process at this moment.
uint64_t temp_file_bytes();

}  // namespace celld
