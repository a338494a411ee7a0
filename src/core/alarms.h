// The alarms of the cells that this node owns: timers, and their index in the bucket.
//
// The alarm of a cell is in its database, and the commit that sets it carries it in the journal.
// The index (wake/<node>/<shard>.json) is written with a drain if it changed, from what is durable,
// before the drained mark passes the slots it came from; index and journal together always tell a
// recoverer every alarm.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/bucket.h"
#include "core/commit.h"
#include "core/core.h"
#include "core/records.h"
#include "core/task_scope.h"

namespace celld {

// wake/unowned/<minute>/<cell>@<epoch>: the entry of a released cell. The epoch of the release makes
// every installation an object of its own, so that a late DELETE of one never hits the next.
std::string unowned_entry_key(const CellId& cell, WallMs due, Epoch epoch);
struct UnownedEntryName {
  CellId cell;
  Epoch epoch;
  WallMs minute;         // its beginning
  std::string record_key;  // what decode_unowned_alarm wants
};
std::optional<UnownedEntryName> parse_unowned_entry_key(std::string_view key);

// On the control thread.
class AlarmKeeper {
 public:
  AlarmKeeper(World& world, Bucket& bucket, CoreHost& host, NodeId self);

  // A cell is ours from now on: new (no alarm), claimed from a release (the record told the alarm;
  // `entry_key` names the entry that the release left, which is deleted once the alarm is in the
  // index), or taken over (unknown until restored() or a commit tells; the host is hinted to look
  // when nobody does for a while, since others take us for the one that keeps the timer).
  void own_new(const CellId& cell);
  void own_released(const CellId& cell, std::optional<WallMs> at, std::string entry_key);
  void own_taken_over(const CellId& cell);
  // What the restored database says. None after the first, nor after a commit that changed the
  // alarm, counts: those know better.
  void restored(const CellId& cell, std::optional<WallMs> at);
  // A commit was handed to the journal; it became durable.
  void committed(const Commit& commit);
  void proven(const Commit& commit);
  // The alarm as last known, durable or not.
  std::optional<WallMs> alarm_of(const CellId& cell) const;
  // The cell is not ours any more.
  void disown(const CellId& cell);
  // A cell was released with an alarm, whose entry is in the bucket: on_released hears of it.
  void released(const std::string& entry_key, WallMs due) {
    if (on_released_) on_released_(entry_key, due);
  }
  void on_released(std::function<void(const std::string&, WallMs)> heard) {
    on_released_ = std::move(heard);
  }

  // Hints that the alarm of a cell that this node does not own is due at `at`, once. At most
  // `kForeignHintsMax` are kept.
  static constexpr size_t kForeignHintsMax = 10'000;
  bool hint_later(const CellId& cell, WallMs at);

  // The alarm of an owned cell (perhaps none) is known; it is in the index in the bucket, too, and the
  // index counts.
  bool known(const CellId& cell) const;
  bool indexed(const CellId& cell) const;

  bool dirty() const { return !dirty_.empty() || !obsolete_.empty() || awaits_confirmation(); }
  // Writes the shards that changed. Every alarm change in slots up to `through` is in them.
  Task<Result<void>> checkpoint(Slot through, Deadline deadline);
  // What was written counts only once the lease is known to have been ours afterwards: whoever recovers
  // this node reads its index once, perhaps before that. No other trace of an alarm may go before.
  bool awaits_confirmation() const { return !unconfirmed_.empty() || !replaced_.empty(); }
  // A renewal that began after the last checkpoint was applied. Deletes what the index replaces.
  Task<void> confirm(Deadline deadline);
  // Deletes all shards; when nothing is owned any more.
  Task<Result<void>> remove_index(Deadline deadline);

  void start();
  void stop();
  TaskScope& tasks() { return tasks_; }

 private:
  struct Alarm {
    bool known = false;
    bool confirmed = false;          // by the database or a commit
    std::optional<WallMs> latest;    // drives the timer
    std::optional<WallMs> durable;   // goes into the index
    WallMs next_hint;                // with `latest`, or unknown: key in queue_
  };
  using Due = std::pair<WallMs, CellId>;

  void set_latest(const CellId& cell, Alarm& alarm, std::optional<WallMs> at);
  void set_durable(const CellId& cell, Alarm& alarm, std::optional<WallMs> at);
  unsigned shard_of(const CellId& cell) const;
  Task<void> run_timers();
  void fire_due();

  World& world_;
  Bucket& bucket_;
  CoreHost& host_;
  const NodeId self_;

  std::unordered_map<CellId, Alarm> alarms_;  // of owned cells
  std::set<Due> queue_;                       // of owned cells, by next_hint
  std::set<Due> foreign_;
  std::function<void(const std::string&, WallMs)> on_released_;
  unsigned shards_ = 1;
  std::vector<std::map<CellId, WallMs>> durable_;  // by shard: what the index should say
  std::set<unsigned> dirty_;
  std::map<unsigned, Version> versions_;  // of shards in the bucket
  uint64_t seq_ = 0;
  std::vector<std::string> obsolete_;  // entries that the next index replaces
  std::vector<std::string> replaced_;  // entries that the index replaces once it counts
  std::set<unsigned> unconfirmed_;     // shards that do not count yet
  bool writing_ = false;
  bool stopped_ = false;
  Signal changed_;
  TaskScope tasks_;
};

}  // namespace celld
