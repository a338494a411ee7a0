#include "store/file_spares.h"

#include <fcntl.h>
#include <unistd.h>

namespace celld {

void SpareFiles::add(int session_fd, SpareFile file) {
  {
    std::lock_guard lock(mutex_);
    if (file.bytes <= kBytesMax && files_.size() < kFilesMax) {
      files_.push_back(std::move(file));
      return;
    }
  }
  ::unlinkat(session_fd, file.name.c_str(), 0);
}

std::optional<SpareFile> SpareFiles::take() {
  std::lock_guard lock(mutex_);
  if (files_.empty()) return std::nullopt;
  SpareFile file = std::move(files_.back());
  files_.pop_back();
  return file;
}

void SpareFiles::clear(int session_fd) {
  std::lock_guard lock(mutex_);
  for (const auto& file : files_) ::unlinkat(session_fd, file.name.c_str(), 0);
  files_.clear();
}

}  // namespace celld
