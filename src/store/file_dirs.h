// Directories of a file store's object tree: made, kept open, and synced.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace celld {

enum class Fsync : uint8_t {
  kOn,   // what is acknowledged survives a power failure
  kOff,  // what is acknowledged survives the death of the process only
};

// A file descriptor that closes itself.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The Error for `errno_value`: kForbidden for permissions, kUnavailable for the rest.
Error errno_error(std::string_view what, int errno_value);

// The names in a directory, without "." and "..". Errors say that it cannot be read.
Result<std::vector<std::string>> names_in(int dir_fd);

// Whether an fsync has failed. From then on nothing is known about what is durable, and what a read
// shows may be lost by a power failure: the store refuses everything until the process restarts.
class SyncHealth {
 public:
  void fail(int errno_value) { errno_.store(errno_value); }
  // kUnavailable after a failure.
  Result<void> check() const;

 private:
  std::atomic<int> errno_{0};
};

// Makes changes durable, once for all who wait at the same time. Any thread.
class GroupSync {
 public:
  // A change was made; its number.
  uint64_t changed() {
    std::lock_guard lock(mutex_);
    return ++changed_;
  }
  // The number of the last change.
  uint64_t last() {
    std::lock_guard lock(mutex_);
    return changed_;
  }
  // Blocks until the change with that number and all before it are durable, if need be by `sync`,
  // which answers 0 or an errno. After a failure the store's health is gone.
  template <class Sync>
  Result<void> wait(uint64_t change, SyncHealth& health, Sync sync) {
    std::unique_lock lock(mutex_);
    while (durable_ < change) {
      TRY(health.check());
      if (syncing_) {
        advanced_.wait(lock);
        continue;
      }
      syncing_ = true;
      const uint64_t covers = changed_;
      lock.unlock();
      const int failed = sync();
      lock.lock();
      syncing_ = false;
      if (failed == 0) {
        durable_ = covers;
      } else {
        health.fail(failed);
      }
      advanced_.notify_all();
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable advanced_;
  uint64_t changed_ = 0;
  uint64_t durable_ = 0;
  bool syncing_ = false;
};

// An open directory. Any thread.
class DirHandle {
 public:
  DirHandle(UniqueFd fd, Fsync fsync, std::shared_ptr<SyncHealth> health)
      : fd_(std::move(fd)), fsync_(fsync), health_(std::move(health)) {}

  int fd() const { return fd_.get(); }

  // Makes durable every change of this directory that was made before the call. Calls that arrive
  // while one runs share the next.
  Result<void> sync();

 private:
  const UniqueFd fd_;
  const Fsync fsync_;
  const std::shared_ptr<SyncHealth> health_;
  GroupSync group_;
};

// The most recently used directories, kept open. A cached directory was durable in its parent when
// it was put here; should another process remove it, operations on the handle fail with ENOENT.
// Any thread.
class DirCache {
 public:
  DirCache(UniqueFd root, Fsync fsync, std::shared_ptr<SyncHealth> health, size_t entries_max);

  // Opens the directory, making what is missing durably.
  Result<std::shared_ptr<DirHandle>> make(const std::vector<std::string>& path);

  // Whether this process wrote there lately.
  bool recent(const std::string& joined);

  // Opens the directory; null when there is none. Caches nothing.
  Result<std::shared_ptr<DirHandle>> open(const std::vector<std::string>& path);

  // Forgets the directory and all above it, after ENOENT on its handle.
  void forget(const std::vector<std::string>& path);

  int root_fd() const { return root_->fd(); }

  static std::string join(const std::vector<std::string>& path);

 private:
  struct Entry {
    std::shared_ptr<DirHandle> dir;
    std::list<std::string>::iterator age;
  };
  std::shared_ptr<DirHandle> find(const std::string& joined);
  void insert(const std::string& joined, std::shared_ptr<DirHandle> dir);

  const Fsync fsync_;
  const std::shared_ptr<SyncHealth> health_;
  const std::shared_ptr<DirHandle> root_;
  const size_t entries_max_;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> ages_;  // the most recently used first
};

}  // namespace celld
