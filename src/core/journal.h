// The journal of this node: commits of all cells, packed into slots that are created in order.
//
// Group commit without a timer: while slots are in flight, commits gather for the next one. A slot
// is durable when it and all before it are known to be created and the node had authority after
// the reply. Keeps every commit until it is drained; of a page that durable commits of one cell
// wrote several times only the newest, so that a hot counter costs one page and not one for each
// write.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/bucket.h"
#include "core/commit.h"
#include "core/core.h"
#include "core/lease.h"
#include "core/slot.h"
#include "core/task_scope.h"
#include "core/trouble.h"

namespace celld {

// On the control thread.
class Journal {
 public:
  // Commits that became durable, in the order of the journal.
  using OnDurable = std::function<void(std::span<const Commit* const> commits)>;

  Journal(World& world, ObjectStore& store, LeaseKeeper& lease, CoreHost& host,
          const CoreOptions& options, OnDurable on_durable);

  // Takes a commit; dropped when authority is lost. `encoded` is encode_commit(commit).
  void append(Commit commit, EncodedCommit encoded);

  Slot durable() const { return durable_; }
  // The highest durable slot below which no commit is unfinished.
  Slot drainable() const { return drainable_; }

  // Commits that end in slots up to `through`, oldest first. They stay as they are until
  // drop_drained() or the next call. A page that a later one of them writes again may be missing in
  // an earlier one: together they say the same, which is all that a merge looks at.
  std::vector<const Commit*> commits_through(Slot through);
  // All commits of a cell that are not drained, durable or not, oldest first; pages as above.
  std::vector<const Commit*> commits_of(const CellId& cell);
  bool has_commits_of(const CellId& cell) const { return per_cell_.contains(cell); }
  // Forgets commits that end in slots up to `through`, oldest first, until all are gone (true) or so
  // many pages are; lets the journal go on.
  bool drop_drained(Slot through, size_t pages_max = SIZE_MAX);

  size_t bytes_waiting() const { return bytes_waiting_; }  // pages not yet in a slot
  size_t bytes_undrained() const { return bytes_held_; }   // all pages held
  bool idle() const { return held_.empty() && in_flight_ == 0; }

  // Deletes slots that are drained, in the background, a few at a time: those up to `through` that
  // the mark in a durable slot has passed. So the newest slot in the bucket always tells where what
  // is not drained begins at the earliest, also when the lease record is lost.
  void delete_through(Slot through);
  // Deletes the rest: when the lease says that the journal is closed.
  void delete_all();
  // Waits for the background tasks; after the lease is lost or closed, or with everything drained.
  Task<bool> join(Deadline deadline);
  size_t running() const { return tasks_.running(); }

 private:
  struct Held {
    Commit commit;
    size_t bytes = 0;
    Slot last;           // where its last part is; 0 = not packed yet
    size_t dropped = 0;  // of its pages: those that are null, since a later commit has them
  };
  // Where the newest durable version of each page of a cell is held.
  struct Newest {
    Epoch epoch;
    std::unordered_map<Pgno, Held*> pages;
  };
  struct Sent {
    bool created = false;
    Slot drained;           // the mark in it
    size_t commits = 0;  // that end in it
    std::optional<Slot> open_since;
  };

  void pump_soon();
  void pump();
  Task<void> pump_at(MonoTime due);
  void slot_done(bool throttled);
  Task<void> create_slot(SlotWriter::Draft draft);
  void advance();
  void fold(Held& held);
  void forget(const Held& held);
  static void compact(Held& held);
  void start_deleting(Slot through);
  Task<void> delete_slots();

  World& world_;
  LeaseKeeper& lease_;
  Bucket bucket_;
  const NodeId node_;
  const unsigned in_flight_max_;
  const size_t undrained_bytes_max_;
  const size_t aside_bytes_min_;
  OnDurable on_durable_;
  TroubleWatch trouble_;

  SlotWriter writer_;
  std::deque<Held> held_;      // [durable | in flight | waiting], oldest first
  size_t packed_ = 0;          // of held_: those in a slot
  size_t durable_count_ = 0;   // of held_: those durable
  size_t folded_ = 0;          // of held_: those in newest_
  Slot frozen_;                // commits up to here are being drained and keep their pages
  std::map<Slot, Sent> sent_;  // above durable_
  std::unordered_map<CellId, size_t> per_cell_;
  std::unordered_map<CellId, Newest> newest_;
  Slot durable_;
  Slot drainable_;
  unsigned in_flight_ = 0;
  size_t bytes_waiting_ = 0;
  size_t bytes_held_ = 0;
  size_t bytes_sent_ = 0;  // held and packed
  bool pump_posted_ = false;
  // While the store throttles: the least time from one slot to the next, so that commits gather.
  Duration pace_{0};
  MonoTime paced_since_;                 // the latest slot
  MonoTime pump_due_ = MonoTime::max();  // when pump_at() looks again
  size_t throttled_in_flight_ = 0;       // slots that the store has refused and not taken yet

  Slot marked_;  // the drained mark in the newest durable slot
  Slot deleted_;
  Slot delete_wanted_;
  bool deleting_ = false;
  TaskScope tasks_;
};

}  // namespace celld
