// What a key of a bucket may be, and the small text codecs that stores share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/object_store.h"

namespace celld {

inline constexpr size_t kKeyBytesMax = 1024;  // the limit of S3
inline constexpr uint32_t kListKeysMax = 1000;

// kInvalid unless `key` has 1 to kKeyBytesMax bytes. Any byte is allowed.
Result<void> check_key(std::string_view key);

// kInvalid when a field is out of its range, as ListRequest says.
Result<void> check_list(const ListRequest& request);

// Cuts `range` to an object of `object_bytes`; kInvalid when nothing is left or the length is 0.
Result<ByteRange> clip_range(ByteRange range, uint64_t object_bytes);

// A key as a message shows it: at most 200 bytes, anything unprintable as \xNN.
std::string printable_key(std::string_view key);

std::string hex_lower(std::string_view bytes);

// RFC 3986: everything but [A-Za-z0-9-_.~] as %XX; '/' stays when `slash` is kKeep.
enum class Slash : uint8_t { kKeep, kEncode };
std::string percent_encode(std::string_view bytes, Slash slash);

// Nothing when a '%' is not followed by two hex digits. '+' becomes a blank when `plus` says so.
enum class Plus : uint8_t { kLiteral, kBlank };
std::optional<std::string> percent_decode(std::string_view text, Plus plus);

}  // namespace celld
