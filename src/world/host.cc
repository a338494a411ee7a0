#include "world/host.h"

#include <sys/random.h>

#include <chrono>

#include "base/check.h"

namespace celld {

WallMs host_wall_now() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return WallMs{std::chrono::duration_cast<std::chrono::milliseconds>(since).count()};
}

void host_random(std::span<uint8_t> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    ssize_t n = getrandom(out.data() + filled, out.size() - filled, 0);
    CHECK(n > 0) << "getrandom failed";
    filled += static_cast<size_t>(n);
  }
}

}  // namespace celld
