// Immutable bytes that several owners share without copying.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace celld {

// A handle to immutable bytes; copying the handle copies no byte. Any thread.
class Blob {
 public:
  Blob() = default;
  explicit Blob(std::string bytes)
      : bytes_(bytes.empty() ? nullptr : std::make_shared<const std::string>(std::move(bytes))) {}

  std::string_view view() const { return bytes_ ? std::string_view(*bytes_) : std::string_view(); }
  size_t size() const { return bytes_ ? bytes_->size() : 0; }
  bool empty() const { return size() == 0; }
  friend bool operator==(const Blob& a, const Blob& b) { return a.view() == b.view(); }

 private:
  std::shared_ptr<const std::string> bytes_;
};

}  // namespace celld
