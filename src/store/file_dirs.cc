#include "store/file_dirs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace celld {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

Error errno_error(std::string_view what, int errno_value) {
  char text[128];
  std::string message(what);
  message += ": ";
  message += ::strerror_r(errno_value, text, sizeof text);
  bool refused = errno_value == EACCES || errno_value == EPERM || errno_value == EROFS;
  return Error::make(refused ? ErrorCode::kForbidden : ErrorCode::kUnavailable, message);
}

Result<std::vector<std::string>> names_in(int dir_fd) {
  int fd = ::openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail(errno_error("cannot be read", errno));
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd), ::closedir);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return fail(errno_error("cannot be read", errno));
  return names;
}

Result<void> SyncHealth::check() const {
  const int failed = errno_.load();
  if (failed == 0) return {};
  return celld::fail(errno_error("an fsync failed; check the disk and restart", failed));
}

Result<void> DirHandle::sync() {
  if (fsync_ == Fsync::kOff) return {};
  return group_.wait(group_.changed(), *health_,
                     [this] { return ::fsync(fd_.get()) == 0 ? 0 : errno; });
}

DirCache::DirCache(UniqueFd root, Fsync fsync, std::shared_ptr<SyncHealth> health,
                   size_t entries_max)
    : fsync_(fsync),
      health_(std::move(health)),
      root_(std::make_shared<DirHandle>(std::move(root), fsync, health_)),
      entries_max_(entries_max) {}

std::string DirCache::join(const std::vector<std::string>& path) {
  std::string joined;
  for (const auto& name : path) {
    if (!joined.empty()) joined += '/';
    joined += name;
  }
  return joined;
}

std::shared_ptr<DirHandle> DirCache::find(const std::string& joined) {
  if (joined.empty()) return root_;
  std::lock_guard lock(mutex_);
  auto it = entries_.find(joined);
  if (it == entries_.end()) return nullptr;
  ages_.splice(ages_.begin(), ages_, it->second.age);
  return it->second.dir;
}

bool DirCache::recent(const std::string& joined) {
  std::lock_guard lock(mutex_);
  return entries_.contains(joined);
}

void DirCache::insert(const std::string& joined, std::shared_ptr<DirHandle> dir) {
  std::lock_guard lock(mutex_);
  if (auto it = entries_.find(joined); it != entries_.end()) {
    it->second.dir = std::move(dir);
    return;
  }
  ages_.push_front(joined);
  entries_.emplace(joined, Entry{std::move(dir), ages_.begin()});
  if (entries_.size() > entries_max_) {
    entries_.erase(ages_.back());
    ages_.pop_back();
  }
}

void DirCache::forget(const std::vector<std::string>& path) {
  std::vector<std::string> left = path;
  std::lock_guard lock(mutex_);
  for (; !left.empty(); left.pop_back()) {
    auto it = entries_.find(join(left));
    if (it == entries_.end()) continue;
    ages_.erase(it->second.age);
    entries_.erase(it);
  }
}

Result<std::shared_ptr<DirHandle>> DirCache::make(const std::vector<std::string>& path) {
  constexpr int kTriesMax = 32;  // each lost to a process that removed an empty directory
  const std::string wanted = join(path);
  if (auto dir = find(wanted)) return dir;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    std::shared_ptr<DirHandle> parent = root_;
    std::string joined;
    bool vanished = false;
    for (const auto& name : path) {
      if (!joined.empty()) joined += '/';
      joined += name;
      std::shared_ptr<DirHandle> child = find(joined);
      if (!child) {
        if (::mkdirat(parent->fd(), name.c_str(), 0777) != 0 && errno != EEXIST) {
          if (errno != ENOENT) return fail(errno_error("mkdir " + joined, errno));
          vanished = true;
          break;
        }
        UniqueFd fd(
            ::openat(parent->fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!fd) {
          if (errno != ENOENT) return fail(errno_error("open " + joined, errno));
          vanished = true;
          break;
        }
        // Also when somebody else made it: they may not have synced it yet.
        TRY(parent->sync());
        child = std::make_shared<DirHandle>(std::move(fd), fsync_, health_);
        insert(joined, child);
      }
      parent = std::move(child);
    }
    if (!vanished) return parent;
    forget(path);
  }
  return fail(Error::unavailable("directory " + wanted + " is removed again and again"));
}

Result<std::shared_ptr<DirHandle>> DirCache::open(const std::vector<std::string>& path) {
  const std::string joined = join(path);
  if (auto dir = find(joined)) {
    struct stat st;
    if (::fstat(dir->fd(), &st) == 0 && st.st_nlink > 0) return dir;
  }
  UniqueFd fd(::openat(root_->fd(), joined.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT || errno == ENOTDIR) return std::shared_ptr<DirHandle>();
    return fail(errno_error("open " + joined, errno));
  }
  return std::make_shared<DirHandle>(std::move(fd), fsync_, health_);
}

}  // namespace celld
