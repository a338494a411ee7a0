// Opening a file store's directory: whose it is, what dead processes left in it.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/check.h"
#include "store/file_disk.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr char kMarker[] = "celld-store";
constexpr std::string_view kMarkerText = "celld file store, format 1\n";
constexpr std::string_view kMarkerTempPrefix = ".celld-store-";
constexpr size_t kDirsOpenMax = 128;
constexpr int kSessionTriesMax = 32;

std::string random_name() {
  char raw[8];
  CHECK(::getrandom(raw, sizeof raw, 0) == sizeof raw) << "getrandom failed";
  return hex_lower(std::string_view(raw, sizeof raw));
}

// The names in a directory, without "." and "..".
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

Result<void> sync_fd(int fd, Fsync mode) {
  if (mode == Fsync::kOn && ::fsync(fd) != 0) return fail(errno_error("fsync", errno));
  return {};
}

// Absent: nothing. kUnsupported or kInvalid when it is not ours to use.
Result<bool> marker_present(int root) {
  UniqueFd fd(::openat(root, kMarker, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return false;
    return fail(errno_error("its marker file 'celld-store' cannot be read", errno));
  }
  char text[128];
  ssize_t n = ::read(fd.get(), text, sizeof text);
  if (n < 0) return fail(errno_error("its marker file 'celld-store' cannot be read", errno));
  std::string_view found(text, static_cast<size_t>(n));
  if (found == kMarkerText) return true;
  if (found.starts_with("celld file store, format ")) {
    return fail(Error::unsupported("has another format than this celld: '" +
                                   printable_key(found.substr(0, found.size() - 1)) + "'"));
  }
  return fail(Error::invalid("its file 'celld-store' is not the marker of a celld file store"));
}

Result<void> write_marker(int root, Fsync mode) {
  const std::string temp = std::string(kMarkerTempPrefix) + random_name();
  UniqueFd fd(::openat(root, temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("cannot be written", errno));
  if (::write(fd.get(), kMarkerText.data(), kMarkerText.size()) !=
      static_cast<ssize_t>(kMarkerText.size())) {
    int failed = errno;
    ::unlinkat(root, temp.c_str(), 0);
    return fail(errno_error("cannot be written", failed));
  }
  TRY(sync_fd(fd.get(), mode));
  // Any winner of a race writes the same text.
  if (::renameat(root, temp.c_str(), root, kMarker) != 0) {
    return fail(errno_error("cannot be written", errno));
  }
  return {};
}

Result<UniqueFd> open_part(int root, const char* name) {
  if (::mkdirat(root, name, 0777) != 0 && errno != EEXIST) {
    return fail(errno_error(std::string("cannot make '") + name + "' in it", errno));
  }
  UniqueFd fd(::openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail(errno_error(std::string("cannot open '") + name + "' in it", errno));
  return fd;
}

}  // namespace

FileDisk::FileDisk(std::string path, Fsync fsync) : path_(std::move(path)), fsync_(fsync) {}

FileDisk::~FileDisk() {
  if (session_) ::unlinkat(temps_.get(), session_name_.c_str(), AT_REMOVEDIR);
}

Result<std::unique_ptr<FileDisk>> FileDisk::open(const std::string& path, Fsync fsync) {
  const std::string where = "directory '" + path + "'";
  if (!path.starts_with('/')) return fail(Error::invalid(where + ": not an absolute path"));
  std::unique_ptr<FileDisk> disk(new FileDisk(path, fsync));
  if (auto claimed = disk->claim_directory(); !claimed) {
    return fail(claimed.error().at(where));
  }
  if (auto started = disk->start_session(); !started) {
    return fail(started.error().at(where));
  }
  disk->sweep_dead_sessions();
  return disk;
}

Result<void> FileDisk::claim_directory() {
  bool made = ::mkdir(path_.c_str(), 0777) == 0;
  if (!made && errno != EEXIST) {
    if (errno == ENOENT) return fail(Error::invalid("its parent directory does not exist"));
    if (errno == ENOTDIR) return fail(Error::invalid("a part of its path is not a directory"));
    return fail(errno_error("cannot be made", errno));
  }
  root_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_) {
    if (errno == ENOTDIR) return fail(Error::invalid("it is not a directory"));
    return fail(errno_error("cannot be opened", errno));
  }
  if (made) {
    UniqueFd parent(::openat(root_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent) return fail(errno_error("its parent cannot be opened", errno));
    TRY(sync_fd(parent.get(), fsync_));
  }
  TRY_ASSIGN(bool ours, marker_present(root_.get()));
  if (!ours) {
    TRY_ASSIGN(auto names, names_in(root_.get()));
    for (const auto& name : names) {
      // A process that makes the store at this moment, or died while it did, leaves only these;
      // a file system of its own comes with lost+found.
      if (name == "lost+found" || name == kMarker || name.starts_with(kMarkerTempPrefix)) continue;
      TRY_ASSIGN(ours, marker_present(root_.get()));
      if (ours) break;
      return fail(Error::invalid("it is not empty and was not made by celld (it has '" +
                                 printable_key(name) + "'); give an empty directory"));
    }
    if (!ours) TRY(write_marker(root_.get(), fsync_));
  }
  TRY_ASSIGN(UniqueFd objects, open_part(root_.get(), "objects"));
  TRY_ASSIGN(locks_, open_part(root_.get(), "locks"));
  TRY_ASSIGN(temps_, open_part(root_.get(), "tmp"));
  TRY(sync_fd(root_.get(), fsync_));
  // What a process left visible when it was killed between publishing and syncing is made durable
  // before anybody here reads it.
  if (fsync_ == Fsync::kOn && ::syncfs(root_.get()) != 0) return fail(errno_error("syncfs", errno));
  objects_ = std::make_unique<DirCache>(std::move(objects), fsync_, health_, kDirsOpenMax);
  return {};
}

Result<void> FileDisk::start_session() {
  for (int tries = 0; tries < kSessionTriesMax; ++tries) {
    session_name_ = random_name();
    if (::mkdirat(temps_.get(), session_name_.c_str(), 0777) != 0) {
      return fail(errno_error("cannot make a directory in 'tmp'", errno));
    }
    UniqueFd fd(::openat(temps_.get(), session_name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) continue;                                        // swept between the two calls
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;  // being swept
    struct stat st;
    if (::fstat(fd.get(), &st) != 0) return fail(errno_error("stat of 'tmp'", errno));
    if (st.st_nlink == 0) continue;
    session_ = std::move(fd);
    return {};
  }
  return fail(Error::unavailable("its 'tmp' is swept again and again"));
}

// Removes the temporary files of processes that are gone: the kernel gave up their locks. What
// cannot be removed stays; it is never visible as an object.
void FileDisk::sweep_dead_sessions() {
  auto sessions = names_in(temps_.get());
  if (!sessions) return;
  for (const auto& name : *sessions) {
    if (name == session_name_) continue;
    UniqueFd fd(
        ::openat(temps_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    auto files = names_in(fd.get());
    if (!files) continue;
    for (const auto& file : *files) ::unlinkat(fd.get(), file.c_str(), 0);
    ::unlinkat(temps_.get(), name.c_str(), AT_REMOVEDIR);
  }
}

}  // namespace celld
