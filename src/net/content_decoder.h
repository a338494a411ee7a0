// Undoes the content codings of HTTP: gzip, deflate, br.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace celld {

class ContentDecoder {
 public:
  // For the value of a Content-Encoding header; null for identity, several codings, an unknown one:
  // then the body passes as it is.
  static std::unique_ptr<ContentDecoder> make(std::string_view content_encoding);
  virtual ~ContentDecoder() = default;

  // Uses bytes of `in` and appends at most `out_max` (> 0) bytes to `out`; returns how many of `in`
  // were used. With `out` full there may be more for an empty `in`. What follows the end of the
  // coded data is dropped. kInvalid when the data is malformed.
  virtual Result<size_t> decode(std::string_view in, std::string& out, size_t out_max) = 0;
  // The coded data is complete, or none came.
  virtual bool complete() const = 0;
};

}  // namespace celld
