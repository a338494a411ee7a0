// Whether a store keeps the promises that the protocol stands on.
//
// One list of steps. A node runs those that are cheap at every start; `celld diagnose bucket` runs
// all, which docs/stores.md lists.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "store/dialect.h"
#include "store/object_store.h"

namespace celld {

struct ProbeOptions {
  // What the store's clients share: the probe tries quoted and bare ETags and leaves the one that
  // works. Null for stores without a dialect.
  std::shared_ptr<StoreDialect> dialect;
  uint32_t attempts_max = 3;  // after transport errors, each with a fresh key
  Duration backoff_first = std::chrono::milliseconds(200);  // doubles
  Duration attempt_timeout = std::chrono::seconds(10);
};

// The steps of a start: create, reject-create, update, reject-stale, read-after-write, ranged-read,
// list-after-write. Writes, reads and removes one object under "probe/": ten requests.
//
// kUnsupported when the store breaks its contract: names the store and the step; never retried.
// kForbidden, kInvalid: the store refuses us. Otherwise the last transport error. `world` and
// `store` outlive the task.
Task<Result<void>> probe_store(World& world, ObjectStore& store, ProbeOptions options);
inline Task<Result<void>> probe_store(World& world, ObjectStore& store) {
  return probe_store(world, store, ProbeOptions());
}

enum class ProbeOutcome : uint8_t {
  kKept,    // the promise holds
  kBroken,  // it does not: the store's fault
  kFailed,  // the store gave no answer that says so
  kSkipped  // needs a step that did not succeed, or to write
};

struct ProbeLine {
  std::string_view step;
  ProbeOutcome outcome = ProbeOutcome::kSkipped;
  std::string detail;  // why, unless kept
  Duration took{0};
};

struct DiagnoseOptions {
  std::shared_ptr<StoreDialect> dialect;  // as above
  bool read_only = false;                 // only what does not write
  std::function<void(const ProbeLine&)> on_line;
  Duration step_timeout = std::chrono::seconds(60);
};

// All steps, one after the other, each told to `on_line`; what it wrote under "probe/" is removed.
// Whether no step was broken or failed.
Task<bool> diagnose_store(World& world, ObjectStore& store, DiagnoseOptions options);

}  // namespace celld
