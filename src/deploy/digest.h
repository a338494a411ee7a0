// The name of a content: SHA-256 as 64 lower-case hex digits.
#pragma once

#include <string>
#include <string_view>

namespace celld {

// Never fails; any thread.
std::string content_hash(std::string_view bytes);
// True for 64 lower-case hex digits.
bool is_content_hash(std::string_view text);

}  // namespace celld
