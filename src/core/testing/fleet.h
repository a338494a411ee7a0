// Nodes on one simulated bucket, and a model that knows what must never be lost.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/commit.h"
#include "core/core.h"
#include "core/testing/sim_bucket.h"

namespace celld::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A database as the model sees it: what was committed, commit by commit. Immutable.
struct State {
  Txid txid;
  std::shared_ptr<const State> parent;
  std::map<Pgno, std::string> pages;  // only those that are not all zeros
  uint32_t page_count = 0;
  std::optional<WallMs> alarm;
};
using StateRef = std::shared_ptr<const State>;

inline std::string serial_of(uint32_t page_count, const std::map<Pgno, std::string>& pages) {
  std::string out = std::to_string(page_count);
  for (auto& [pgno, bytes] : pages) out += "|" + std::to_string(pgno) + ":" + bytes;
  return out;
}

// Checks acknowledgements and restores of all cells against each other.
class Oracle {
 public:
  void created(const CellId& cell, StateRef state) {
    states_[cell][serial_of(state->page_count, state->pages)] = std::move(state);
  }

  // `node` acknowledges all of the cell up to `state`.
  void acknowledged(const CellId& cell, Epoch epoch, const NodeId& node, StateRef state) {
    auto [it, fresh] = acker_.try_emplace({cell, epoch}, node);
    EXPECT_EQ(it->second, node) << "two nodes acknowledge for " << cell << " epoch " << epoch;
    Known& known = known_[cell];
    if (known.restored_epoch > epoch) {
      EXPECT_TRUE(contains(known.restored, state))
          << cell << ": commit " << state->txid << " of epoch " << epoch << " acknowledged after epoch "
          << known.restored_epoch << " was restored without it";
    }
    if (!known.acked || known.acked->txid < state->txid) {
      EXPECT_TRUE(contains(state, known.acked)) << cell << ": acknowledged commits fork at " << state->txid;
      known.acked = std::move(state);
      known.acked_epoch = epoch;
    }
    ++acknowledgements;
  }

  // A restore gave this. Returns what the model knows it as; null when it never existed.
  StateRef restored(const CellId& cell, const Activation& activation) {
    std::map<Pgno, std::string> pages;
    for (const NumberedPage& p : activation.image.pages) {
      std::string bytes(reinterpret_cast<const char*>(p.page.data()), kPageSize);
      if (bytes.find_first_not_of('\0') != bytes.npos) pages[p.pgno] = std::move(bytes);
    }
    StateRef state;
    if (activation.txid == Txid(0)) {
      EXPECT_EQ(activation.image.page_count, 0u);
    } else {
      auto it = states_[cell].find(serial_of(activation.image.page_count, pages));
      if (it == states_[cell].end()) {
        ADD_FAILURE() << cell << " epoch " << activation.epoch << ": restored at TXID " << activation.txid
                      << " to something that was never committed";
        return nullptr;
      }
      state = it->second;
      EXPECT_EQ(state->txid, activation.txid) << cell;
    }
    Known& known = known_[cell];
    // An owner that was taken over and does not know it yet (its lease still runs by its own clock)
    // may look at what it had; nothing that follows from that is ever acknowledged.
    bool overtaken = activation.epoch < known.acked_epoch;
    EXPECT_TRUE(overtaken || contains(state, known.acked))
        << cell << " epoch " << activation.epoch << ": restored to TXID " << activation.txid
        << ", acknowledged was " << (known.acked ? known.acked->txid : Txid(0));
    if (activation.epoch >= known.restored_epoch) {
      known.restored_epoch = activation.epoch;
      known.restored = state;
    }
    ++restores;
    return state;
  }

  StateRef acked(const CellId& cell) { return known_[cell].acked; }
  uint64_t acknowledgements = 0;
  uint64_t restores = 0;

 private:
  struct Known {
    StateRef acked;
    Epoch acked_epoch;
    Epoch restored_epoch;
    StateRef restored;
  };
  // Whether `older` is `state` or came before it. Null is the empty database.
  static bool contains(StateRef state, const StateRef& older) {
    if (!older) return true;
    while (state && state->txid > older->txid) state = state->parent;
    return state == older;
  }

  std::map<CellId, std::map<std::string, StateRef>> states_;
  std::map<CellId, Known> known_;
  std::map<std::pair<CellId, Epoch>, NodeId> acker_;
};

