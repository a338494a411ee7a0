// Characters of keys, for stores that do not take any bytes. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace celld {

// The bytes of the UTF-8 character that starts at `at`; 0 when there is none, or it is U+FFFE or
// U+FFFF, or a control character (below U+0020, U+007F to U+009F).
size_t printable_utf8_bytes(std::string_view text, size_t at);

}  // namespace celld
