// What every cell must hold: all states that were ever committed, which of them were acknowledged,
// and what became of them in restores.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/commit.h"
#include "core/core.h"
#include "sim/verdict.h"

namespace celld::sim {

// What the program of a cell sees: a list of operations as its length and a hash over all of it,
// and four registers.
struct Content {
  uint64_t n = 0;
  uint64_t hash = 0;
  std::array<uint64_t, 4> registers{};
  friend bool operator==(const Content&, const Content&) = default;
};
uint64_t chained(uint64_t hash, uint64_t op);

// A database after one commit. Immutable.
struct State {
  Txid txid;
  Epoch epoch;
  std::shared_ptr<const State> parent;
  uint64_t op = 0;             // that the commit belongs to
  std::vector<PageRef> pages;  // by number, from 1; null = zeros
  uint64_t sum = 0;            // over the pages that are not zeros
  std::optional<WallMs> alarm;
  NodeId alarm_by;  // the node of the commit that changed it last
  Content content;
};
using StateRef = std::shared_ptr<const State>;  // null: the empty database

class Model {
 public:
  Model(Scheduler& world, Verdict& verdict) : world_(world), verdict_(verdict) {}

  // A commit as the storage of the cell handed it over.
  StateRef committed(const CellId& cell, const NodeId& node, Epoch epoch, StateRef parent,
                     std::span<const NumberedPage> pages, uint32_t page_count, std::optional<AlarmChange> alarm,
                     uint64_t op, const Content& content);

  // `node` reveals all of the cell up to `state`.
  void acknowledged(const CellId& cell, Epoch epoch, const NodeId& node, StateRef state);

  // A node holds the restored image. Returns what the model knows it as.
  StateRef restored(const CellId& cell, const NodeId& node, const Activation& activation);

  // Whether the cell was restored in a later epoch.
  bool overtaken(const CellId& cell, Epoch epoch) const;

  StateRef newest_acknowledged(const CellId& cell) const;
  StateRef last_restored(const CellId& cell) const;

  // From now on the first restore of each cell is remembered: what nobody looked at before.
  void begin_inquest() { inquest_.emplace(); }
  // The state that the cell was found in: the first restored since, else the newest that counts.
  StateRef found(const CellId& cell) const;

  uint64_t commits = 0;
  uint64_t acknowledgements = 0;
  uint64_t restores = 0;

 private:
  struct Known {
    StateRef acked;
    Epoch acked_epoch;
    Epoch restored_epoch;
    StateRef restored;
  };
  static bool contains(StateRef state, const StateRef& older);

  Scheduler& world_;
  Verdict& verdict_;
  std::map<CellId, std::unordered_multimap<uint64_t, StateRef>> states_;  // by sum
  std::map<CellId, Known> known_;
  std::map<std::pair<CellId, Epoch>, NodeId> acker_;
  std::optional<std::map<CellId, StateRef>> inquest_;
};

}  // namespace celld::sim
