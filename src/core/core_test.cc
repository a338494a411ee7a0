// One node at a time, or two: each promise of the protocol and each symptom from the field.
#include "core/core.h"

#include <gtest/gtest.h>

#include "core/records.h"
#include "core/slot.h"
#include "core/testing/fleet.h"
#include "ltx/ltx.h"
#include "ltx/merge.h"

namespace celld::testing {
namespace {

const CellId kCell("Counter:aa");

Task<Result<void>> writes(FleetNode& node, CellId cell, unsigned count, Duration pause) {
  for (unsigned i = 0; i < count; ++i) {
    node.write(cell, 2, 8);
    co_await sleep_for(node.world, pause);
  }
  co_return Result<void>{};
}

OwnerRecord owner_of(Fleet& fleet, const CellId& cell) {
  auto got = fleet.bucket.get(owner_key(cell));
  CHECK(got) << cell;
  auto record = decode_owner(got->body.view(), owner_key(cell));
  CHECK(record) << record.error().message;
  return *record;
}

// The cell with one commit, and its node does not have it in memory any more.
bool write_and_give_up(Fleet& fleet, FleetNode& node, unsigned pages, unsigned pages_max) {
  if (!fleet.run(node.wake(kCell, seconds(5)))) return false;
  node.write(kCell, pages, pages_max);
  return fleet.settle_writes(node) && fleet.run(node.give_up(kCell)).has_value();
}

TEST(Core, a_write_is_acknowledged_and_survives_kill_and_wipe) {
  Fleet fleet(1);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 20, milliseconds(7))));
  ASSERT_TRUE(fleet.settle_writes(a));
  EXPECT_EQ(a.core->proven(kCell), Txid(20));
  a.kill();

  FleetNode& b = fleet.started("b");
  auto woken = fleet.run(b.wake(kCell, seconds(30)));
  ASSERT_TRUE(woken) << woken.error().message;
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(20));
  EXPECT_EQ(b.cells.at(kCell).epoch, Epoch(2));
  fleet.shut_down(b);
}

// A caller that joins an activation after the release was asked for must not be given the cell that is about to go:
// its next commit would be one of a cell in release.
TEST(Core, a_cell_that_is_to_be_released_is_not_given_to_who_asks_meanwhile) {
  Fleet fleet(33);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(write_and_give_up(fleet, a, 2, 8));
  ASSERT_FALSE(fleet.run(a.wake(kCell, milliseconds(1))));  // goes on without its caller
  std::optional<bool> released, woken;
  auto release = [](FleetNode* n, std::optional<bool>* out) -> Task<void> {
    Result<void> done = co_await n->core->release(kCell);
    out->emplace(done.has_value());
  };
  auto wake = [](FleetNode* n, std::optional<bool>* out) -> Task<void> {
    Result<void> done = co_await n->wake(kCell, seconds(20));
    if (done) n->write(kCell, 1, 8);
    out->emplace(done.has_value());
  };
  start(release(&a, &released));
  start(wake(&a, &woken));
  ASSERT_TRUE(fleet.world.run_until([&] { return woken && released; }, seconds(30)));
  EXPECT_TRUE(*woken);
  ASSERT_TRUE(fleet.settle_writes(a));
  EXPECT_EQ(a.core->proven(kCell), Txid(2));
  EXPECT_TRUE(a.core->owns(kCell));
  fleet.shut_down(a);
}

TEST(Core, a_release_after_a_takeover_names_the_size_that_the_database_has_now) {
  Fleet fleet(34);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(write_and_give_up(fleet, a, 1, 1));
  uint32_t before = owner_of(fleet, kCell).manifest.page_count;
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  while (a.cells.at(kCell).state->page_count == before) a.write(kCell, 4, 40);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  FleetNode& b = fleet.started("b");
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  uint32_t now = b.cells.at(kCell).state->page_count;
  ASSERT_NE(now, before);
  ASSERT_TRUE(fleet.run(b.give_up(kCell)));
  EXPECT_EQ(owner_of(fleet, kCell).manifest.page_count, now);
  fleet.shut_down(b);
}

