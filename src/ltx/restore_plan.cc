#include "ltx/restore_plan.h"

#include <algorithm>
#include <map>

namespace celld {

namespace {

// Per epoch, the TXID at and above which its objects do not count: the lowest of any later epoch.
std::map<Epoch, Txid> cuts_of(std::span<const RestoreObject> objects) {
  std::map<Epoch, Txid> first;
  for (const RestoreObject& o : objects) {
    auto [it, fresh] = first.try_emplace(o.epoch, o.min);
    if (!fresh) it->second = std::min(it->second, o.min);
  }
  std::map<Epoch, Txid> cuts;
  Txid cut(UINT64_MAX);
  for (auto it = first.rbegin(); it != first.rend(); ++it) {
    cuts[it->first] = cut;
    cut = std::min(cut, it->second);
  }
  return cuts;
}

// Of two objects that reach equally far, the one to take.
bool better(const RestoreObject& a, const RestoreObject& b) {
  if (a.max != b.max) return a.max > b.max;
  if (a.epoch != b.epoch) return a.epoch > b.epoch;
  if (a.level != b.level) return a.level > b.level;
  return a.bytes < b.bytes;
}

std::string range_text(Txid from, Txid to) {
  return std::to_string(from.value) + " to " + std::to_string(to.value);
}

}  // namespace

Result<RestorePlan> plan_restore(std::span<const RestoreObject> objects) {
  RestorePlan plan;
  if (objects.empty()) return plan;
  std::map<Epoch, Txid> cuts = cuts_of(objects);
  std::vector<RestoreObject> counted;
  for (const RestoreObject& o : objects) {
    if (o.min.value < 1 || o.min > o.max || o.max.value > kCounterMax) {
      return fail(Error::corrupt("restore: object with TXIDs " + range_text(o.min, o.max)));
    }
    if (o.max < cuts[o.epoch]) counted.push_back(o);
  }
  std::sort(counted.begin(), counted.end(),
            [](const RestoreObject& a, const RestoreObject& b) { return a.min < b.min; });

  auto missing = [&](Txid from, Txid to) {
    return fail(Error::corrupt("restore: TXIDs " + range_text(from, to) + " are missing (" +
                               std::to_string(objects.size()) + " objects, " +
                               std::to_string(objects.size() - counted.size()) +
                               " above the cut of their epoch)"));
  };
  // Again and again, of all that continues what is there, the one that reaches furthest. The first
  // round takes a snapshot: only those begin right after TXID 0.
  const RestoreObject* best = nullptr;
  for (auto next = counted.begin();;) {
    for (; next != counted.end() && next->min <= plan.max.next(); ++next) {
      if (!best || better(*next, *best)) best = &*next;
    }
    if (best && best->max > plan.max) {
      plan.objects.push_back(*best);
      plan.max = best->max;
      plan.bytes += best->bytes;
      continue;
    }
    if (next == counted.end() && plan.max.value > 0) return plan;
    // What is left begins beyond a hole, or nothing counts at all.
    return missing(plan.max.next(), next == counted.end() ? plan.max.next() : next->min.prev());
  }
}

}  // namespace celld
