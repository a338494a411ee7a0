#include "core/alarms.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

const CellId kCell("Timer:aa");

struct Due {
  std::string node;
  WallMs scheduled;
  WallMs at;
};

struct Alarms : ::testing::Test {
  Fleet fleet{1};
  std::vector<Due> dues;

  FleetNode& node(const std::string& id, std::optional<NodeId> predecessor = std::nullopt) {
    CoreOptions options;
    options.wake_scan_interval = seconds(10);
    options.drain_interval = seconds(2);
    FleetNode& n = fleet.add(id, std::move(predecessor), options);
    n.on_alarm = [this, id](CellId cell, WallMs scheduled) {
      EXPECT_EQ(cell, kCell);
      dues.push_back({id, scheduled, fleet.world.wall_now()});
    };
    EXPECT_TRUE(fleet.run(n.core->start()));
    return n;
  }
  WallMs in(Duration d) { return WallMs{fleet.world.wall_now().value + d / milliseconds(1)}; }
  void set(FleetNode& n, std::optional<WallMs> at) { n.write(kCell, 1, 1, AlarmChange{at}); }
};

TEST_F(Alarms, fires_at_its_time_and_repeats_until_it_moves) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(3));
  set(a, at);
  fleet.world.run_for(seconds(4));
  ASSERT_EQ(dues.size(), 1u);
  EXPECT_EQ(dues[0].at, at);
  fleet.world.run_for(seconds(5));
  EXPECT_EQ(dues.size(), 2u) << "a hint that met a deaf node comes again";
  set(a, std::nullopt);
  fleet.world.run_for(seconds(60));
  EXPECT_EQ(dues.size(), 2u);
}

TEST_F(Alarms, arming_costs_no_request_of_its_own) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  fleet.world.run_for(milliseconds(500));
  uint64_t before = a.data.requests;
  set(a, in(seconds(300)));
  ASSERT_TRUE(fleet.settle_writes(a));
  EXPECT_EQ(a.data.requests - before, 1u);
}

TEST_F(Alarms, alm_01_moved_away_and_back_fires_once_after_the_owner_was_killed) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(20));
  set(a, at);
  set(a, WallMs{at.value + 60'000});
  set(a, at);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  FleetNode& b = node("b", NodeId("a"));
  ASSERT_TRUE(fleet.world.run_until([&] { return !dues.empty(); }, seconds(60)));
  EXPECT_EQ(dues[0].scheduled, at);
  EXPECT_GE(dues[0].at, at);
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  set(b, std::nullopt);
  fleet.world.run_for(seconds(120));
  EXPECT_EQ(dues.size(), 1u);
}

// The entry of one release, deleted late, must not take the entry of the next one with it.
TEST_F(Alarms, alm_01_late_delete_of_an_old_entry_misses_the_new_one) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(50));
  set(a, at);
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  std::string first = unowned_entry_key(kCell, at, Epoch(1));
  EXPECT_TRUE(fleet.bucket.has(first));
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  a.write(kCell, 1, 1);
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  fleet.bucket.remove(first);
  EXPECT_TRUE(fleet.bucket.has(unowned_entry_key(kCell, at, Epoch(2))));
  a.kill();
  node("b");
  fleet.world.run_for(seconds(60));
  EXPECT_FALSE(dues.empty());
}

TEST_F(Alarms, alm_06_fires_although_the_whole_fleet_was_down_when_it_was_due) {
  for (bool clean : {false, true}) {
    dues.clear();
    FleetNode& a = node(clean ? "a2" : "a1");
    ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(30))));
    set(a, in(seconds(5)));
    ASSERT_TRUE(fleet.settle_writes(a));
    if (clean) {
      a.hibernate(kCell);
      fleet.shut_down(a);
    } else {
      a.kill();
    }
    fleet.world.run_for(seconds(100));
    EXPECT_TRUE(dues.empty());
    FleetNode& b = node(clean ? "b2" : "b1");
    ASSERT_TRUE(fleet.world.run_until([&] { return !dues.empty(); }, seconds(60)));
    ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
    set(b, std::nullopt);
    ASSERT_TRUE(fleet.run(b.give_up(kCell)));
    fleet.shut_down(b);
  }
}

// A scan judges so many; the others must not wait for the next regular one, released or not.
TEST_F(Alarms, many_that_are_due_at_once_after_a_death_fire_within_seconds) {
  for (bool clean : {false, true}) {
    std::string suffix = clean ? "2" : "1";
    CoreOptions options;
    options.wake_scan_interval = std::chrono::minutes(10);
    options.wake_entries_max = 10;
    FleetNode& a = fleet.started("a" + suffix, std::nullopt, options);
    constexpr size_t kCells = 60;
    WallMs at = in(seconds(60));
    std::vector<CellId> cells;
    for (size_t i = 0; i < kCells; ++i) {
      cells.push_back(CellId("Timer:" + suffix + std::to_string(i)));
      ASSERT_TRUE(fleet.run(a.wake(cells.back(), seconds(5))));
      a.write(cells.back(), 1, 1, AlarmChange{at});
    }
    ASSERT_TRUE(fleet.settle_writes(a));
    if (clean) {
      for (const CellId& cell : cells) a.hibernate(cell);
      fleet.shut_down(a);
    } else {
      a.kill();
    }
    fleet.world.run_for(seconds(100));
    FleetNode& b = fleet.add("b" + suffix, std::nullopt, options);
    std::set<CellId> fired;
    b.on_alarm = [&](CellId cell, WallMs) { fired.insert(cell); };
    ASSERT_TRUE(fleet.run(b.core->start()));
    EXPECT_TRUE(fleet.world.run_until([&] { return fired.size() == kCells; }, seconds(60)))
        << fired.size() << " of " << kCells << (clean ? " released" : " of a dead node");
    fleet.shut_down(b);
  }
}

