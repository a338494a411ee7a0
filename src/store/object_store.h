// The bucket, as the protocol sees it.
//
// The promise of this interface is in docs/protocol.md section 1: conditional create and swap
// with three outcomes, read-after-write, consistent LIST, ranged GET. Everything runs on the
// world's thread; nothing blocks or throws. Every call takes a deadline, which may also be cancelled
// (Deadline::cancelled_by): the call then ends soon with kCancelled, a conditional write ambiguously
// so. Its effect may have happened or may still happen, as after a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/blob.h"
#include "base/result.h"
#include "world/task.h"
#include "world/world.h"

namespace celld {

// The store's name for one state of one object. Opaque; never empty.
struct Version {
  std::string token;
  bool operator==(const Version&) const = default;
};

struct StoredObject {
  Blob body;  // the whole object, or the range asked for
  Version version;
  uint64_t object_bytes = 0;  // size of the whole object
};

struct ObjectInfo {
  Version version;
  uint64_t bytes = 0;
};

struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;  // > 0; a range past the end is cut, one wholly past it is kInvalid
};

// The condition of a conditional write: create (no version) or swap (on a version).
struct Condition {
  std::optional<Version> version;
  static Condition create() { return Condition{}; }
  static Condition swap(Version v) { return Condition{std::move(v)}; }
};

enum class SwapOutcome : uint8_t {
  kApplied,    // the store confirmed it
  kRejected,   // the store definitely refused: the condition does not hold
  kAmbiguous,  // anything else: the write may have happened, may be happening, or not
};

struct [[nodiscard]] SwapResult {
  SwapOutcome outcome = SwapOutcome::kAmbiguous;
  Version version;  // of the new state, when applied
  Error error;      // why, when ambiguous

  static SwapResult applied(Version v) { return {SwapOutcome::kApplied, std::move(v), {}}; }
  static SwapResult rejected() { return {SwapOutcome::kRejected, {}, {}}; }
  static SwapResult ambiguous(Error e) { return {SwapOutcome::kAmbiguous, {}, std::move(e)}; }
};

struct ListedObject {
  std::string key;
  uint64_t bytes = 0;
  WallMs modified;
};

struct ListRequest {
  std::string prefix;
  std::string start_after;   // exclusive; empty = from the beginning
  std::string delimiter;     // "" or "/": fold what follows into common_prefixes
  uint32_t keys_max = 1000;  // 1 to 1000, keys and prefixes together
};

struct ListPage {
  std::vector<ListedObject> objects;         // in byte order of the key
  std::vector<std::string> common_prefixes;  // with the delimiter at the end
  bool more = false;
  std::string next_start_after;  // for the next page, when `more`
};

// What holds for uploads to every store (S3's limits are the narrowest).
inline constexpr uint64_t kPartBytesMin = 5ull << 20;
inline constexpr uint64_t kPartBytesMax = 256ull << 20;
inline constexpr uint32_t kPartsMax = 10'000;

// One object that is sent in parts. Nothing of it is visible before finish() succeeds.
//
// An upload that is neither finished nor aborted (the process died) leaves parts that no list
// shows and that cost money on some stores: docs/stores.md. The store outlives its uploads, and an
// upload its calls.
class Upload {
 public:
  virtual ~Upload() = default;

  // Part `number`, from 1 up to kPartsMax. Several may be under way at once, in any order; sending
  // one again replaces it. All but the last have the size that the upload was begun with, the last
  // is not larger and not empty.
  virtual Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) = 0;

  // Makes the object of the parts 1 to the highest, all of which were sent (kInvalid otherwise).
  // Unconditional, like put. May be called again after a failure.
  virtual Task<Result<Version>> finish(Deadline deadline) = 0;

  // Gives the parts up. Not while another call of this upload is under way, and the last call.
  virtual Task<Result<void>> abort(Deadline deadline) = 0;
};

// The content of a large object, in order.
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  // The next bytes, as many as it likes; empty at the end. An error is the end too.
  virtual Task<Result<Blob>> next(Deadline deadline) = 0;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // kNotFound when there is none.
  virtual Task<Result<StoredObject>> get(std::string key, Deadline deadline) = 0;
  virtual Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                               Deadline deadline) = 0;
  // Size and version alone. kNotFound when there is none. Default: reads a byte.
  virtual Task<Result<ObjectInfo>> head(std::string key, Deadline deadline);

  // One PUT, never retried inside, by any layer.
  virtual Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                                  Deadline deadline) = 0;

  // Unconditional: only for objects whose key determines their content. May be retried inside.
  virtual Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) = 0;

  // Begins an unconditional write in parts of `part_bytes` (kPartBytesMin to kPartBytesMax): for
  // large objects whose key determines their content. put_stream does the cutting. Default: keeps
  // the parts in memory, at most kBufferedUploadBytesMax, and puts them as one.
  virtual Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                             Deadline deadline);

  // Deleting what is not there succeeds.
  virtual Task<Result<void>> remove(std::string key, Deadline deadline) = 0;

  // Deletes many: one outcome for each key, in order, each as of remove(). Any number of keys; a
  // store that can delete several with one request does. Default: one after the other.
  virtual Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                                      Deadline deadline);

  // One page.
  virtual Task<Result<ListPage>> list(ListRequest request, Deadline deadline) = 0;

  // "s3://bucket/prefix", "file:///dir": for messages.
  virtual std::string describe() const = 0;
};

inline constexpr uint64_t kBufferedUploadBytesMax = 256ull << 20;

struct StreamOptions {
  uint64_t part_bytes = 8ull << 20;  // kPartBytesMin to kPartBytesMax
  uint32_t parallel = 2;             // parts under way at once; memory is (parallel + 1) parts
  // For each part, so that a large object does not need a deadline that fits its size.
  Duration part_timeout = std::chrono::minutes(2);
};

// Puts what `source` yields: with one put when it is not more than a part, otherwise with an upload
// that is aborted when the source, the store or the deadline fails it. Unconditional, like put.
// kInvalid: more than kPartsMax parts. What it refers to outlives the task.
Task<Result<Version>> put_stream(World& world, ObjectStore& store, std::string key,
                                 BlobSource& source, StreamOptions options, Deadline deadline);

// All pages of one prefix.
Task<Result<std::vector<ListedObject>>> list_all(ObjectStore& store, std::string prefix,
                                                 Deadline deadline);

}  // namespace celld