// One node: the core, its ways to the bucket, and cells whose databases are model states.
class FleetNode final : public CoreHost {
 public:
  FleetNode(TestWorld& root, SimBucket& bucket, Oracle& oracle, CoreOptions core_options)
      : root_(root),
        oracle_(oracle),
        options(std::move(core_options)),
        world(root),
        data(root, world, bucket),
        lease(root, world, bucket),
        core(std::make_unique<Core>(world, data, lease, *this, options)) {}
  // A core that was not shut down is left as it stands, with the frames of its tasks.
  ~FleetNode() override {
    if (!core) return;
    world.kill();
    static_cast<void>(buried().emplace_back(std::move(core)));
  }

  struct Resident {
    Epoch epoch;
    StateRef state;
    std::map<Txid, StateRef> unproven;
    bool reserved = false;  // being released or hibernated
  };

  void on_proven(std::span<const Proven> proven) override {
    for (const Proven& p : proven) {
      if (!core->has_authority()) return;
      auto it = cells.find(p.cell);
      if (it == cells.end() || it->second.epoch != p.epoch) {
        auto& gone = hibernated_[p.cell];
        acknowledge(p, gone);
        continue;
      }
      acknowledge(p, it->second.unproven);
    }
  }
  void on_fenced(FenceReason reason, std::string detail) override {
    EXPECT_FALSE(fenced) << "fenced twice";
    fenced = reason;
    fence_detail = std::move(detail);
  }
  void on_trouble(const TroubleReport& report) override {
    troubles.push_back((report.ended ? "-" : "+") + std::string(to_string(report.kind)));
  }
  void on_alarm_due(CellId cell, WallMs scheduled) override {
    EXPECT_LE(scheduled, world.wall_now()) << cell << " is woken early";
    ++hints;
    if (on_alarm) on_alarm(cell, scheduled);
  }
  Task<Result<DatabaseImage>> snapshot(CellId cell, Txid* at) override {
    auto it = cells.find(cell);
    if (it == cells.end() || !it->second.state) {
      Error e = Error::not_found(cell.value + " is not resident");
      co_return fail(std::move(e));
    }
    *at = it->second.state->txid;
    DatabaseImage image;
    image.page_count = it->second.state->page_count;
    for (auto& [pgno, bytes] : it->second.state->pages) image.pages.push_back({pgno, page_of(bytes)});
    co_return image;
  }

  // Activates the cell and checks what came.
  Task<Result<void>> wake(CellId cell, Duration patience) {
    if (cells.contains(cell)) co_return Result<void>{};
    Deadline deadline = world.deadline_in(patience);
    Result<Activation> activation = co_await core->activate(cell, deadline);
    if (!activation) co_return fail(std::move(activation).error());
    if (cells.contains(cell)) co_return Result<void>{};
    if (!core->has_authority()) {
      Error e = Error::fenced("late");
      co_return fail(std::move(e));
    }
    Resident resident;
    resident.epoch = activation->epoch;
    resident.state = oracle_.restored(cell, *activation);
    // What is still under way stays under way.
    resident.unproven = std::move(hibernated_[cell]);
    hibernated_.erase(cell);
    std::optional<WallMs> alarm = resident.state ? resident.state->alarm : std::nullopt;
    cells[cell] = std::move(resident);
    core->set_alarm(cell, alarm);
    co_return Result<void>{};
  }

  // One commit that changes `pages` random pages of a database of up to `pages_max` pages.
  Txid write(const CellId& cell, unsigned pages, unsigned pages_max,
             std::optional<AlarmChange> alarm = std::nullopt) {
    Resident& resident = cells.at(cell);
    auto next = std::make_shared<State>();
    if (resident.state) *next = *resident.state;
    next->parent = resident.state;
    next->txid = next->txid.next();
    uint32_t count = std::max<uint32_t>(next->page_count, 1);
    if (root_.chance(0.3)) count = 1 + static_cast<uint32_t>(root_.below(pages_max));
    next->page_count = count;
    std::erase_if(next->pages, [&](auto& p) { return p.first > count; });
    std::set<Pgno> changed{1};
    while (changed.size() < std::min<size_t>(pages, count)) {
      changed.insert(1 + static_cast<Pgno>(root_.below(count)));
    }
    Commit commit;
    commit.cell = cell;
    commit.epoch = resident.epoch;
    commit.txid = next->txid;
    commit.page_count = count;
    commit.time = world.wall_now();
    commit.alarm = alarm;
    if (alarm) next->alarm = alarm->at;
    for (Pgno pgno : changed) {
      std::string bytes(kPageSize, static_cast<char>(root_.below(256)));
      std::string mark = options.node.value + "/" + std::to_string(resident.epoch.value) + "/" +
                         std::to_string(next->txid.value) + "/" + std::to_string(root_.random_u64());
      bytes.replace(0, mark.size(), mark);
      if (incompressible) {
        for (size_t i = 64; i + 8 <= bytes.size(); i += 8) {
          uint64_t r = root_.random_u64();
          std::memcpy(bytes.data() + i, &r, 8);
        }
      }
      commit.pages.push_back({pgno, page_of(bytes)});
      next->pages[pgno] = std::move(bytes);
    }
    resident.state = next;
    resident.unproven[next->txid] = next;
    oracle_.created(cell, next);
    core->commit(std::move(commit));
    return next->txid;
  }

