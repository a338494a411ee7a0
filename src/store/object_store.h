// The bucket, as the protocol sees it.
//
// The promise of this interface is in docs/protocol.md section 1: conditional create and swap
// with three outcomes, read-after-write, consistent LIST, ranged GET. Everything runs on the
// world's thread; nothing blocks or throws. Every call takes a deadline.
#pragma once

#include <cstdint>
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

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // kNotFound when there is none.
  virtual Task<Result<StoredObject>> get(std::string key, Deadline deadline) = 0;
  virtual Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                               Deadline deadline) = 0;

  // One PUT, never retried inside, by any layer.
  virtual Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                                  Deadline deadline) = 0;

  // Unconditional: only for objects whose key determines their content. May be retried inside.
  virtual Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) = 0;

  // Deleting what is not there succeeds.
  virtual Task<Result<void>> remove(std::string key, Deadline deadline) = 0;

  // One page.
  virtual Task<Result<ListPage>> list(ListRequest request, Deadline deadline) = 0;

  // "s3://bucket/prefix", "file:///dir": for messages.
  virtual std::string describe() const = 0;
};

// All pages of one prefix.
Task<Result<std::vector<ListedObject>>> list_all(ObjectStore& store, std::string prefix,
                                                 Deadline deadline);

}  // namespace celld
