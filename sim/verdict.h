// What a run found: the first broken invariant, and what happened on the way to it.
#pragma once

#include <deque>
#include <optional>
#include <sstream>
#include <string>

#include "base/ids.h"
#include "sim/scheduler.h"

namespace celld::sim {

struct Violation {
  std::string invariant;  // a name of sim/README.md
  std::string cell;       // or empty
  std::string text;
  MonoTime at;
};

struct TimelineEntry {
  MonoTime at;
  std::string node;  // or empty: client, bucket
  std::string cell;  // or empty
  std::string text;
};

// One per run. The first violation counts; the run ends there.
class Verdict {
 public:
  Verdict(Scheduler& world, bool recording) : world_(world), recording_(recording) {}

  void broken(std::string invariant, const CellId& cell, std::string text) {
    if (violation_) return;
    note("", cell.value, "BROKEN " + invariant + ": " + text);
    violation_ = Violation{std::move(invariant), cell.value, std::move(text), world_.now()};
  }
  const std::optional<Violation>& violation() const { return violation_; }

  bool recording() const { return recording_; }
  void note(std::string node, std::string cell, std::string text) {
    if (!recording_) return;
    timeline_.push_back({world_.now(), std::move(node), std::move(cell), std::move(text)});
    if (timeline_.size() > kEntriesMax) timeline_.pop_front();
  }
  const std::deque<TimelineEntry>& timeline() const { return timeline_; }

 private:
  static constexpr size_t kEntriesMax = 200'000;
  Scheduler& world_;
  const bool recording_;
  std::optional<Violation> violation_;
  std::deque<TimelineEntry> timeline_;
};

}  // namespace celld::sim
