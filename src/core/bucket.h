// How the protocol talks to the bucket: every request bounded in time, reads and idempotent
// writes repeated with backoff, conditional writes brought to a definite outcome.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/object_store.h"
#include "world/world.h"

namespace celld {

// Waits that double from `base` to `cap`, with full jitter.
class Backoff {
 public:
  Backoff(World& world, Duration base, Duration cap) : world_(world), next_(base), cap_(cap) {}
  Duration next() {
    Duration bound = next_;
    next_ = std::min(next_ * 2, cap_);
    // At least a tenth: a burst of failures must not become a busy loop.
    return std::chrono::duration_cast<Duration>(bound * (0.1 + 0.9 * world_.random_unit()));
  }

 private:
  World& world_;
  Duration next_;
  Duration cap_;
};

// The definite end of a conditional write.
struct Settled {
  enum Kind : uint8_t {
    kApplied,    // our bytes are there; `version` is theirs
    kRejected,   // the condition fails and the object is not ours; `current` is what is there
    kUnsettled,  // not known at the deadline: the write may still happen. `error` says why
  };
  Kind kind = kUnsettled;
  Version version;
  std::optional<StoredObject> current;  // nothing: the object does not exist
  Error error;
};

// Whether the store is throttling.
inline bool asks_for_pause(const Error& error) { return error.retry_after_ms != 0; }

// How long the store wants to be left alone (0: it does not), as far as it is heard: at most kPauseMax, since
// a store that says an hour may be well again in a second, and commits wait.
inline constexpr Duration kPauseMax = std::chrono::seconds(2);
inline Duration asked_pause(const Error& error) {
  return std::min<Duration>(std::chrono::milliseconds(error.retry_after_ms), kPauseMax);
}

// When a conditional write without an outcome is made again before anybody looks what became of
// it. A store that throttles has most likely done nothing, and a look is throttled as well: then
// the same bytes under the same condition are sent again, which can do no harm. After kMax in a
// row a look decides.
class PutOffLook {
 public:
  static constexpr unsigned kMax = 8;
  bool after(const SwapResult& swap) {
    const bool throttled = swap.outcome == SwapOutcome::kAmbiguous && asks_for_pause(swap.error);
    in_a_row_ = throttled && in_a_row_ < kMax ? in_a_row_ + 1 : 0;
    return in_a_row_ > 0;
  }

 private:
  unsigned in_a_row_ = 0;
};

// Hears of every attempt that did not bring a conditional write to its end.
using AttemptFailed = std::move_only_function<void(const Error&)>;

// On the world's thread. The store and `stopped` outlive it.
class Bucket {
 public:
  static constexpr uint64_t kBytesPerSecondMin = 512 << 10;
  static constexpr size_t kDeletesTogether = 256;

  // Every request is cut off after `request_timeout` and the time that its bytes take on a line of
  // kBytesPerSecondMin. When `stopped` turns true, repetitions end
  // with kFenced, or kUnsettled.
  Bucket(World& world, ObjectStore& store, Duration request_timeout, std::function<bool()> stopped);

  // Repeated while the error is kUnavailable or kDeadline, until the deadline, not before the pause
  // that the store asks for. Never kDeadline itself: the last error of the store is worth more.
  // `bytes`: how large the object is, if that is known.
  Task<Result<StoredObject>> get(std::string key, Deadline deadline, uint64_t bytes = 0);
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range, Deadline deadline);
  Task<Result<void>> put(std::string key, Blob body, Deadline deadline);
  Task<Result<void>> remove(std::string key, Deadline deadline);
  // All of them, kDeletesTogether at a time, in as few requests as the store can; what failed is repeated. Ends at
  // the first of these groups that is not done, with an error of it.
  Task<Result<void>> remove_many(std::vector<std::string> keys, Deadline deadline);
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline);
  // All pages behind `start_after`, at most `keys_max` keys; kOverloaded when there are more.
  Task<Result<std::vector<ListedObject>>> list_all(std::string prefix, std::string start_after,
                                                   size_t keys_max, Deadline deadline);

  // A conditional write of bytes that nobody else would write under this condition, or whose
  // writers all want the same. Repeated with identical bytes until the outcome is definite; a
  // refusal is compared with our own bytes first.
  Task<Settled> settle(std::string key, Blob body, Condition condition, Deadline deadline,
                       AttemptFailed* failed = nullptr);

  // One request, not repeated.
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition, Deadline deadline);

  // What `bytes` may take at most, beside the time of a request.
  static Duration transfer_time(uint64_t bytes) {
    return std::chrono::seconds(1) * bytes / kBytesPerSecondMin;
  }
  World& world() { return world_; }
  bool stopped() const { return stopped_(); }
  std::string describe() const { return store_.describe(); }

 private:
  Task<Result<void>> remove_left(std::vector<std::string>& left, Deadline deadline);
  Deadline request_deadline(Deadline deadline, uint64_t bytes = 0);

  World& world_;
  ObjectStore& store_;
  const Duration request_timeout_;
  std::function<bool()> stopped_;
};

}  // namespace celld
