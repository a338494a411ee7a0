// The lease of this node: the right to serve, kept alive in nodes/<node>.json.
//
// One writer: every swap of the record is built here, from the very bytes it is conditioned on.
// Authority is counted on the monotonic clock from the START of the last renewal that was applied.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/core.h"
#include "core/records.h"
#include "core/task_scope.h"

namespace celld {

// On the control thread, except where noted.
class LeaseKeeper {
 public:
  // Called once, when authority ends for good by anything but close().
  using OnLost = std::function<void(FenceReason, std::string detail)>;

  LeaseKeeper(World& world, ObjectStore& store, const CoreOptions& options, OnLost on_lost);

  // Creates the record and starts renewing it from TTL/3 on. kExists when another process uses
  // this node id, kUnavailable when the store did not confirm within one TTL.
  Task<Result<void>> open();

  bool has_authority() const;
  MonoTime authority_until() const { return authority_until_; }
  const std::atomic<int64_t>& authority_until_ns() const { return authority_until_ns_; }  // any thread
  bool lost() const { return lost_.has_value(); }

  // Ends authority for good. The first reason counts.
  void lose(FenceReason reason, std::string detail);

  // Publishes that all commits in slots up to `slot` are in LTX objects. Returns once a record
  // that says so is known to be applied; kFenced otherwise.
  Task<Result<void>> advance_drained(Slot slot);
  Slot drained() const { return record_.journal.drained; }  // known to be in the bucket

  // Returns once a renewal that started after the call is known to be applied: up to some moment after
  // the call this node was nobody else's to recover. kFenced otherwise.
  Task<Result<void>> confirm();

  // Says that the journal has ended, as `end` (kLeft or kRecovered), and ends authority; no on_lost.
  // To be called when nothing is undrained. kUnavailable when not confirmed by the deadline; the
  // renewals end in any case.
  Task<Result<void>> close(JournalState end, Deadline deadline);

  // Ends authority and the renewals without a word to the bucket; no on_lost. The lease runs out by
  // itself.
  void abandon();

  // Waits for the end of the background tasks, after close() or a loss.
  Task<bool> join(Deadline deadline) { return tasks_.join(deadline); }
  size_t running() const { return tasks_.running(); }

 private:
  struct Attempt {
    NodeRecord record;
    Blob body;
    MonoTime started;
  };

  Task<void> run();
  Task<void> watch_expiry();
  // Swaps the record until it is definite; false when authority is lost on the way.
  Task<bool> renew();
  Attempt next_attempt();
  void adopt(const Attempt& attempt, Version version);
  void set_authority(MonoTime until);
  Deadline attempt_deadline() const;
  void lose_to(const StoredObject& found);

  World& world_;
  ObjectStore& store_;
  const std::string key_;
  const Duration ttl_;
  OnLost on_lost_;

  NodeRecord record_;  // the last one known to be applied
  Version version_;
  MonoTime renewed_at_;  // when the attempt that wrote it started
  uint64_t last_seq_ = 0;
  Slot drained_wanted_;
  MonoTime confirm_wanted_{Duration::min()};  // a renewal that starts no earlier is asked for
  std::optional<JournalState> closing_;
  bool closed_ = false;
  std::vector<Attempt> attempts_;  // on `version_`, outcome unknown; bounded by the TTL
  std::string last_trouble_;       // of the renewal under way, for people

  MonoTime authority_until_{Duration::min()};
  std::atomic<int64_t> authority_until_ns_{INT64_MIN};
  std::optional<FenceReason> lost_;
  Signal wake_;     // for the writer: something to do
  Signal changed_;  // for the others: applied, closed or lost
  TaskScope tasks_;
};

}  // namespace celld