TEST(Core, one_acknowledged_write_costs_one_round_trip_and_writers_share_slots) {
  Fleet fleet(2);
  FleetNode& a = fleet.started("a");
  a.data.faults.latency_min = a.data.faults.latency_max = milliseconds(10);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  MonoTime before = fleet.world.now();
  a.write(kCell, 1, 1);
  ASSERT_TRUE(fleet.settle_writes(a));
  EXPECT_EQ(fleet.world.now() - before, milliseconds(20));

  // 100 cells, each writing again as soon as its last write is acknowledged.
  std::vector<CellId> cells;
  for (int i = 0; i < 100; ++i) {
    cells.push_back(CellId("Counter:" + std::to_string(i)));
    ASSERT_TRUE(fleet.run(a.wake(cells.back(), seconds(5))));
  }
  uint64_t acks = fleet.oracle.acknowledgements;
  size_t slots = 0;
  fleet.bucket.on_write = [&](const std::string& key, const Blob&) {
    slots += key.starts_with("journal/");
  };
  MonoTime end = fleet.world.now() + seconds(2);
  while (fleet.world.now() < end) {
    for (const CellId& cell : cells) {
      if (a.cells.at(cell).unproven.empty()) a.write(cell, 1, 2);
    }
    fleet.world.step();
  }
  ASSERT_TRUE(fleet.settle_writes(a));
  double per_write = static_cast<double>(slots) / static_cast<double>(fleet.oracle.acknowledgements - acks);
  EXPECT_LE(per_write, 0.05);
  fleet.shut_down(a);
}

TEST(Core, cold_activation_of_a_released_cell_is_two_sequential_round_trips) {
  Fleet fleet(3);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 5, seconds(3))));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  EXPECT_TRUE(owner_of(fleet, kCell).released());

  FleetNode& b = fleet.started("b");
  fleet.world.run_for(seconds(1));
  b.data.faults.latency_min = b.data.faults.latency_max = milliseconds(10);
  uint64_t requests = b.data.requests;
  MonoTime before = fleet.world.now();
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  EXPECT_EQ(fleet.world.now() - before, milliseconds(40));
  EXPECT_EQ(b.data.requests - requests, 2 + owner_of(fleet, kCell).manifest.objects.size());
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(5));
  fleet.shut_down(a);
  fleet.shut_down(b);
}

// Others take such a cell for one that has an owner, so its alarm would wait for somebody to ask for it.
TEST(Core, a_claim_that_was_applied_without_our_knowing_is_looked_into) {
  Fleet fleet(4);
  FleetNode& a = fleet.started("a");
  a.data.lose_reply = [claimed = false](const std::string& op, const std::string& key) mutable {
    if (key == owner_key(kCell) && op != "get") claimed = true;
    return claimed && key == owner_key(kCell);
  };
  ASSERT_FALSE(fleet.run(a.wake(kCell, seconds(2))));
  EXPECT_FALSE(a.core->owns(kCell));
  fleet.world.run_for(seconds(60));
  EXPECT_FALSE(a.core->owns(kCell)) << "the bucket tells nothing yet";
  a.data.lose_reply = nullptr;
  ASSERT_TRUE(fleet.world.run_until([&] { return a.core->owns(kCell); }, seconds(60)));
  Blob record = fleet.bucket.get(owner_key(kCell))->body;
  EXPECT_EQ(decode_owner(record.view(), "own.json")->epoch, Epoch(2)) << "nothing is served under the first";
  EXPECT_TRUE(fleet.world.run_until([&] { return a.hints > 0; }, seconds(60))) << "its alarm is not known";
  fleet.shut_down(a);
}

TEST(Core, who_asks_is_told_at_once_where_a_cell_lives) {
  Fleet fleet(4);
  CoreOptions routable;
  routable.addr = "10.0.0.1:8788";
  routable.peer_protocol = 1;
  FleetNode& a = fleet.started("a", std::nullopt, routable);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  auto find = [&fleet](FleetNode& n, std::optional<OwnedElsewhere>* out) -> Task<Result<void>> {
    Deadline deadline = fleet.world.deadline_in(seconds(3));
    auto activation = co_await n.core->activate(kCell, deadline, out);
    if (!activation) co_return fail(activation.error());
    co_return Result<void>{};
  };
  CoreOptions same;
  same.peer_protocol = 1;
  FleetNode& b = fleet.started("b", std::nullopt, same);
  std::optional<OwnedElsewhere> found;
  MonoTime before = fleet.world.now();
  auto refused = fleet.run(find(b, &found));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotOwner);
  EXPECT_LT(fleet.world.now() - before, milliseconds(100)) << "two reads, no wait";
  ASSERT_TRUE(found);
  EXPECT_EQ(found->node, NodeId("a"));
  EXPECT_EQ(found->addr, "10.0.0.1:8788");
  EXPECT_GT(found->until, fleet.world.now());
  EXPECT_LE(found->until, fleet.world.now() + routable.lease_ttl);

  CoreOptions other;
  other.peer_protocol = 2;
  FleetNode& c = fleet.started("c", std::nullopt, other);
  std::optional<OwnedElsewhere> unknown;
  EXPECT_FALSE(fleet.run(find(c, &unknown)));
  EXPECT_FALSE(unknown) << "it speaks another protocol, so the cell is waited for";
  for (FleetNode* n : {&a, &b, &c}) fleet.shut_down(*n);
}

