#include "store/file_logger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace celld {

uint32_t lock_number(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : key) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<uint32_t>((hash >> 32 ^ hash) % kLockFiles);
}

Result<LoggerWord> LoggerWord::map(int locks_fd) {
  UniqueFd fd(::openat(locks_fd, "logger", O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("open of 'locks/logger'", errno));
  if (::ftruncate(fd.get(), sizeof(uint64_t)) != 0) {
    return fail(errno_error("truncate of 'locks/logger'", errno));
  }
  void* memory = ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return fail(errno_error("mmap of 'locks/logger'", errno));
  LoggerWord out;
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  out.word_ = static_cast<std::atomic<uint64_t>*>(memory);
  return out;
}

LoggerWord::~LoggerWord() {
  if (word_ != nullptr) ::munmap(word_, sizeof(uint64_t));
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
