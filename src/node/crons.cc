#include "node/crons.h"

#include <algorithm>
#include <chrono>

namespace celld {

namespace {

// Wall time may be moved under us: never sleep longer than this before looking again.
constexpr int64_t kSleepMsMax = 60'000;

}  // namespace

std::vector<std::string> Crons::set(const std::vector<std::string>& expressions) {
  clear();
  std::vector<std::string> refused;
  for (const std::string& text : expressions) {
    if (auto schedule = CronSchedule::parse(text)) {
      entries_.push_back(Entry{std::move(*schedule), 0});
    } else {
      refused.push_back(text);
    }
  }
  for (size_t i = 0; i < entries_.size(); ++i) arm(i);
  return refused;
}

void Crons::clear() {
  for (Entry& e : entries_) world_.cancel(e.timer);
  entries_.clear();
}

void Crons::arm(size_t index) {
  WallMs now = world_.wall_now();
  std::optional<WallMs> due = entries_[index].schedule.next_after(now);
  if (!due) return;
  auto wait = [this, index](auto& self, WallMs at) -> void {
    int64_t left = std::max<int64_t>(0, at.value - world_.wall_now().value);
    int64_t sleep = std::min(left, kSleepMsMax);
    entries_[index].timer =
        world_.call_at(world_.now() + std::chrono::milliseconds(sleep), [this, index, at, self]() mutable {
          if (world_.wall_now() < at) return self(self, at);
          fire_(entries_[index].schedule.text(), at);
          arm(index);
        });
  };
  wait(wait, *due);
}

}  // namespace celld
