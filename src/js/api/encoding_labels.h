// The labels of the WHATWG Encoding Standard, section 4.2, for all encodings but UTF-8.
#pragma once

#include <string_view>

namespace celld::js {

struct Encoding {
  std::string_view name;   // as TextDecoder.encoding says it
  const char* converter;   // of ICU
};

// nullptr for a label that is unknown (or means UTF-8). `label` is trimmed and in lower case.
const Encoding* find_encoding(std::string_view label);

}  // namespace celld::js
