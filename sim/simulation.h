// One run: places with nodes, clients, faults, and in the end the judgement.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/node.h"
#include "sim/stage.h"

namespace celld::sim {

struct RunResult {
  std::optional<Violation> violation;
  uint64_t trace = 0;  // equal for equal runs
  double virtual_seconds = 0;
  uint64_t events = 0, requests = 0, commits = 0, acknowledgements = 0, restores = 0, alarms = 0;
  uint64_t answered = 0, deaths = 0, stale_reads = 0, undecided = 0;
  std::array<uint64_t, 12> faults{};
  std::deque<TimelineEntry> timeline;  // when recorded
};

// The one that runs now, for a handler of SIGABRT; null between runs.
const Verdict* running_verdict();

// Runs in virtual time until everything has been judged or an invariant is broken.
RunResult run_simulation(uint64_t seed, const Settings& settings, bool recording);

}  // namespace celld::sim
