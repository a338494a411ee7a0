#include "world/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace celld {
namespace {

class PosixScratchFile final : public ScratchFile {
 public:
  PosixScratchFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixScratchFile() override { ::close(fd_); }

  Result<void> read(uint64_t offset, std::span<uint8_t> out) override {
    while (!out.empty()) {
      ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(error("read"));
      if (n == 0) {
        std::fill(out.begin(), out.end(), uint8_t{0});
        return {};
      }
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return {};
  }

  Result<void> write(uint64_t offset, std::span<const uint8_t> bytes) override {
    while (!bytes.empty()) {
      ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return fail(error("write"));
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return {};
  }

  void truncate(uint64_t size) override {
    [[maybe_unused]] int ignored = ::ftruncate(fd_, static_cast<off_t>(size));
  }

 private:
  Error error(const char* what) const {
    return Error::unavailable(path_ + ": " + what + ": " + std::strerror(errno));
  }
  int fd_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<ScratchFile>> open_scratch_file(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail(Error::unavailable(path + ": open: " + std::strerror(errno)));
  ::unlink(path.c_str());
  return std::make_unique<PosixScratchFile>(fd, path);
}

}  // namespace celld
