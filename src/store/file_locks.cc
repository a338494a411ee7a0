#include "store/file_locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "store/key.h"

namespace celld {

uint32_t lock_number(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : key) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<uint32_t>((hash >> 32 ^ hash) % kLockFiles);
}

std::string session_name(uint64_t session) {
  return hex_lower(std::string_view(reinterpret_cast<const char*>(&session), sizeof session));
}

Result<SharedTable> SharedTable::map(int locks_fd) {
  UniqueFd fd(::openat(locks_fd, "table", O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("open of 'locks/table'", errno));
  if (::ftruncate(fd.get(), sizeof(Words)) != 0) {
    return fail(errno_error("truncate of 'locks/table'", errno));
  }
  void* memory = ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return fail(errno_error("mmap of 'locks/table'", errno));
  SharedTable out;
  out.words_ = static_cast<Words*>(memory);
  return out;
}

SharedTable::~SharedTable() {
  if (words_ != nullptr) ::munmap(words_, sizeof(Words));
}

bool LockPatience::over(uint32_t lock, const SharedTable::Holder& holder) {
  constexpr std::chrono::seconds kGapMax{2};  // between a wait that was given up and the next
  const Time now = std::chrono::steady_clock::now();
  std::lock_guard guard(mutex_);
  Seen& seen = seen_[lock];
  if (seen.holder != holder || now - seen.last > kGapMax) seen = {holder, now, now};
  seen.last = now;
  return now - seen.first >= max_;
}

Result<UniqueFd> OpenLock::take(int locks_fd, std::chrono::milliseconds patience) {
  UniqueFd fd(::openat(locks_fd, "open", O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("open of 'locks/open'", errno));
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(errno_error("flock", errno));
    if (std::chrono::steady_clock::now() >= until) {
      return fail(Error::unavailable(
          "another process is opening or closing it and does not get on; is it stopped?"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fd;
}

}  // namespace celld
