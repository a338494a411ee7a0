// A file store's directory, with calls that block. FileStore runs them on its pool.
//
// The format and why it survives crashes are described in docs/formats/file-store.md.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "store/file_dirs.h"
#include "store/file_locks.h"
#include "store/file_log.h"
#include "store/file_spares.h"
#include "store/object_store.h"

namespace celld {

// Set once nobody waits for an operation any more: it then stops before its effect.
using Abandoned = std::atomic<bool>;

// The keys of this process whose new state is visible but perhaps not durable yet. A read waits for
// them, so that what it returns survives a power failure. Any thread.
class PublishedKeys {
 public:
  void enter(std::string_view key);
  void leave(std::string_view key);
  void wait_for(std::string_view key);

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  std::multiset<std::string, std::less<>> keys_;
};

// Any thread, several at once; any number of processes of one machine on one directory.
class FileDisk {
 public:
  // Takes an empty or missing directory (whose parent exists) or one that a FileDisk made. Does
  // again what a log of another boot says, sweeps what dead processes left. Errors name `path` and
  // the reason. `boot_id` differs from this_boot() in tests of a power failure, `lock_patience` is
  // how long another process may keep the lock of a key.
  static Result<std::unique_ptr<FileDisk>> open(
      const std::string& path, Fsync fsync, std::string boot_id = this_boot(),
      std::chrono::milliseconds lock_patience = LockPatience::kMax);
  // The same for all who share a directory, named alike, in this process: two would not be alone.
  static Result<std::shared_ptr<FileDisk>> share(const std::string& path, Fsync fsync);
  ~FileDisk();

  // `range` null: the whole object.
  Result<StoredObject> read(std::string_view key, const ByteRange* range);
  Result<ObjectInfo> stat(std::string_view key);
  SwapResult create(std::string_view key, const Blob& body, const Abandoned& abandoned);
  SwapResult swap(std::string_view key, const Blob& body, const Version& version,
                  const Abandoned& abandoned);
  Result<Version> replace(std::string_view key, const Blob& body, const Abandoned& abandoned);
  // An object in the making, written in any order; removed unless it was published.
  struct Growing;
  Result<std::shared_ptr<Growing>> grow();
  Result<void> write_at(Growing& object, uint64_t offset, const Blob& body);
  // Its first `bytes` become the object; the same version when that has happened before.
  Result<Version> publish(Growing& object, std::string_view key, uint64_t bytes,
                          const Abandoned& abandoned);
  Result<void> remove(std::string_view key, const Abandoned& abandoned);
  // The outcome of each; they share their syncs.
  std::vector<Result<void>> remove_many(const std::vector<std::string>& keys,
                                        const Abandoned& abandoned);
  Result<ListPage> list(const ListRequest& request);

  const std::string& path() const { return path_; }

 private:
  struct Temp;
  class Write;

  FileDisk(std::string path, Fsync fsync, std::string boot_id,
           std::chrono::milliseconds lock_patience);
  Result<void> claim_directory();
  Result<void> enter();
  Result<void> retire_log();
  Result<void> do_again(const std::vector<OwnedLogRecord>& records);
  Result<void> start_session();
  void sweep_dead_sessions();
  Result<bool> alone();
  Result<std::shared_ptr<FileLog>> current_log();
  Result<void> end_log();
  int settle(const std::unordered_set<std::string>& keys);

  Result<Write> begin_write(std::string_view key, const Abandoned& abandoned);
  Result<void> log_intent(Write& write, LogRecord::Kind kind, std::string_view token,
                          std::string_view body);
  struct Removal;
  Result<void> take_away(Removal& removal, const Abandoned& abandoned);
  Result<void> make_durable(const Write& write, const Temp* temp, DirHandle& dir);
  Temp name_temp(std::string token);
  void spare(Temp& temp);
  Result<void> create_temp(Temp& temp);
  Result<bool> take_spare(Temp& temp, std::string_view body);
  Result<void> fill_temp(Temp& temp, std::string_view body, bool sync);
  Result<Temp> write_temp(const Blob& body, const Write& write);
  Result<Version> put_in_place(Write& write, Temp& temp, const Abandoned& abandoned);
  Result<UniqueFd> try_lock(uint32_t number);
  Result<UniqueFd> lock_key(std::string_view key, const Abandoned& abandoned);
  Result<void> expel_holder(uint32_t number);
  Result<bool> disarm(uint64_t session);
  bool expelled() const;
  // Nobody has opened the directory since this process began that log: what it says is kept.
  bool keeps(const FileLog& log) const { return table_.logger() == log.epoch(); }
  void remove_empty_directories(std::vector<std::string> path);

  const std::string path_;
  const Fsync fsync_;
  const std::string boot_id_;
  UniqueFd root_;
  UniqueFd locks_;
  UniqueFd temps_;
  UniqueFd session_;  // holds a lock for as long as this process lives
  uint64_t session_number_ = 0;
  std::string session_name_;  // its hex digits
  std::atomic<uint64_t> temp_count_{0};
  const std::shared_ptr<SyncHealth> health_ = std::make_shared<SyncHealth>();
  PublishedKeys published_;
  std::unique_ptr<DirCache> objects_;
  KeyStripes stripes_;
  SharedTable table_;
  LockPatience patience_;
  Logger logger_;
  SpareFiles spares_;
};

// One page of the object tree below the directory `objects_fd`.
Result<ListPage> list_object_tree(int objects_fd, const ListRequest& request);

}  // namespace celld
