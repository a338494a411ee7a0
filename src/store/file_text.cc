#include "store/file_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "store/file_dirs.h"
#include "store/key.h"

namespace celld {

Result<std::string> read_text_file(const std::string& path, size_t bytes_max) {
  const std::string shown = printable_key(path);
  // A pipe without a writer must not hold us up.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return fail(Error::not_found(shown + " does not exist"));
  if (!fd) return fail(Error::invalid(shown + " cannot be read: " + std::strerror(errno)));
  std::string out;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(Error::invalid(shown + " cannot be read: " + std::strerror(errno)));
    if (n == 0) return out;
    out.append(buffer, static_cast<size_t>(n));
    if (out.size() > bytes_max) {
      return fail(Error::invalid(shown + " has more than " + std::to_string(bytes_max) + " bytes"));
    }
  }
}

}  // namespace celld
