// What backends share of uploads in parts.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "store/object_store.h"

namespace celld {

// kInvalid unless a store takes parts of that size.
Result<void> check_part_bytes(uint64_t part_bytes);

// The sizes of the parts that were sent, and whether they make an object.
class PartSizes {
 public:
  explicit PartSizes(uint64_t part_bytes) : part_bytes_(part_bytes) {}

  // kInvalid when a store would not take that part: its number, an empty or too large body, another
  // size than the others' in front of a higher part.
  Result<void> check(uint32_t number, uint64_t bytes) const;
  void sent(uint32_t number, uint64_t bytes) { sizes_[number] = bytes; }
  // kInvalid when there is none, one is missing, or one in the middle is short.
  Result<void> complete() const;
  uint64_t total_bytes() const;

 private:
  const uint64_t part_bytes_;
  std::map<uint32_t, uint64_t> sizes_;
};

// Keeps the parts in memory and puts them as one object. `store` outlives it.
std::unique_ptr<Upload> buffered_upload(ObjectStore& store, std::string key, uint64_t part_bytes);

}  // namespace celld