TEST(Core, a_cell_of_a_live_node_is_refused_by_name_and_taken_after_its_release) {
  Fleet fleet(4);
  FleetNode& a = fleet.started("a");
  FleetNode& b = fleet.started("b");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  auto refused = fleet.run(b.wake(kCell, seconds(3)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotOwner);
  EXPECT_NE(refused.error().message.find("node a"), std::string::npos) << refused.error().message;

  ASSERT_TRUE(fleet.run(writes(a, kCell, 3, milliseconds(1))));
  auto waiting = std::make_shared<std::optional<Result<void>>>();
  auto wait = [](FleetNode& n, std::shared_ptr<std::optional<Result<void>>> out) -> Task<void> {
    *out = co_await n.wake(kCell, seconds(10));
  };
  start(wait(b, waiting));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  ASSERT_TRUE(fleet.world.run_until([&] { return waiting->has_value(); }, seconds(10)));
  EXPECT_TRUE(**waiting);
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(3));
  fleet.shut_down(a);
  fleet.shut_down(b);
}

TEST(Core, concurrent_activations_share_one_claim) {
  Fleet fleet(5);
  FleetNode& a = fleet.started("a");
  auto count = std::make_shared<int>(0);
  auto one = [](FleetNode& n, std::shared_ptr<int> done) -> Task<void> {
    Deadline deadline = n.world.deadline_in(seconds(5));
    CellId cell = kCell;
    auto activation = co_await n.core->activate(cell, deadline);
    EXPECT_TRUE(activation);
    EXPECT_EQ(activation->epoch, Epoch(1));
    ++*done;
  };
  uint64_t requests = a.data.requests;
  for (int i = 0; i < 10; ++i) start(one(a, count));
  ASSERT_TRUE(fleet.world.run_until([&] { return *count == 10; }, seconds(5)));
  EXPECT_LE(a.data.requests - requests, 2u + 4);  // and what the wake scan sends
  a.core->set_alarm(kCell, std::nullopt);
  fleet.shut_down(a);
}

TEST(Core, restart_on_the_same_directory_does_not_wait_for_the_lease) {
  Fleet fleet(6);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 50, milliseconds(3))));
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  MonoTime before = fleet.world.now();
  FleetNode& b = fleet.started("b", NodeId("a"));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  EXPECT_LT(fleet.world.now() - before, seconds(2));
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(50));
  fleet.shut_down(b);
}

TEST(Core, shutdown_releases_everything_and_leaves_a_word_but_no_journal_or_index) {
  Fleet fleet(7);
  FleetNode& a = fleet.started("a");
  for (int i = 0; i < 50; ++i) {
    CellId cell("Counter:" + std::to_string(i));
    ASSERT_TRUE(fleet.run(a.wake(cell, seconds(5))));
    a.write(cell, 2, 5, AlarmChange{WallMs{fleet.world.wall_now().value + 3'600'000}});
  }
  fleet.shut_down(a);
  for (int i = 0; i < 50; ++i) {
    OwnerRecord record = owner_of(fleet, CellId("Counter:" + std::to_string(i)));
    EXPECT_TRUE(record.released());
    EXPECT_EQ(record.manifest.txid, Txid(1));
  }
  auto lease = decode_node(fleet.bucket.get(node_key(NodeId("a")))->body.view(), node_key(NodeId("a")));
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->journal.state, JournalState::kLeft);
  EXPECT_EQ(fleet.bucket.count("journal/"), 0u);
  EXPECT_EQ(fleet.bucket.count("wake/a/"), 0u);
  EXPECT_EQ(fleet.bucket.count("wake/unowned/"), 50u);
}

TEST(Core, drained_slots_are_deleted_and_the_mark_advances) {
  Fleet fleet(8);
  CoreOptions options;
  options.drain_interval = seconds(2);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 100, milliseconds(20))));
  fleet.world.run_for(seconds(5));
  EXPECT_EQ(a.core->undrained_bytes(), 0u);
  // The newest slot in the bucket has to tell that those below are drained before they go.
  a.write(kCell, 1, 1);
  fleet.world.run_for(seconds(5));
  EXPECT_EQ(fleet.bucket.count("journal/"), 1u);
  auto node = decode_node(fleet.bucket.get(node_key(NodeId("a")))->body.view(), node_key(NodeId("a")));
  ASSERT_TRUE(node);
  EXPECT_GT(node->journal.drained, Slot(10));
  fleet.shut_down(a);
}

