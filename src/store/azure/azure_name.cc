#include "store/azure/azure_name.h"

#include <cstdint>

#include "store/key.h"

namespace celld {

namespace {

enum class End : bool { kClosed, kOpen };

// The bytes of the character that starts at `at`; 0 when it is none that a blob name can have.
size_t character_bytes(std::string_view text, size_t at) {
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

Result<std::string> encode(std::string_view key, End end) {
  std::string out;
  out.reserve(key.size() + 8);
  for (size_t at = 0; at < key.size();) {
    const size_t bytes = character_bytes(key, at);
    if (bytes == 0) {
      return fail(Error::invalid("'" + printable_key(key) +
                                 "' has a byte that no blob name can have, at " +
                                 std::to_string(at)));
    }
    const char c = key[at];
    if (c == '[' || c == '\\') {
      out += c == '[' ? "[0" : "[1";
    } else {
      out += key.substr(at, bytes);
    }
    at += bytes;
    if (c != '.' && c != '/') continue;
    if (at == key.size() ? end == End::kClosed : key[at] > 0 && key[at] < (c == '.' ? '0' : '"')) {
      out += '!';
    }
  }
  return out;
}

std::optional<std::string> decode(std::string_view name, End end) {
  std::string key;
  key.reserve(name.size());
  for (size_t at = 0; at < name.size(); ++at) {
    const char c = name[at];
    if (c == '[') {
      if (++at == name.size() || (name[at] != '0' && name[at] != '1')) return std::nullopt;
      key += name[at] == '0' ? '[' : '\\';
      continue;
    }
    key += c;
    if ((c == '.' || c == '/') && at + 1 < name.size() && name[at + 1] == '!') ++at;
  }
  auto again = encode(key, end);
  if (!again || *again != name) return std::nullopt;
  return key;
}

}  // namespace

Result<std::string> azure_name(std::string_view key) { return encode(key, End::kClosed); }
Result<std::string> azure_prefix(std::string_view prefix) { return encode(prefix, End::kOpen); }
std::optional<std::string> azure_key(std::string_view name) { return decode(name, End::kClosed); }
std::optional<std::string> azure_folder_key(std::string_view name) {
  return decode(name, End::kOpen);
}

}  // namespace celld
