#include "store/http_reply.h"

#include <algorithm>

#include "base/hex.h"

namespace celld {

namespace {

// Azurite answers a range at the end of an object with nothing instead of 416.
bool ends_before(std::string_view content_range, uint64_t offset) {
  const size_t slash = content_range.find('/');
  if (slash == std::string_view::npos) return false;
  auto total = parse_decimal(content_range.substr(slash + 1));
  return total && *total <= offset;
}

}  // namespace

std::optional<std::string_view> find_header(const HttpReply& reply, std::string_view name) {
  for (const auto& [header, value] : reply.headers) {
    if (header == name) return value;
  }
  return std::nullopt;
}

uint32_t retry_after_ms(const HttpReply& reply, bool throttled) {
  auto header = find_header(reply, "retry-after");
  auto seconds = header ? parse_decimal(*header) : std::nullopt;
  constexpr uint64_t kSecondsMax = 3600;
  if (seconds && *seconds > 0) return static_cast<uint32_t>(std::min(*seconds, kSecondsMax) * 1000);
  return throttled || reply.status == 429 ? kPauseUnsaidMs : 0;
}

std::string range_header(ByteRange range) {
  uint64_t last = 0;
  const bool wraps = __builtin_add_overflow(range.offset, range.length - 1, &last);
  if (wraps || last > INT64_MAX - 1) last = INT64_MAX - 1;
  return "bytes=" + std::to_string(range.offset) + "-" + std::to_string(last);
}

std::optional<uint64_t> parse_content_range(std::string_view header, uint64_t offset, uint64_t got) {
  constexpr std::string_view kUnit = "bytes ";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  size_t dash = header.find('-');
  size_t slash = header.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) {
    return std::nullopt;
  }
  auto first = parse_decimal(header.substr(0, dash));
  auto last = parse_decimal(header.substr(dash + 1, slash - dash - 1));
  auto total = parse_decimal(header.substr(slash + 1));
  if (!first || !last || !total || got == 0) return std::nullopt;
  if (*first != offset || *last != offset + got - 1 || *last >= *total) return std::nullopt;
  return total;
}

Result<StoredObject> object_of(HttpReply reply, const std::optional<ByteRange>& range) {
  const uint64_t got = reply.body.size();
  StoredObject object;
  object.object_bytes = got;
  const std::string_view header = find_header(reply, "content-range").value_or("");
  if (range && got == 0 && ends_before(header, range->offset)) {
    return fail(Error::invalid("range from " + std::to_string(range->offset) + " is past the end"));
  }
  if (range && reply.status == 206) {
    auto total = parse_content_range(header, range->offset, got);
    if (!total || got != std::min(range->length, *total - range->offset)) {
      return fail(Error::unsupported("the store answered another range than asked"));
    }
    object.object_bytes = *total;
  } else if (range) {
    // The whole object is a legal answer; it serves only when that is what was asked for.
    if (range->offset != 0 || got > range->length) {
      return fail(Error::unsupported("the store ignores the Range header"));
    }
    if (got == 0) return fail(Error::invalid("range from 0 is past the end of 0 bytes"));
  }
  object.body = Blob(std::move(reply.body));
  return object;
}

Result<ObjectInfo> info_of(const HttpReply& reply) {
  auto header = find_header(reply, "content-length");
  auto bytes = header ? parse_decimal(*header) : std::nullopt;
  if (!bytes) return fail(Error::unsupported("the store gave no Content-Length"));
  ObjectInfo info;
  info.bytes = *bytes;
  return info;
}

}  // namespace celld
