#include "deploy/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

namespace celld {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kFoldersMax = 20'000;
constexpr size_t kPathsMax = 100;
constexpr int kLatestFactor = 10;
constexpr uint32_t kEvents = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                             IN_ATTRIB | IN_ONLYDIR;

class InotifyWatcher final : public ProjectWatcher {
 public:
  InotifyWatcher(fs::path dir, OnChange on_change, WatchOptions options)
      : dir_(std::move(dir)), on_change_(std::move(on_change)), options_(std::move(options)) {}

  ~InotifyWatcher() override {
    if (thread_.joinable()) {
      uint64_t one = 1;
      // A counter of one never makes this block or fail.
      [[maybe_unused]] ssize_t n = ::write(stop_fd_, &one, sizeof(one));
      thread_.join();
    }
    if (inotify_fd_ >= 0) ::close(inotify_fd_);
    if (stop_fd_ >= 0) ::close(stop_fd_);
  }

  Result<void> begin() {
    std::error_code ec;
    if (!fs::is_directory(dir_, ec)) {
      return fail(Error::not_found(fmt::format("{}: not a folder", dir_.string())));
    }
    inotify_fd_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (inotify_fd_ < 0) {
      return fail(Error::overloaded(fmt::format(
          "cannot watch files: {} (see fs.inotify.max_user_instances); --no-watch does without",
          std::strerror(errno))));
    }
    stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (stop_fd_ < 0) {
      return fail(Error::overloaded(fmt::format("eventfd: {}", std::strerror(errno))));
    }
    TRY(add_tree(""));
    thread_ = std::thread([this] { run(); });
    return {};
  }

 private:
  bool is_ignored(std::string_view name) const {
    return std::ranges::find(options_.ignored, name) != options_.ignored.end();
  }

  // Watches the folder `relative` and all below it. A folder that vanishes meanwhile is no error.
  Result<void> add_tree(const std::string& relative) {
    std::vector<std::string> waiting{relative};
    while (!waiting.empty()) {
      std::string folder = std::move(waiting.back());
      waiting.pop_back();
      if (folders_.size() >= kFoldersMax) {
        return fail(Error::overloaded(fmt::format(
            "{}: more than {} folders to watch; --no-watch does without", dir_.string(), kFoldersMax)));
      }
      fs::path path = dir_ / folder;
      int wd = ::inotify_add_watch(inotify_fd_, path.c_str(), kEvents);
      if (wd < 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) continue;
        return fail(Error::overloaded(fmt::format(
            "{}: cannot be watched: {} (see fs.inotify.max_user_watches); --no-watch does without",
            path.string(), std::strerror(errno))));
      }
      folders_[wd] = folder;
      std::error_code ec;
      for (fs::directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec)) {
        std::string name = it->path().filename().string();
        std::error_code type_error;
        if (it->is_symlink(type_error) || !it->is_directory(type_error) || is_ignored(name)) {
          continue;
        }
        waiting.push_back(folder.empty() ? name : folder + "/" + name);
      }
    }
    return {};
  }

  void note(std::string path) {
    if (changed_.size() < kPathsMax) changed_.insert(std::move(path));
    auto now = Clock::now();
    if (!first_change_) first_change_ = now;
    last_change_ = now;
  }

  void handle(const inotify_event& event) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      // Folders may have come without our notice.
      (void)add_tree("");
      return note(".");
    }
    auto folder = folders_.find(event.wd);
    if (folder == folders_.end()) return;
    if ((event.mask & IN_IGNORED) != 0) {
      folders_.erase(folder);
      return;
    }
    std::string name = event.len > 0 ? event.name : "";
    if (is_ignored(name)) return;
    std::string path = folder->second;
    if (!name.empty()) path = path.empty() ? name : path + "/" + name;
    if ((event.mask & IN_ISDIR) != 0 && (event.mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
      // What is in it already gave no event, and counts as changed with it. A folder that cannot be
      // watched is left out: its creation is reported all the same.
      (void)add_tree(path);
    }
    note(path.empty() ? "." : std::move(path));
  }

  void read_events() {
    alignas(inotify_event) char buffer[16384];
    while (true) {
      ssize_t n = ::read(inotify_fd_, buffer, sizeof(buffer));
      if (n <= 0) return;
      for (ssize_t at = 0; at < n;) {
        auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        handle(*event);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
  }

  void run() {
    while (true) {
      int timeout = -1;
      if (first_change_) {
        auto due = std::min(last_change_ + options_.quiet,
                            *first_change_ + kLatestFactor * options_.quiet);
        auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now()).count();
        if (left <= 0) {
          std::vector<std::string> paths(changed_.begin(), changed_.end());
          changed_.clear();
          first_change_.reset();
          on_change_(paths);
          continue;
        }
        timeout = static_cast<int>(left);
      }
      pollfd waits[2] = {{inotify_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
      if (::poll(waits, 2, timeout) < 0 && errno != EINTR) return;
      if ((waits[1].revents & POLLIN) != 0) return;
      if ((waits[0].revents & POLLIN) != 0) read_events();
    }
  }

  const fs::path dir_;
  const OnChange on_change_;
  const WatchOptions options_;
  int inotify_fd_ = -1;
  int stop_fd_ = -1;
  std::map<int, std::string> folders_;  // by watch descriptor; "" is the project
  std::set<std::string> changed_;
  std::optional<Clock::time_point> first_change_;
  Clock::time_point last_change_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<ProjectWatcher>> ProjectWatcher::start(fs::path dir, OnChange on_change,
                                                              WatchOptions options) {
  auto watcher =
      std::make_unique<InotifyWatcher>(std::move(dir), std::move(on_change), std::move(options));
  TRY(watcher->begin());
  return std::unique_ptr<ProjectWatcher>(std::move(watcher));
}

}  // namespace celld