TEST(Core, a_busy_journal_is_drained_before_a_takeover_of_it_would_take_long) {
  Fleet fleet(29);
  CoreOptions options;
  options.drain_interval = seconds(1000);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  size_t slots_max = 0;
  for (int i = 0; i < 3000; ++i) {
    a.write(kCell, 1, 2);
    fleet.world.run_for(milliseconds(11));
    slots_max = std::max(slots_max, fleet.bucket.count("journal/"));
  }
  EXPECT_LE(slots_max, 1200u);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  MonoTime before = fleet.world.now();
  FleetNode& b = fleet.started("b", NodeId("a"));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  EXPECT_LT(fleet.world.now() - before, seconds(2));
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(3000));
  b.hibernate(kCell);
  fleet.shut_down(b);
}

TEST(Core, an_idle_node_writes_its_lease_every_third_of_the_ttl_and_nothing_per_cell) {
  Fleet fleet(9);
  FleetNode& a = fleet.started("a");
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(fleet.run(a.wake(CellId("Counter:" + std::to_string(i)), seconds(5))));
  }
  fleet.world.run_for(seconds(10));
  uint64_t data = a.data.requests, lease = a.lease.requests;
  fleet.world.run_for(seconds(40));
  EXPECT_LE(a.lease.requests - lease, 13u);
  EXPECT_LE(a.data.requests - data, 4u);  // one wake scan
  fleet.shut_down(a);
}

TEST(Core, commit_larger_than_a_slot_is_split_and_whole_after_a_takeover) {
  Fleet fleet(10);
  CoreOptions options;
  options.slot_bytes_max = 16 << 10;
  FleetNode& a = fleet.started("a", std::nullopt, options);
  a.incompressible = true;
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  for (int i = 0; i < 5; ++i) a.write(kCell, 40, 60);
  ASSERT_TRUE(fleet.settle_writes(a));
  EXPECT_GT(fleet.bucket.count("journal/a/"), 20u);
  a.kill();
  FleetNode& b = fleet.started("b", NodeId("a"));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(5));
  fleet.shut_down(b);
}

// Killed between any two slots of a split commit, with drains under way.
TEST(Core, watermark_never_enters_a_split_commit) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Fleet fleet(1000 + seed);
    CoreOptions options;
    options.slot_bytes_max = 8 << 10;
    options.drain_interval = milliseconds(20);
    FleetNode& a = fleet.started("a", std::nullopt, options);
    a.incompressible = true;
    ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
    for (int i = 0; i < 6; ++i) {
      a.write(kCell, 1, 4);
      a.write(kCell, 12, 20);
    }
    fleet.world.run_for(milliseconds(10 + 10 * static_cast<int>(seed)));
    a.kill();
    FleetNode& b = fleet.started("b", NodeId("a"));
    auto woken = fleet.run(b.wake(kCell, seconds(30)));
    ASSERT_TRUE(woken) << woken.error().message;
    fleet.shut_down(b);
  }
}

TEST(Core, back_pressure_bounds_what_waits_for_a_drain) {
  Fleet fleet(11);
  CoreOptions options;
  options.undrained_bytes_max = 1 << 20;
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  // Drains cannot finish.
  a.data.lose_request = [](const std::string& op, const std::string& key) {
    return op == "put" && key.starts_with("cells/");
  };
  for (int i = 0; i < 1000; ++i) {
    if (a.core->under_pressure()) break;
    a.write(kCell, 4, 1000);
    fleet.world.run_for(milliseconds(25));
  }
  EXPECT_TRUE(a.core->under_pressure());
  EXPECT_LT(a.core->undrained_bytes(), size_t{2} << 20);
  a.data.lose_request = nullptr;
  ASSERT_TRUE(fleet.world.run_until([&] { return !a.core->under_pressure(); }, seconds(30)));
  fleet.shut_down(a);
}

