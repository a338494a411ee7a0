// What a loop asks of the control thread. Any thread; the work is posted there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/commit.h"
#include "core/core.h"
#include "js/isolate_host.h"

namespace celld {

class Loop;

// What to do about a cell that is not this node's.
enum class Claim : uint8_t {
  kOwnedOnly,  // kNotOwner
  kOrTell,     // claim it, or say which live node has it
  kOrWait,     // the same, after a while in which its owner's lease may end or it may be released
};

struct Activated {
  Result<Activation> result;
  Txid proven;  // the newest commit of the cell that is proven by then
  std::optional<OwnedElsewhere> elsewhere;
};

class Control {
 public:
  virtual ~Control() = default;

  // Claims and restores; the answer comes on the control thread.
  virtual void activate(CellId cell, Claim claim, std::move_only_function<void(Activated)> done) = 0;
  virtual void commit(Commit commit) = 0;
  virtual void set_alarm(CellId cell, std::optional<WallMs> at) = 0;
  virtual void release(CellId cell, std::move_only_function<void(Result<void>)> done) = 0;

  // Authority lasts while the monotonic clock is below this.
  virtual const std::atomic<int64_t>& authority_until_ns() const = 0;
  // More waits for the bucket than should: new events are refused as overload, and cells with
  // unproven writes wait.
  virtual const std::atomic<bool>& journal_full() const = 0;
  bool under_pressure() const { return journal_full().load(std::memory_order_relaxed); }
  // Twice as much waits: commits are refused.
  virtual bool journal_overfull() const = 0;
  // When the journal last got further, on the monotonic clock.
  virtual const std::atomic<int64_t>& journal_progress_ns() const = 0;
  // The thread of the loop has lost its tenure: another must take over, by Loop::succeed().
  virtual void thread_lost(Loop& loop, js::Tenure::Loss loss, const std::string& detail) = 0;
  virtual void log(js::LogLevel level, std::string text) = 0;
};

}  // namespace celld
