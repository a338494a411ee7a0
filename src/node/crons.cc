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
  for (size_t i = 0; i < entries_.size(); ++i) arm(i, world_.wall_now());
  return refused;
}

void Crons::clear() {
  for (Entry& e : entries_) world_.cancel(e.timer);
  entries_.clear();
}

void Crons::arm(size_t index, WallMs after) {
  if (auto due = entries_[index].schedule.next_after(after)) wait(index, *due);
}

void Crons::wait(size_t index, WallMs due) {
  int64_t left = std::max<int64_t>(0, due.value - world_.wall_now().value);
  Duration sleep = std::chrono::milliseconds(std::min(left, kSleepMsMax));
  entries_[index].timer = world_.call_at(world_.now() + sleep, [this, index, due] {
    WallMs now = world_.wall_now();
    if (now < due) return wait(index, due);
    fire_(entries_[index].schedule.text(), due);
    // Not the same minute again when the clock was set back; not those that were slept through.
    arm(index, std::max(now, due));
  });
}

}  // namespace celld
