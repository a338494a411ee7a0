// A project on disk, as the commands find it.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "deploy/bundle.h"
#include "deploy/wrangler_config.h"

namespace celld {

// The configuration that `config` names or, if that is empty, the one found for `project`. Says on stderr
// which file it is. Blocks on the disk.
Result<WorkerConfig> load_project(const std::filesystem::path& project,
                                  const std::filesystem::path& config);

// `path` as seen from the working directory when that is shorter to read; for messages.
std::string shown_path(const std::filesystem::path& path);

// "12.3 KiB".
std::string shown_bytes(uint64_t bytes);

// "error: <message>" on stderr, as all commands end that fail.
void print_error(const Error& error);

}  // namespace celld
