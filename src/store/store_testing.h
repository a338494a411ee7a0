// For tests: worlds that a test drives by hand, and short forms of store calls that wait.
#pragma once

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/object_store.h"
#include "world/asio_world.h"

namespace celld::testing {

template <class T>
Task<void> keep_result(Task<T> task, std::optional<T>& out) {
  out.emplace(co_await std::move(task));
}

// The production world, run by the calling thread while it waits.
class RealWorld {
 public:
  RealWorld() : world_(io_), work_(io_.get_executor()) {}
  World& world() { return world_; }
  boost::asio::io_context& io() { return io_; }

  // The task's value; the test program's own time limit bounds the wait.
  template <class T>
  T run(Task<T> task) {
    std::optional<T> out;
    world_.spawn(keep_result(std::move(task), out));
    while (!out) io_.run_one();
    return std::move(*out);
  }
  void run_until(const std::function<bool()>& condition) {
    while (!condition()) io_.run_one();
  }

 private:
  boost::asio::io_context io_;
  AsioWorld world_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
};

// Time that jumps to the next timer when nothing else is to do. No foreign threads.
class VirtualWorld final : public World {
 public:
  MonoTime now() override { return now_; }
  WallMs wall_now() override { return WallMs{kWallStartMs + now_.since_start.count() / 1'000'000}; }
  void random(std::span<uint8_t> out) override {
    for (auto& b : out) {  // xorshift64*
      seed_ ^= seed_ >> 12;
      seed_ ^= seed_ << 25;
      seed_ ^= seed_ >> 27;
      b = static_cast<uint8_t>(seed_ * 0x2545f4914f6cdd1dull >> 56);
    }
  }
  TimerId call_at(MonoTime at, Callback callback) override {
    timers_.emplace(std::pair(at, ++last_timer_), std::move(callback));
    due_[last_timer_] = at;
    return last_timer_;
  }
  void cancel(TimerId timer) override {
    auto it = due_.find(timer);
    if (it == due_.end()) return;
    timers_.erase(std::pair(it->second, timer));
    due_.erase(it);
  }
  void post(Callback callback) override { ready_.push_back(std::move(callback)); }
  void post_from_any_thread(Callback) override { CHECK(false) << "no threads here"; }

  // One callback; false when nothing is left.
  bool step() {
    if (!ready_.empty()) {
      Callback callback = std::move(ready_.front());
      ready_.pop_front();
      callback();
      return true;
    }
    if (timers_.empty()) return false;
    auto node = timers_.extract(timers_.begin());
    due_.erase(node.key().second);
    now_ = std::max(now_, node.key().first);
    node.mapped()();
    return true;
  }
  void run_to_end() {
    while (step()) {
    }
  }
  template <class T>
  T run(Task<T> task) {
    std::optional<T> out;
    spawn(keep_result(std::move(task), out));
    while (!out) CHECK(step()) << "the task waits for something that never comes";
    return std::move(*out);
  }

  static constexpr int64_t kWallStartMs = 1'700'000'000'000;

 private:
  MonoTime now_{std::chrono::seconds(1000)};
  uint64_t seed_ = 0x9e3779b97f4a7c15ull;
  std::deque<Callback> ready_;
  std::map<std::pair<MonoTime, TimerId>, Callback> timers_;
  std::map<TimerId, MonoTime> due_;
  TimerId last_timer_ = 0;
};

}  // namespace celld::testing
