// Fleets under random faults: whatever happens, nothing acknowledged is lost, nobody else
// acknowledges, and in the end every cell can be woken and every alarm has fired.
//
// CELLD_SEED=n runs one seed, CELLD_SEEDS=n that many in each part.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/core.h"
#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

constexpr int kCells = 6;
constexpr int kPlaces = 3;
constexpr Duration kChaos = seconds(25);

// A place where one node after the other runs: a machine with a disk.
struct Place {
  FleetNode* node = nullptr;
  bool up = false;        // start() succeeded
  bool stopping = false;  // a shutdown runs
  MonoTime down_until;
  std::set<CellId> waking;
};

class Chaos {
 public:
  explicit Chaos(uint64_t seed) : fleet_(seed), world_(fleet_.world) {
    for (int i = 0; i < kCells; ++i) cells_.push_back(CellId("Counter:" + std::to_string(i)));
    auto sometimes = [&](double p, double low, double high) {
      return world_.chance(p) ? low + (high - low) * world_.random_unit() : 0.0;
    };
    faults_.latency_max = world_.between(milliseconds(6), milliseconds(40));
    faults_.lost_request = sometimes(0.4, 0, 0.03);
    faults_.lost_reply = sometimes(0.5, 0, 0.05);
    faults_.refused = sometimes(0.4, 0, 0.15);
    faults_.failed_late = sometimes(0.4, 0, 0.10);
    faults_.duplicated = sometimes(0.5, 0, 0.10);
    faults_.slow = sometimes(0.3, 0, 0.05);
    crash_ = sometimes(0.8, 0, 0.004);
    pause_ = sometimes(0.5, 0, 0.004);
    cut_ = sometimes(0.5, 0, 0.004);
    shutdown_ = sometimes(0.4, 0, 0.003);
    skew_ms_ = world_.chance(0.3) ? static_cast<int64_t>(world_.below(8000)) : 0;
    release_ = world_.chance(0.5) ? 0.05 : 0.005;
    options_.lease_ttl = seconds(3);
    options_.request_timeout = seconds(2);
    options_.wake_scan_interval = seconds(4);
    options_.drain_interval = world_.between(milliseconds(20), milliseconds(1500));
    options_.slot_bytes_max = size_t{4} << (10 + world_.below(5));
    options_.slots_in_flight_max = 1 + static_cast<unsigned>(world_.below(5));
    options_.chain_objects_max = 3 + world_.below(14);
    options_.undrained_bytes_max = size_t{1} << (16 + world_.below(8));
    if (world_.chance(0.5)) options_.aside_bytes_min = 0;
    if (world_.chance(0.5)) aside_max_ = world_.between(milliseconds(1), milliseconds(500));
    incompressible_ = world_.chance(0.3);
    pages_max_ = 1 + static_cast<unsigned>(world_.below(20));
  }

  void run() {
    for (Place& place : places_) boot(place);
    MonoTime end = world_.now() + kChaos;
    while (world_.now() < end) {
      world_.run_for(world_.between(milliseconds(1), milliseconds(20)));
      act(places_[world_.below(kPlaces)]);
    }
    settle();
  }

 private:
  void boot(Place& place) {
    std::optional<NodeId> before;
    if (place.node && world_.chance(0.5)) before = place.node->options.node;  // the disk was kept
    place = Place{};
    // Ids in any order: the election must not depend on who came first.
    std::string id = "n" + std::to_string(world_.below(90) + 10) + "-" + std::to_string(++ids_);
    place.node = &fleet_.add(id, before, options_);
    FleetNode& node = *place.node;
    node.data.faults = node.lease.faults = calm_ ? SimFaults{} : faults_;
    node.incompressible = incompressible_;
    node.world.aside_max = calm_ ? Duration(0) : aside_max_;
    node.world.set_wall_skew(milliseconds(skew_ms_ ? static_cast<int64_t>(world_.below(
        static_cast<uint64_t>(2 * skew_ms_))) - skew_ms_ : 0));
    node.on_alarm = [this, &place, &node](CellId cell, WallMs) {
      if (place.node == &node) fire(place, std::move(cell));
    };
    auto up = [](Place* p, FleetNode* n) -> Task<void> {
      Result<void> started = co_await n->core->start();
      if (p->node != n) co_return;
      if (started) {
        p->up = true;
      } else {
        p->stopping = true;  // act() replaces it
      }
    };
    start(up(&place, &node));
  }

