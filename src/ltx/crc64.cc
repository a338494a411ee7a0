#include "ltx/crc64.h"

#include <array>
#include <bit>
#include <cstring>

namespace celld {

namespace {

static_assert(std::endian::native == std::endian::little, "the tables assume little-endian loads");

constexpr uint64_t kPolynomial = 0xd800000000000000;  // x^64 + x^4 + x^3 + x + 1, reflected

// tables[k][b]: the effect of byte b followed by k zero bytes ("slicing by 8").
constexpr auto kTables = [] {
  std::array<std::array<uint64_t, 256>, 8> tables{};
  for (uint64_t b = 0; b < 256; ++b) {
    uint64_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      uint64_t before = tables[k - 1][b];
      tables[k][b] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

}  // namespace

uint64_t crc64(uint64_t previous, std::span<const uint8_t> bytes) {
  const uint8_t* p = bytes.data();
  size_t n = bytes.size();
  uint64_t crc = ~previous;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc ^= word;
    crc = kTables[7][crc & 0xff] ^ kTables[6][crc >> 8 & 0xff] ^ kTables[5][crc >> 16 & 0xff] ^
          kTables[4][crc >> 24 & 0xff] ^ kTables[3][crc >> 32 & 0xff] ^
          kTables[2][crc >> 40 & 0xff] ^ kTables[1][crc >> 48 & 0xff] ^ kTables[0][crc >> 56];
  }
  for (; n > 0; --n, ++p) crc = kTables[0][(crc ^ *p) & 0xff] ^ crc >> 8;
  return ~crc;
}

}  // namespace celld
