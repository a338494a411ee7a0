#include "core/recovery.h"

#include <gtest/gtest.h>

#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

const CellId kCell("Counter:aa");
const NodeId kDead("a");

NodeRecord record_of(Fleet& fleet, const NodeId& node) {
  auto got = fleet.bucket.get(node_key(node));
  CHECK(got) << node;
  return *decode_node(got->body.view(), node_key(node));
}

size_t fences(Fleet& fleet, const NodeId& node) {
  size_t n = 0;
  for (auto& [key, object] : fleet.bucket.objects()) {
    if (!key.starts_with(journal_prefix(node))) continue;
    auto content = decode_slot(object.body.view());
    n += content && content->kind == SlotKind::kFence;
  }
  return n;
}

// A node that dies with 30 commits in its journal, none of them drained.
void die_with_a_journal(Fleet& fleet) {
  CoreOptions options;
  options.drain_interval = seconds(100);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  for (int i = 0; i < 30; ++i) {
    a.write(kCell, 2, 6);
    fleet.world.run_for(milliseconds(25));
  }
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
}

struct Taker {
  Taker(Fleet& fleet, const std::string& id)
      : world(fleet.world),
        store(fleet.world, world, fleet.bucket),
        bucket(world, store, seconds(2), [] { return false; }),
        recoverer(world, bucket, NodeId(id)),
        root(fleet.world) {}
  ~Taker() {
    store.faults = SimFaults{};
    root.run_until([&] { return recoverer.tasks().running() == 0; }, seconds(300));
  }
  TestNodeWorld world;
  SimStore store;
  Bucket bucket;
  Recoverer recoverer;
  TestWorld& root;
};

TEST(Recovery, leaves_a_fence_the_tails_and_a_recovered_record_and_no_data_slots) {
  Fleet fleet(1);
  die_with_a_journal(fleet);
  size_t slots = fleet.bucket.count("journal/a/");
  Taker b(fleet, "b");
  auto done = fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30))));
  ASSERT_TRUE(done) << done.error().message;
  NodeRecord record = record_of(fleet, kDead);
  EXPECT_EQ(record.journal.state, JournalState::kRecovered);
  EXPECT_EQ(record.journal.drained, Slot(slots));
  fleet.world.run_for(seconds(2));
  EXPECT_EQ(fleet.bucket.count("journal/a/"), 1u);
  EXPECT_EQ(fences(fleet, kDead), 1u);
  EXPECT_TRUE(fleet.bucket.has(ltx_key(kCell, Epoch(1), 0, Txid(1), Txid(30))));
}

TEST(Recovery, two_recoverers_do_the_same_work_and_agree) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    Fleet fleet(seed);
    die_with_a_journal(fleet);
    Taker b(fleet, "b"), c(fleet, "c");
    for (Taker* t : {&b, &c}) {
      t->store.faults.lost_reply = 0.1;
      t->store.faults.failed_late = 0.1;
      t->store.faults.duplicated = 0.2;
    }
    auto results = std::make_shared<int>(0);
    auto run = [](Taker* t, std::shared_ptr<int> ok) -> Task<void> {
      Deadline deadline = t->world.deadline_in(seconds(60));
      NodeId dead = kDead;
      Result<void> done = co_await t->recoverer.recover(dead, deadline);
      EXPECT_TRUE(done) << done.error().message;
      ++*ok;
    };
    start(run(&b, results));
    start(run(&c, results));
    ASSERT_TRUE(fleet.world.run_until([&] { return *results == 2; }, seconds(90)));
    fleet.world.run_for(seconds(90));
    EXPECT_EQ(record_of(fleet, kDead).journal.state, JournalState::kRecovered);
    EXPECT_GE(fences(fleet, kDead), 1u);
    EXPECT_EQ(fleet.bucket.count(ltx_prefix(kCell)), 1u);
  }
}

