#include "sim/history.h"

#include <algorithm>
#include <unordered_set>

namespace celld::sim {

const char* to_string(OpKind kind) {
  static constexpr const char* kNames[] = {"append", "read",      "set",    "big",  "clear",
                                           "alarm",  "alarm-off", "throws", "hang", "alarm-fires"};
  return kNames[static_cast<int>(kind)];
}

Content applied(const HistoryOp& op, Content c) {
  if (op.kind == OpKind::kRead) return c;
  if (op.kind == OpKind::kClear) return Content{};
  c.n += 1;
  c.hash = chained(c.hash, op.id);
  if (op.kind == OpKind::kSet) c.registers[op.argument % c.registers.size()] = op.id;
  return c;
}

namespace {

// One end of an operation, in the list of all ends in the order of time.
struct End {
  size_t op = 0;
  bool is_call = true;
  End* match = nullptr;  // of a call: its return
  End* before = nullptr;
  End* after = nullptr;
};

void lift(End* call) {
  call->before->after = call->after;
  call->after->before = call->before;
  End* ret = call->match;
  ret->before->after = ret->after;
  if (ret->after) ret->after->before = ret->before;
}

void unlift(End* call) {
  End* ret = call->match;
  ret->before->after = ret;
  if (ret->after) ret->after->before = ret;
  call->before->after = call;
  call->after->before = call;
}

uint64_t hash_of(const std::vector<uint64_t>& done, const Content& c) {
  TraceHash h;
  for (uint64_t word : done) h.mix(word);
  h.mix(c.n);
  h.mix(c.hash);
  for (uint64_t r : c.registers) h.mix(r);
  return h.value();
}

}  // namespace

Linearizable linearizable(std::vector<HistoryOp> ops, uint64_t steps_max) {
  if (ops.empty()) return Linearizable::kYes;
  struct Moment {
    MonoTime at;
    bool is_call;
    size_t op;
  };
  std::vector<Moment> moments;
  for (size_t i = 0; i < ops.size(); ++i) {
    moments.push_back({ops[i].called, true, i});
    moments.push_back({ops[i].returned, false, i});
  }
  // Of the same moment: calls first, so that they overlap.
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.at != b.at ? a.at < b.at : a.is_call > b.is_call;
  });
  std::vector<End> ends(moments.size() + 1);
  std::vector<End*> calls(ops.size());
  End* head = &ends[0];
  for (size_t i = 0; i < moments.size(); ++i) {
    End& end = ends[i + 1];
    end.op = moments[i].op;
    end.is_call = moments[i].is_call;
    end.before = &ends[i];
    ends[i].after = &end;
    if (end.is_call) {
      calls[end.op] = &end;
    } else {
      calls[end.op]->match = &end;
    }
  }

  std::vector<uint64_t> done((ops.size() + 63) / 64);
  struct Step {
    End* call;
    Content before;
  };
  std::vector<Step> path;
  std::unordered_map<uint64_t, std::vector<std::pair<std::vector<uint64_t>, Content>>> seen;
  Content state;
  uint64_t steps = 0;
  End* at = head->after;
  while (head->after) {
    if (++steps > steps_max) return Linearizable::kUndecided;
    if (at && at->is_call) {
      const HistoryOp& op = ops[at->op];
      Content next = applied(op, state);
      bool fresh = false;
      if (!op.output || *op.output == next) {
        done[at->op / 64] |= uint64_t{1} << at->op % 64;
        auto& bucket = seen[hash_of(done, next)];
        fresh = std::none_of(bucket.begin(), bucket.end(),
                             [&](const auto& s) { return s.first == done && s.second == next; });
        if (fresh) bucket.emplace_back(done, next);
        if (!fresh) done[at->op / 64] &= ~(uint64_t{1} << at->op % 64);
      }
      if (fresh) {
        path.push_back({at, state});
        state = next;
        lift(at);
        at = head->after;
      } else {
        at = at->after;
      }
      continue;
    }
    // A return that cannot be passed: go back.
    if (path.empty()) return Linearizable::kNo;
    Step last = path.back();
    path.pop_back();
    state = last.before;
    done[last.call->op / 64] &= ~(uint64_t{1} << last.call->op % 64);
    unlift(last.call);
    at = last.call->after;
  }
  return Linearizable::kYes;
}

HistoryOp& History::begin(const CellId& cell, uint64_t id, OpKind kind, uint64_t argument, MonoTime now) {
  auto op = std::make_unique<HistoryOp>();
  op->id = id;
  op->kind = kind;
  op->argument = argument;
  op->called = now;
  index_[id] = op.get();
  cells_[cell].push_back(std::move(op));
  return *cells_[cell].back();
}

void History::judge(const CellId& cell, StateRef final_state, Verdict& verdict) {
  constexpr uint64_t kStepsMax = 2'000'000;
  std::unordered_map<uint64_t, const State*> in_effect;
  for (const State* s = final_state.get(); s; s = s->parent.get()) {
    if (!in_effect.emplace(s->op, s).second) {
      return verdict.broken("done-twice", cell, "operation " + std::to_string(s->op) + " is in the database twice");
    }
  }
  std::vector<HistoryOp> ops;
  auto it = cells_.find(cell);
  if (it == cells_.end()) return;
  for (const auto& recorded : it->second) {
    HistoryOp op = *recorded;
    auto state = in_effect.find(op.id);
    if (op.refused && state != in_effect.end()) {
      return verdict.broken("refused-but-done", cell,
                            "operation " + std::to_string(op.id) + " was answered with: not done");
    }
    if (op.stale || op.refused) continue;
    if (op.returned == MonoTime::max()) {
      if (state == in_effect.end()) continue;  // never took effect, and nobody was told it did
      op.output = state->second->content;
    }
    ops.push_back(op);
  }
  ++judged;
  switch (linearizable(ops, kStepsMax)) {
    case Linearizable::kYes:
      return;
    case Linearizable::kUndecided:
      ++undecided;
      return;
    case Linearizable::kNo:
      break;
  }
  // The shortest prefix that has no order, for people.
  std::sort(ops.begin(), ops.end(), [](const HistoryOp& a, const HistoryOp& b) { return a.returned < b.returned; });
  size_t low = 0, high = ops.size();
  auto prefix_fails = [&](size_t n) {
    std::vector<HistoryOp> some(ops.begin(), ops.begin() + static_cast<ptrdiff_t>(n));
    for (size_t i = n; i < ops.size(); ++i) {
      if (ops[i].called >= ops[n - 1].returned || ops[i].kind == OpKind::kRead) continue;
      some.push_back(ops[i]);
      some.back().returned = MonoTime::max();
    }
    return linearizable(some, kStepsMax) == Linearizable::kNo;
  };
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    (prefix_fails(middle) ? high : low) = middle;
  }
  const HistoryOp& op = ops[high - 1];
  std::string text = std::to_string(ops.size()) +
                     " operations have no order; the first that has no place: " + to_string(op.kind) + " " +
                     std::to_string(op.id);
  if (op.output) text += ", which saw " + std::to_string(op.output->n) + " entries";
  verdict.broken("not-linearizable", cell, text);
}

}  // namespace celld::sim
