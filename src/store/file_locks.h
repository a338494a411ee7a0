// Which process of the machine writes a directory's log and has the lock of a key, and which thread
// of a process.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/result.h"
#include "store/file_dirs.h"
#include "store/file_log.h"

namespace celld {

// FNV-1a: every process, whatever it was built with, must choose the same number for a key.
inline constexpr uint32_t kLockFiles = 256;  // keys share locks by hash: a bound, not an identity
uint32_t lock_number(std::string_view key);

// The name of a session's directory.
std::string session_name(uint64_t session);

// What all processes that have the directory open see in their memory at once. Any thread.
class SharedTable {
 public:
  SharedTable() = default;
  static Result<SharedTable> map(int locks_fd);
  SharedTable(SharedTable&& o) noexcept : words_(std::exchange(o.words_, nullptr)) {}
  SharedTable& operator=(SharedTable&& o) noexcept {
    std::swap(words_, o.words_);
    return *this;
  }
  ~SharedTable();

  // The epoch of the process that writes the log, 0 for nobody. Whoever opens the directory stores
  // 0.
  uint64_t logger() const { return words_->logger.load(); }
  void set_logger(uint64_t epoch) { words_->logger.store(epoch); }

  // Who took a lock last, and how often it was taken.
  struct Holder {
    uint64_t session = 0;
    uint64_t turn = 0;
    bool operator==(const Holder&) const = default;
  };
  Holder holder(uint32_t lock) const {
    return {words_->locks[lock].session.load(), words_->locks[lock].turn.load()};
  }
  // By who has the lock.
  void taken(uint32_t lock, uint64_t session) {
    words_->locks[lock].session.store(session);
    words_->locks[lock].turn.fetch_add(1);
  }

 private:
  struct Lock {
    std::atomic<uint64_t> session, turn;
  };
  struct Words {
    std::atomic<uint64_t> logger;
    std::array<Lock, kLockFiles> locks;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  Words* words_ = nullptr;
};

// Tells a lock that one holder keeps from one that many take by turns. Any thread.
class LockPatience {
 public:
  // Far longer than a holder needs, far shorter than a lease.
  static constexpr std::chrono::seconds kMax{5};

  explicit LockPatience(std::chrono::milliseconds max) : max_(max) {}
  std::chrono::milliseconds max() const { return max_; }

  // Whether, by calls that came all the time, the lock has had this holder for so long.
  bool over(uint32_t lock, const SharedTable::Holder& holder);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Seen {
    SharedTable::Holder holder;
    Time first{}, last{};
  };
  const std::chrono::milliseconds max_;
  std::mutex mutex_;
  std::array<Seen, kLockFiles> seen_;
};

// The lock that opening, closing and becoming the logger take, one process at a time.
class OpenLock {
 public:
  // Waits up to `patience`; kUnavailable when another process keeps it.
  static Result<UniqueFd> take(int locks_fd, std::chrono::milliseconds patience);
};

// Lets one thread of this process at a time write to a key.
class KeyStripes {
 public:
  // Waits for the write before it, whose own deadline bounds that.
  std::unique_lock<std::mutex> lock(std::string_view key) {
    return std::unique_lock(mutexes_[lock_number(key)]);
  }

 private:
  std::array<std::mutex, kLockFiles> mutexes_;
};

// This process's part: its log while it is the only one that has the directory open.
struct Logger {
  std::mutex mutex;
  std::shared_ptr<FileLog> log;
  // Writes without a log since the last look whether this process is alone, and when that was.
  uint32_t writes = 0;
  std::chrono::steady_clock::time_point looked{};
};

}  // namespace celld
