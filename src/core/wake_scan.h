// Finds, in the bucket, the alarms that nobody keeps a timer for, and the nodes that died quietly.
//
// Alarms of released cells (wake/unowned/) and of the cells of recovered nodes (wake/<node>/) become
// hints when due. Nodes whose lease ended are recovered. One node does this for the fleet: the one
// with the smallest id among those that renewed lately; all others only list nodes/ to learn that.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/alarms.h"
#include "core/bucket.h"
#include "core/core.h"
#include "core/recovery.h"
#include "core/task_scope.h"

namespace celld {

// On the control thread.
class WakeScanner {
 public:
  WakeScanner(World& world, Bucket& bucket, Recoverer& recoverer, AlarmKeeper& alarms,
              const CoreOptions& options);

  // Scans at once, whoever is elected, and then every interval.
  void start();
  void stop();
  // What the last scan failed at, for people; empty when it succeeded.
  const std::string& last_trouble() const { return last_trouble_; }
  TaskScope& tasks() { return tasks_; }

 private:
  // An alarm that the bucket tells of.
  struct Entry {
    CellId cell;
    WallMs due;
    std::string unowned_key;  // of a released cell
    Epoch epoch;              // with unowned_key: of the release
    NodeId node;              // otherwise: in whose index it is
  };
  enum class Verdict : uint8_t { kHint, kLater, kSettled };
  struct Index {
    std::vector<std::string> keys;
    std::vector<AlarmEntry> entries;
    std::set<CellId> settled;
  };

  Task<void> run();
  bool put_off(const std::string& entry) const;
  Task<Result<void>> scan(bool whoever);
  // Recovers the dead, forgets the long recovered; who is elected.
  Task<Result<NodeId>> sweep_nodes(Deadline deadline);
  Task<Result<void>> scan_indexes(std::vector<Entry>& due, Deadline deadline);
  Task<Result<void>> load_index(NodeId node, Deadline deadline);
  Task<Result<void>> scan_unowned(std::vector<Entry>& due, Deadline deadline);
  Task<Result<Verdict>> judge(Entry entry, Deadline deadline);
  Task<Result<void>> settle_entries(std::vector<Entry> due, Deadline deadline);

  World& world_;
  Bucket& bucket_;
  Recoverer& recoverer_;
  AlarmKeeper& alarms_;
  const NodeId self_;
  const Duration ttl_;
  const Duration interval_;
  const size_t entries_max_;
  std::map<NodeId, Index> indexes_;  // of recovered nodes
  std::map<NodeId, WallMs> recovered_;  // known to be, with the record's modification time
  // Judged lately: look again then. By the key of an unowned alarm, or by the cell: what was said of an
  // index says nothing of the entry that a later release leaves.
  std::unordered_map<std::string, MonoTime> not_before_;
  bool cut_off_ = false;  // the present scan found more than it may judge
  std::string last_trouble_;
  bool stopped_ = false;
  Signal wake_;
  TaskScope tasks_;
};

}  // namespace celld
