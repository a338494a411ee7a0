// What a node asks of the bucket to keep the alarms of others, and how soon these fire.
#include "core/wake_scan.h"

#include <gtest/gtest.h>

#include <map>

#include "core/records.h"
#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

using std::chrono::minutes;

struct WakeScan : ::testing::Test {
  Fleet fleet{1};
  std::map<CellId, MonoTime> fired;  // first hint, by any node
  std::map<std::string, uint64_t> asked;  // of the bucket, by operation, over `data`

  FleetNode& node(const std::string& id, std::optional<NodeId> predecessor = std::nullopt,
                  CoreOptions options = {}) {
    options.drain_interval = seconds(2);
    FleetNode& n = fleet.add(id, std::move(predecessor), options);
    n.on_alarm = [this](CellId cell, WallMs) { fired.try_emplace(cell, fleet.world.now()); };
    n.data.lose_request = [this](const std::string& op, const std::string&) {
      ++asked[op];
      return false;
    };
    EXPECT_TRUE(fleet.run(n.core->start()));
    return n;
  }
  CellId cell(const std::string& id) { return CellId("Timer:" + id); }
  // The node owns a cell that is due then.
  void arm(FleetNode& n, const CellId& c, Duration in) {
    ASSERT_TRUE(fleet.run(n.wake(c, seconds(30))));
    n.write(c, 1, 1, AlarmChange{WallMs{fleet.world.wall_now().value + in / milliseconds(1)}});
    ASSERT_TRUE(fleet.settle_writes(n));
  }
  // How long it takes until the alarm fires.
  Duration until_fired(const CellId& c, Duration limit) {
    MonoTime begin = fleet.world.now();
    EXPECT_TRUE(fleet.world.run_until([&] { return fired.contains(c); }, limit)) << c;
    return fleet.world.now() - begin;
  }
};

TEST_F(WakeScan, a_node_alone_asks_for_newcomers_once_a_minute_and_lists_nothing) {
  FleetNode& a = node("a");
  for (int i = 0; i < 20; ++i) arm(a, cell(std::to_string(i)), std::chrono::hours(30));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(fleet.run(a.give_up(cell(std::to_string(i)))));
  fleet.world.run_for(minutes(2));
  asked.clear();
  uint64_t renewals = a.lease.requests;
  fleet.world.run_for(minutes(60));
  EXPECT_EQ(asked["list"], 0u);
  EXPECT_EQ(asked["put"] + asked["put_if"] + asked["remove"], 0u);
  EXPECT_GE(asked["get"], 54u);
  EXPECT_LE(asked["get"], 67u);
  EXPECT_LE(a.lease.requests - renewals, 60u * 19);
  fleet.shut_down(a);
}

TEST_F(WakeScan, a_fleet_at_rest_lists_nothing_either) {
  FleetNode &a = node("a"), &b = node("b"), &c = node("c");
  fleet.world.run_for(minutes(3));
  asked.clear();
  fleet.world.run_for(minutes(10));
  EXPECT_EQ(asked["list"], 0u);
  EXPECT_EQ(asked["put"] + asked["put_if"] + asked["remove"], 0u);
  // One a minute for newcomers, and one for each lease of the neighbour: that ends 6.7 to 10 s later.
  EXPECT_LE(asked["get"], 3u * 10 * (1 + 10));
  for (FleetNode* n : {&a, &b, &c}) fleet.shut_down(*n);
}

TEST_F(WakeScan, alarms_of_a_dead_node_fire_when_its_lease_has_ended) {
  FleetNode& a = node("a");
  FleetNode& b = node("b");
  fleet.world.run_for(minutes(3));
  for (int i = 0; i < 30; ++i) arm(a, cell(std::to_string(i)), seconds(9));
  fleet.world.run_for(milliseconds(100));
  a.kill();
  until_fired(cell("7"), seconds(12));
  fleet.world.run_for(seconds(1));
  EXPECT_EQ(fired.size(), 30u);
  fleet.shut_down(b);
}

TEST_F(WakeScan, alarms_of_neighbours_that_die_together_fire) {
  node("a");
  FleetNode &b = node("b"), &c = node("c"), &d = node("d");
  fleet.world.run_for(minutes(3));
  arm(b, cell("b"), seconds(9));
  arm(c, cell("c"), seconds(9));
  arm(d, cell("d"), seconds(9));
  for (FleetNode* n : {&b, &c, &d}) n->kill();
  for (const char* id : {"b", "c", "d"}) until_fired(cell(id), seconds(30));
  fleet.shut_down(*fleet.nodes[0]);
}

