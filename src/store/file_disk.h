// A file store's directory, with calls that block. FileStore runs them on its pool.
//
// The format and why it survives crashes are described in docs/formats/file-store.md.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/file_dirs.h"
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
  // Takes an empty or missing directory (whose parent exists) or one that a FileDisk made. Sweeps
  // what dead processes left in it. Errors name `path` and the reason.
  static Result<std::unique_ptr<FileDisk>> open(const std::string& path, Fsync fsync);
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
  Result<ListPage> list(const ListRequest& request);

  const std::string& path() const { return path_; }

 private:
  struct Temp;

  FileDisk(std::string path, Fsync fsync);
  Result<void> claim_directory();
  Result<void> start_session();
  void sweep_dead_sessions();
  Result<UniqueFd> create_temp(const Temp& temp);
  Result<Temp> write_temp(const Blob& body);
  Result<Version> put_in_place(Temp& temp, std::string_view key, const Abandoned& abandoned);
  Result<UniqueFd> lock_key(std::string_view key, const Abandoned& abandoned);
  void remove_empty_directories(std::vector<std::string> path);

  const std::string path_;
  const Fsync fsync_;
  UniqueFd root_;
  UniqueFd locks_;
  UniqueFd temps_;
  UniqueFd session_;  // holds a lock for as long as this process lives
  std::string session_name_;
  std::atomic<uint64_t> temp_count_{0};
  const std::shared_ptr<SyncHealth> health_ = std::make_shared<SyncHealth>();
  PublishedKeys published_;
  std::unique_ptr<DirCache> objects_;
};

// One page of the object tree below the directory `objects_fd`.
Result<ListPage> list_object_tree(int objects_fd, const ListRequest& request);

}  // namespace celld
