#include "store/file_layout.h"

#include <charconv>

#include "base/check.h"

namespace celld {

namespace {

constexpr char kObjectSuffix = '@';
constexpr char kChunkSuffix = '^';
constexpr std::string_view kEmptyPart = "%";
constexpr char kHex[] = "0123456789ABCDEF";
constexpr std::string_view kHeaderMagic = "celld-object 1 ";
constexpr size_t kLengthDigits = 15;
static_assert(kHeaderMagic.size() + kTokenBytes + 1 + kLengthDigits + 1 == kObjectHeaderBytes);

bool plain(unsigned char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == ':' || c == '$' || c == '=' || c == ',' || c == '+';
}

std::string encode_part(std::string_view part) {
  if (part.empty()) return std::string(kEmptyPart);
  bool dots = part == "." || part == "..";
  std::string out;
  for (unsigned char c : part) {
    if (plain(c) && !dots) {
      out += static_cast<char>(c);
    } else {
      out += '%';
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  return out;
}

int upper_hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode_part(std::string_view text) {
  if (text == kEmptyPart) return std::string();
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    int high = upper_hex_digit(text[i + 1]);
    int low = upper_hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  // Only the one spelling that encode_part gives counts.
  if (out.empty() || encode_part(out) != text) return std::nullopt;
  return out;
}

bool lower_hex(std::string_view text) {
  for (char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

}  // namespace

KeyPath key_path(std::string_view key) {
  KeyPath path;
  while (true) {
    size_t slash = key.find('/');
    std::string_view component = key.substr(0, slash);
    // A component of exactly kChunkBytes is cut too: everything below a chunk then shares one
    // contiguous range of keys, which is what lets LIST walk the tree in order.
    while (component.size() >= kChunkBytes) {
      path.directories.push_back(encode_part(component.substr(0, kChunkBytes)) + kChunkSuffix);
      component.remove_prefix(kChunkBytes);
    }
    if (slash == std::string_view::npos) {
      path.leaf = encode_part(component) + kObjectSuffix;
      return path;
    }
    path.directories.push_back(encode_part(component));
    key.remove_prefix(slash + 1);
  }
}

std::optional<LayoutName> parse_layout_name(std::string_view file_name) {
  if (file_name.empty()) return std::nullopt;
  LayoutName name{LayoutName::Kind::kDirectory, {}};
  if (file_name.back() == kObjectSuffix || file_name.back() == kChunkSuffix) {
    name.kind =
        file_name.back() == kObjectSuffix ? LayoutName::Kind::kObject : LayoutName::Kind::kChunk;
    file_name.remove_suffix(1);
  }
  auto part = decode_part(file_name);
  if (!part) return std::nullopt;
  bool whole_chunk = part->size() == kChunkBytes;
  if (whole_chunk != (name.kind == LayoutName::Kind::kChunk) || part->size() > kChunkBytes ||
      part->find('/') != std::string::npos) {
    return std::nullopt;
  }
  name.part = std::move(*part);
  return name;
}

std::string encode_object_header(const ObjectHeader& header) {
  CHECK(header.token.size() == kTokenBytes && lower_hex(header.token)) << header.token;
  CHECK(header.body_bytes >> (4 * kLengthDigits) == 0) << header.body_bytes;
  std::string out(kHeaderMagic);
  out += header.token;
  out += ' ';
  for (size_t i = kLengthDigits; i-- > 0;) {
    out += "0123456789abcdef"[header.body_bytes >> (4 * i) & 15];
  }
  out += '\n';
  return out;
}

Result<ObjectHeader> decode_object_header(std::string_view bytes) {
  if (bytes.size() < kObjectHeaderBytes) {
    return fail(Error::corrupt("object file of " + std::to_string(bytes.size()) +
                               " bytes is shorter than its header"));
  }
  bytes = bytes.substr(0, kObjectHeaderBytes);
  if (!bytes.starts_with(kHeaderMagic)) {
    return fail(Error::corrupt("object file does not start with 'celld-object 1'"));
  }
  std::string_view token = bytes.substr(kHeaderMagic.size(), kTokenBytes);
  std::string_view length = bytes.substr(kObjectHeaderBytes - 1 - kLengthDigits, kLengthDigits);
  if (!lower_hex(token) || !lower_hex(length) || bytes.back() != '\n' ||
      bytes[kHeaderMagic.size() + kTokenBytes] != ' ') {
    return fail(Error::corrupt("object file has a damaged header"));
  }
  ObjectHeader header;
  header.token = token;
  std::from_chars(length.data(), length.data() + length.size(), header.body_bytes, 16);
  return header;
}

}  // namespace celld
