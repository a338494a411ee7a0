// How keys are named in Azure Blob Storage. Pure functions.
//
// Azure does not take every name: a part that ends with a dot or a name that ends with a slash
// loses it, a backslash becomes a slash, "." and ".." are resolved. Such keys get an escape; all
// others, among them all that celld itself makes, are named as they are. The escape keeps the order
// of bytes and the relation between a prefix and what begins with it, so that lists need no
// translation:
//
//   "." before the end or a byte below '0'   is followed by "!"      a. a../b     a.! a.!.!/b
//   "/" before the end or a byte below '"'   is followed by "!"      a/           a/!
//   "[" and "\"                              become "[0" and "[1"    a\b          a[1b
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace celld {

// kInvalid when Azure has no name for it: control characters, bytes that are not UTF-8, U+FFFE,
// U+FFFF.
Result<std::string> azure_name(std::string_view key);
// What the names of all keys that start with `prefix`, and of no others, start with.
Result<std::string> azure_prefix(std::string_view prefix);
// Nothing when the name is not one that azure_name() gives: somebody else's blob.
std::optional<std::string> azure_key(std::string_view name);
// The same for a name that was cut behind a delimiter.
std::optional<std::string> azure_folder_key(std::string_view name);

}  // namespace celld
