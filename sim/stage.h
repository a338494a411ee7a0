// What all parts of one run share.
#pragma once

#include <string>

#include "sim/bucket.h"
#include "sim/history.h"
#include "sim/model.h"
#include "sim/scheduler.h"
#include "sim/settings.h"
#include "sim/verdict.h"

namespace celld::sim {

inline Duration ms(double v) { return Duration(static_cast<int64_t>(v * 1e6)); }
inline Duration s(double v) { return Duration(static_cast<int64_t>(v * 1e9)); }

struct Stage {
  Stage(uint64_t run_seed, const Settings& run_settings, bool recording)
      : seed(run_seed),
        settings(run_settings),
        world(run_seed),
        verdict(world, recording),
        bucket(world, verdict),
        model(world, verdict),
        audit(make_audit(world, verdict, bucket,
                         // By the clock of the deleter, which may be too fast.
                         ms(run_settings.knobs_retention_ms / (1 + run_settings.clocks_drift_ppm / 1e6)))) {
    bucket.set_audit(audit.get());
    weather.faults = RequestFaults::of(settings);
  }
  Stage(const Stage&) = delete;

  const uint64_t seed;
  const Settings settings;
  Scheduler world;
  Verdict verdict;
  Bucket bucket;
  Weather weather;
  Model model;
  std::unique_ptr<BucketAudit> audit;
  History history;
  uint64_t last_op = 0;
  uint64_t deaths = 0;  // of nodes
  uint64_t alarms_fired = 0;
  uint64_t answered = 0;  // requests of clients with success
  uint64_t stale_reads = 0;
};

}  // namespace celld::sim
