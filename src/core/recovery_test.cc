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
        recoverer(world, bucket, NodeId(id), seconds(10)),
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

TEST(Recovery, of_a_node_that_left_no_trace_ends_with_a_fence_where_it_would_have_begun) {
  Fleet fleet(4);
  Taker b(fleet, "b");
  NodeId unseen("never-seen");
  ASSERT_TRUE(fleet.run(b.recoverer.recover(unseen, b.world.deadline_in(seconds(5)))));
  EXPECT_EQ(record_of(fleet, unseen).journal.state, JournalState::kRecovered);
  EXPECT_EQ(fences(fleet, unseen), 1u);
  EXPECT_TRUE(fleet.bucket.has(journal_key(unseen, Slot(1))));
}

TEST(Recovery, a_lease_record_that_is_lost_is_no_reason_to_forget_the_journal) {
  Fleet fleet(6);
  die_with_a_journal(fleet);
  size_t slots = fleet.bucket.count("journal/a/");
  fleet.bucket.remove(node_key(kDead));
  FleetNode& b = fleet.started("b");
  MonoTime before = fleet.world.now();
  auto woken = fleet.run(b.wake(kCell, seconds(30)));
  ASSERT_TRUE(woken) << woken.error().message;
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(30));
  EXPECT_GE(fleet.world.now() - before, seconds(10)) << "nobody knows when its lease ends";
  EXPECT_LT(fleet.world.now() - before, seconds(12));
  EXPECT_EQ(record_of(fleet, kDead).journal.drained, Slot(slots));
  fleet.shut_down(b);
}

// Who lists a cell while a faster owner merges and deletes sees less than there is.
TEST(Recovery, a_gap_in_what_was_listed_is_damage_only_if_nobody_claimed_the_cell_meanwhile) {
  for (bool claimed : {false, true}) {
    Fleet fleet(6);
    die_with_a_journal(fleet);
    FleetNode& b = fleet.started("b");
    fleet.world.run_for(seconds(11));
    int lists = 0;
    const std::string above = ltx_key(kCell, Epoch(1), 0, Txid(40), Txid(41));
    b.data.lose_request = [&](const std::string& op, const std::string& key) {
      if (op != "list" || key != ltx_prefix(kCell)) return false;
      if (++lists == 1) {
        fleet.bucket.put(above, Blob("above a gap"));
        Blob own = fleet.bucket.get(owner_key(kCell))->body;
        OwnerRecord record = *decode_owner(own.view(), owner_key(kCell));
        record.epoch = record.epoch.next();
        if (claimed) fleet.bucket.put(owner_key(kCell), Blob(encode_owner(record)));
      } else {
        fleet.bucket.remove(above);
      }
      return false;
    };
    auto woken = fleet.run(b.wake(kCell, seconds(20)));
    if (claimed) {
      EXPECT_EQ(lists, 2);
      EXPECT_TRUE(woken) << woken.error().message;
    } else {
      ASSERT_FALSE(woken);
      EXPECT_EQ(woken.error().code, ErrorCode::kCorrupt);
    }
    b.kill();
  }
}

// As after a day, when the record is deleted of a node that was recovered and still named by cells.
TEST(Recovery, a_node_without_a_record_that_was_recovered_once_is_not_waited_for) {
  Fleet fleet(6);
  die_with_a_journal(fleet);
  {
    Taker c(fleet, "c");
    ASSERT_TRUE(fleet.run(c.recoverer.recover(kDead, c.world.deadline_in(seconds(30)))));
    fleet.world.run_for(seconds(2));
  }
  fleet.bucket.remove(node_key(kDead));
  FleetNode& b = fleet.started("b");
  MonoTime before = fleet.world.now();
  auto woken = fleet.run(b.wake(kCell, seconds(30)));
  ASSERT_TRUE(woken) << woken.error().message;
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(30));
  EXPECT_LT(fleet.world.now() - before, seconds(2)) << "its fence stands";
  fleet.shut_down(b);
}

// Two that find no record wait for the same end, and a live node whose record is gone reads for no longer.
TEST(Recovery, a_node_without_a_record_is_live_for_one_lease_more) {
  Fleet fleet(6);
  die_with_a_journal(fleet);
  fleet.bucket.remove(node_key(kDead));
  Taker b(fleet, "b"), c(fleet, "c");
  auto first = fleet.run(b.recoverer.look_before_claim(kDead, b.world.deadline_in(seconds(5))));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, PeerState::kLive);
  EXPECT_TRUE(first->record.journal.lost);
  fleet.world.run_for(seconds(5));
  auto second = fleet.run(c.recoverer.look_before_claim(kDead, c.world.deadline_in(seconds(5))));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kind, PeerState::kLive);
  EXPECT_EQ(second->record.expires, first->record.expires);
  fleet.world.run_for(seconds(6));
  second = fleet.run(c.recoverer.look_before_claim(kDead, c.world.deadline_in(seconds(5))));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kind, PeerState::kDead);
}

