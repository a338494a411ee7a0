// The control thread never works in proportion to data: what is large is done aside.
#include <gtest/gtest.h>

#include "core/core.h"
#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

const CellId kCell("Counter:aa");

TEST(ControlThread, drains_compactions_restores_and_recoveries_are_made_aside) {
  Fleet fleet(1);
  CoreOptions options;
  options.drain_interval = milliseconds(50);
  options.chain_objects_max = 4;
  options.aside_bytes_min = 0;
  FleetNode& a = fleet.started("a", std::nullopt, options);
  a.incompressible = true;
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  auto asides = [&](FleetNode& node, auto what) {
    uint64_t before = node.world.asides;
    what();
    return node.world.asides - before;
  };
  auto drained = [&] { return a.core->undrained_bytes() == 0; };
  uint64_t compactions = 0;
  do {
    EXPECT_EQ(asides(a,
                     [&] {
                       a.write(kCell, 20, 20);
                       ASSERT_TRUE(fleet.settle_writes(a));
                     }),
              1u)
        << "the slot";
    uint64_t of_drain = asides(a, [&] { ASSERT_TRUE(fleet.world.run_until(drained, seconds(1))); });
    ASSERT_GE(of_drain, 1u) << "the drain";
    compactions += of_drain - 1 + asides(a, [&] { fleet.world.run_for(seconds(1)); });
  } while (compactions < 2 || a.cells.at(kCell).state->page_count < 12);
  a.hibernate(kCell);
  EXPECT_GE(asides(a, [&] { ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5)))); }), 1u) << "the restore";
  a.write(kCell, 20, 20);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  FleetNode& b = fleet.add("b", NodeId("a"), options);
  EXPECT_GE(asides(b, [&] { ASSERT_TRUE(fleet.run(b.core->start())); }), 2u) << "the recovery";
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  EXPECT_EQ(b.cells.at(kCell).state->txid, a.cells.at(kCell).state->txid);
  fleet.shut_down(b);
}

// Under a sanitizer, or on a machine with other things to do, to encode what waits took longer than the lease.
TEST(ControlThread, a_drain_that_takes_longer_than_the_lease_costs_neither_lease_nor_writes) {
  Fleet fleet(2);
  CoreOptions options;
  options.lease_ttl = seconds(2);
  options.drain_interval = milliseconds(50);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  a.world.aside_min = a.world.aside_max = seconds(20);
  a.write(kCell, 8, 8);
  fleet.world.run_for(seconds(10));
  EXPECT_GT(a.core->undrained_bytes(), 0u) << "the drain goes on";
  for (int i = 0; i < 5; ++i) {
    a.write(kCell, 2, 8);
    EXPECT_TRUE(fleet.settle_writes(a, milliseconds(100))) << "nobody waits for a drain";
  }
  fleet.world.run_for(seconds(60));
  EXPECT_FALSE(a.fenced) << a.fence_detail;
  EXPECT_EQ(a.core->undrained_bytes(), 0u);
  a.world.aside_min = a.world.aside_max = Duration(0);
  a.hibernate(kCell);
  fleet.shut_down(a);
}

// Everything that a wait for work aside leaves time for: writes, a release, a restore, the end.
TEST(ControlThread, whatever_happens_during_slow_work_aside_nothing_is_lost) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Fleet fleet(seed);
    CoreOptions options;
    options.drain_interval = milliseconds(20);
    options.chain_objects_max = 3;
    options.aside_bytes_min = 0;
    options.undrained_bytes_max = 256 << 10;
    FleetNode& a = fleet.started("a", std::nullopt, options);
    a.world.aside_max = milliseconds(200);
    for (int step = 0; step < 60; ++step) {
      ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(30))));
      for (uint64_t n = fleet.world.below(4); n > 0; --n) a.write(kCell, 3, 12);
      fleet.world.run_for(fleet.world.between(milliseconds(0), milliseconds(60)));
      if (fleet.world.chance(0.15)) {
        a.hibernate(kCell);
      } else if (fleet.world.chance(0.1)) {
        ASSERT_TRUE(fleet.run(a.give_up(kCell)));
      }
    }
    if (fleet.world.chance(0.5)) {
      a.kill();
      FleetNode& b = fleet.started("b", NodeId("a"), options);
      ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
      fleet.shut_down(b);
    } else {
      fleet.shut_down(a);
    }
  }
}

}  // namespace
}  // namespace celld::testing
