// Files of objects that are gone, kept to be written again: on many file systems that costs a
// fraction of a new file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace celld {

struct SpareFile {
  std::string name;  // in the session's directory
  uint64_t bytes = 0;
};

// Any thread.
class SpareFiles {
 public:
  static constexpr size_t kFilesMax = 4096;
  static constexpr uint64_t kBytesMax = 256u << 10;

  // Keeps the file, or removes it when it is large or there are enough.
  void add(int session_fd, SpareFile file);
  std::optional<SpareFile> take();
  // Removes all.
  void clear(int session_fd);

 private:
  std::mutex mutex_;
  std::vector<SpareFile> files_;
};

}  // namespace celld
