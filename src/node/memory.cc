#include "node/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace celld {

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t memory_bytes() {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // Within a container the group is the root of what is mounted.
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream file(path); file >> limit) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace celld
