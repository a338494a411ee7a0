// SHA-256, as bytes and as the lower-case hex that keys and records carry.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace celld {

using Sha256 = std::array<uint8_t, 32>;

// Never fails; any thread.
Sha256 sha256(std::string_view bytes);
// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);
// Lower-case hex of `bytes`.
std::string to_hex_text(std::string_view bytes);
// True for 64 lower-case hex digits.
bool is_sha256_hex(std::string_view text);

}  // namespace celld
