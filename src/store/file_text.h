// Small files of this machine that hold keys and tokens. Blocks; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace celld {

// The whole file. kNotFound when there is none; kInvalid names the path when it cannot be read or
// is larger than `bytes_max`. Errors never show its content.
Result<std::string> read_text_file(const std::string& path, size_t bytes_max);

}  // namespace celld
