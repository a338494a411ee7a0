// Taking over the journal of a dead node, so that its cells may be claimed.
//
// The four steps of docs/protocol.md section 6. Two recoverers of one node do the same work twice
// and agree; a store error leaves the state as it was.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
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
    kRecovered,  // its cells may be claimed; also when there is no record
  };
  Kind kind = kRecovered;
  NodeRecord record;  // empty when there is none
  Version version;
};

// On the control thread.
class Recoverer {
 public:
  Recoverer(World& world, Bucket& bucket, NodeId self);

  // One GET.
  Task<Result<PeerState>> look(NodeId node, Deadline deadline);

  // Takes over `node`, which the caller knows to be dead (a mistake costs the node its life, but no
  // acknowledged write). On success it is recovered in the bucket. Concurrent calls for a node
  // share the work.
  Task<Result<void>> recover(NodeId node, Deadline deadline);

  TaskScope& tasks() { return tasks_; }

 private:
  struct Shared {
    explicit Shared(World& world) : done(world) {}
    Signal done;
    std::optional<Result<void>> result;
  };

  Task<void> run(NodeId node, Deadline deadline, std::shared_ptr<Shared> shared);
  Task<Result<void>> recover_alone(NodeId node, Deadline deadline);
  // One round over a record in state `fencing`. False: something changed, look again.
  Task<Result<bool>> recover_fenced(PeerState state, Deadline deadline);
  // Creates the fence; returns its slot.
  Task<Result<Slot>> fence_journal(NodeId node, Slot drained, Deadline deadline);
  // Whose slot it is: data of the node, a fence, or nothing there.
  enum class Occupant : uint8_t { kData, kFence, kNothing };
  Task<Result<Occupant>> occupant(NodeId node, Slot slot, Deadline deadline);
  // Reads the slots in (drained, fence). Nothing: one is missing.
  Task<Result<std::optional<std::vector<Commit>>>> read_slots(NodeId node, Slot drained, Slot fence,
                                                              Deadline deadline);
  Task<Result<void>> write_tails(std::vector<Commit> commits, Deadline deadline);
  Task<Result<void>> write_alarms(NodeId node, std::vector<Commit> commits, Slot through,
                                  Deadline deadline);
  Task<void> delete_slots(NodeId node, Slot fence);

  World& world_;
  Bucket& bucket_;
  const NodeId self_;
  std::unordered_map<NodeId, std::shared_ptr<Shared>> running_;
  TaskScope tasks_;
};

// Shards of an alarm index at and above this number hold what a recoverer found in the journal.
inline constexpr unsigned kRecoveredAlarmShard = 0xff00;

}  // namespace celld
