// Repeats what is safe to repeat.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "store/object_store.h"

namespace celld {

// Reads, plain puts, parts of uploads, deletes and lists that fail for a while (kUnavailable, kOverloaded) are
// repeated with exponential backoff and full jitter, not before the store's Retry-After, and never
// past the deadline. put_if passes through once, whatever happens.
class RetryStore final : public ObjectStore {
 public:
  struct Options {
    Duration backoff_first = std::chrono::milliseconds(50);  // doubles with every attempt
    Duration backoff_max = std::chrono::seconds(5);
    uint32_t attempts_max = 8;  // in all, per operation
    // Retries that may be spent at once; five successes earn four back. A store that throttles sees
    // at most 1.8 times the offered requests and budget_max more, one that is down budget_max more.
    uint32_t budget_max = 10;
  };

  // `world` outlives the store.
  RetryStore(World& world, std::shared_ptr<ObjectStore> inner, Options options);

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

  uint64_t retries() const { return retries_; }

 private:
  class RetriedUpload;
  template <class R>
  Task<R> repeat(std::move_only_function<Task<R>()> attempt, Deadline deadline);
  void earn();
  // How long to wait before the next attempt, or nothing to give up.
  std::optional<Duration> next_wait(const Error& error, uint32_t attempts, Deadline deadline);

  World& world_;
  const std::shared_ptr<ObjectStore> inner_;
  const Options options_;
  double budget_;
  uint64_t retries_ = 0;
};

}  // namespace celld