  void crash(Place& place) {
    place.node->kill();
    place.up = false;
    place.stopping = false;
    place.down_until = world_.now() + world_.between(Duration(0), seconds(3));
  }

  void act(Place& place) {
    FleetNode& node = *place.node;
    if (node.world.killed()) {
      if (world_.now() >= place.down_until) boot(place);
      return;
    }
    if (node.fenced || world_.chance(crash_) || (place.stopping && !place.up)) return crash(place);
    if (!place.up || place.stopping) return;
    if (world_.chance(pause_)) node.world.pause_until(world_.now() + world_.between(milliseconds(10), seconds(6)));
    if (world_.chance(cut_)) {
      bool both = world_.chance(0.5);
      node.data.cut_off = true;
      node.lease.cut_off = both;
      world_.call_at(world_.now() + world_.between(milliseconds(10), seconds(5)), [&node] {
        node.data.cut_off = node.lease.cut_off = false;
      });
    }
    if (world_.chance(shutdown_)) return shut_down(place);
    const CellId& cell = cells_[world_.below(kCells)];
    if (!node.cells.contains(cell)) return wake(place, cell);
    if (world_.chance(0.02)) return node.hibernate(cell);
    if (world_.chance(release_)) {
      auto give_up = [](FleetNode* n, CellId c) -> Task<void> {
        Result<void> done = co_await n->give_up(c);
        (void)done.has_value();
      };
      return start(give_up(&node, cell));
    }
    if (!node.core->has_authority() || node.core->under_pressure()) return;
    write(node, cell);
  }

