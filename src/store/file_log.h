// The log of a directory store: what its only process is about to do, durable with one fdatasync.
//
// A record is durable before its effect becomes visible, so the effect itself need not be synced:
// after a power failure the records are done again. The format is described in
// docs/formats/file-store.md, why it is safe in docs/decisions/0007-a-log-for-a-directory.md.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "store/file_dirs.h"

namespace celld {

struct LogRecord {
  enum class Kind : uint8_t {
    kPut = 1,     // the object has `token` and `body`
    kFile = 2,    // the object is a file with `token` that was durable before this record
    kRemove = 3,  // there is no such object
  };
  Kind kind = Kind::kPut;
  std::string_view key;
  std::string_view token;  // 32 hex digits; empty for kRemove
  std::string_view body;   // kPut only
};

// A record as it was read, with bytes of its own.
struct OwnedLogRecord {
  LogRecord::Kind kind;
  std::string key, token, body;
};

// The records of a log's bytes in the order in which they were appended, up to the first that is
// not whole. `boot_id` is set to the boot of the machine in which they were written. No records
// and no boot when the bytes begin with no valid head. Pure.
std::vector<OwnedLogRecord> read_log(std::string_view bytes, std::string& boot_id);

// Any thread, several at once.
class FileLog {
 public:
  static constexpr size_t kHalfBytes = 4u << 20;
  static constexpr size_t kBodyBytesMax = 512u << 10;
  static constexpr char kName[] = "log";

  // Makes durable what is there under the keys, or that nothing is; 0 or an errno. Any thread.
  using Settle = std::function<int(const std::unordered_set<std::string>& keys)>;

  // Makes the file `log` in the directory, which has none. Blocks on the disk for some
  // milliseconds. What `settle` needs outlives the log.
  static Result<std::shared_ptr<FileLog>> create(int root_fd, std::string_view boot_id,
                                                 std::shared_ptr<SyncHealth> health, Settle settle);
  // A random number that names this log; never 0.
  uint64_t epoch() const { return epoch_; }
  ~FileLog();
  FileLog(const FileLog&) = delete;
  FileLog& operator=(const FileLog&) = delete;

  // A durable record. While it lives, its effect may be incomplete and its record is kept.
  class Entry {
   public:
    Entry(std::shared_ptr<FileLog> log, size_t half) : log_(std::move(log)), half_(half) {}
    Entry(Entry&&) noexcept = default;
    Entry& operator=(Entry&&) = delete;
    ~Entry() {
      if (log_) log_->end_entry(half_);
    }

   private:
    std::shared_ptr<FileLog> log_;
    size_t half_;
  };

  // Blocks until the record is durable; records of several threads share a sync. Waits for the
  // disk while both halves are full. The body has at most kBodyBytesMax bytes.
  static Result<Entry> append(const std::shared_ptr<FileLog>& log, const LogRecord& record);
  // The same, but the record is durable only after sync_all(): for an effect of which no trace or
  // all may be left by a power failure.
  static Result<Entry> append_unsynced(const std::shared_ptr<FileLog>& log,
                                       const LogRecord& record);
  // Makes every record durable that was appended before.
  Result<void> sync_all();
  // Makes every effect durable that there is by now.
  Result<void> settle_all();

 private:
  FileLog(UniqueFd fd, std::string boot_id, std::shared_ptr<SyncHealth> health, Settle settle);

  struct Half {
    uint64_t generation = 0;
    size_t entries = 0;                    // whose effect may be incomplete
    bool settled = true;                   // every effect is durable: the half can be written again
    std::unordered_set<std::string> keys;  // of its records, until it is settled
  };
  struct Appended {
    size_t half;
    uint64_t change;  // of group_
  };

  Result<void> prepare(int root_fd);
  Result<void> start_half(size_t half);
  Result<void> write_at(uint64_t offset, const LogRecord& record, uint64_t generation);
  Result<Appended> write(const LogRecord& record);
  Result<void> sync(uint64_t change);
  void end_entry(size_t half);
  void run_settler();

  const UniqueFd fd_;
  const std::string boot_id_;
  const std::shared_ptr<SyncHealth> health_;
  const uint64_t epoch_;
  const Settle settle_;
  GroupSync group_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Half, 2> halves_;
  size_t active_ = 0;
  size_t used_ = 0;  // bytes of the active half
  bool stopping_ = false;
  std::thread settler_;
};

// The boot of this machine; empty when the kernel does not say.
std::string this_boot();

}  // namespace celld
