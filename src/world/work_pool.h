// A few threads for work that takes time in proportion to data.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "world/world.h"

namespace celld {

// Two queues: a job that is kForeground goes first, and jobs that are kBackground never occupy the
// last thread. Each queue is in order. Not bounded: every job is a task of the protocol that waits.
class WorkPool {
 public:
  // At least two threads.
  explicit WorkPool(size_t threads);
  // Waits for the jobs that run; those that wait are dropped unrun.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Any thread. Jobs do not throw.
  void submit(Urgency urgency, Callback job);

 private:
  void run();

  const size_t background_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Callback> foreground_;
  std::deque<Callback> background_;
  size_t background_running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace celld