  void write(FleetNode& node, const CellId& cell) {
    std::optional<AlarmChange> alarm;
    if (world_.chance(0.1)) {
      alarm.emplace();
      if (world_.chance(0.8)) {
        alarm->at = WallMs{world_.wall_now().value + static_cast<int64_t>(world_.below(15'000))};
      }
    }
    node.write(cell, 1 + static_cast<unsigned>(world_.below(6)), pages_max_, alarm);
  }

  void wake(Place& place, const CellId& cell) {
    if (!place.waking.insert(cell).second) return;
    auto run = [](Place* p, FleetNode* n, CellId c, Duration patience) -> Task<void> {
      Result<void> woken = co_await n->wake(c, patience);
      if (!woken) {
        EXPECT_NE(woken.error().code, ErrorCode::kCorrupt) << woken.error().message;
      }
      if (p->node == n) p->waking.erase(c);
    };
    start(run(&place, place.node, cell, world_.between(milliseconds(50), seconds(12))));
  }

  // An alarm handler: activates, looks into the database, clears the alarm with a commit.
  void fire(Place& place, CellId cell) {
    if (!place.up || place.stopping || !place.waking.insert(cell).second) return;
    auto run = [](Chaos* self, Place* p, FleetNode* n, CellId c) -> Task<void> {
      Result<void> woken = co_await n->wake(c, seconds(12));
      if (p->node != n) co_return;
      p->waking.erase(c);
      if (!woken || p->stopping || !n->core->has_authority()) co_return;
      auto it = n->cells.find(c);
      if (it == n->cells.end() || !it->second.state || !it->second.state->alarm) co_return;
      if (*it->second.state->alarm > n->world.wall_now()) co_return;
      ++self->fired_;
      n->write(c, 1, self->pages_max_, AlarmChange{});
    };
    start(run(this, &place, place.node, std::move(cell)));
  }

  void shut_down(Place& place) {
    place.stopping = true;
    auto run = [](Place* p, FleetNode* n, Duration patience) -> Task<void> {
      while (!n->cells.empty()) {
        CellId cell = n->cells.begin()->first;
        n->hibernate(cell);
      }
      Result<void> down = co_await n->core->shutdown(n->world.deadline_in(patience));
      (void)down.has_value();
      if (p->node == n) p->up = false;
    };
    start(run(&place, place.node, world_.between(seconds(1), seconds(15))));
  }

  // The store heals; one new node must find everything.
  void settle() {
    calm_ = true;
    for (Place& place : places_) {
      if (!place.node->world.killed()) place.node->kill();
    }
    skew_ms_ = 0;
    Place& last = places_[0];
    last.node = nullptr;
    boot(last);
    ASSERT_TRUE(world_.run_until([&] { return last.up; }, seconds(60))) << "the last node does not start";
    FleetNode& node = *last.node;
    // Alarms wake their cells without anybody asking for these. Set at the latest 15 s ahead; then
    // leases run out, a scan recovers, the next one finds.
    world_.run_for(seconds(60));
    EXPECT_FALSE(node.fenced) << node.fence_detail;
    for (const CellId& cell : cells_) {
      if (node.cells.contains(cell)) node.hibernate(cell);
      Result<void> woken = fleet_.run(node.wake(cell, seconds(60)));
      ASSERT_TRUE(woken) << cell << ": " << woken.error().message;
      StateRef state = node.cells.at(cell).state;
      if (state && state->alarm) {
        EXPECT_GT(*state->alarm, world_.wall_now()) << cell << ": an alarm never fired";
      }
    }
    ASSERT_TRUE(fleet_.settle_writes(node));
    for (const CellId& cell : cells_) node.hibernate(cell);
    fleet_.shut_down(node);
    EXPECT_GT(fleet_.oracle.restores, 0u);
  }

 public:
  uint64_t acknowledgements() const { return fleet_.oracle.acknowledgements; }
  uint64_t restores() const { return fleet_.oracle.restores; }
  uint64_t fired() const { return fired_; }

 private:
  Fleet fleet_;
  TestWorld& world_;
  std::vector<CellId> cells_;
  Place places_[kPlaces];
  SimFaults faults_;
  CoreOptions options_;
  double crash_ = 0, pause_ = 0, cut_ = 0, shutdown_ = 0, release_ = 0;
  int64_t skew_ms_ = 0;
  Duration aside_max_{0};
  bool incompressible_ = false;
  bool calm_ = false;
  unsigned pages_max_ = 1;
  int ids_ = 0;
  uint64_t fired_ = 0;
};

class CoreRandom : public ::testing::TestWithParam<uint64_t> {};

constexpr uint64_t kSeedsPerTest = 25;

TEST_P(CoreRandom, nothing_acknowledged_is_lost_and_every_alarm_fires) {
  uint64_t first = GetParam() * kSeedsPerTest + 1, last = first + kSeedsPerTest - 1;
  if (const char* n = std::getenv("CELLD_SEEDS")) last = first + std::strtoull(n, nullptr, 10) - 1;
  if (const char* n = std::getenv("CELLD_SEED")) first = last = std::strtoull(n, nullptr, 10);
  uint64_t acknowledgements = 0, restores = 0, fired = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("CELLD_SEED=" + std::to_string(seed));
    auto chaos = std::make_unique<Chaos>(seed);
    chaos->run();
    acknowledgements += chaos->acknowledgements();
    restores += chaos->restores();
    fired += chaos->fired();
    if (HasFailure()) return;
  }
  // A run in which nothing happens proves nothing.
  if (last - first + 1 < kSeedsPerTest) return;
  EXPECT_GT(acknowledgements, 2'500u);
  EXPECT_GT(restores, 250u);
  EXPECT_GT(fired, 50u);
}

INSTANTIATE_TEST_SUITE_P(seeds, CoreRandom, ::testing::Range<uint64_t>(0, 12));

}  // namespace
}  // namespace celld::testing
