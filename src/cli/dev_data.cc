#include "cli/dev_data.h"

#include <filesystem>
#include <fstream>
#include <optional>

#include "node/data_dir.h"

namespace celld {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = ".celld-dev-state";
constexpr const char* kMarkText = "The state of `celld dev`. `celld dev --clean` removes all of this folder.\n";

Result<void> refused(const std::string& what, const fs::path& path, const std::error_code& ec) {
  return fail(Error::unavailable("cannot " + what + " " + path.string() + ": " + ec.message()));
}

// All but the mark, which goes last: what is left of a folder that resists is still ours.
Result<void> empty(const fs::path& path) {
  std::error_code ec;
  std::optional<DataDir> lock;
  if (fs::exists(path / "node", ec)) {
    TRY_ASSIGN(DataDir taken, DataDir::open((path / "node").string()));
    lock.emplace(std::move(taken));
  }
  for (auto it = fs::directory_iterator(path, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
    if (it->path().filename() == kMark) continue;
    fs::remove_all(it->path(), ec);
    if (ec) break;
  }
  if (ec) return refused("remove what is in", path, ec);
  return {};
}

}  // namespace

Result<void> prepare_dev_data(const std::string& folder, bool clean) {
  const fs::path path = folder;
  std::error_code ec;
  const bool there = fs::exists(path, ec);
  if (there && !fs::is_directory(path, ec)) return fail(Error::invalid(folder + " is not a folder"));
  const bool holds_nothing = !there || fs::is_empty(path, ec);
  if (ec) return refused("look into", path, ec);
  const bool marked = fs::is_regular_file(path / kMark, ec);
  if (clean && !holds_nothing) {
    if (!marked) {
      return fail(Error::invalid(folder + " was not made by celld dev (it has no file " + kMark +
                                 "), so --clean does not remove it; remove it yourself, or name another folder "
                                 "with --data"));
    }
    TRY(empty(path));
  }
  fs::create_directories(path, ec);
  if (ec) return refused("create", path, ec);
  if (holds_nothing && !(std::ofstream(path / kMark) << kMarkText).flush()) {
    return fail(Error::unavailable("cannot write " + (path / kMark).string()));
  }
  return {};
}

}  // namespace celld
