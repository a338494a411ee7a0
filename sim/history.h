// What clients asked and were told, and whether one cell with one copy could have said it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sim/model.h"

namespace celld::sim {

enum class OpKind : uint8_t { kAppend, kRead, kSet, kBig, kClear, kAlarm, kAlarmOff, kThrows, kHang, kAlarmFires };
const char* to_string(OpKind kind);

// An operation on one cell, by the clock of the whole world.
struct HistoryOp {
  uint64_t id = 0;
  OpKind kind = OpKind::kRead;
  uint64_t argument = 0;
  MonoTime called;
  MonoTime returned = MonoTime::max();  // max: nobody ever heard of its end
  std::optional<Content> output;        // what it saw, its own effect included
  bool refused = false;                 // answered with: not executed
  bool stale = false;                   // a read of an owner that had been taken over, under clocks that lie
};

// The content after `op`.
Content applied(const HistoryOp& op, Content content);

enum class Linearizable : uint8_t { kYes, kNo, kUndecided };

// Wing and Gong's search with Lowe's memory, as in porcupine: is there an order of the operations,
// each somewhere between call and return, in which every output is right? Operations without a
// return may take effect at any time after their call, but do take effect. At most `steps_max`
// steps.
Linearizable linearizable(std::vector<HistoryOp> ops, uint64_t steps_max);

class History {
 public:
  HistoryOp& begin(const CellId& cell, uint64_t id, OpKind kind, uint64_t argument, MonoTime now);
  HistoryOp& find(uint64_t id) { return *index_.at(id); }
  const std::map<CellId, std::vector<std::unique_ptr<HistoryOp>>>& cells() const { return cells_; }

  // Judges the history of a cell by the final state of its database.
  void judge(const CellId& cell, StateRef final_state, Verdict& verdict);
  uint64_t undecided = 0;
  uint64_t judged = 0;

 private:
  std::map<CellId, std::vector<std::unique_ptr<HistoryOp>>> cells_;
  std::unordered_map<uint64_t, HistoryOp*> index_;
};

}  // namespace celld::sim