TEST(Recovery, a_store_error_is_never_read_as_nothing_there) {
  Fleet fleet(2);
  die_with_a_journal(fleet);
  Taker b(fleet, "b");
  b.store.lose_reply = [](const std::string& op, const std::string& key) {
    return (op == "get" || op == "list") && key.starts_with("journal/");
  };
  auto failed = fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(10))));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(record_of(fleet, kDead).journal.state, JournalState::kFencing);
  b.store.lose_reply = nullptr;
  ASSERT_TRUE(fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30)))));
  EXPECT_TRUE(fleet.bucket.has(ltx_key(kCell, Epoch(1), 0, Txid(1), Txid(30))));
}

TEST(Recovery, data_above_the_fence_does_not_count) {
  Fleet fleet(3);
  die_with_a_journal(fleet);
  // The last but one slot never arrived, the last one did: nothing after the hole was durable.
  size_t slots = fleet.bucket.count("journal/a/");
  fleet.bucket.remove(journal_key(kDead, Slot(slots - 1)));
  Taker b(fleet, "b");
  ASSERT_TRUE(fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30)))));
  EXPECT_EQ(record_of(fleet, kDead).journal.drained, Slot(slots - 2));
  EXPECT_TRUE(fleet.bucket.has(ltx_key(kCell, Epoch(1), 0, Txid(1), Txid(28))));
}

TEST(Recovery, a_record_that_is_gone_means_recovered) {
  Fleet fleet(4);
  Taker b(fleet, "b");
  EXPECT_TRUE(fleet.run(b.recoverer.recover(NodeId("never-seen"), b.world.deadline_in(seconds(5)))));
  EXPECT_EQ(fleet.bucket.objects().size(), 0u);
}

TEST(Recovery, a_corrupt_slot_is_named_and_stops_the_takeover) {
  Fleet fleet(5);
  die_with_a_journal(fleet);
  std::string key = journal_key(kDead, Slot(3));
  std::string bytes(fleet.bucket.get(key)->body.view());
  bytes[bytes.size() - 20] ^= 1;
  fleet.bucket.put(key, Blob(bytes));
  Taker b(fleet, "b");
  auto failed = fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(10))));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(failed.error().message.find(key), std::string::npos) << failed.error().message;
  EXPECT_EQ(record_of(fleet, kDead).journal.state, JournalState::kFencing);
}

// The victim lives, and has a slot in the network that arrives after the takeover.
TEST(Recovery, premature_takeover_never_costs_an_acknowledged_write) {
  for (uint64_t seed = 1; seed < 60; ++seed) {
    Fleet fleet(seed);
    FleetNode& a = fleet.started("a");
    ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
    for (int i = 0; i < 5; ++i) {
      a.write(kCell, 1, 4);
      fleet.world.run_for(milliseconds(10));
    }
    a.data.faults.slow = 0.8;
    a.data.faults.slow_max = milliseconds(600);
    FleetNode& b = fleet.add("b", kDead);
    auto up = std::make_shared<bool>(false);
    auto take = [](FleetNode* n, std::shared_ptr<bool> done) -> Task<void> {
      Result<void> started = co_await n->core->start();
      EXPECT_TRUE(started);
      CellId cell = kCell;
      Result<void> woken = co_await n->wake(cell, seconds(30));
      EXPECT_TRUE(woken) << woken.error().message;
      *done = true;
    };
    start(take(&b, up));
    for (int i = 0; i < 60 && !a.fenced; ++i) {
      a.write(kCell, 1, 4);
      fleet.world.run_for(milliseconds(5));
    }
    ASSERT_TRUE(fleet.world.run_until([&] { return *up; }, seconds(60)));
    b.write(kCell, 1, 4);
    fleet.world.run_for(seconds(12));
    EXPECT_TRUE(a.fenced);
    ASSERT_TRUE(fleet.settle_writes(b));
  }
}

}  // namespace
}  // namespace celld::testing
