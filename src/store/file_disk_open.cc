// Opening a file store's directory: whose it is, what dead processes left in it.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "store/file_disk.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr char kMarker[] = "celld-store";
constexpr std::string_view kMarkerText = "celld file store, format 2\n";
constexpr std::string_view kMarkerTextWithoutLog = "celld file store, format 1\n";
constexpr std::string_view kMarkerTempPrefix = ".celld-store-";
constexpr size_t kDirsOpenMax = 128;
constexpr int kSessionTriesMax = 32;
// How long one that opens waits for another, and one that closes.
constexpr std::chrono::milliseconds kOpenPatience{30'000};
constexpr std::chrono::milliseconds kClosePatience{1'000};

uint64_t random_number() {
  uint64_t number;
  CHECK(::getrandom(&number, sizeof number, 0) == sizeof number) << "getrandom failed";
  return number;
}

Result<void> sync_fd(int fd, Fsync mode) {
  if (mode == Fsync::kOn && ::fsync(fd) != 0) return fail(errno_error("fsync", errno));
  return {};
}

// Reads a file of the directory whole, up to `bytes_max`. kNotFound when there is none.
Result<std::string> read_file(int dir, const char* name, size_t bytes_max) {
  UniqueFd fd(::openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) return fail(Error::not_found(name));
  if (!fd) return fail(errno_error(std::string("open of '") + name + "'", errno));
  std::string out(bytes_max, '\0');
  size_t filled = 0;
  while (filled < bytes_max) {
    const ssize_t n =
        ::pread(fd.get(), out.data() + filled, bytes_max - filled, static_cast<off_t>(filled));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno_error(std::string("read of '") + name + "'", errno));
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  out.resize(filled);
  return out;
}

// Absent, or of a format that this one replaces: false. kUnsupported or kInvalid when it is not
// ours to use.
Result<bool> marker_present(int root, bool& older) {
  older = false;
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
  older = found == kMarkerTextWithoutLog;
  if (older) return false;
  if (found.starts_with("celld file store, format ")) {
    return fail(Error::unsupported("has another format than this celld: '" +
                                   printable_key(found.substr(0, found.size() - 1)) + "'"));
  }
  return fail(Error::invalid("its file 'celld-store' is not the marker of a celld file store"));
}

Result<void> write_marker(int root, Fsync mode) {
  const std::string temp = std::string(kMarkerTempPrefix) + std::to_string(random_number());
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

FileDisk::FileDisk(std::string path, Fsync fsync, std::string boot_id,
                   std::chrono::milliseconds lock_patience)
    : path_(std::move(path)),
      fsync_(fsync),
      boot_id_(std::move(boot_id)),
      patience_(lock_patience) {}

FileDisk::~FileDisk() {
  if (logger_.log && keeps(*logger_.log)) {
    // A log that stays is dropped by the next process that opens the directory.
    auto open_lock = OpenLock::take(locks_.get(), kClosePatience);
    if (open_lock && keeps(*logger_.log)) (void)end_log();
  }
  if (session_) spares_.clear(session_.get());
  if (session_) ::unlinkat(temps_.get(), session_name_.c_str(), AT_REMOVEDIR);
}

Result<std::unique_ptr<FileDisk>> FileDisk::open(const std::string& path, Fsync fsync,
                                                 std::string boot_id,
                                                 std::chrono::milliseconds lock_patience) {
  const std::string where = "directory '" + path + "'";
  if (!path.starts_with('/')) return fail(Error::invalid(where + ": not an absolute path"));
  std::unique_ptr<FileDisk> disk(new FileDisk(path, fsync, std::move(boot_id), lock_patience));
  if (auto claimed = disk->claim_directory(); !claimed) {
    return fail(claimed.error().at(where));
  }
  if (auto entered = disk->enter(); !entered) {
    return fail(entered.error().at(where));
  }
  return disk;
}

Result<std::shared_ptr<FileDisk>> FileDisk::share(const std::string& path, Fsync fsync) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, Fsync>, std::weak_ptr<FileDisk>> disks;
  std::lock_guard lock(mutex);
  std::erase_if(disks, [](const auto& entry) { return entry.second.expired(); });
  auto& known = disks[{path, fsync}];
  if (auto disk = known.lock()) return disk;
  TRY_ASSIGN(auto opened, open(path, fsync));
  std::shared_ptr<FileDisk> disk = std::move(opened);
  known = disk;
  return disk;
}

// Joins the processes that have the directory open.
Result<void> FileDisk::enter() {
  TRY_ASSIGN(UniqueFd open_lock, OpenLock::take(locks_.get(), kOpenPatience));
  TRY(start_session());
  TRY(retire_log());
  sweep_dead_sessions();
  return {};
}

// Ends whatever log there is, of a process that lives, is stopped or is dead: everything that was
// acknowledged is durable in the object tree afterwards.
Result<void> FileDisk::retire_log() {
  table_.set_logger(0);
  auto bytes = read_file(root_.get(), FileLog::kName, 2 * FileLog::kHalfBytes);
  if (!bytes && bytes.error().code != ErrorCode::kNotFound) return fail(std::move(bytes).error());
  if (bytes) {
    std::string boot;
    const auto records = read_log(*bytes, boot);
    // In this boot the object tree has every effect, durable or not; in another it may have lost
    // or torn some.
    if (boot != boot_id_) TRY(do_again(records));
  }
  // Also without a log: what a process left visible when it was killed between publishing and
  // syncing is made durable before anybody here reads it.
  if ((bytes || fsync_ == Fsync::kOn) && ::syncfs(root_.get()) != 0) {
    return fail(errno_error("syncfs", errno));
  }
  if (bytes && ::unlinkat(root_.get(), FileLog::kName, 0) != 0 && errno != ENOENT) {
    return fail(errno_error("unlink of the log", errno));
  }
  // Also without a log: whoever removed it may have been killed before this.
  return sync_fd(root_.get(), fsync_);
}

// Whether no other process has the directory open. Under the open lock.
Result<bool> FileDisk::alone() {
  if (expelled()) return false;
  TRY_ASSIGN(auto sessions, names_in(temps_.get()));
  for (const auto& name : sessions) {
    if (name == session_name_) continue;
    UniqueFd fd(
        ::openat(temps_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  }
  return true;
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
  bool older = false;
  TRY_ASSIGN(bool ours, marker_present(root_.get(), older));
  if (older) {
    TRY(write_marker(root_.get(), fsync_));
  } else if (!ours) {
    TRY_ASSIGN(auto names, names_in(root_.get()));
    for (const auto& name : names) {
      // A process that makes the store at this moment, or died while it did, leaves only these;
      // a file system of its own comes with lost+found.
      if (name == "lost+found" || name == kMarker || name.starts_with(kMarkerTempPrefix)) continue;
      TRY_ASSIGN(ours, marker_present(root_.get(), older));
      if (ours || older) break;
      return fail(Error::invalid("it is not empty and was not made by celld (it has '" +
                                 printable_key(name) + "'); give an empty directory"));
    }
    if (!ours) TRY(write_marker(root_.get(), fsync_));
  }
  TRY_ASSIGN(UniqueFd objects, open_part(root_.get(), "objects"));
  TRY_ASSIGN(locks_, open_part(root_.get(), "locks"));
  TRY_ASSIGN(temps_, open_part(root_.get(), "tmp"));
  TRY(sync_fd(root_.get(), fsync_));
  TRY_ASSIGN(table_, SharedTable::map(locks_.get()));
  objects_ = std::make_unique<DirCache>(std::move(objects), fsync_, health_, kDirsOpenMax);
  return {};
}

Result<void> FileDisk::start_session() {
  for (int tries = 0; tries < kSessionTriesMax; ++tries) {
    session_number_ = random_number();
    session_name_ = session_name(session_number_);
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
