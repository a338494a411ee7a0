#include "store/utf8.h"

#include <cstdint>

namespace celld {

size_t printable_utf8_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first >= 0xc2 && first <= 0xdf && follows(1))
    return (first == 0xc2 && byte(1) < 0xa0) ? 0 : 2;
  if (first >= 0xe0 && first <= 0xef && follows(1) && follows(2)) {
    const uint32_t c = (first & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    return c < 0x800 || (c >= 0xd800 && c <= 0xdfff) || c >= 0xfffe ? 0 : 3;
  }
  if (first >= 0xf0 && first <= 0xf4 && follows(1) && follows(2) && follows(3)) {
    const uint32_t c =
        (first & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    return c < 0x10000 || c > 0x10ffff ? 0 : 4;
  }
  return 0;
}

}  // namespace celld
