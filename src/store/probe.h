// Whether a store keeps the promises that the protocol stands on; run once at the start of a node.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

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

// Writes, reads and removes objects under "probe/": create, reject-create, update, reject-stale,
// ranged-read.
//
// kUnsupported when the store breaks its contract: names the store and the step; never retried.
// kForbidden, kInvalid: the store refuses us. Otherwise the last transport error. `world` and
// `store` outlive the task.
Task<Result<void>> probe_store(World& world, ObjectStore& store, ProbeOptions options);
inline Task<Result<void>> probe_store(World& world, ObjectStore& store) {
  return probe_store(world, store, ProbeOptions());
}

}  // namespace celld
