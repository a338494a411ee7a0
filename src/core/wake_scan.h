// Alarms that no live node keeps a timer for, and the nodes that died quietly.
//
// Alarms of released cells (wake/unowned/) and of the cells of recovered nodes (wake/<node>/) become
// hints when due; nodes whose lease ended are recovered. Whoever owns a cell, released it, or found
// its alarm in a scan keeps it in mind while it lives. So a scan is due only when a node begins, and
// when one has gone: each node watches the next one in the ring of ids, and the record
// fleet/joined.json for newcomers. docs/decisions/0006 says what that costs and why it is enough.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
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

  // Tells the others that this node is there; after the lease was created and before the first
  // claim. kUnavailable when the store does not confirm it in time.
  Task<Result<void>> announce(Deadline deadline);

  // Scans everything at once, and then goes on watching.
  void start();
  void stop();
  // What the last round failed at, for people; empty when it succeeded.
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
  enum class Verdict : uint8_t { kHint, kSoon, kLater, kSettled };
  struct Index {
    std::vector<std::string> keys;
    std::vector<AlarmEntry> entries;
    std::set<CellId> settled;
  };
  struct Listed {
    NodeId node;
    WallMs modified;
  };

  Task<void> run();
  void scan_all();
  MonoTime next_round() const;
  // Early enough before the wall clock shows `due`.
  MonoTime ahead_of(WallMs due) const;
  // Alarms up to here are looked at in one scan.
  WallMs horizon() const;
  bool put_off(const std::string& judged);
  void put_off_for(const Entry& entry, Duration time);
  void look_again(MonoTime at) { due_again_ = std::min(due_again_, at); }

  Task<Result<void>> round();
  // Whether the next in the ring and the record of newcomers are as they were; if not, looks at all nodes.
  Task<Result<void>> watch(Deadline deadline);
  Task<Result<void>> look_at_nodes(std::optional<NodeId> suspect, Deadline deadline);
  // Recovers the dead, forgets the long recovered and those that left.
  Task<Result<void>> look_at_silent(std::vector<Listed> silent, int64_t store_now, Deadline deadline);
  Task<Result<void>> look_at(Listed listed, int64_t store_now, Deadline deadline);
  // A node whose record has gone without a word that we heard.
  Task<Result<void>> recover_vanished(NodeId node, Deadline deadline);
  // Whether it may be recovered now. One without a record is looked at again when nobody can hold its lease.
  Task<Result<bool>> is_dead(NodeId node, Deadline deadline);

  Task<Result<void>> scan(bool whole, bool unowned, Deadline deadline);
  Task<Result<void>> load_indexes(Deadline deadline);
  Task<Result<void>> load_index(NodeId node, Deadline deadline);
  void due_in_indexes(std::vector<Entry>& due);
  Task<Result<void>> scan_unowned(std::vector<Entry>& due, Deadline deadline);
  Task<Result<Verdict>> judge(Entry entry, Deadline deadline);
  Task<Result<void>> hint(Entry entry, Deadline deadline);
  Task<Result<void>> settle_entries(std::vector<Entry> due, Deadline deadline);
  Task<Result<void>> settle_one(Entry entry, Deadline deadline);

  World& world_;
  Bucket& bucket_;
  Recoverer& recoverer_;
  AlarmKeeper& alarms_;
  const NodeId self_;
  const Duration ttl_;
  const Duration interval_;
  const size_t entries_max_;

  // The others.
  bool first_ = true;                   // nothing was looked at yet: everything is ours to do
  std::set<NodeId> members_;            // seen in the last LIST, not known to be recovered
  std::optional<NodeId> successor_;     // whom we watch
  std::optional<Version> joined_;       // of fleet/joined.json, before the last LIST
  MonoTime next_join_look_;
  MonoTime next_successor_look_;
  MonoTime next_node_look_ = MonoTime::max();  // somebody silent is not dead yet, or to be forgotten
  std::map<NodeId, WallMs> recovered_;  // for ever, with the record's modification time at first sight

  // The alarms.
  bool whole_ = true;  // scan everything, since somebody has gone
  std::map<NodeId, Index> indexes_;         // of recovered nodes
  std::optional<WallMs> unowned_due_;       // of the first entry that no scan has looked at
  std::optional<WallMs> index_due_;
  MonoTime due_again_ = MonoTime::max();    // judge again what was due
  // Judged lately: look again then. By the key of an unowned alarm, or by the cell: what was said of an
  // index says nothing of the entry that a later release leaves.
  std::unordered_map<std::string, MonoTime> not_before_;
  std::string last_trouble_;
  bool stopped_ = false;
  Signal wake_;
  TaskScope tasks_;
};

}  // namespace celld
