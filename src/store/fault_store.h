// A bucket that is slow, loses replies and fails, as told: for tests, the simulator and benchmarks.
#pragma once

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
