// The labels of the WHATWG Encoding Standard, section 4.2.
#pragma once

#include <string_view>

namespace celld::js {

struct Encoding {
  std::string_view name;   // as TextDecoder.encoding says it
  const char* converter;   // of ICU
};

// nullptr for an unknown label. `label` is trimmed and in lower case.
const Encoding* find_encoding(std::string_view label);

}  // namespace celld::js
