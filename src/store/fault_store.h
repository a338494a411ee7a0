// A bucket that is slow, loses replies and fails, as told: for tests, the simulator and benchmarks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "store/metered_store.h"
#include "store/object_store.h"

namespace celld {

// What happens to one request. A request travels for `before`, has its effect, and its reply
// travels for `after`. When the caller's deadline comes first, the caller gets kDeadline and the
// request goes on: its effect may come at any later time, as on a network.
struct Fault {
  enum class Kind : uint8_t {
    kNone,
    kLoseBefore,   // the request is lost: no effect, kUnavailable
    kLoseAfter,    // the reply is lost: the effect, then kUnavailable
    kServerError,  // the store answers 500 without the effect; ambiguous for put_if
    kThrottle,     // the store answers 503 with Retry-After, without the effect
    kHang,         // no effect, no reply: waits for the deadline (or for ever)
    kDuplicate,    // the request arrives twice; the reply is that of the first
    kTruncate,     // a body breaks off: of a write on its way there (no effect), of a read on its
                   // way back; kUnavailable
  };
  Kind kind = Kind::kNone;
  Duration before{0};
  Duration after{0};
  uint32_t retry_after_ms = 0;  // of kThrottle
};

struct FaultCall {
  StoreOp op;
  const std::string& key;  // or the listed prefix
  uint64_t number;         // of this request, from 1
};

// What goes wrong how often: probabilities per request, durations each way.
struct FaultRates {
  Duration latency_min{0};
  Duration latency_max{0};
  double slow_first_byte = 0;  // the reply begins up to `slow_max` late
  Duration slow_max = std::chrono::seconds(5);
  double reset_before = 0;  // connection reset without the effect
  double reset_after = 0;   // ... with it
  double truncate = 0;
  double hang = 0;
  double throttle = 0;
  uint32_t retry_after_ms = 0;  // of a throttled request
  double error = 0;             // 500; begins a burst
  uint32_t error_burst = 1;     // requests that get 500 in a row
};

// A script that draws from `world`, which outlives it.
std::function<Fault(const FaultCall&)> random_faults(World& world, FaultRates rates);

class FaultStore final : public ObjectStore {
 public:
  using Script = std::function<Fault(const FaultCall&)>;

  // Every request takes `delay`: half before its effect, half after. `world` outlives the store.
  FaultStore(World& world, std::shared_ptr<ObjectStore> inner, Duration delay);
  // `script` decides over each request as it begins.
  FaultStore(World& world, std::shared_ptr<ObjectStore> inner, Script script);

  void set_script(Script script) { script_ = std::move(script); }

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
  class FaultUpload;
  template <class R>
  Task<R> perform(StoreOp op, std::string key, std::move_only_function<Task<R>()> request,
                  Deadline deadline);

  World& world_;
  const std::shared_ptr<ObjectStore> inner_;
  Script script_;
  uint64_t requests_ = 0;
};

}  // namespace celld
