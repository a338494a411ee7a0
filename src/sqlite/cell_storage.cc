#include "sqlite/cell_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace celld {
namespace {

constexpr int kDepthMax = 64;
constexpr int kAlarmKey = 1;  // row of _cf_METADATA
constexpr int64_t kNsPerMs = 1'000'000;

constexpr char kCreateKv[] =
    "CREATE TABLE IF NOT EXISTS _cf_KV (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID";
constexpr char kCreateMetadata[] =
    "CREATE TABLE IF NOT EXISTS _cf_METADATA (key INTEGER PRIMARY KEY, value BLOB)";

SqlError type_error(std::string message) {
  return SqlError{SqlErrorKind::kTypeError, 0, std::move(message)};
}

std::string savepoint(int depth) { return "_cf_savepoint_" + std::to_string(depth); }

// The first key after all keys with the prefix; nothing when there is no such key.
std::optional<std::string> after_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

std::string_view text_of(sqlite3_stmt* statement, int column) {
  auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement, column))};
}

std::string_view blob_of(sqlite3_stmt* statement, int column) {
  auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(statement, column))};
}

}  // namespace

// A statement of the host, kept between calls and reset when this goes.
class CellStorage::HostStatement {
 public:
  explicit HostStatement(CellStorage& storage) : storage_(storage) {}
  ~HostStatement() {
    if (!cached_) return;
    sqlite3_reset(cached_->statement.get());
    sqlite3_clear_bindings(cached_->statement.get());
    cached_->lent = false;
  }
  HostStatement(const HostStatement&) = delete;
  HostStatement& operator=(const HostStatement&) = delete;

  // `sql` is a literal.
  SqlResult<> prepare(const char* sql) {
    cached_ = storage_.find_cached(sql, SqlTrust::kHost);
    if (!cached_) {
      auto compiled = storage_.database_.prepare(sql, nullptr, SqlTrust::kHost, true);
      if (!compiled) return sql_fail(storage_.after_error(std::move(compiled).error()));
      cached_ = storage_.keep(sql, std::move(*compiled));
    }
    CHECK(!cached_->lent) << "reentered: " << sql;
    cached_->lent = true;
    return {};
  }
  SqlResult<> bind(std::initializer_list<SqlValueView> values) {
    return storage_.bind(cached_->statement.get(), {values.begin(), values.size()});
  }
  SqlResult<bool> step() {
    auto row = storage_.database_.step(cached_->statement);
    if (!row) return sql_fail(storage_.after_error(std::move(row).error()));
    return row;
  }
  sqlite3_stmt* get() const { return cached_->statement.get(); }

 private:
  CellStorage& storage_;
  CachedStatement* cached_ = nullptr;
};

bool CellStorage::Gate::may_commit() { return storage.sink_->may_commit(); }
std::string CellStorage::Gate::refusal() const { return storage.sink_->refusal(); }

void CellStorage::Gate::on_commit(std::vector<NumberedPage> pages, uint32_t page_count) {
  storage.sink_->commit(std::move(pages), page_count, std::exchange(storage.alarm_change_, {}));
}

CellStorage::CellStorage(Sink* sink, CellStorageOptions options)
    : sink_(sink),
      options_(std::move(options)),
      pages_(options_.pages),
      gate_(*this),
      file_{.store = &pages_, .sink = &gate_},
      database_(&file_, options_.sql) {}

CellStorage::~CellStorage() {
  cancel_cursors("SQL cursor was closed because the Durable Object was reset.");
  drop_cache();
}

// --- state ---

SqlResult<> CellStorage::ready() {
  if (lost_) return sql_fail(*lost_);
  if (std::exchange(stale_connection_, false)) {
    cancel_cursors("SQL cursor was closed because the transaction was rolled back.");
    drop_cache();
    database_.close();
  }
  return database_.open();
}

SqlResult<> CellStorage::before_write() {
  SQL_TRY(ready());
  if (writing_) return {};
  HostStatement begin(*this);
  SQL_TRY(begin.prepare("BEGIN IMMEDIATE"));
  SQL_TRY(begin.step());
  writing_ = true;
  return {};
}

void CellStorage::note_write() {
  if (depth_ == 0) wrote_outside_ = true;
}

