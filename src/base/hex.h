// Numbers as the fixed-width lowercase hexadecimal that keys use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace celld {

// The low 4 * `digits` bits of `value`, 1 to 16 digits.
inline std::string hex_fixed(uint64_t value, int digits) {
  std::string out(static_cast<size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i, value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

// Exactly `digits` lowercase digits, or nothing.
inline std::optional<uint64_t> parse_hex_fixed(std::string_view text, int digits) {
  if (text.size() != static_cast<size_t>(digits)) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

// Decimal without sign, leading zeros or anything else, within 64 bits; or nothing.
inline std::optional<uint64_t> parse_decimal(std::string_view text) {
  if (text.empty() || text.size() > 20 || (text[0] == '0' && text.size() > 1)) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(value, uint64_t{10}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value)) return std::nullopt;
  }
  return value;
}

}  // namespace celld
