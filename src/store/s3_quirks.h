// What stores that speak S3 want otherwise than Amazon, by the host of their endpoint.
#pragma once

#include <string_view>

#include "store/dialect.h"

namespace celld {

enum class Addressing : uint8_t {
  kPath,         // https://host/bucket/key
  kVirtualHost,  // https://bucket.host/key
};

struct S3Quirks {
  std::string_view host_suffix;  // "" for every host
  std::string_view name;
  Addressing addressing = Addressing::kPath;
  std::string_view region = "us-east-1";  // when none is given
  EtagQuotes etag_quotes = EtagQuotes::kQuoted;  // where the probe begins
  // A header for every request; empty: none.
  std::string_view header;
  std::string_view header_value;
};

// Of a host, with or without port. What is not in the table is taken for path style and quoted
// ETags; the probe finds out the rest.
const S3Quirks& s3_quirks(std::string_view host);

}  // namespace celld
