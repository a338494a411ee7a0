#include "store/key.h"

#include <algorithm>

namespace celld {

namespace {

constexpr char kHexLower[] = "0123456789abcdef";
constexpr char kHexUpper[] = "0123456789ABCDEF";

bool unreserved(unsigned char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<void> check_key(std::string_view key) {
  if (key.empty()) return fail(Error::invalid("empty key"));
  if (key.size() > kKeyBytesMax) {
    return fail(Error::invalid("key '" + printable_key(key) + "' has " +
                               std::to_string(key.size()) + " bytes; the limit is " +
                               std::to_string(kKeyBytesMax)));
  }
  return {};
}

Result<void> check_list(const ListRequest& request) {
  if (request.keys_max < 1 || request.keys_max > kListKeysMax) {
    return fail(Error::invalid("list: keys_max is " + std::to_string(request.keys_max) +
                               ", not 1 to " + std::to_string(kListKeysMax)));
  }
  if (!request.delimiter.empty() && request.delimiter != "/") {
    return fail(
        Error::invalid("list: delimiter '" + printable_key(request.delimiter) + "' is not '/'"));
  }
  if (request.prefix.size() > kKeyBytesMax) {
    return fail(Error::invalid("list: prefix '" + printable_key(request.prefix) + "' is too long"));
  }
  return {};
}

Result<ByteRange> clip_range(ByteRange range, uint64_t object_bytes) {
  if (range.length == 0) return fail(Error::invalid("range of length 0"));
  if (range.offset >= object_bytes) {
    return fail(Error::invalid("range from " + std::to_string(range.offset) +
                               " is past the end of " + std::to_string(object_bytes) + " bytes"));
  }
  range.length = std::min(range.length, object_bytes - range.offset);
  return range;
}

std::string printable_key(std::string_view key) {
  constexpr size_t kShownMax = 200;
  std::string out;
  for (unsigned char c : key.substr(0, kShownMax)) {
    if (c >= 0x20 && c != 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += "\\x";
      out += kHexLower[c >> 4];
      out += kHexLower[c & 15];
    }
  }
  if (key.size() > kShownMax) out += "...";
  return out;
}

std::string hex_lower(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (unsigned char c : bytes) {
    out += kHexLower[c >> 4];
    out += kHexLower[c & 15];
  }
  return out;
}

std::string percent_encode(std::string_view bytes, Slash slash) {
  std::string out;
  out.reserve(bytes.size() + 16);
  for (unsigned char c : bytes) {
    if (unreserved(c) || (c == '/' && slash == Slash::kKeep)) {
      out += static_cast<char>(c);
    } else {
      out += '%';
      out += kHexUpper[c >> 4];
      out += kHexUpper[c & 15];
    }
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus == Plus::kBlank) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      int high = hex_digit(text[i + 1]);
      int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high << 4 | low);
      i += 2;
    }
  }
  return out;
}

}  // namespace celld