// A node whose slots are drained and deleted while it writes, which is what makes holes.
struct Drained {
  explicit Drained(uint64_t seed) : fleet(seed) {
    CoreOptions options;
    options.drain_interval = milliseconds(40 + 10 * (seed % 20));
    options.slot_bytes_max = 16 << 10;
    a = &fleet.started("a", std::nullopt, options);
    for (int i = 0; i < 4; ++i) {
      cells.push_back(CellId("Counter:" + std::to_string(i)));
      CHECK(fleet.run(a->wake(cells.back(), seconds(5))));
    }
  }
  void write_for(Duration time) {
    MonoTime end = fleet.world.now() + time;
    while (fleet.world.now() < end && !a->fenced) {
      if (a->core->has_authority()) a->write(cells[fleet.world.below(cells.size())], 1, 4);
      fleet.world.run_for(fleet.world.between(milliseconds(1), milliseconds(12)));
    }
  }
  // What b finds is compared with everything that was acknowledged.
  void take_over(FleetNode& b) {
    for (const CellId& cell : cells) {
      auto woken = fleet.run(b.wake(cell, seconds(60)));
      ASSERT_TRUE(woken) << woken.error().message;
    }
  }
  Fleet fleet;
  FleetNode* a = nullptr;
  std::vector<CellId> cells;
};

TEST(Recovery, a_lease_record_lost_after_drains_costs_no_acknowledged_write) {
  for (uint64_t seed = 1; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Drained d(seed);
    d.a->data.faults.slow = 0.1;
    d.a->data.faults.slow_max = milliseconds(200);
    d.write_for(milliseconds(300 + 37 * static_cast<int>(seed)));
    // At times a drain ends that no later slot tells of.
    d.fleet.world.run_for(milliseconds(seed % 3 * 60));
    d.a->kill();
    d.fleet.bucket.remove(node_key(kDead));
    FleetNode& b = d.fleet.started("b");
    d.take_over(b);
    d.fleet.shut_down(b);
    if (HasFailure()) return;
  }
}

// As when somebody restores the record from a copy, or a doubled request of the node's start comes late.
TEST(Recovery, a_lease_record_that_comes_back_in_an_old_version_costs_no_acknowledged_write) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Drained d(seed);
    Blob old = d.fleet.bucket.get(node_key(kDead))->body;
    d.write_for(milliseconds(500 + 37 * static_cast<int>(seed)));
    d.a->kill();
    d.fleet.bucket.put(node_key(kDead), old);
    d.fleet.world.run_for(seconds(11));
    FleetNode& b = d.fleet.started("b");
    d.take_over(b);
    d.fleet.shut_down(b);
    if (HasFailure()) return;
  }
}

// It learns of it at its next renewal; up to then it writes, drains and deletes.
TEST(Recovery, a_lease_record_deleted_under_a_live_node_costs_no_acknowledged_write) {
  for (uint64_t seed = 1; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    Drained d(seed);
    FleetNode& b = d.fleet.started("b");
    d.write_for(milliseconds(300 + 23 * static_cast<int>(seed)));
    d.a->data.faults.slow = 0.2;
    d.a->data.faults.slow_max = milliseconds(200);
    b.data.faults.slow = 0.5;
    b.data.faults.slow_max = milliseconds(200);
    d.fleet.bucket.remove(node_key(kDead));
    auto taken = std::make_shared<bool>(false);
    auto take = [](FleetNode* n, std::vector<CellId> cells, std::shared_ptr<bool> done) -> Task<void> {
      for (const CellId& cell : cells) {
        CellId id = cell;
        Result<void> woken = co_await n->wake(id, seconds(60));
        EXPECT_TRUE(woken) << woken.error().message;
      }
      *done = true;
    };
    start(take(&b, d.cells, taken));
    d.write_for(seconds(6));
    ASSERT_TRUE(d.fleet.world.run_until([&] { return *taken; }, seconds(60)));
    EXPECT_TRUE(d.a->fenced) << "noticed at the next renewal at the latest";
    for (const CellId& cell : d.cells) b.write(cell, 1, 4);
    ASSERT_TRUE(d.fleet.settle_writes(b));
    if (HasFailure()) return;
  }
}

