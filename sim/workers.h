// Runs in processes of their own: a run that aborts or hangs ends only itself.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/settings.h"
#include "sim/simulation.h"

namespace celld::sim {

struct Job {
  const Scenario* scenario = nullptr;
  uint64_t seed = 0;
  std::map<std::string, double> overrides;
  std::string mutant;  // or empty
};

struct JobResult {
  Job job;
  RunResult run;  // without a timeline
  bool mutant_reached = false;
};

// Hands out jobs and takes results, both in this process, until `next` gives nothing and all is
// done. Up to `processes` at a time; a process does up to `batch` jobs of one mutant.
void run_jobs(unsigned processes, size_t batch, const std::function<bool(Job*)>& next,
              const std::function<void(JobResult)>& done, std::map<std::string, uint64_t>* coverage);

// Runs the job in a process of its own that records, and prints what led to the violation.
void print_timeline(const Job& job, size_t lines_max, bool everything);

}  // namespace celld::sim
