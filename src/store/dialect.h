// How one store wants things said; found out by the probe and by its answers, shared by all clients
// of the store.
#pragma once

#include <cstdint>
#include <string>

namespace celld {

// Whether the ETag in If-Match stands in quotes: R2 and AWS want them, Ceph RGW must not see them.
enum class EtagQuotes : uint8_t { kQuoted, kBare };

struct StoreDialect {
  EtagQuotes etag_quotes = EtagQuotes::kQuoted;
  // Of an S3 bucket, once the store has said that it is another than was configured.
  std::string region;
  // False once the store has refused a delete of several keys: they are then deleted one by one.
  bool batch_delete = true;
};

}  // namespace celld
