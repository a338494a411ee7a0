// Counts what goes to a bucket: for benchmarks, metrics and tests that promise a number of
// requests.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "store/object_store.h"

namespace celld {

enum class StoreOp : uint8_t {
  kGet,
  kGetRange,
  kPutIf,
  kPut,
  kRemove,
  kList,
  kHead,
  kRemoveMany,  // one call, whatever the store makes of it
  kBeginUpload,
  kPutPart,
  kFinishUpload,
  kAbortUpload,
};
inline constexpr size_t kStoreOps = 12;

// "get", "get-range", "put-if", "put", "delete", "list", "head", "delete-many", "begin-upload",
// "put-part", "finish-upload", "abort-upload".
std::string_view to_string(StoreOp op);

// What a request costs, in the terms in which object stores charge.
enum class CostClass : uint8_t {
  kWrite,  // PUT, POST, LIST: "class A"
  kRead,   // GET, HEAD: "class B"
  kFree,   // DELETE
};
CostClass cost_class(StoreOp op);
std::string_view to_string(CostClass cost);  // "write", "read", "free"

// How long requests took, in powers of two: bucket i counts those of at most 2^i microseconds that
// fit no lower one; the last also what took longer.
struct LatencyHistogram {
  static constexpr size_t kBuckets = 28;  // up to 134 s
  std::array<uint64_t, kBuckets> buckets{};
  uint64_t count = 0;
  Duration sum{0};

  void add(Duration took);
  // The bound of the bucket that holds the `q` quantile (0 to 1); 0 when nothing was counted.
  Duration quantile(double q) const;
};

struct OpCounts {
  uint64_t requests = 0;  // begun
  uint64_t failed = 0;    // ended with an error other than kNotFound, or ambiguously
  uint64_t not_found = 0;
  uint64_t rejected = 0;  // conditional writes
  uint64_t bytes_up = 0;  // bodies
  uint64_t bytes_down = 0;

  OpCounts& operator+=(const OpCounts& o);
};

struct StoreCounts {
  std::array<OpCounts, kStoreOps> by_op;
  std::array<LatencyHistogram, kStoreOps> latency;  // of requests that have ended; needs a world
  // By the first component of the key or the listed prefix ("journal", "cells"); at most
  // kAreasMax, the rest under "...".
  std::map<std::string, std::array<OpCounts, kStoreOps>, std::less<>> by_area;
  // The length of the longest chain of requests each of which began after its predecessor had
  // ended: what a user waits for, in units of the store's delay. Exact while all requests take
  // equally long; unrelated requests in the background count too.
  uint64_t round_trips = 0;
  uint64_t outstanding = 0;      // now
  uint64_t outstanding_max = 0;  // since the last reset

  const OpCounts& operator[](StoreOp op) const { return by_op[static_cast<size_t>(op)]; }
  OpCounts total() const;
  uint64_t requests_of(CostClass cost) const;
  // "3 requests (put-if 1, get 2), 2 round trips, 10240 bytes up, 512 bytes down"
  std::string summary() const;
};

class MeteredStore final : public ObjectStore {
 public:
  static constexpr size_t kAreasMax = 64;

  explicit MeteredStore(std::shared_ptr<ObjectStore> inner);
  // Measures latencies too. `world` outlives the store.
  MeteredStore(World& world, std::shared_ptr<ObjectStore> inner);

  const StoreCounts& counts() const { return counts_; }
  // Requests that are under way end uncounted, but stay outstanding.
  void reset();

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override;
  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return inner_->describe(); }

 private:
  class MeteredUpload;
  struct Call {
    StoreOp op;
    std::string area;
    uint64_t depth;       // in the chain of requests
    uint64_t generation;  // of reset
    MonoTime begun;
  };
  Call begin(StoreOp op, std::string_view key, uint64_t bytes_up);
  void end(const Call& call, const OpCounts& outcome);

  World* const world_ = nullptr;
  const std::shared_ptr<ObjectStore> inner_;
  StoreCounts counts_;
  uint64_t depth_ended_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace celld
