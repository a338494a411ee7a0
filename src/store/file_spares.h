// Files of objects that are gone, kept to be written again: on many file systems that costs a
// fraction of a new file.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace celld {

// Names in the directory of the session. Any thread.
class SpareFiles {
 public:
  static constexpr size_t kFilesMax = 4096;
  static constexpr uint64_t kFileBytesMax = 256u << 10;
  static constexpr uint64_t kBytesMax = 64u << 20;  // together

  // Keeps a file of so many bytes, or removes it when that is too much.
  void add(int session_fd, std::string name, uint64_t bytes);
  std::optional<std::string> take();
  // Removes all; false when there was none.
  bool clear(int session_fd);

 private:
  struct File {
    std::string name;
    uint64_t bytes;
  };
  std::mutex mutex_;
  std::vector<File> files_;
  uint64_t bytes_ = 0;
};

}  // namespace celld