  // Forgets the local copy; the core goes on owning the cell.
  void hibernate(const CellId& cell) {
    auto it = cells.find(cell);
    hibernated_[cell] = std::move(it->second.unproven);
    cells.erase(it);
  }
  Task<Result<void>> give_up(CellId cell) {
    hibernate(cell);
    co_return co_await core->release(cell);
  }

  void kill() { world.kill(); }

 private:
  static std::vector<std::unique_ptr<Core>>& buried() {
    static auto* grave = new std::vector<std::unique_ptr<Core>>();
    return *grave;
  }
  static PageRef page_of(const std::string& bytes) {
    return PageRef::copy_of(reinterpret_cast<const uint8_t*>(bytes.data()));
  }
  void acknowledge(const Proven& p, std::map<Txid, StateRef>& unproven) {
    StateRef newest;
    while (!unproven.empty() && unproven.begin()->first <= p.txid) {
      newest = unproven.begin()->second;
      unproven.erase(unproven.begin());
    }
    ASSERT_TRUE(newest) << p.cell << " " << p.txid << " proven, but never committed";
    ASSERT_EQ(newest->txid, p.txid);
    oracle_.acknowledged(p.cell, p.epoch, options.node, newest);
  }

  TestWorld& root_;
  Oracle& oracle_;
  std::map<CellId, std::map<Txid, StateRef>> hibernated_;

 public:
  CoreOptions options;
  TestNodeWorld world;
  SimStore data;
  SimStore lease;
  std::map<CellId, Resident> cells;
  std::optional<FenceReason> fenced;
  std::string fence_detail;
  std::vector<std::string> troubles;  // "+journal", "-journal", ...
  uint64_t hints = 0;
  bool incompressible = false;
  std::function<void(CellId, WallMs)> on_alarm;
  std::unique_ptr<Core> core;
};

// The whole stage.
struct Fleet {
  explicit Fleet(uint64_t seed) : world(seed), bucket(world) {}

  FleetNode& add(const std::string& id, std::optional<NodeId> predecessor = std::nullopt,
                 CoreOptions options = {}) {
    options.node = NodeId(id);
    options.name = id;
    options.predecessor = std::move(predecessor);
    nodes.push_back(std::make_unique<FleetNode>(world, bucket, oracle, std::move(options)));
    return *nodes.back();
  }

  // Runs a task to its end; it must have one within `limit`.
  template <class T>
  T run(Task<T> task, Duration limit = seconds(120)) {
    struct Shared {
      std::optional<T> value;
    };
    auto shared = std::make_shared<Shared>();
    auto wrap = [](std::shared_ptr<Shared> s, Task<T> t) -> Task<void> {
      s->value.emplace(co_await std::move(t));
    };
    start(wrap(shared, std::move(task)));
    bool ended = world.run_until([&] { return shared->value.has_value(); }, limit);
    EXPECT_TRUE(ended) << "a task did not end within " << limit / seconds(1) << " s";
    CHECK(ended) << "task without end";
    return std::move(*shared->value);
  }

  FleetNode& started(const std::string& id, std::optional<NodeId> predecessor = std::nullopt,
                     CoreOptions options = {}) {
    FleetNode& node = add(id, std::move(predecessor), std::move(options));
    Result<void> up = run(node.core->start());
    EXPECT_TRUE(up) << up.error().message;
    return node;
  }
  void shut_down(FleetNode& node) {
    Result<void> down = run(node.core->shutdown(node.world.deadline_in(seconds(60))));
    EXPECT_TRUE(down) << down.error().message;
    node.core.reset();
  }
  bool settle_writes(FleetNode& node, Duration limit = seconds(30)) {
    return world.run_until(
        [&] {
          for (auto& [id, cell] : node.cells) {
            if (!cell.unproven.empty()) return false;
          }
          return true;
        },
        limit);
  }

  TestWorld world;
  SimBucket bucket;
  Oracle oracle;
  std::vector<std::unique_ptr<FleetNode>> nodes;
};

}  // namespace celld::testing
