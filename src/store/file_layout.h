// How keys become paths below a file store's directory, and back. Pure functions.
//
// The format is described in docs/formats/file-store.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/object_store.h"

namespace celld {

// A component of a key is cut after this many bytes, so that its file name, with each byte encoded
// as three and one byte of suffix, stays below the 255 bytes of a file system.
inline constexpr size_t kChunkBytes = 84;

struct KeyPath {
  std::vector<std::string> directories;  // file names, outermost first
  std::string leaf;                      // file name of the object
};

// `key` satisfies check_key.
KeyPath key_path(std::string_view key);

// What a file name in the object tree stands for.
struct LayoutName {
  enum class Kind : uint8_t {
    kObject,     // the object whose key ends here
    kDirectory,  // keys that go on with `part` and a slash
    kChunk,      // keys that go on with `part` and no cut
  };
  Kind kind;
  std::string part;
};

// Nothing for a name that key_path never makes.
std::optional<LayoutName> parse_layout_name(std::string_view file_name);

// The head of every object file, one line of text of exactly kObjectHeaderBytes.
inline constexpr size_t kObjectHeaderBytes = 64;
inline constexpr size_t kTokenBytes = 32;  // lower-case hex digits

struct ObjectHeader {
  std::string token;
  uint64_t body_bytes = 0;
};

// `token` has kTokenBytes hex digits; `body_bytes` is below 2^60.
std::string encode_object_header(const ObjectHeader& header);
// kCorrupt with the reason.
Result<ObjectHeader> decode_object_header(std::string_view bytes);

}  // namespace celld