// Its last mark was in no slot yet when the newest one was looked at; then it is, and what it covers goes.
TEST(Recovery, a_slot_that_a_live_node_deletes_meanwhile_is_not_taken_for_the_end_of_its_journal) {
  Fleet fleet(8);
  die_with_a_journal(fleet);
  size_t slots = fleet.bucket.count("journal/a/");
  ASSERT_EQ(slots, 30u) << "one commit in each";
  fleet.bucket.remove(node_key(kDead));
  Blob bytes = fleet.bucket.get(journal_key(kDead, Slot(slots)))->body;
  Result<SlotContent> last = decode_slot(bytes.view());
  ASSERT_TRUE(last);
  Taker b(fleet, "b");
  int lists = 0;
  b.store.lose_request = [&](const std::string& op, const std::string& key) {
    if (op == "list" && key.starts_with("journal/") && ++lists == 2) {
      fleet.bucket.remove(journal_key(kDead, Slot(slots)));
      fleet.bucket.put(journal_key(kDead, Slot(slots)), encode_slot(kDead, Slot(slots), last->parts, Slot(20)));
      for (uint64_t slot = 1; slot <= 20; ++slot) fleet.bucket.remove(journal_key(kDead, Slot(slot)));
    }
    return false;
  };
  auto done = fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30))));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(record_of(fleet, kDead).journal.drained, Slot(slots));
  EXPECT_TRUE(fleet.bucket.has(ltx_key(kCell, Epoch(1), 0, Txid(21), Txid(30))));
}

// The record is one from before the node drained, so the walk begins too low; and the only slot that tells so was
// not there yet when the journal was listed. Found by spec/journal.pml (look_only_above).
TEST(Recovery, the_newest_slot_that_a_live_node_deletes_meanwhile_is_not_taken_for_the_end_of_its_journal) {
  Fleet fleet(8);
  die_with_a_journal(fleet);
  const Slot newest(fleet.bucket.count("journal/a/"));
  Blob bytes = fleet.bucket.get(journal_key(kDead, newest))->body;
  Result<SlotContent> content = decode_slot(bytes.view());
  ASSERT_TRUE(content);
  Taker b(fleet, "b");
  bool listed = false;
  b.store.lose_request = [&](const std::string& op, const std::string& key) {
    if (op == "list" || listed || key != journal_key(kDead, newest)) return false;
    listed = true;
    fleet.bucket.put(journal_key(kDead, newest.next()),
                     encode_slot(kDead, newest.next(), content->parts, newest));
    fleet.bucket.remove(journal_key(kDead, newest));
    return false;
  };
  auto done = fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30))));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(listed);
  EXPECT_EQ(record_of(fleet, kDead).journal.drained, newest.next());
  EXPECT_TRUE(fleet.bucket.has(ltx_key(kCell, Epoch(1), 0, Txid(30), Txid(30))));
}

// With a request or without one: the index leads to the node although nothing in nodes/ does.
TEST(Recovery, alarms_of_a_node_whose_lease_record_is_lost_fire) {
  Fleet fleet(9);
  CoreOptions options;
  options.wake_scan_interval = seconds(10);
  options.drain_interval = seconds(2);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  a.write(kCell, 1, 1, AlarmChange{WallMs{fleet.world.wall_now().value + 20'000}});
  fleet.world.run_for(seconds(5));
  a.write(kCell, 1, 1);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  fleet.bucket.remove(node_key(kDead));
  FleetNode& b = fleet.started("b", std::nullopt, options);
  ASSERT_TRUE(fleet.world.run_until([&] { return b.hints > 0; }, seconds(60)));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(2));
  fleet.shut_down(b);
}

TEST(Recovery, a_node_is_forgotten_when_nothing_of_it_is_left) {
  Fleet fleet(7);
  die_with_a_journal(fleet);
  Taker b(fleet, "b");
  auto forget = [&] {
    auto done = fleet.run(b.recoverer.forget(kDead, b.world.deadline_in(seconds(30))));
    EXPECT_TRUE(done) << done.error().message;
    return done && *done;
  };
  EXPECT_FALSE(forget()) << "not recovered";
  b.store.lose_request = [](const std::string& op, const std::string& key) {
    return op == "remove" && key.starts_with("journal/");
  };
  ASSERT_TRUE(fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30)))));
  fleet.world.run_for(seconds(70));
  EXPECT_GT(fleet.bucket.count("journal/a/"), 1u) << "the deletion did not get through";
  b.store.lose_request = nullptr;
  fleet.bucket.put(alarm_index_key(kDead, 0), Blob("{}"));
  EXPECT_FALSE(forget()) << "its alarms are not settled";
  fleet.bucket.remove(alarm_index_key(kDead, 0));
  EXPECT_TRUE(forget());
  EXPECT_FALSE(fleet.bucket.has(node_key(kDead)));
  EXPECT_EQ(fleet.bucket.count("journal/a/"), 1u);
  EXPECT_EQ(fences(fleet, kDead), 1u);
  // Whoever asks now finds what the fence says.
  ASSERT_TRUE(fleet.run(b.recoverer.recover(kDead, b.world.deadline_in(seconds(30)))));
  EXPECT_EQ(record_of(fleet, kDead).journal.state, JournalState::kRecovered);
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
