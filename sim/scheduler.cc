#include "sim/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace celld::sim {

namespace {

constexpr int64_t kMillion = 1'000'000;

}  // namespace

Scheduler::~Scheduler() {
  for (Slot& slot : slots_) {
    if (slot.used) bury(std::move(slot.callback));
  }
}

void Scheduler::bury(Callback callback) {
  static auto* grave = new std::vector<Callback>();
  grave->push_back(std::move(callback));
}

TimerId Scheduler::schedule(MonoTime at, NodeWorld* node, Callback callback) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.callback = std::move(callback);
  slot.node = node;
  slot.used = true;
  queue_.push(Item{std::max(at, now_), ++order_, index, slot.generation});
  return uint64_t{slot.generation} << 32 | (index + 1);
}

Callback Scheduler::take(uint32_t index) {
  Slot& slot = slots_[index];
  Callback callback = std::move(slot.callback);
  slot.callback = nullptr;
  slot.used = false;
  ++slot.generation;
  free_.push_back(index);
  return callback;
}

void Scheduler::cancel(TimerId timer) {
  if (timer == 0) return;
  auto index = static_cast<uint32_t>(timer) - 1;
  if (index >= slots_.size() || !slots_[index].used || slots_[index].generation != timer >> 32) return;
  Callback gone = take(index);
}

MonoTime Scheduler::next_at() {
  while (!queue_.empty() && slots_[queue_.top().slot].generation != queue_.top().generation) queue_.pop();
  return queue_.empty() ? MonoTime::max() : queue_.top().at;
}

bool Scheduler::step() {
  if (next_at() == MonoTime::max()) return false;
  Item item = queue_.top();
  queue_.pop();
  CHECK(item.at >= now_) << "time runs backwards";
  now_ = item.at;
  NodeWorld* node = slots_[item.slot].node;
  Callback callback = take(item.slot);
  if (node) {
    if (node->killed_) {
      bury(std::move(callback));
      return true;
    }
    if (now_ < node->frozen_until_) {
      schedule(node->frozen_until_, node, std::move(callback));
      return true;
    }
    if (node->crash_in_ > 0 && --node->crash_in_ == 0) {
      bury(std::move(callback));
      auto crash = std::move(node->crash_);
      crash();
      return true;
    }
  }
  ++events_;
  trace_.mix(static_cast<uint64_t>(now_.since_start.count()));
  trace_.mix(node ? node->id() : 0);
  callback();
  return true;
}

MonoTime NodeWorld::now() {
  Duration real = root_.now() - born_;
  if (drift_ppm_ == 0) return MonoTime{real};
  return MonoTime{
      Duration(static_cast<int64_t>(static_cast<__int128>(real.count()) * (kMillion + drift_ppm_) / kMillion))};
}

TimerId NodeWorld::call_at(MonoTime at, Callback callback) {
  if (killed_) {
    Scheduler::bury(std::move(callback));
    return 0;
  }
  if (at == MonoTime::max()) at = MonoTime{Duration::max() / 4};
  Duration ours = at.since_start;
  if (drift_ppm_ != 0) {
    // Rounded up: the clock has reached `at` when the callback runs.
    __int128 scaled = static_cast<__int128>(ours.count()) * kMillion;
    ours = Duration(static_cast<int64_t>((scaled + kMillion + drift_ppm_ - 1) / (kMillion + drift_ppm_)));
  }
  if (late_max_ > Duration(0)) ours += lateness_.between(Duration(0), late_max_);
  return root_.schedule(born_ + ours, this, std::move(callback));
}

void NodeWorld::run_aside(Urgency, Callback work, Callback done) {
  double longest_ms = random_unit() < 0.1 ? 60 : 1;
  auto takes = std::chrono::microseconds(static_cast<int64_t>(random_unit() * longest_ms * 1000));
  call_at(now() + takes, [work = std::move(work), done = std::move(done)]() mutable {
    work();
    done();
  });
}

void NodeWorld::post(Callback callback) {
  if (killed_) return Scheduler::bury(std::move(callback));
  root_.schedule(root_.now(), this, std::move(callback));
}

}  // namespace celld::sim