// The lease lives on, so nothing fences; what does not get done is told once, and once when it is over.
TEST(Core, a_store_that_refuses_data_but_not_leases_is_told_once_per_change) {
  Fleet fleet(72);
  CoreOptions options;
  options.drain_interval = seconds(1);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  a.write(kCell, 1, 4);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.data.faults.refused = 1;
  a.write(kCell, 1, 4);
  fleet.world.run_for(milliseconds(500));
  EXPECT_TRUE(a.troubles.empty()) << "a blip is no news";
  fleet.world.run_for(seconds(60));
  std::vector<std::string> expected{"+journal", "+drain"};
  EXPECT_EQ(a.troubles, expected);
  EXPECT_FALSE(a.fenced);
  EXPECT_FALSE(fleet.settle_writes(a, seconds(1)));
  a.data.faults.refused = 0;
  EXPECT_TRUE(fleet.settle_writes(a));
  fleet.world.run_for(seconds(30));
  std::sort(a.troubles.begin(), a.troubles.end());
  expected = {"+drain", "+journal", "-drain", "-journal"};
  EXPECT_EQ(a.troubles, expected);
  EXPECT_EQ(a.core->undrained_bytes(), 0u);
  a.hibernate(kCell);
  fleet.shut_down(a);
}

TEST(Core, a_hot_page_is_kept_once_however_often_it_is_written) {
  Fleet fleet(30);
  CoreOptions options;
  options.drain_interval = seconds(100);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 500, milliseconds(5))));
  ASSERT_TRUE(fleet.settle_writes(a));
  EXPECT_LT(a.core->undrained_bytes(), 8 * kPageSize + 500 * 600);
  // What is left of them is the whole database, for a wake as for a drain.
  a.hibernate(kCell);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  EXPECT_EQ(a.cells.at(kCell).state->txid, Txid(500));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 5, milliseconds(5))));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  EXPECT_EQ(a.core->undrained_bytes(), 0u);
  FleetNode& b = fleet.started("b");
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(505));
  fleet.shut_down(a);
  fleet.shut_down(b);
}

// A later commit must take no page from one that a drain has begun with, also when that waits its turn.
TEST(Core, every_drained_object_leads_to_the_state_of_its_last_txid) {
  constexpr size_t kCells = 24;  // more than a drain writes at a time
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Fleet fleet(2000 + seed);
    CoreOptions options;
    options.slot_bytes_max = 64 << 10;
    options.drain_interval = milliseconds(30);
    FleetNode& a = fleet.started("a", std::nullopt, options);
    a.data.faults.slow = 0.2;
    a.data.faults.slow_max = milliseconds(300);
    a.data.faults.refused = seed % 2 == 0 ? 0.2 : 0;
    std::map<std::string, StateRef> newest;                                   // by LTX prefix
    std::map<std::string, std::map<std::pair<Txid, Txid>, LtxFile>> objects;  // likewise
    std::vector<CellId> cells;
    for (size_t i = 0; i < kCells; ++i) {
      cells.push_back(CellId("Counter:" + std::to_string(i)));
      ASSERT_TRUE(fleet.run(a.wake(cells.back(), seconds(30))));
    }
    fleet.bucket.on_write = [&](const std::string& key, const Blob& body) {
      std::optional<LtxName> name = parse_ltx_key(key);
      if (!name || name->level != 0) return;
      std::string prefix = key.substr(0, key.find("/ltx/") + 5);
      objects[prefix].insert_or_assign({name->min, name->max}, *decode_ltx(body.view()));
      std::vector<LtxFile> chain;
      for (auto& [range, file] : objects[prefix]) chain.push_back(file);
      Result<LtxFile> merged = merge(chain);
      ASSERT_TRUE(merged) << merged.error().message;
      StateRef state = newest[prefix];
      while (state && state->txid > merged->info.max) state = state->parent;
      ASSERT_TRUE(state);
      std::map<Pgno, std::string> pages;
      for (const NumberedPage& p : merged->pages) {
        std::string bytes(reinterpret_cast<const char*>(p.page.data()), kPageSize);
        if (bytes.find_first_not_of('\0') != bytes.npos) pages[p.pgno] = std::move(bytes);
      }
      EXPECT_TRUE(serial_of(merged->info.page_count, pages) == serial_of(state->page_count, state->pages))
          << key << " does not lead to TXID " << state->txid;
    };
    for (uint64_t i = 0; i < 40 + seed; ++i) {
      for (const CellId& cell : cells) {
        a.write(cell, 1, 6);
        newest[ltx_prefix(cell)] = a.cells.at(cell).state;
      }
      fleet.world.run_for(milliseconds(10));
      a.hibernate(cells[i % kCells]);
      ASSERT_TRUE(fleet.run(a.wake(cells[i % kCells], seconds(30))));
    }
    a.kill();
    fleet.bucket.on_write = nullptr;
    FleetNode& b = fleet.started("b", NodeId("a"));
    for (const CellId& cell : cells) {
      auto woken = fleet.run(b.wake(cell, seconds(30)));
      ASSERT_TRUE(woken) << woken.error().message;
    }
    fleet.shut_down(b);
  }
}

