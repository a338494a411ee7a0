// Applies the content codings of HTTP: gzip, br.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace celld {

class ContentEncoder {
 public:
  // For the value of a Content-Encoding header; null for any other: then the body passes as it is.
  static std::unique_ptr<ContentEncoder> make(std::string_view content_encoding);
  virtual ~ContentEncoder() = default;

  // The coded form of what came so far: a reader can decode all of it. One thread at a time.
  virtual std::string encode(std::string_view in) = 0;
  // What ends the coded form. Nothing may follow.
  virtual std::string finish() = 0;
};

}  // namespace celld
