// File patterns as the rules of wrangler.jsonc use them.
#pragma once

#include <string>
#include <string_view>

namespace celld {

// `*` and `?` stay within one part of a path, `**` as a whole part spans any number of them, {a,b} is
// a choice. `path` has '/' as separator; a leading "./" of either is of no consequence.
// Bounded work for any input. Pure; any thread.
bool glob_matches(std::string_view glob, std::string_view path);

// ".txt" when the last part of `glob` is "*.txt"; empty when it does not determine the extension.
std::string glob_extension(std::string_view glob);

}  // namespace celld
