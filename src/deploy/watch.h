// Notices changes of a project's files.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace celld {

struct WatchOptions {
  // A change is reported when nothing changed for this long, at the latest after ten times as long.
  std::chrono::milliseconds quiet{50};
  // Folders of these names are not watched, at any depth.
  std::vector<std::string> ignored = {"node_modules", ".git", ".celld", ".wrangler"};
};

// Watches `dir` and all folders below with inotify, on a thread of its own, until destroyed.
class ProjectWatcher {
 public:
  // Paths that changed, relative to the project, sorted, each once; at most 100 of them. Called on
  // the watcher's thread, never twice at once. "." stands for changes that could not be told apart.
  using OnChange = std::function<void(const std::vector<std::string>& paths)>;

  // Changes after the return are reported. kOverloaded when the kernel's bounds on inotify are
  // reached (the message names the setting), kNotFound when there is no such folder.
  static Result<std::unique_ptr<ProjectWatcher>> start(std::filesystem::path dir, OnChange on_change,
                                                       WatchOptions options = {});

  // Waits for a callback that runs. Not to be called from one.
  virtual ~ProjectWatcher() = default;
};

}  // namespace celld
