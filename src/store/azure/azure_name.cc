#include "store/azure/azure_name.h"

#include "store/key.h"
#include "store/utf8.h"

namespace celld {

namespace {

enum class End : bool { kClosed, kOpen };

Result<std::string> encode(std::string_view key, End end) {
  std::string out;
  out.reserve(key.size() + 8);
  for (size_t at = 0; at < key.size();) {
    const size_t bytes = printable_utf8_bytes(key, at);
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
