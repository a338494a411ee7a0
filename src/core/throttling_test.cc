// A store that throttles is not asked for more than it was before: a node that repeats what was
// refused would otherwise keep it down.
#include <gtest/gtest.h>

#include "core/testing/fleet.h"
#include "store/http_reply.h"

namespace celld {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Fleet;
using testing::FleetNode;

struct Load {
  uint64_t requests = 0;
  bool held = true;  // the lease
};

// Writes at a fixed rate for 20 s, to ten cells by turns, and everything that follows from them.
Load run(uint64_t seed, int writes_per_second, double throttled, uint32_t pause_ms = kPauseUnsaidMs) {
  Fleet fleet(seed);
  FleetNode& a = fleet.started("a");
  std::vector<CellId> cells;
  for (int i = 0; i < 10; ++i) {
    cells.emplace_back("Counter:" + std::to_string(i));
    EXPECT_TRUE(fleet.run(a.wake(cells.back(), seconds(5))));
  }
  a.data.faults.throttled = a.lease.faults.throttled = throttled;
  a.data.faults.throttled_pause_ms = a.lease.faults.throttled_pause_ms = pause_ms;
  const uint64_t before = a.data.requests + a.lease.requests;
  const int writes = 20 * writes_per_second;
  const MonoTime began = fleet.world.now();
  for (int i = 0; i < writes; ++i) {
    a.write(cells[static_cast<size_t>(i) % cells.size()], 1, 1);
    fleet.world.run_for(began + Duration(seconds(1)) * (i + 1) / writes_per_second - fleet.world.now());
  }
  Load load;
  EXPECT_TRUE(fleet.settle_writes(a));
  load.requests = a.data.requests + a.lease.requests - before;
  load.held = !a.fenced;
  a.data.faults.throttled = a.lease.faults.throttled = 0;
  return load;
}

TEST(Throttling, half_of_all_requests_refused_makes_no_more_than_twice_the_requests_and_no_lease_is_lost) {
  for (int rate : {1, 5, 20, 100}) {
    uint64_t offered = 0;
    for (uint64_t seed = 1; seed <= 10; ++seed) offered += run(seed, rate, 0).requests;
    for (uint32_t pause_ms : {kPauseUnsaidMs, 1000u, 30'000u}) {
      uint64_t seen = 0, worst = 0;
      for (uint64_t seed = 1; seed <= 10; ++seed) {
        Load load = run(seed, rate, 0.5, pause_ms);
        seen += load.requests;
        worst = std::max(worst, load.requests);
        EXPECT_TRUE(load.held) << rate << "/s, pause " << pause_ms << " ms, seed " << seed;
      }
      EXPECT_LE(seen * 10, offered * 16) << rate << "/s: " << seen << " requests, offered " << offered;
      std::printf("%d writes/s, asked to pause %u ms: %.2f, at worst %.2f\n", rate, pause_ms,
                  static_cast<double>(seen) / static_cast<double>(offered),
                  static_cast<double>(worst) * 10 / static_cast<double>(offered));
    }
  }
}

}  // namespace
}  // namespace celld
