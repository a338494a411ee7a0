// Reading and writing of binary formats: big-endian integers, varints, short strings.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace celld {

inline std::string_view as_chars(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const uint8_t> as_bytes(std::string_view chars) {
  return {reinterpret_cast<const uint8_t*>(chars.data()), chars.size()};
}

// The low `width` bytes (1 to 8) of `value`, most significant first.
inline void put_be(std::string& out, uint64_t value, int width) {
  for (int i = width - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Base-128 groups, least significant first, the top bit set on all but the last.
inline void put_uvarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// A cursor over bytes that somebody else may have written.
//
// The first read past the end makes the reader fail; a failed reader gives zeros and empty views
// for ever, so that a decoder may read a whole group of fields and ask `ok()` once. Keeps a view:
// the bytes must outlive it. One thread at a time.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t offset() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  std::string_view take(size_t n) {
    if (!ok_ || n > left()) {
      ok_ = false;
      return {};
    }
    std::string_view got = bytes_.substr(at_, n);
    at_ += n;
    return got;
  }
  uint64_t be(int width) {
    uint64_t value = 0;
    for (char c : take(static_cast<size_t>(width))) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }
  uint8_t u8() { return static_cast<uint8_t>(be(1)); }
  uint16_t u16() { return static_cast<uint16_t>(be(2)); }
  uint32_t u32() { return static_cast<uint32_t>(be(4)); }
  uint64_t u64() { return be(8); }
  // Only the shortest form of a number is accepted.
  uint64_t uvarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = u8();
      if (!ok_) return 0;
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (byte == 0 && shift > 0) break;
        return value;
      }
    }
    ok_ = false;
    return 0;
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace celld
