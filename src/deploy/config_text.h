// A configuration file as one tree of values with the line of every key.
//
// Pure functions over text; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace celld {

enum class ConfigFormat : uint8_t {
  kJsonc,  // JSON with comments and trailing commas
  kToml,
};

struct ConfigTree {
  boost::json::object root;
  // Path of a key or an element ("durable_objects.bindings[0].name") to its line, from 1 up.
  std::map<std::string, int, std::less<>> lines;
};

// A file beyond this is refused unread.
inline constexpr size_t kConfigBytesMax = 1 << 20;

// kInvalid for malformed text; the message starts with "<file>:<line>: ".
// `file` is only for messages. TOML dates, and numbers that JSON has not, are refused.
Result<ConfigTree> parse_config_text(std::string_view text, ConfigFormat format,
                                     std::string_view file);

}  // namespace celld