TEST_F(WakeScan, alarms_of_a_newcomer_that_dies_unseen_fire) {
  for (const char* id : {"a", "z"}) {  // before us in the ring, and after
    FleetNode& m = node(std::string("m") + id);
    fleet.world.run_for(minutes(10));
    FleetNode& n = node(id);
    arm(n, cell(id), seconds(1));
    n.kill();
    until_fired(cell(id), seconds(66 + 20));
    fleet.shut_down(m);
  }
}

TEST_F(WakeScan, a_node_that_released_a_cell_wakes_it_in_time) {
  FleetNode& a = node("a");
  fleet.world.run_for(minutes(3));
  arm(a, cell("x"), minutes(30));
  ASSERT_TRUE(fleet.run(a.give_up(cell("x"))));
  arm(a, cell("y"), seconds(4));
  MonoTime soon = fleet.world.now() + seconds(4);
  ASSERT_TRUE(fleet.run(a.give_up(cell("y"))));
  until_fired(cell("y"), seconds(5));
  EXPECT_LE(fired[cell("y")] - soon, milliseconds(1));
  MonoTime late = fleet.world.now();
  EXPECT_FALSE(fired.contains(cell("x")));
  Duration waited = until_fired(cell("x"), minutes(31));
  EXPECT_GE(waited, minutes(29));
  EXPECT_LE(late + waited - soon, minutes(30));
  fleet.shut_down(a);
}

TEST_F(WakeScan, cells_that_a_node_released_are_woken_in_time_when_it_is_gone) {
  for (bool leaves : {true, false}) {
    std::string suffix = leaves ? "-left" : "-died";
    FleetNode& a = node("a" + suffix);
    FleetNode& b = node("b" + suffix);
    fleet.world.run_for(minutes(3));
    arm(a, cell(suffix), minutes(5));
    MonoTime due = fleet.world.now() + minutes(5);
    ASSERT_TRUE(fleet.run(a.give_up(cell(suffix))));
    if (leaves) {
      fleet.shut_down(a);
    } else {
      a.kill();
    }
    until_fired(cell(suffix), minutes(6));
    EXPECT_LE(fired[cell(suffix)] - due, milliseconds(10)) << suffix;
    fleet.shut_down(b);
  }
}

TEST_F(WakeScan, a_node_that_left_is_forgotten_by_the_others_without_a_trace) {
  FleetNode &a = node("a"), &b = node("b"), &c = node("c");
  fleet.world.run_for(minutes(3));
  arm(b, cell("x"), minutes(60));
  fleet.shut_down(b);
  EXPECT_TRUE(fleet.bucket.has("nodes/b.json"));
  fleet.world.run_for(minutes(1));
  EXPECT_FALSE(fleet.bucket.has("nodes/b.json"));
  EXPECT_EQ(fleet.bucket.count("journal/b/"), 0u);
  EXPECT_EQ(fleet.bucket.count("wake/b/"), 0u);
  for (FleetNode* n : {&a, &c}) fleet.shut_down(*n);
}

TEST_F(WakeScan, a_neighbour_whose_lease_record_is_lost_is_recovered) {
  FleetNode &a = node("a"), &b = node("b");
  fleet.world.run_for(minutes(3));
  arm(b, cell("x"), seconds(9));  // neither drained nor in an index
  b.kill();
  fleet.bucket.remove("nodes/b.json");
  until_fired(cell("x"), seconds(30));
  ASSERT_TRUE(fleet.run(a.wake(cell("x"), seconds(5))));
  EXPECT_EQ(a.cells.at(cell("x")).state->txid, Txid(1));
  fleet.shut_down(a);
}

// Entries of cells that are owned again only wait for their owner to delete them. A scan that may judge one entry
// at a time must get past them, however many there are.
TEST_F(WakeScan, entries_that_a_live_owner_keeps_do_not_take_the_turns_of_others) {
  constexpr int kKept = 40;
  CoreOptions narrow;
  narrow.wake_entries_max = 1;
  FleetNode& b = node("b", std::nullopt, narrow);
  FleetNode &a = node("a"), &c = node("c");
  fleet.world.run_for(minutes(3));
  for (int i = 0; i < kKept; ++i) arm(c, cell(std::to_string(i)), minutes(5));
  arm(c, cell("waits"), minutes(7));
  MonoTime due = fleet.world.now() + minutes(7);
  for (int i = 0; i < kKept; ++i) ASSERT_TRUE(fleet.run(c.give_up(cell(std::to_string(i)))));
  ASSERT_TRUE(fleet.run(c.give_up(cell("waits"))));
  fleet.shut_down(c);
  a.data.lose_request = [](const std::string& op, const std::string& key) {
    return op == "remove" && key.starts_with("wake/unowned/");
  };
  for (int i = 0; i < kKept; ++i) ASSERT_TRUE(fleet.run(a.wake(cell(std::to_string(i)), seconds(5))));
  until_fired(cell("waits"), minutes(12));
  EXPECT_EQ(fleet.bucket.count("wake/unowned/"), kKept + 1u);
  EXPECT_LE(fired[cell("waits")] - due, seconds(kKept + 20));
  a.data.lose_request = nullptr;
  for (FleetNode* n : {&a, &b}) fleet.shut_down(*n);
}