TEST_F(Alarms, survives_a_takeover_after_its_commit_was_drained) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(40));
  set(a, at);
  fleet.world.run_for(seconds(10));  // drained: the journal does not tell of it any more
  EXPECT_EQ(a.core->undrained_bytes(), 0u);
  a.kill();
  node("b");
  ASSERT_TRUE(fleet.world.run_until([&] { return !dues.empty(); }, seconds(80)));
  EXPECT_EQ(dues[0].scheduled, at);
}

TEST_F(Alarms, a_second_death_before_the_new_owner_wrote_its_index_loses_nothing) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(60));
  set(a, at);
  fleet.world.run_for(seconds(10));
  a.kill();
  FleetNode& b = node("b", NodeId("a"));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  b.kill();
  node("c");
  ASSERT_TRUE(fleet.world.run_until([&] { return !dues.empty(); }, seconds(120)));
  EXPECT_EQ(dues[0].scheduled, at);
}

TEST_F(Alarms, entry_of_a_release_is_deleted_once_the_owner_keeps_the_alarm) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  set(a, in(seconds(300)));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  EXPECT_EQ(fleet.bucket.count("wake/unowned/"), 1u);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  fleet.world.run_for(seconds(5));
  EXPECT_EQ(fleet.bucket.count("wake/unowned/"), 0u);
  auto index = decode_alarm_index(fleet.bucket.get(alarm_index_key(NodeId("a"), 0))->body.view(),
                                  alarm_index_key(NodeId("a"), 0));
  ASSERT_TRUE(index);
  EXPECT_EQ(index->entries.size(), 1u);
}

// Others leave the alarm to the owner; an owner that nobody made look into the cell does not know it.
// Whoever recovered the new owner too early, which it does not know yet, has read its index before that told of
// the alarm: the entry of the release may go only when a renewal shows that nobody had.
TEST_F(Alarms, entry_of_a_release_stays_until_a_renewal_shows_that_the_index_counts) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  set(a, in(seconds(300)));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  ASSERT_EQ(fleet.bucket.count("wake/unowned/"), 1u);
  std::vector<std::string> since;  // what was written from the index on
  fleet.bucket.on_write = [&](const std::string& key, const Blob&) {
    if (key == alarm_index_key(NodeId("a"), 0)) since.clear();
    since.push_back(key);
  };
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.world.run_until([&] { return fleet.bucket.count("wake/unowned/") == 0; }, seconds(60)));
  EXPECT_EQ(since, (std::vector<std::string>{alarm_index_key(NodeId("a"), 0), node_key(NodeId("a"))}));
  fleet.bucket.on_write = nullptr;
}

TEST_F(Alarms, of_a_cell_taken_over_for_a_caller_who_went_away_rings) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(60));
  set(a, at);
  fleet.world.run_for(seconds(5));
  a.kill();
  node("0");  // scans for the fleet
  FleetNode& b = node("b");
  fleet.world.run_for(seconds(20));
  ASSERT_FALSE(fleet.run(b.wake(kCell, milliseconds(1))));
  fleet.world.run_for(seconds(2));
  ASSERT_TRUE(b.core->owns(kCell));
  auto looks = [&] { return !dues.empty() && dues.back().node == "b"; };
  EXPECT_TRUE(fleet.world.run_until(looks, seconds(60)));
}

// What a scan said of the index of a dead node says nothing of the entry that a release leaves later.
TEST_F(Alarms, of_a_cell_released_after_a_scan_had_left_it_to_its_owner_rings_in_time) {
  FleetNode& a = node("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  WallMs at = in(seconds(60));
  set(a, at);
  fleet.world.run_for(seconds(5));
  a.kill();
  node("0");
  FleetNode& b = node("b");
  fleet.world.run_for(seconds(20));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  b.write(kCell, 1, 1);
  fleet.world.run_for(seconds(30));  // a scan comes across the index
  ASSERT_TRUE(dues.empty());
  ASSERT_TRUE(fleet.run(b.give_up(kCell)));
  ASSERT_TRUE(fleet.world.run_until([&] { return !dues.empty(); }, seconds(30)));
  EXPECT_EQ(dues[0].scheduled, at);
}

TEST(AlarmKeys, an_entry_names_cell_minute_and_epoch) {
  std::string key = unowned_entry_key(kCell, WallMs{1'700'000'012'345}, Epoch(7));
  auto name = parse_unowned_entry_key(key);
  ASSERT_TRUE(name);
  EXPECT_EQ(name->cell, kCell);
  EXPECT_EQ(name->epoch, Epoch(7));
  EXPECT_EQ(name->minute.value, 1'699'999'980'000);
  for (const char* bad : {"wake/unowned/2023-11-14T22:13/Timer:aa", "wake/unowned/2023-11-14T22:13/Timer:aa@",
                          "wake/unowned/2023-11-14T22:13/Timer:aa@0", "wake/unowned/2023-11-14T22:13/Timer:aa@x"}) {
    EXPECT_FALSE(parse_unowned_entry_key(bad)) << bad;
  }
}

}  // namespace
}  // namespace celld::testing
