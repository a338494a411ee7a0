// Worlds in virtual time, for tests: one scheduler, any number of nodes that can be killed.
//
// Everything that happens is an event with a virtual time; equal seeds and equal inputs give equal
// runs. Single-threaded. Nothing here ever waits for real time.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "world/world.h"

namespace celld {

// The scheduler. It is also a World of its own: that of the network and of the test itself, which
// outlives every node.
class TestWorld final : public World {
 public:
  explicit TestWorld(uint64_t seed) : random_(seed) {}
  // What never ran may hold frames of tasks that nobody will resume: it is kept reachable.
  ~TestWorld() override {
    for (auto& [when, event] : events_) bury(std::move(event.callback));
  }

  MonoTime now() override { return now_; }
  WallMs wall_now() override { return WallMs{kWallStartMs + now_.since_start / std::chrono::milliseconds(1)}; }
  void random(std::span<uint8_t> out) override {
    for (uint8_t& b : out) b = static_cast<uint8_t>(random_());
  }
  TimerId call_at(MonoTime at, Callback callback) override {
    return schedule(at, 0, std::move(callback));
  }
  void cancel(TimerId timer) override {
    auto it = timers_.find(timer);
    if (it == timers_.end()) return;
    events_.erase(it->second);
    timers_.erase(it);
  }
  void post(Callback callback) override { schedule(now_, 0, std::move(callback)); }
  void post_from_any_thread(Callback callback) override { post(std::move(callback)); }

  // Uniform in [0, bound).
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : random_u64() % bound; }
  bool chance(double p) { return random_unit() < p; }
  Duration between(Duration low, Duration high) {
    return low + Duration(static_cast<int64_t>(below(static_cast<uint64_t>((high - low).count()) + 1)));
  }

  // Runs the next event; false when there is none.
  bool step() {
    if (events_.empty()) return false;
    auto it = events_.begin();
    CHECK(it->first.first >= now_) << "time runs backwards";
    now_ = it->first.first;
    Event event = std::move(it->second);
    timers_.erase(it->first.second);
    events_.erase(it);
    event.callback();
    return true;
  }
  // Runs for `d` of virtual time.
  void run_for(Duration d) {
    MonoTime end = now_ + d;
    while (!events_.empty() && events_.begin()->first.first <= end) step();
    now_ = end;
  }
  // Runs until the condition holds; false when `limit` of virtual time passed before that.
  template <class Condition>
  bool run_until(Condition condition, Duration limit) {
    MonoTime end = now_ + limit;
    while (!condition()) {
      if (events_.empty() || events_.begin()->first.first > end) return false;
      step();
    }
    return true;
  }

 private:
  friend class TestNodeWorld;
  static constexpr int64_t kWallStartMs = 1'700'000'000'000;

  struct Event {
    uint64_t node;
    Callback callback;
  };
  using When = std::pair<MonoTime, TimerId>;

  TimerId schedule(MonoTime at, uint64_t node, Callback callback) {
    TimerId id = ++last_id_;
    When when{std::max(at, now_), id};
    events_.emplace(when, Event{node, std::move(callback)});
    timers_.emplace(id, when);
    return id;
  }
  void kill(uint64_t node) {
    for (auto it = events_.begin(); it != events_.end();) {
      if (it->second.node != node) {
        ++it;
        continue;
      }
      timers_.erase(it->first.second);
      bury(std::move(it->second.callback));
      it = events_.erase(it);
    }
  }
  static void bury(Callback callback) {
    static auto* grave = new std::vector<Callback>();  // reachable for ever, so not a leak
    grave->push_back(std::move(callback));
  }

  std::mt19937_64 random_;
  MonoTime now_;
  std::map<When, Event> events_;
  std::map<TimerId, When> timers_;
  TimerId last_id_ = 0;
  uint64_t last_node_ = 0;
};

// The world of one node of a TestWorld. A killed node's tasks are never resumed again; a paused
// one's wait for the end of the pause. Its clocks may lie.
class TestNodeWorld final : public World {
 public:
  explicit TestNodeWorld(TestWorld& root) : root_(root), id_(++root.last_node_) {}

  MonoTime now() override { return root_.now(); }
  WallMs wall_now() override { return WallMs{root_.wall_now().value + wall_skew_ms_}; }
  void random(std::span<uint8_t> out) override { root_.random(out); }
  TimerId call_at(MonoTime at, Callback callback) override {
    if (killed_) {
      TestWorld::bury(std::move(callback));
      return 0;
    }
    return root_.schedule(std::max(at, root_.now()), id_, guarded(std::move(callback)));
  }
  void cancel(TimerId timer) override { root_.cancel(timer); }
  void post(Callback callback) override { call_at(root_.now(), std::move(callback)); }
  void post_from_any_thread(Callback callback) override { post(std::move(callback)); }

  void run_aside(Urgency, Callback work, Callback done) override {
    ++asides;
    Duration takes = aside_min == aside_max ? aside_max : root_.between(aside_min, aside_max);
    call_at(root_.now() + takes, [work = std::move(work), done = std::move(done)]() mutable {
      work();
      done();
    });
  }

  // How long work takes that runs aside; how often there was some.
  Duration aside_min{0};
  Duration aside_max{0};
  uint64_t asides = 0;

  void set_wall_skew(Duration skew) { wall_skew_ms_ = skew / std::chrono::milliseconds(1); }
  // Whatever would run before `until` runs then, in order.
  void pause_until(MonoTime until) { paused_until_ = std::max(paused_until_, until); }
  void kill() {
    killed_ = true;
    root_.kill(id_);
  }
  bool killed() const { return killed_; }

 private:
  Callback guarded(Callback callback) {
    return [this, callback = std::move(callback)]() mutable {
      if (killed_) return TestWorld::bury(std::move(callback));
      if (root_.now() < paused_until_) {
        root_.schedule(paused_until_, id_, guarded(std::move(callback)));
        return;
      }
      callback();
    };
  }

  TestWorld& root_;
  uint64_t id_;
  int64_t wall_skew_ms_ = 0;
  MonoTime paused_until_;
  bool killed_ = false;
};

}  // namespace celld
