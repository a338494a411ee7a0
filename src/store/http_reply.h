// What the replies of all stores behind HTTP have in common. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/object_store.h"
#include "world/http_transport.h"

namespace celld {

inline bool is_success(const HttpReply& reply) { return reply.status >= 200 && reply.status <= 299; }

// The value of the first header of that lower-case name.
std::optional<std::string_view> find_header(const HttpReply& reply, std::string_view name);

// For Error::retry_after_ms: the header Retry-After in seconds, at most an hour. Stores throttle without
// it, too, Amazon's among them: then kPauseUnsaidMs when `throttled`, or the status is 429. 0: no pause is
// asked for.
inline constexpr uint32_t kPauseUnsaidMs = 500;
uint32_t retry_after_ms(const HttpReply& reply, bool throttled = false);

// The value of the header Range. What reaches past the largest number is cut.
std::string range_header(ByteRange range);

// The total size in "bytes 2-4/10", when it is exactly the range of `got` bytes from `offset`.
std::optional<uint64_t> parse_content_range(std::string_view header, uint64_t offset, uint64_t got);

// The object that a reply of 200, or 206 to a request with `range`, carries; without version.
// kInvalid when the range is wholly past the end; kUnsupported when something else than was asked for
// came.
Result<StoredObject> object_of(HttpReply reply, const std::optional<ByteRange>& range);

// The reply to a HEAD; without version. kUnsupported when it has no Content-Length.
Result<ObjectInfo> info_of(const HttpReply& reply);

}  // namespace celld
