#include "store/file_spares.h"

#include <unistd.h>

namespace celld {

void SpareFiles::add(int session_fd, std::string name, uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (bytes <= kFileBytesMax && files_.size() < kFilesMax && bytes_ + bytes <= kBytesMax) {
      files_.push_back({std::move(name), bytes});
      bytes_ += bytes;
      return;
    }
  }
  ::unlinkat(session_fd, name.c_str(), 0);
}

std::optional<std::string> SpareFiles::take() {
  std::lock_guard lock(mutex_);
  if (files_.empty()) return std::nullopt;
  std::string name = std::move(files_.back().name);
  bytes_ -= files_.back().bytes;
  files_.pop_back();
  return name;
}

bool SpareFiles::clear(int session_fd) {
  std::lock_guard lock(mutex_);
  if (files_.empty()) return false;
  for (const File& file : files_) ::unlinkat(session_fd, file.name.c_str(), 0);
  files_.clear();
  bytes_ = 0;
  return true;
}

}  // namespace celld