TEST(Core, dur_02_woken_under_the_same_epoch_continues_the_txids) {
  Fleet fleet(12);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 50, milliseconds(2))));
  a.hibernate(kCell);  // nothing drained, not all durable
  uint64_t conditional = a.data.requests;
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  EXPECT_EQ(a.data.requests, conditional) << "a wake over the node's own journal needs no bucket";
  EXPECT_EQ(a.cells.at(kCell).state->txid, Txid(50));
  EXPECT_EQ(a.cells.at(kCell).epoch, Epoch(1));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 3, milliseconds(2))));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  FleetNode& b = fleet.started("b");
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(5))));
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(53));
  fleet.shut_down(a);
  fleet.shut_down(b);
}

TEST(Core, dur_03_store_outage_then_self_fence_then_restart_leaves_no_hole) {
  Fleet fleet(13);
  CoreOptions options;
  options.lease_ttl = seconds(1);
  std::string id = "n0";
  fleet.started(id, std::nullopt, options);
  for (int round = 1; round < 6; ++round) {
    FleetNode& a = *fleet.nodes.back();
    ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(30))));
    ASSERT_TRUE(fleet.run(writes(a, kCell, 30, milliseconds(10))));
    a.data.faults.lost_reply = a.data.faults.lost_request = 0.5;  // the outage
    a.lease.cut_off = true;
    for (int i = 0; i < 200 && !a.fenced; ++i) {
      a.write(kCell, 2, 8);
      fleet.world.run_for(milliseconds(10));
    }
    ASSERT_TRUE(a.fenced);
    EXPECT_EQ(*a.fenced, FenceReason::kExpired);
    EXPECT_FALSE(a.core->has_authority());
    a.kill();
    std::string next = "n" + std::to_string(round);
    fleet.started(next, NodeId(id), options);
    id = next;
  }
  FleetNode& last = *fleet.nodes.back();
  ASSERT_TRUE(fleet.run(last.wake(kCell, seconds(30))));
  fleet.shut_down(last);
}

TEST(Core, dur_09_every_reason_for_a_self_fence_has_its_own_name) {
  auto run = [](uint64_t seed, auto break_it) {
    Fleet fleet(seed);
    FleetNode& a = fleet.started("a");
    break_it(fleet, a);
    fleet.world.run_for(seconds(15));
    CHECK(a.fenced);
    EXPECT_FALSE(a.core->has_authority());
    EXPECT_EQ(a.core->authority_until_ns().load(), INT64_MIN);
    EXPECT_FALSE(a.fence_detail.empty());
    FenceReason reason = *a.fenced;
    (void)fleet.run(a.core->shutdown(a.world.deadline_in(seconds(30))));
    return reason;
  };
  EXPECT_EQ(run(14, [](Fleet&, FleetNode& a) { a.lease.cut_off = true; }), FenceReason::kExpired);
  EXPECT_EQ(run(15, [](Fleet& f, FleetNode&) { f.bucket.remove("nodes/a.json"); }), FenceReason::kMissing);
  EXPECT_EQ(run(16, [](Fleet& f, FleetNode&) { f.bucket.put("nodes/a.json", Blob("{}")); }),
            FenceReason::kReplaced);
  EXPECT_EQ(run(17,
                [](Fleet& f, FleetNode& a) {
                  f.bucket.put(journal_key(NodeId("a"), Slot(1)),
                               encode_fence(NodeId("a"), Slot(1), NodeId("b")));
                  ASSERT_TRUE(f.run(a.wake(kCell, seconds(5))));
                  a.write(kCell, 1, 1);
                }),
            FenceReason::kJournalFenced);
}

TEST(Core, a_store_that_comes_back_just_before_the_lease_ends_saves_the_node) {
  Fleet fleet(18);
  FleetNode& a = fleet.started("a");
  fleet.world.run_for(seconds(1));
  a.lease.cut_off = true;
  // The last applied renewal began at 0; the lease ends at 10 s.
  fleet.world.run_for(milliseconds(7500));
  a.lease.cut_off = false;
  fleet.world.run_for(seconds(20));
  EXPECT_FALSE(a.fenced) << a.fence_detail;
  fleet.shut_down(a);
}

