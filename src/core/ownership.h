// The cells that this node owns: claiming, restoring, checkpointing and releasing them.
//
// Everything that changes own.json of a cell is here. Every conditional write is brought to a
// definite outcome before anything acts on it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/alarms.h"
#include "core/bucket.h"
#include "core/core.h"
#include "core/journal.h"
#include "core/lease.h"
#include "core/records.h"
#include "core/recovery.h"
#include "core/restore.h"
#include "core/task_scope.h"

namespace celld {

// A cell of ours. Stable address while owned.
struct OwnedCell {
  CellId id;
  Epoch epoch;
  Version version;    // of own.json
  Manifest manifest;  // in own.json
  Txid first;         // that this epoch issues
  Txid last;          // handed to the journal; never issued again
  Txid proven;
  std::vector<RestoreObject> chain;    // LTX objects with all that is drained
  std::vector<RestoreObject> garbage;  // that no manifest of ours will name again
  uint32_t page_count = 0;             // after the newest object of `chain`
  bool releasing = false;
  bool compacting = false;
};

// On the control thread.
class Ownership {
 public:
  // `request_drain` makes the drain start at once.
  Ownership(World& world, Bucket& bucket, LeaseKeeper& lease, Journal& journal, Recoverer& recoverer,
            AlarmKeeper& alarms, const CoreOptions& options, std::function<void()> request_drain);

  Task<Result<Activation>> activate(CellId cell, Deadline deadline, std::optional<OwnedElsewhere>* elsewhere,
                                    MonoTime patience);
  Task<Result<void>> release(CellId cell);

  OwnedCell* find(const CellId& cell);
  std::vector<CellId> cells() const;
  // From now on no claim is sent. Before the node says how it leaves.
  void stop_claims() {
    claims_stopped_ = true;
    progress_.notify_all();
  }
  // Whether own.json of some cell may come to name this node without our knowing.
  bool claims_unsettled() const { return claims_unsettled_ > 0; }
  // A commit of the cell goes to the journal.
  void committed(const Commit& commit);

  // Swaps own.json to a manifest of the cell's present chain. On success what the manifest does
  // not name goes to `*deletable`.
  Task<Result<void>> checkpoint(OwnedCell* cell, std::vector<RestoreObject>* deletable);

  // The owner of what waits below: the drain moved on, authority was lost, a compaction ended.
  Signal& progress() { return progress_; }
  TaskScope& tasks() { return tasks_; }

 private:
  // One activation under way, or finished with nobody waiting.
  struct Pending {
    explicit Pending(World& world) : done(world) {}
    Signal done;
    Deadline until;  // the latest deadline of those who wait
    unsigned waiters = 0;
    bool after_release = false;  // begins when the release under way has ended
    MonoTime patience = MonoTime::max();  // with a live owner; then it is told who that is
    std::optional<OwnedElsewhere> elsewhere;
    std::optional<Result<Activation>> result;
  };

  Task<void> run_activation(CellId cell, std::shared_ptr<Pending> pending);
  Task<void> forget_later(CellId cell, std::shared_ptr<Pending> pending);
  // Makes the cell ours. kNotOwner when a live node keeps it; which one goes to `pending` if it asks.
  Task<Result<void>> claim(CellId cell, std::shared_ptr<Pending> pending,
                           std::optional<Result<LtxFile>>* fetched);
  // After a claim without a definite outcome, made on the version `before`: until it is known whether the
  // cell is ours, and then it is claimed once more.
  Task<void> find_out_later(CellId cell, std::optional<Version> before);
  struct Claimed {
    bool applied = false;  // else: rejected, look again
  };
  // Where the cell comes from.
  enum class Origin : uint8_t { kNew, kReleased, kTakenOver };
  Task<Result<Claimed>> claim_as(CellId cell, Origin origin, OwnerRecord current,
                                 Condition condition, Chain chain, Deadline deadline);
  Task<Result<Activation>> restore(CellId cell, std::optional<Result<LtxFile>> fetched);
  Task<Result<void>> give_up(CellId cell);
  // Whether a release was asked for that has not ended. Nobody gets the cell before that.
  bool being_released(const CellId& cell) const { return releases_.contains(cell); }
  Error lost_error(const CellId& cell) const;

  World& world_;
  Bucket& bucket_;
  LeaseKeeper& lease_;
  Journal& journal_;
  Recoverer& recoverer_;
  AlarmKeeper& alarms_;
  const NodeId self_;
  const uint32_t peer_protocol_;
  std::function<void()> request_drain_;
  std::unordered_map<CellId, std::unique_ptr<OwnedCell>> cells_;
  std::unordered_map<CellId, std::shared_ptr<Pending>> pending_;
  std::unordered_map<CellId, unsigned> releases_;  // asked for, not ended; how many
  size_t claims_unsettled_ = 0;  // sent, and not definite
  bool claims_stopped_ = false;
  Signal progress_;
  TaskScope tasks_;
};

}  // namespace celld
