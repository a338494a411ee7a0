// The background tasks of a component, counted so that it can wait for their end.
#pragma once

#include <utility>

#include "base/check.h"
#include "world/world.h"

namespace celld {

// Runs on the world's thread. Destroyed only when no task is left.
class TaskScope {
 public:
  explicit TaskScope(World& world) : ended_(world) {}
  ~TaskScope() { CHECK(running_ == 0) << running_ << " tasks still run"; }

  void spawn(Task<void> task) {
    ++running_;
    start(run(std::move(task)));
  }
  size_t running() const { return running_; }

  // Waits until no task runs. False when the deadline comes first.
  Task<bool> join(Deadline deadline) {
    while (running_ > 0) {
      bool notified = co_await ended_.wait_until(deadline);
      if (!notified && running_ > 0) co_return false;
    }
    co_return true;
  }

 private:
  Task<void> run(Task<void> task) {
    co_await std::move(task);
    if (--running_ == 0) ended_.notify_all();
  }

  size_t running_ = 0;
  Signal ended_;
};

// At most `limit` holders at a time: co_await permits.acquire(), permits.release(). About first come,
// first served.
class Permits {
 public:
  Permits(World& world, size_t limit) : free_(limit), freed_(world) {}
  Task<void> acquire() {
    while (free_ == 0) co_await freed_.wait();
    --free_;
  }
  void release() {
    ++free_;
    freed_.notify_one();
  }

 private:
  size_t free_;
  Signal freed_;
};

}  // namespace celld
