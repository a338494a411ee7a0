// .dev.vars: values that override `vars` while developing and are never uploaded.
//
// Pure parsing as the npm package dotenv reads it, but a line that dotenv would skip is an error.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "deploy/wrangler_config.h"

namespace celld {

// Lines `NAME=value`, `export NAME="value"`; quotes ', " and ` may span lines; in double quotes \n and
// \r are escapes; # begins a comment outside quotes. All results are kText; a later line wins.
// `file` is for messages.
Result<std::vector<Var>> parse_dev_vars(std::string_view text, std::string_view file);

// <project_dir>/.dev.vars; empty when there is none. Blocks on the disk.
Result<std::vector<Var>> read_dev_vars(const std::filesystem::path& project_dir);

// `base` with every var of `overrides` replaced or added.
std::vector<Var> override_vars(std::vector<Var> base, const std::vector<Var>& overrides);

}  // namespace celld
