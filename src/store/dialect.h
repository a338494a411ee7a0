// How one store wants things said; found out by the probe, shared by all clients of the store.
#pragma once

#include <cstdint>

namespace celld {

// Whether the ETag in If-Match stands in quotes: R2 and AWS want them, Ceph RGW must not see them.
enum class EtagQuotes : uint8_t { kQuoted, kBare };

struct StoreDialect {
  EtagQuotes etag_quotes = EtagQuotes::kQuoted;
};

}  // namespace celld