TEST(Core, dur_13_lost_replies_of_applied_writes_are_read_back) {
  Fleet fleet(19);
  FleetNode& a = fleet.started("a");
  auto seen = std::make_shared<std::set<std::string>>();
  auto lose_first = [seen](const std::string& op, const std::string& key) {
    return op == "put_if" && seen->insert(key).second;
  };
  a.data.lose_reply = lose_first;
  a.lease.lose_reply = lose_first;
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(60))));
  EXPECT_EQ(a.cells.at(kCell).epoch, Epoch(1));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 5, milliseconds(5))));
  ASSERT_TRUE(fleet.settle_writes(a, seconds(60)));
  seen->clear();
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  EXPECT_TRUE(owner_of(fleet, kCell).released());
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(60))));
  EXPECT_EQ(a.cells.at(kCell).epoch, Epoch(2));
  fleet.shut_down(a);
}

TEST(Core, dur_14_paused_owner_acknowledges_nothing_after_its_successor) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Fleet fleet(2000 + seed);
    FleetNode& a = fleet.started("a");
    FleetNode& b = fleet.started("b");
    ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
    ASSERT_TRUE(fleet.run(writes(a, kCell, 10, milliseconds(7))));
    a.write(kCell, 1, 4);
    fleet.world.run_for(milliseconds(static_cast<int>(seed)));
    a.world.pause_until(fleet.world.now() + seconds(30));
    auto woken = fleet.run(b.wake(kCell, seconds(25)));
    ASSERT_TRUE(woken) << woken.error().message;
    ASSERT_TRUE(fleet.run(writes(b, kCell, 10, milliseconds(7))));
    fleet.world.run_for(seconds(30));
    EXPECT_TRUE(a.fenced);
    ASSERT_TRUE(fleet.settle_writes(b));
    (void)fleet.run(a.core->shutdown(a.world.deadline_in(seconds(30))));
    fleet.shut_down(b);
  }
}

TEST(Core, dur_18_txids_go_on_after_a_restore) {
  Fleet fleet(20);
  std::optional<NodeId> before;
  for (int round = 0; round < 4; ++round) {
    FleetNode& node = fleet.started("n" + std::to_string(round), before);
    ASSERT_TRUE(fleet.run(node.wake(kCell, seconds(30))));
    node.write(kCell, 1, 4);
    ASSERT_TRUE(fleet.settle_writes(node));
    EXPECT_EQ(node.core->proven(kCell), Txid(static_cast<uint64_t>(round) + 1));
    node.kill();
    before = node.options.node;
  }
}

TEST(Core, dur_21_import_of_a_large_database_is_whole_from_the_first_txid) {
  Fleet fleet(21);
  FleetNode& a = fleet.started("a");
  a.incompressible = true;
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  a.write(kCell, 3000, 3000);
  while (a.cells.at(kCell).state->page_count < 1000) a.write(kCell, 3000, 3000);
  a.write(kCell, 1, 1);
  ASSERT_TRUE(fleet.settle_writes(a));
  a.kill();
  FleetNode& b = fleet.started("b", NodeId("a"));
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  fleet.shut_down(b);
}

TEST(Core, dur_05_dur_06_chains_stay_short_however_many_writes) {
  Fleet fleet(22);
  CoreOptions options;
  options.drain_interval = milliseconds(100);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 2000, milliseconds(30))));
  fleet.world.run_for(seconds(3));
  EXPECT_LE(fleet.bucket.count("cells/" + kCell.value + "/ltx/"), 24u);
  a.kill();
  FleetNode& b = fleet.started("b", NodeId("a"));
  uint64_t requests = b.data.requests;
  ASSERT_TRUE(fleet.run(b.wake(kCell, seconds(30))));
  EXPECT_LE(b.data.requests - requests, 35u);
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(2000));
  fleet.shut_down(b);
}

TEST(Core, sources_of_a_snapshot_stay_until_the_new_manifest_is_definite) {
  Fleet fleet(27);
  CoreOptions options;
  options.drain_interval = milliseconds(50);
  options.chain_objects_max = 4;
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  a.data.lose_request = [](const std::string& op, const std::string& key) {
    return op == "put_if" && key.ends_with("own.json");
  };
  ASSERT_TRUE(fleet.run(writes(a, kCell, 8, milliseconds(200))));
  fleet.world.run_for(seconds(5));
  EXPECT_GE(fleet.bucket.count(ltx_prefix(kCell)), 8u);
  a.data.lose_request = nullptr;
  fleet.world.run_for(seconds(5));
  EXPECT_LE(fleet.bucket.count(ltx_prefix(kCell)), 5u);
  EXPECT_FALSE(owner_of(fleet, kCell).manifest.objects.empty());
  a.hibernate(kCell);
  fleet.shut_down(a);
}

