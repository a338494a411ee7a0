// Which process of the machine writes a directory's log, and which thread of it a key.
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

// One number in the memory of all processes that have the directory open: the epoch of the process
// that writes the log, 0 for nobody. Whoever opens the directory stores 0. Any thread.
class LoggerWord {
 public:
  LoggerWord() = default;
  static Result<LoggerWord> map(int locks_fd);
  LoggerWord(LoggerWord&& o) noexcept : word_(std::exchange(o.word_, nullptr)) {}
  LoggerWord& operator=(LoggerWord&& o) noexcept {
    std::swap(word_, o.word_);
    return *this;
  }
  ~LoggerWord();

  uint64_t load() const { return word_->load(std::memory_order_seq_cst); }
  void store(uint64_t epoch) { word_->store(epoch, std::memory_order_seq_cst); }

 private:
  std::atomic<uint64_t>* word_ = nullptr;
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
  LoggerWord word;
  std::shared_ptr<FileLog> log;
  // Writes without a log since the last look whether this process is alone, and when that was.
  uint32_t writes = 0;
  std::chrono::steady_clock::time_point looked{};

  // Nobody has opened the directory since this process began that log: what it says is kept.
  bool keeps(const FileLog& of) const { return word.load() == of.epoch(); }
};

}  // namespace celld
