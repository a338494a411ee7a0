// The locks of keys between processes, and how one goes on without a process that keeps one.
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "store/file_disk.h"

namespace celld {

namespace {

std::string lock_name(uint32_t number) {
  char name[8];
  ::snprintf(name, sizeof name, "%02x", number);
  return name;
}

bool unlinked(int fd) {
  struct stat st;
  return ::fstat(fd, &st) != 0 || st.st_nlink == 0;
}

}  // namespace

// Whether another process has taken this one for stopped: nothing it writes gets a name any more.
bool FileDisk::expelled() const { return unlinked(session_.get()); }

// The lock, or nothing when another has it.
Result<UniqueFd> FileDisk::try_lock(uint32_t number) {
  UniqueFd fd(
      ::openat(locks_.get(), lock_name(number).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("open of a lock file", errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(errno_error("flock", errno));
    return UniqueFd();
  }
  // In this order: who replaces the file looks at the table afterwards.
  table_.taken(number, session_number_);
  if (unlinked(fd.get())) return UniqueFd();
  return fd;
}

Result<UniqueFd> FileDisk::lock_key(std::string_view key, const Abandoned& abandoned) {
  const uint32_t number = lock_number(key);
  auto pause = std::chrono::microseconds(50);
  while (true) {
    TRY_ASSIGN(UniqueFd lock, try_lock(number));
    if (lock) return lock;
    if (abandoned.load(std::memory_order_relaxed)) {
      return fail(Error::deadline("another process held the lock of this key until the deadline"));
    }
    if (patience_.over(number, table_.holder(number))) TRY(expel_holder(number));
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
}

// Takes away a session's directory, so that its process can give no file a name and take none from
// one. False when it makes files faster than they go: it is not stopped.
Result<bool> FileDisk::disarm(uint64_t session) {
  const std::string name = session_name(session);
  UniqueFd dir(::openat(temps_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) {
    if (errno == ENOENT) return true;
    return fail(errno_error("open of a session", errno));
  }
  constexpr int kTriesMax = 8;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    TRY_ASSIGN(auto files, names_in(dir.get()));
    for (const auto& file : files) ::unlinkat(dir.get(), file.c_str(), 0);
    if (::unlinkat(temps_.get(), name.c_str(), AT_REMOVEDIR) == 0) return true;
  }
  return false;
}

// Goes on without a process that has kept a lock for too long: it is stopped, and may be for ever.
// Everything that it can still do to an object is a rename from or to its session's directory. When
// that is gone it can do nothing, and the lock can be given to others with another file.
Result<void> FileDisk::expel_holder(uint32_t number) {
  auto open_lock = OpenLock::take(locks_.get(), std::chrono::milliseconds(0));
  if (!open_lock) return {};  // somebody opens, closes or expels at this moment
  const SharedTable::Holder holder = table_.holder(number);
  if (!patience_.over(number, holder) || holder.session == session_number_) return {};
  if (holder.session == 0) return {};  // no process of ours
  TRY_ASSIGN(const bool stopped, disarm(holder.session));
  if (!stopped) return {};
  // A new lock file, which this process has locked before others can.
  const std::string name = "lock-" + std::to_string(number);
  UniqueFd fresh(::openat(session_.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fresh || ::flock(fresh.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(errno_error("create of a lock file", errno));
  }
  UniqueFd old(::openat(locks_.get(), lock_name(number).c_str(), O_RDWR | O_CLOEXEC));
  if (::renameat(session_.get(), name.c_str(), locks_.get(), lock_name(number).c_str()) != 0) {
    return fail(errno_error("rename of a lock file", errno));
  }
  // If the old one was given up at this very moment, another may have it, and is done soon.
  const auto until = std::chrono::steady_clock::now() + patience_.max();
  while (table_.holder(number) != holder && old && ::flock(old.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) {
      TRY(disarm(table_.holder(number).session));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

}  // namespace celld
