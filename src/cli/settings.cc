#include "cli/settings.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "node/memory.h"

namespace celld {

namespace {

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "celld";
  return name;
}

}  // namespace

NodeConfig node_config(const TuningOptions& tuning) {
  NodeConfig config;
  size_t cores = std::max(2u, std::thread::hardware_concurrency());
  config.front_loops = tuning.loops != 0 ? tuning.loops : cores;
  config.cell_loops = 2 * config.front_loops;
  config.loop.isolate.cpu_per_event = tuning.cpu_limit;
  config.turn_grace = tuning.grace;
  config.lost_threads_max = tuning.lost_threads_max;
  config.loop.isolate.heap_bytes = static_cast<size_t>(tuning.heap_limit_mb) << 20;
  // One call of a built-in function on huge data may take so much before its thread is given up.
  config.loop.isolate.heap_bytes_hard = std::max<size_t>(
      std::clamp<size_t>(memory_bytes() / 4, 1ull << 30, 4ull << 30), 2 * config.loop.isolate.heap_bytes);
  config.loop.idle_evict = tuning.idle_evict;
  config.loop.confirm_timeout = tuning.confirm_timeout;
  config.loop.storage.sql.transaction_pages_max = (tuning.transaction_limit_mb << 20) / kPageSize;
  config.loop.storage.sql.database_pages_max = tuning.database_limit_mb * ((1u << 20) / kPageSize);
  config.core.undrained_bytes_max = size_t{tuning.journal_limit_mb} << 20;
  config.core.lease_ttl = tuning.lease_ttl;
  config.core.name = host_name();
  return config;
}

StoreOptions store_options(const BucketOptions& bucket) {
  StoreOptions options;
  options.endpoint = bucket.endpoint;
  options.region = bucket.region;
  return options;
}

}  // namespace celld
