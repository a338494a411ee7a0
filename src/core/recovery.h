// Taking over the journal of a dead node, so that its cells may be claimed.
//
// The steps of docs/protocol.md, "Takeover". Two recoverers of one node do the same work twice and
// agree; a store error leaves the state as it was. A record that is missing proves nothing: it is
// written anew, and the slots themselves say where what is not drained begins.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/bucket.h"
#include "core/core.h"
#include "core/records.h"
#include "core/slot.h"
#include "core/task_scope.h"

namespace celld {

// What nodes/<node>.json says.
struct PeerState {
  enum Kind : uint8_t {
    kLive,       // open, and not expired by our wall clock
    kDead,       // expired or being recovered, not recovered yet
    kMissing,    // there is no record: to be recovered like a dead one, whatever became of the node
    kRecovered,  // its cells may be claimed; also when it left by itself
  };
  Kind kind = kMissing;
  NodeRecord record;  // empty when there is none
  Version version;
};

// On the control thread.
class Recoverer {
 public:
  // `ttl`: how long a lease is thought to last whose record is gone.
  Recoverer(World& world, Bucket& bucket, NodeId self, Duration ttl);

  // Called after each recovery that this node has done, with the record in state `recovered`.
  void on_recovered(std::function<void(const NodeId&)> done) { on_recovered_ = std::move(done); }

  // One GET.
  Task<Result<PeerState>> look(NodeId node, Deadline deadline);
  // The same, before something is done about a node that is dead. No request for one that is known to be
  // recovered: it is so for ever, and `record` may be empty then. Where there is no record, nobody knows
  // when the lease ends: one is written in its place that lasts a TTL from now, so that the node is live up
  // to then. kMissing only when a fence stands in its journal: it was recovered once, after its lease.
  Task<Result<PeerState>> look_before_claim(NodeId node, Deadline deadline);

  // Takes over `node`, which the caller knows to be dead (a mistake costs the node its life, but no
  // acknowledged write). On success it is recovered in the bucket. Concurrent calls for a node
  // share the work.
  Task<Result<void>> recover(NodeId node, Deadline deadline);

  // Deletes what is left of a node that is recovered or has left: data slots below its fence, then
  // the record, if nothing else of it is there. False: something is, so the record stays.
  Task<Result<bool>> forget(NodeId node, Deadline deadline);

  TaskScope& tasks() { return tasks_; }

 private:
  struct Shared {
    explicit Shared(World& world) : done(world) {}
    Signal done;
    std::optional<Result<void>> result;
  };

  void remember(const NodeId& node);
  // Creates the record of a node that has none; whatever comes of it: look again.
  Task<void> write_lost(NodeId node, JournalState state, WallMs expires, Deadline deadline);
  // Whether a fence stands in the journal; no, when there is too much of it to tell by a glance.
  Task<Result<bool>> is_fenced(NodeId node, Deadline deadline);
  Task<void> run(NodeId node, Deadline deadline, std::shared_ptr<Shared> shared);
  Task<Result<void>> recover_alone(NodeId node, Deadline deadline);
  // One round over a record in state `fencing`. False: something changed, look again.
  Task<Result<bool>> recover_fenced(PeerState state, Deadline deadline);
  struct Fence {
    Slot slot;
    bool more = false;  // a LIST showed something there or above
  };
  // Creates the fence, above `drained`.
  Task<Result<Fence>> fence_journal(NodeId node, Slot drained, Deadline deadline);
  // The drained mark in the newest data slot; 0 when there is none.
  Task<Result<Slot>> newest_mark(NodeId node, Deadline deadline);
  // Whose slot it is: data of the node, a fence, or nothing there.
  enum class Occupant : uint8_t { kData, kFence, kNothing };
  Task<Result<Occupant>> occupant(NodeId node, Slot slot, Deadline deadline);
  // Reads the slots in (drained, fence). Nothing: one is missing.
  Task<Result<std::optional<std::vector<Commit>>>> read_slots(NodeId node, Slot drained, Slot fence,
                                                              Deadline deadline);
  Task<Result<void>> write_tail(CellId cell, Epoch epoch, std::vector<const Commit*> commits,
                                Deadline deadline);
  Task<Result<void>> write_tails(std::vector<Commit> commits, Deadline deadline);
  Task<Result<void>> write_alarms(NodeId node, std::vector<Commit> commits, Slot through,
                                  Deadline deadline);
  Task<void> delete_slots_later(NodeId node, Slot fence);
  // Those below `fence`, which holds data or garbage only.
  Task<Result<void>> delete_slots(NodeId node, Slot fence, Deadline deadline);

  World& world_;
  Bucket& bucket_;
  const NodeId self_;
  const Duration ttl_;
  std::function<void(const NodeId&)> on_recovered_;
  std::unordered_set<NodeId> recovered_;  // at most kRecoveredMax of them
  std::unordered_map<NodeId, std::shared_ptr<Shared>> running_;
  TaskScope tasks_;
};

// Shards of an alarm index at and above this number hold what a recoverer found in the journal.
inline constexpr unsigned kRecoveredAlarmShard = 0xff00;

}  // namespace celld
