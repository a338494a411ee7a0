// Virtual time: one scheduler for everything, one World for each node.
//
// Everything that happens is an event with a time; equal seeds give equal runs. A node can be
// frozen, killed between any two of its events, and its clocks can lie.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "sim/random.h"
#include "world/world.h"

namespace celld::sim {

inline constexpr int64_t kWallStartMs = 1'700'000'000'000;

class NodeWorld;

// The scheduler is the world of the network, the clients and the checkers.
class Scheduler final : public World {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed, "world") {}
  ~Scheduler() override;

  MonoTime now() override { return now_; }
  WallMs wall_now() override { return WallMs{kWallStartMs + now_.since_start / std::chrono::milliseconds(1)}; }
  void random(std::span<uint8_t> out) override { random_.fill(out); }
  TimerId call_at(MonoTime at, Callback callback) override { return schedule(at, nullptr, std::move(callback)); }
  void call_in(Duration d, Callback callback) { schedule(now_ + d, nullptr, std::move(callback)); }
  void cancel(TimerId timer) override;
  void post(Callback callback) override { schedule(now_, nullptr, std::move(callback)); }
  void post_from_any_thread(Callback callback) override { post(std::move(callback)); }

  // Runs the next event; false when there is none.
  bool step();
  MonoTime next_at();  // of the next event; max() when there is none
  void advance_to(MonoTime at) { now_ = std::max(now_, at); }

  uint64_t events() const { return events_; }
  TraceHash& trace() { return trace_; }

 private:
  friend class NodeWorld;
  struct Slot {
    Callback callback;
    NodeWorld* node = nullptr;
    uint32_t generation = 0;
    bool used = false;
  };
  struct Item {
    MonoTime at;
    uint64_t order;
    uint32_t slot;
    uint32_t generation;
    bool operator>(const Item& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  TimerId schedule(MonoTime at, NodeWorld* node, Callback callback);
  Callback take(uint32_t slot);
  // A frame that nobody will resume is kept reachable, so that it is no leak.
  static void bury(Callback callback);

  Rng random_;
  MonoTime now_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> queue_;
  uint64_t order_ = 0;
  uint64_t events_ = 0;
  TraceHash trace_;
};

// The world of one node.
class NodeWorld final : public World {
 public:
  NodeWorld(Scheduler& root, uint64_t id, uint64_t seed)
      : root_(root),
        id_(id),
        random_(seed, "node " + std::to_string(id)),
        lateness_(seed, "lateness " + std::to_string(id)),
        born_(root.now()) {}

  MonoTime now() override;
  WallMs wall_now() override { return WallMs{root_.wall_now().value + skew_ms_}; }
  void random(std::span<uint8_t> out) override { random_.fill(out); }
  TimerId call_at(MonoTime at, Callback callback) override;
  void cancel(TimerId timer) override { root_.cancel(timer); }
  void post(Callback callback) override;
  void post_from_any_thread(Callback callback) override { post(std::move(callback)); }
  // Takes a moment, and now and then as long as a busy machine needs for a large object.
  void run_aside(Urgency urgency, Callback work, Callback done) override;

  uint64_t id() const { return id_; }
  int64_t skew_ms() const { return skew_ms_; }
  void set_skew(int64_t ms) { skew_ms_ = ms; }
  // The monotonic clock runs so much too fast, in millionths. Before the first use only.
  void set_drift(int64_t ppm) { drift_ppm_ = ppm; }

  // Timers run up to so much later than they were set for. At most 100 ms, or requests go unanswered.
  void set_lateness(Duration most) { late_max_ = most; }

  // What would run before `until` runs then, in order: SIGSTOP and SIGCONT.
  void freeze_until(MonoTime until) { frozen_until_ = std::max(frozen_until_, until); }
  void thaw() { frozen_until_ = std::min(frozen_until_, root_.now_); }
  bool frozen() const { return root_.now_ < frozen_until_; }
  bool was_frozen_since(MonoTime at) const { return frozen_until_ > at; }

  // No event of the node runs any more.
  void kill() { killed_ = true; }
  bool killed() const { return killed_; }
  // Calls `crash` instead of the node's event number `events` from now.
  void crash_after(uint64_t events, std::function<void()> crash) {
    crash_in_ = events;
    crash_ = std::move(crash);
  }

 private:
  friend class Scheduler;
  Scheduler& root_;
  const uint64_t id_;
  Rng random_;
  Rng lateness_;
  MonoTime born_;
  int64_t skew_ms_ = 0;
  int64_t drift_ppm_ = 0;
  Duration late_max_{0};
  MonoTime frozen_until_;
  bool killed_ = false;
  uint64_t crash_in_ = 0;
  std::function<void()> crash_;
};

}  // namespace celld::sim