// Its deletion may be under way: seen by the LIST, gone at the GET.
TEST(Core, an_object_that_a_manifest_left_out_is_never_taken_up_again) {
  Fleet fleet(28);
  CoreOptions options;
  options.drain_interval = milliseconds(50);
  options.chain_objects_max = 4;
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 12, milliseconds(200))));
  fleet.world.run_for(seconds(5));
  a.kill();
  Manifest manifest = owner_of(fleet, kCell).manifest;
  ASSERT_GE(manifest.txid, Txid(5));
  // As attractive as it gets to a planner, and unreadable.
  fleet.bucket.put(ltx_key(kCell, Epoch(1), 0xffff, Txid(1), manifest.txid), Blob("being deleted"));
  FleetNode& b = fleet.started("b", NodeId("a"));
  auto woken = fleet.run(b.wake(kCell, seconds(30)));
  ASSERT_TRUE(woken) << woken.error().message;
  EXPECT_EQ(b.cells.at(kCell).state->txid, Txid(12));
  b.hibernate(kCell);
  fleet.shut_down(b);
}

TEST(Core, corrupt_object_in_the_bucket_is_named_and_nothing_is_lost) {
  Fleet fleet(23);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 3, milliseconds(1))));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  std::string key;
  for (auto& [k, object] : fleet.bucket.objects()) {
    if (k.ends_with(".ltx")) key = k;
  }
  Blob good = fleet.bucket.get(key)->body;
  std::string bad(good.view());
  bad[bad.size() / 2] ^= 1;
  fleet.bucket.put(key, Blob(bad));
  auto woken = fleet.run(a.wake(kCell, seconds(10)));
  ASSERT_FALSE(woken);
  EXPECT_EQ(woken.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(woken.error().message.find(key), std::string::npos) << woken.error().message;
  fleet.bucket.put(key, good);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(10))));
  EXPECT_EQ(a.cells.at(kCell).state->txid, Txid(3));
  fleet.shut_down(a);
}

TEST(Core, a_missing_object_is_reported_not_skipped) {
  Fleet fleet(24);
  CoreOptions options;
  options.drain_interval = milliseconds(50);
  FleetNode& a = fleet.started("a", std::nullopt, options);
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 5, milliseconds(200))));
  a.kill();
  std::vector<std::string> keys;
  for (auto& [k, object] : fleet.bucket.objects()) {
    if (k.ends_with(".ltx")) keys.push_back(k);
  }
  ASSERT_GE(keys.size(), 3u);
  fleet.bucket.remove(keys[1]);
  FleetNode& b = fleet.started("b", NodeId("a"));
  auto woken = fleet.run(b.wake(kCell, seconds(10)));
  ASSERT_FALSE(woken);
  EXPECT_EQ(woken.error().code, ErrorCode::kCorrupt);
  fleet.shut_down(b);
}

TEST(Core, a_bucket_of_a_newer_format_is_refused_by_name) {
  Fleet fleet(25);
  fleet.bucket.put(std::string(kFormatKey), Blob(R"({"format":99,"written_by":"x"})"));
  FleetNode& a = fleet.add("a");
  auto up = fleet.run(a.core->start());
  ASSERT_FALSE(up);
  EXPECT_EQ(up.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(up.error().message.find("99"), std::string::npos);
  EXPECT_EQ(fleet.bucket.count("nodes/"), 0u);
}

TEST(Core, a_restore_longer_than_the_deadline_is_not_thrown_away) {
  Fleet fleet(26);
  FleetNode& a = fleet.started("a");
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(5))));
  ASSERT_TRUE(fleet.run(writes(a, kCell, 3, milliseconds(1))));
  ASSERT_TRUE(fleet.run(a.give_up(kCell)));
  a.data.faults.latency_min = a.data.faults.latency_max = milliseconds(600);
  auto first = fleet.run(a.wake(kCell, seconds(2)));
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, ErrorCode::kDeadline);
  fleet.world.run_for(seconds(1));
  MonoTime before = fleet.world.now();
  ASSERT_TRUE(fleet.run(a.wake(kCell, seconds(2))));
  EXPECT_EQ(fleet.world.now(), before);
  a.data.faults.latency_min = a.data.faults.latency_max = milliseconds(5);
  fleet.shut_down(a);
}

}  // namespace
}  // namespace celld::testing
