// Moving commits from the journal into the LTX prefixes of their cells, and keeping those short.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/alarms.h"
#include "core/bucket.h"
#include "core/core.h"
#include "core/journal.h"
#include "core/lease.h"
#include "core/ownership.h"
#include "core/task_scope.h"
#include "core/trouble.h"

namespace celld {

// On the control thread. One drain at a time; compactions of different cells overlap with it.
class Drainer {
 public:
  Drainer(World& world, Bucket& bucket, LeaseKeeper& lease, Journal& journal, Ownership& ownership,
          AlarmKeeper& alarms, CoreHost& host, const CoreOptions& options);

  void start();
  // No further cycle begins.
  void stop();
  // A cycle at once, or as soon as the present one has ended.
  void request();
  // Slots became durable or alarms changed: a cycle within the interval, at once when much waits.
  void something_to_do();

  TaskScope& tasks() { return tasks_; }

  // Puts the commits into LTX objects, one per cell and epoch, and returns when all are there.
  // Public for tests; `commits` outlives the call.
  Task<Result<void>> write_objects(std::vector<const Commit*> commits);

 private:
  Task<void> run();
  Task<Result<void>> cycle();
  Task<Result<void>> write_object(CellId cell, Epoch epoch, std::vector<const Commit*> commits);
  void compact_where_needed();
  Task<void> compact(CellId cell);
  Task<Result<void>> merge_tail(OwnedCell* cell, std::vector<RestoreObject> run);
  Task<Result<void>> write_snapshot(OwnedCell* cell, std::vector<RestoreObject> all);
  Task<Result<uint64_t>> put_and_read_back(std::string key, Blob body);
  Task<void> delete_later(CellId cell, std::vector<RestoreObject> objects);

  World& world_;
  Bucket& bucket_;
  LeaseKeeper& lease_;
  Journal& journal_;
  Ownership& ownership_;
  AlarmKeeper& alarms_;
  CoreHost& host_;
  const Duration interval_;
  const size_t undrained_bytes_max_;
  const size_t chain_objects_max_;
  const Duration retention_;

  bool stopped_ = false;
  bool requested_ = false;
  MonoTime next_cycle_ = MonoTime::max();
  TroubleWatch trouble_;
  TroubleWatch compaction_trouble_;
  Signal wake_;
  Permits puts_;
  Permits compactions_;
  TaskScope tasks_;
};

}  // namespace celld
