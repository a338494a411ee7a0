// What one run is made of: numbers that a scenario gives as ranges and a seed draws from them.
//
// Every number has a name, `section.key`; scenario files and --set know no others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace celld::sim {

// X(section, key, low, high): the range when a scenario does not name it. Rates are per second of
// virtual time and node, chances per request or event. Off = 0.
#define CELLD_SIM_SETTINGS(X)                                                                   \
  X(world, nodes, 3, 3) /* places where one node after the other runs */                        \
  X(world, cells, 5, 5)                                                                         \
  X(world, clients, 4, 12)                                                                      \
  X(world, length_s, 25, 25) /* with faults */                                                  \
  X(world, settle_s, 75, 75) /* without, until everything must have settled */                  \
  X(work, append, 10, 10)    /* weights of the operations */                                    \
  X(work, read, 6, 6)                                                                           \
  X(work, set, 4, 4)                                                                            \
  X(work, big, 1, 1)                                                                            \
  X(work, clear, 0.2, 0.2)                                                                      \
  X(work, alarm, 1, 1)                                                                          \
  X(work, alarm_off, 0.3, 0.3)                                                                  \
  X(work, throws, 0.7, 0.7)                                                                     \
  X(work, hang, 0.5, 0.5)                                                                       \
  X(work, think_ms, 5, 150)                                                                     \
  X(work, big_pages, 2, 40)                                                                     \
  X(work, alarm_ahead_s, 12, 12)  /* at most */                                                 \
  X(work, alarm_throws, 0.1, 0.1) /* chance of a handler to fail */                             \
  X(work, deadline_s, 4, 15)      /* of a request */                                            \
  X(work, sticky, 0.6, 0.95)      /* chance of a client to ask where the cell answered last */  \
  X(life, hibernate, 0.2, 0.2)    /* rates */                                                   \
  X(life, release, 0.15, 0.15)                                                                  \
  X(life, shutdown, 0, 0)                                                                       \
  X(life, crash, 0, 0)                                                                          \
  X(life, crash_at_request, 0, 0) /* chance for each request to the bucket */                   \
  X(life, keep_disk, 0.5, 0.5)    /* chance that a restart holds the lock of its predecessor */ \
  X(life, down_s, 4, 4)           /* at most */                                                 \
  X(life, never_back, 0, 0)       /* chance that a place stays empty */                         \
  X(life, release_asleep, 0.15, 0.15) /* rate, for cells that a node owns and does not run */      \
  X(life, lose_record, 0, 0)      /* rate at which somebody deletes a node's record by hand */  \
  X(life, freeze, 0, 0)                                                                         \
  X(life, freeze_s, 8, 8)      /* at most */                                                    \
  X(clocks, skew_ms, 0, 0)     /* of the wall clock, either way */                              \
  X(clocks, jump, 0, 0)        /* rate at which it jumps within the skew */                     \
  X(clocks, drift_ppm, 0, 0)   /* of the monotonic clock, either way */                         \
  X(clocks, late_ms, 0, 0)     /* timers run so much late, at most: a loop that is busy */      \
  X(faults, latency_ms, 6, 40) /* one way, at most */                                           \
  X(faults, lost_request, 0, 0)                                                                 \
  X(faults, lost_reply, 0, 0)                                                                   \
  X(faults, refused, 0, 0)     /* 5xx without the effect */                                     \
  X(faults, failed_late, 0, 0) /* 5xx after the effect */                                       \
  X(faults, throttled, 0, 0)                                                                    \
  X(faults, duplicated, 0, 0)                                                                   \
  X(faults, duplicate_s, 20, 20) /* the second arrival at most so much later */                 \
  X(faults, slow, 0, 0)                                                                         \
  X(faults, slow_s, 4, 4)                                                                       \
  X(faults, late, 0, 0) /* arrives long after its caller gave up */                             \
  X(faults, late_s, 45, 45)                                                                     \
  X(faults, list_failed, 0, 0)                                                                  \
  X(faults, list_page, 1000, 1000) /* keys in one page of a LIST */                             \
  X(faults, truncated, 0, 0)       /* a ranged read that gives less than asked */               \
  X(faults, burst, 0, 0)           /* rate of bursts in which the store fails for all */        \
  X(faults, burst_s, 5, 5)                                                                      \
  X(faults, cut, 0, 0) /* rate of partitions of a node from the store */                        \
  X(faults, cut_data, 1, 1)       /* chance that it takes the data */                           \
  X(faults, cut_lease, 0.5, 0.5)  /* chance that it takes the lease */                          \
  X(faults, cut_s, 5, 5)                                                                        \
  X(faults, client_lost, 0, 0)       /* requests and replies of clients */                      \
  X(knobs, activation_ms, 300, 8000) /* patience of a node for an owner elsewhere */            \
  X(knobs, ttl_ms, 3000, 3000)                                                                  \
  X(knobs, request_timeout_ms, 2000, 2000)                                                      \
  X(knobs, slot_kb, 4, 64)                                                                      \
  X(knobs, slots_in_flight, 1, 5)                                                               \
  X(knobs, drain_ms, 20, 2500)                                                                  \
  X(knobs, undrained_kb, 64, 8192)                                                              \
  X(knobs, chain_objects, 3, 16)                                                                \
  X(knobs, retention_ms, 0, 3000)                                                               \
  X(knobs, wake_scan_ms, 4000, 4000)                                                            \
  X(knobs, wake_entries, 3, 40)                                                                 \
  X(knobs, page_heap_kb, 16, 512) /* pages of a cell in memory, the rest in a scratch file */

struct Settings {
#define X(section, key, low, high) double section##_##key = 0;
  CELLD_SIM_SETTINGS(X)
#undef X
  // By "section.key"; null for an unknown name.
  double* find(const std::string& name);
  static std::vector<std::string> names();

  bool clocks_lie() const { return clocks_skew_ms > 0 || clocks_jump > 0 || clocks_drift_ppm > 0; }
};

// A scenario file: ranges of settings. A value is a number, [low, high], or
// {odds = 0.5, from = 0, to = 0.1}: with these odds drawn from the range, else 0.
class Scenario {
 public:
  // kInvalid names file and key.
  static Result<Scenario> load(const std::string& path);

  const std::string& name() const { return name_; }  // of the file, without folder and ending
  const std::string& path() const { return path_; }
  const std::string& about() const { return about_; }
  // What `seed` makes of it. `overrides` count last.
  Settings draw(uint64_t seed, const std::map<std::string, double>& overrides) const;

 private:
  struct Range {
    double odds = 1;
    double low = 0;
    double high = 0;
  };
  std::string name_;
  std::string path_;
  std::string about_;
  std::map<std::string, Range> ranges_;
};

}  // namespace celld::sim
