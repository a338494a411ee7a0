// The background threads of V8: compilation and garbage collection of all isolates.
//
// One thread works. A task may wait for the main thread of its isolate, and if that thread has been
// given up (js/tenure.h) it waits for ever; other isolates would wait with it. So when nothing has moved
// for a while another thread is added.
#pragma once

#include <v8-platform.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace celld::js {

class Workers {
 public:
  // Threads at most, those that wait for ever included.
  static constexpr size_t kThreadsMax = 16;

  // A task waits so long for a thread before one is added. This lives until the process ends.
  explicit Workers(std::chrono::milliseconds patience) : patience_(patience) {}
  // Any thread.
  void post(std::unique_ptr<v8::Task> task);
  void post_delayed(std::unique_ptr<v8::Task> task, double seconds);
  // Adds a thread if it is time to. False when it would be, but there are too many: background work
  // stands still. To be called now and then.
  bool look();

 private:
  using Clock = std::chrono::steady_clock;
  void start_thread();  // under the lock
  void run();
  void take_due();

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Clock::time_point, std::unique_ptr<v8::Task>>> tasks_;  // since when they wait
  std::multimap<Clock::time_point, std::unique_ptr<v8::Task>> delayed_;
  size_t threads_ = 0;
  size_t idle_ = 0;
};

// Those of the platform. Any thread.
Workers& workers();

}  // namespace celld::js