// To be passed every error of SQLite: some make it undo the whole transaction by itself.
SqlError CellStorage::after_error(SqlError error) {
  if (!writing_ || !database_.autocommit()) return error;
  bool lost_writes = wrote_outside_;
  transaction_undone();
  if (depth_ > 0 || lost_writes) {
    lost_ = error;
    lost_writes_ = lost_writes;
  }
  return error;
}

void CellStorage::transaction_ended() {
  writing_ = wrote_outside_ = alarm_touched_ = emptied_ = false;
  alarm_change_.reset();
}

void CellStorage::transaction_undone() {
  stale_connection_ |= emptied_;
  transaction_ended();
  kv_table_.reset();
  metadata_table_.reset();
}

// --- key-value ---

SqlResult<bool> CellStorage::has_table(const char* name, std::optional<bool>& known) {
  if (!known) {
    HostStatement query(*this);
    SQL_TRY(query.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"));
    SQL_TRY(query.bind({std::string_view(name)}));
    auto row = query.step();
    if (!row) return row;
    known = *row;
  }
  return *known;
}

SqlResult<> CellStorage::create_table(const char* sql, std::optional<bool>& known) {
  if (known.value_or(false)) return {};
  auto done = database_.run(sql);
  if (!done) return sql_fail(after_error(std::move(done).error()));
  known = true;
  return {};
}

SqlResult<std::optional<std::string>> CellStorage::get(std::string_view key) {
  SQL_TRY(ready());
  auto exists = has_table("_cf_KV", kv_table_);
  if (!exists) return sql_fail(std::move(exists).error());
  if (!*exists) return std::nullopt;
  HostStatement query(*this);
  SQL_TRY(query.prepare("SELECT value FROM _cf_KV WHERE key = ?"));
  SQL_TRY(query.bind({key}));
  auto row = query.step();
  if (!row) return sql_fail(std::move(row).error());
  if (!*row) return std::nullopt;
  return std::string(blob_of(query.get(), 0));
}

SqlResult<> CellStorage::put(std::string_view key, std::string_view value) {
  if (key.size() + value.size() > kEntryBytesMax) {
    return sql_fail(
        SqlError{SqlErrorKind::kRangeError, 0,
                 "Values cannot be larger than " + std::to_string(kEntryBytesMax) + " bytes."});
  }
  SQL_TRY(before_write());
  SQL_TRY(create_table(kCreateKv, kv_table_));
  HostStatement insert(*this);
  SQL_TRY(
      insert.prepare("INSERT INTO _cf_KV VALUES (?, ?) "
                     "ON CONFLICT DO UPDATE SET value = excluded.value"));
  auto* bytes = reinterpret_cast<const uint8_t*>(value.data());
  SQL_TRY(insert.bind({key, std::span<const uint8_t>(bytes, value.size())}));
  SQL_TRY(insert.step());
  note_write();
  return {};
}

SqlResult<bool> CellStorage::remove(std::string_view key) {
  SQL_TRY(ready());
  auto exists = has_table("_cf_KV", kv_table_);
  if (!exists || !*exists) return exists;
  SQL_TRY(before_write());
  HostStatement statement(*this);
  SQL_TRY(statement.prepare("DELETE FROM _cf_KV WHERE key = ?"));
  SQL_TRY(statement.bind({key}));
  SQL_TRY(statement.step());
  note_write();
  return sqlite3_changes(database_.handle()) > 0;
}

SqlResult<int64_t> CellStorage::remove_all() {
  SQL_TRY(ready());
  auto exists = has_table("_cf_KV", kv_table_);
  if (!exists) return sql_fail(std::move(exists).error());
  if (!*exists) return 0;
  SQL_TRY(before_write());
  HostStatement statement(*this);
  SQL_TRY(statement.prepare("DELETE FROM _cf_KV"));
  SQL_TRY(statement.step());
  note_write();
  return sqlite3_changes64(database_.handle());
}

SqlResult<> CellStorage::list(
    const KvListOptions& options,
    const std::function<bool(std::string_view key, std::string_view value)>& row) {
  if (options.start && options.start_after) {
    return sql_fail(type_error("list() cannot be called with both start and startAfter values."));
  }
  if (options.limit && *options.limit <= 0) {
    return sql_fail(type_error("List limit must be positive."));
  }
  std::string start = options.start.value_or("");
  if (options.start_after) start = *options.start_after + std::string(1, '\0');
  std::optional<std::string> end = options.end;
  if (options.prefix) {
    start = std::max(start, *options.prefix);
    auto limit = after_prefix(*options.prefix);
    if (limit && (!end || *limit < *end)) end = limit;
  }
  if (end && *end <= start) return {};

  SQL_TRY(ready());
  auto exists = has_table("_cf_KV", kv_table_);
  if (!exists) return sql_fail(std::move(exists).error());
  if (!*exists) return {};
  HostStatement query(*this);
  if (end) {
    SQL_TRY(query.prepare(
        options.reverse
            ? "SELECT key, value FROM _cf_KV WHERE key >= ?2 AND key < ?3 ORDER BY key DESC LIMIT "
              "?1"
            : "SELECT key, value FROM _cf_KV WHERE key >= ?2 AND key < ?3 ORDER BY key LIMIT ?1"));
    SQL_TRY(
        query.bind({options.limit.value_or(-1), std::string_view(start), std::string_view(*end)}));
  } else {
    SQL_TRY(query.prepare(
        options.reverse ? "SELECT key, value FROM _cf_KV WHERE key >= ?2 ORDER BY key DESC LIMIT ?1"
                        : "SELECT key, value FROM _cf_KV WHERE key >= ?2 ORDER BY key LIMIT ?1"));
    SQL_TRY(query.bind({options.limit.value_or(-1), std::string_view(start)}));
  }
  for (;;) {
    auto more = query.step();
    if (!more) return sql_fail(std::move(more).error());
    if (!*more || !row(text_of(query.get(), 0), blob_of(query.get(), 1))) return {};
  }
}

// --- the alarm ---

SqlResult<std::optional<int64_t>> CellStorage::read_alarm() {
  auto exists = has_table("_cf_METADATA", metadata_table_);
  if (!exists) return sql_fail(std::move(exists).error());
  if (!*exists) return std::nullopt;
  HostStatement query(*this);
  SQL_TRY(query.prepare("SELECT value FROM _cf_METADATA WHERE key = ?"));
  SQL_TRY(query.bind({int64_t{kAlarmKey}}));
  auto row = query.step();
  if (!row) return sql_fail(std::move(row).error());
  if (!*row || sqlite3_column_type(query.get(), 0) == SQLITE_NULL) return std::nullopt;
  return sqlite3_column_int64(query.get(), 0) / kNsPerMs;
}

SqlResult<> CellStorage::write_alarm(std::optional<int64_t> at_ms) {
  SQL_TRY(create_table(kCreateMetadata, metadata_table_));
  HostStatement statement(*this);
  SQL_TRY(
      statement.prepare("INSERT INTO _cf_METADATA VALUES (?, ?) "
                        "ON CONFLICT DO UPDATE SET value = excluded.value"));
  constexpr int64_t kMax = INT64_MAX / kNsPerMs;
  SqlValueView value = nullptr;
  if (at_ms) value = std::clamp(*at_ms, -kMax, kMax) * kNsPerMs;
  SQL_TRY(statement.bind({int64_t{kAlarmKey}, value}));
  SQL_TRY(statement.step());
  alarm_touched_ = true;
  return {};
}

// Called before the first change of the alarm in a transaction.
SqlResult<> CellStorage::learn_committed_alarm() {
  if (committed_alarm_) return {};
  auto now = read_alarm();
  if (!now) return sql_fail(std::move(now).error());
  committed_alarm_ = *now;
  return {};
}

SqlResult<std::optional<int64_t>> CellStorage::alarm() {
  SQL_TRY(ready());
  return read_alarm();
}

SqlResult<> CellStorage::set_alarm(std::optional<int64_t> at_ms) {
  SQL_TRY(ready());
  SQL_TRY(learn_committed_alarm());
  if (!at_ms) {
    auto exists = has_table("_cf_METADATA", metadata_table_);
    if (!exists) return sql_fail(std::move(exists).error());
    if (!*exists) return {};
  }
  SQL_TRY(before_write());
  SQL_TRY(write_alarm(at_ms));
  note_write();
  return {};
}

// --- everything ---

SqlResult<> CellStorage::delete_all(bool also_alarm) {
  SQL_TRY(ready());
  if (depth_ > 0) {
    return sql_fail(SqlError::plain("Cannot call deleteAll() within a transaction"));
  }
  SQL_TRY(learn_committed_alarm());
  std::optional<int64_t> kept;
  if (!also_alarm) {
    auto now = read_alarm();
    if (!now) return sql_fail(std::move(now).error());
    kept = *now;
  }
  cancel_cursors("SQLite query was canceled because the database was deleted.");
  drop_cache();
  database_.close();  // undoes what the turn wrote: it is deleted anyway
  transaction_ended();
  kv_table_.reset();
  metadata_table_.reset();
  if (pages_.committed_page_count() == 0) return kept ? set_alarm(kept) : SqlResult<>();

  // SQLite starts a new database in the emptied file; the commit at the end of the turn replaces
  // the old one, and until then the old pages come back with a rollback.
  pages_.truncate(0);
  SQL_TRY(before_write());
  emptied_ = true;
  auto done = write_alarm(kept);
  if (!done) {
    abandon();
    return done;
  }
  note_write();
  return {};
}

SqlResult<uint64_t> CellStorage::database_size() {
  SQL_TRY(ready());
  HostStatement query(*this);
  SQL_TRY(
      query.prepare("SELECT (SELECT page_count FROM pragma_page_count) - "
                    "(SELECT freelist_count FROM pragma_freelist_count)"));
  auto row = query.step();
  if (!row) return sql_fail(std::move(row).error());
  return static_cast<uint64_t>(sqlite3_column_int64(query.get(), 0)) * kPageSize;
}

// --- transactions ---

SqlResult<> CellStorage::commit_turn() {
  settle_cursors(Settle::kWriters);
  if (alarm_touched_) {
    auto now = read_alarm();
    if (!now) return sql_fail(std::move(now).error());
    if (*now != *committed_alarm_) alarm_change_ = *now;
  }
  HostStatement commit(*this);
  SQL_TRY(commit.prepare("COMMIT"));
  std::optional<std::optional<int64_t>> alarm_now = alarm_change_;
  SQL_TRY(commit.step());
  if (alarm_now) committed_alarm_ = *alarm_now;
  return {};
}

SqlResult<> CellStorage::end_turn() {
  if (depth_ > 0) return {};
  if (lost_) {
    SqlError error = std::move(*lost_);
    lost_.reset();
    lost_writes_ = false;
    return sql_fail(std::move(error));
  }
  if (writing_) {
    auto done = commit_turn();
    if (!done) {
      SqlError error = std::move(done).error();
      abandon();
      return sql_fail(std::move(error));
    }
    transaction_ended();
  }
  database_.release_memory();
  return {};
}

void CellStorage::abandon() {
  depth_ = 0;
  lost_.reset();
  lost_writes_ = false;
  database_.roll_back();
  transaction_undone();
}

SqlResult<> CellStorage::begin_transaction() {
  if (depth_ >= kDepthMax) {
    return sql_fail(SqlError::plain("Transactions are nested too deeply."));
  }
  SQL_TRY(before_write());
  auto done = database_.run("SAVEPOINT " + savepoint(depth_));
  if (!done) return sql_fail(after_error(std::move(done).error()));
  ++depth_;
  return {};
}

SqlResult<> CellStorage::commit_transaction() {
  CHECK(depth_ > 0) << "commit without a transaction";
  if (lost_) {
    SqlError error = *lost_;
    (void)rollback_transaction();
    return sql_fail(std::move(error));
  }
  settle_cursors(Settle::kWriters);
  auto done = database_.run("RELEASE " + savepoint(depth_ - 1));
  if (!done) {
    SqlError error = after_error(std::move(done).error());
    (void)rollback_transaction();
    return sql_fail(std::move(error));
  }
  if (--depth_ == 0) wrote_outside_ = true;
  return {};
}

SqlResult<> CellStorage::rollback_transaction() {
  CHECK(depth_ > 0) << "rollback without a transaction";
  if (lost_) {  // SQLite has undone it already
    if (--depth_ == 0 && !lost_writes_) lost_.reset();
    return {};
  }
  settle_cursors(Settle::kWriters);
  std::string name = savepoint(depth_ - 1);
  file_.undoing = true;
  auto done = database_.run("ROLLBACK TO " + name + "; RELEASE " + name);
  file_.undoing = false;
  --depth_;
  kv_table_.reset();
  metadata_table_.reset();
  if (!done) return sql_fail(after_error(std::move(done).error()));
  return {};
}

void CellStorage::close_idle() {
  if (writing_ || depth_ > 0 || lost_) return;
  settle_cursors(Settle::kAll);
  drop_cache();
  database_.close();
}

}  // namespace celld