// A release writes the entry of its alarm first. Those whose owner died right then were taken for releases under
// way for ever, and took the turns of others.
TEST_F(WakeScan, an_owner_that_dies_in_the_middle_of_releases_leaves_nothing_that_waits_for_ever) {
  constexpr int kCells = 40;
  CoreOptions narrow;
  narrow.wake_entries_max = 1;
  FleetNode& b = node("b", std::nullopt, narrow);
  FleetNode& c = node("c");
  fleet.world.run_for(minutes(3));
  for (int i = 0; i < kCells; ++i) arm(c, cell(std::to_string(i)), minutes(5));
  MonoTime due = fleet.world.now() + minutes(5);
  c.data.lose_request = [](const std::string& op, const std::string& key) {
    return op == "put_if" && key.ends_with("/own.json");
  };
  auto give_up = [](FleetNode* n, CellId id) -> Task<void> {
    Result<void> ignored = co_await n->give_up(id);
    (void)ignored.has_value();
  };
  for (int i = 0; i < kCells; ++i) start(give_up(&c, cell(std::to_string(i))));
  fleet.world.run_for(seconds(4));
  ASSERT_EQ(fleet.bucket.count("wake/unowned/"), kCells + 0u);
  c.kill();
  ASSERT_TRUE(fleet.world.run_until([&] { return fired.size() == kCells; }, minutes(10)));
  EXPECT_LE(fleet.world.now() - due, minutes(2));
  fleet.shut_down(b);
}

// A claim that was under way when the node began to leave: the cell stays in its name, and nobody may forget that.
TEST_F(WakeScan, the_alarm_of_a_cell_claimed_while_its_node_leaves_fires) {
  FleetNode& a = node("a");
  arm(a, cell("x"), minutes(3));
  ASSERT_TRUE(fleet.run(a.give_up(cell("x"))));
  FleetNode& b = node("b");
  fleet.world.run_for(minutes(1));
  auto claim = [](FleetNode* n, CellId c) -> Task<void> {
    Result<void> ignored = co_await n->wake(c, seconds(5));
    (void)ignored.has_value();
  };
  start(claim(&b, cell("x")));
  auto owned_by_b = [&] {
    auto owner = decode_owner(fleet.bucket.get(owner_key(cell("x")))->body.view(), owner_key(cell("x")));
    return owner && owner->node == NodeId("b");
  };
  ASSERT_TRUE(fleet.world.run_until(owned_by_b, seconds(5)));
  fleet.shut_down(b);
  ASSERT_TRUE(owned_by_b());
  auto record = decode_node(fleet.bucket.get("nodes/b.json")->body.view(), "nodes/b.json");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->journal.state, JournalState::kRecovered);
  until_fired(cell("x"), minutes(4));
  fleet.shut_down(a);
}

TEST_F(WakeScan, nodes_that_join_at_once_are_all_seen) {
  FleetNode& m = node("m");
  fleet.world.run_for(minutes(3));
  auto up = std::make_shared<int>(0);
  auto join = [](FleetNode* n, std::shared_ptr<int> count) -> Task<void> {
    Result<void> started = co_await n->core->start();
    EXPECT_TRUE(started);
    ++*count;
  };
  std::vector<FleetNode*> nodes;
  for (int i = 0; i < 8; ++i) {
    nodes.push_back(&fleet.add("n" + std::to_string(i)));
    nodes.back()->data.faults.lost_reply = 0.1;
    start(join(nodes.back(), up));
  }
  ASSERT_TRUE(fleet.world.run_until([&] { return *up == 8; }, seconds(60)));
  for (FleetNode* n : nodes) {
    n->data.faults.lost_reply = 0;
    arm(*n, cell(n->options.node.value), seconds(1));
    n->kill();
  }
  for (FleetNode* n : nodes) until_fired(cell(n->options.node.value), seconds(66 + 20));
  fleet.shut_down(m);
}

TEST_F(WakeScan, a_node_that_cannot_say_that_it_is_there_does_not_serve) {
  FleetNode& a = fleet.add("a");
  a.data.lose_request = [](const std::string& op, const std::string& key) {
    return op == "put_if" && key == kJoinedKey;
  };
  Result<void> up = fleet.run(a.core->start());
  ASSERT_FALSE(up);
  EXPECT_NE(up.error().message.find("joining the fleet"), std::string::npos) << up.error().message;
  EXPECT_FALSE(a.core->has_authority());
  EXPECT_FALSE(a.fenced);
}

}  // namespace
}  // namespace celld::testing
