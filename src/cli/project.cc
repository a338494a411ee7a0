#include "cli/project.h"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>

namespace celld {

namespace fs = std::filesystem;

Result<WorkerConfig> load_project(const fs::path& project, const fs::path& config) {
  fs::path file = config;
  if (file.empty()) {
    TRY_ASSIGN(file, find_wrangler_config(project));
  }
  auto read = read_wrangler_config(file);
  if (!read) return read;
  fmt::print(stderr, "Using {}\n", shown_path(read->file));
  if (read->compatibility_date.empty()) {
    fmt::print(stderr,
               "warning: {} has no compatibility_date: {} is used, so the Worker gets the oldest behaviour\n",
               shown_path(read->file), kCompatibilityDateDefault);
  }
  return read;
}

std::string shown_path(const fs::path& path) {
  std::error_code ec;
  fs::path here = fs::current_path(ec);
  if (ec) return path.string();
  std::string relative = path.lexically_relative(here).string();
  return relative.empty() || relative.starts_with("..") ? path.string() : relative;
}

std::string shown_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024));
}

void print_error(const Error& error) { fmt::print(stderr, "error: {}\n", error.message); }

}  // namespace celld
