#include "node/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace celld {

namespace {

Error disk_error(const std::string& path) {
  return Error::unavailable("data directory " + path + ": " + std::strerror(errno));
}

Result<void> write_durably(const std::string& path, const std::string& text) {
  std::string temporary = path + ".new";
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail(disk_error(temporary));
  bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
            fsync(fd) == 0;
  Error error = ok ? Error() : disk_error(temporary);
  close(fd);
  if (!ok) return fail(error);
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail(disk_error(path));
  std::string folder = std::filesystem::path(path).parent_path();
  int dir = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return fail(disk_error(folder));
  ok = fsync(dir) == 0;
  error = ok ? Error() : disk_error(folder);
  close(dir);
  if (!ok) return fail(error);
  return {};
}

}  // namespace

Result<DataDir> DataDir::open(const std::string& path) {
  std::error_code ec;
  std::filesystem::create_directories(path, ec);
  if (ec) return fail(Error::unavailable("data directory " + path + ": " + ec.message()));
  std::string lock_path = path + "/lock";
  int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return fail(disk_error(lock_path));
  DataDir dir(path, lock);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(disk_error(lock_path));
    return fail(Error::unavailable("data directory " + path +
                                   " is in use by another celld; give each node its own --data"));
  }
  std::ifstream last(path + "/node-id");
  std::string id;
  if (last >> id) {
    dir.predecessor_ = parse_node_id(id);
    if (!dir.predecessor_) {
      return fail(Error::corrupt("data directory " + path + ": the file node-id holds no node id; "
                                 "remove the folder, nothing in it is needed"));
    }
  }
  std::filesystem::remove_all(dir.scratch(), ec);
  std::filesystem::create_directories(dir.scratch(), ec);
  if (ec) return fail(Error::unavailable("data directory " + path + ": " + ec.message()));
  return dir;
}

DataDir::DataDir(DataDir&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      predecessor_(std::move(other.predecessor_)) {}

DataDir::~DataDir() {
  if (lock_ >= 0) close(lock_);
}

Result<void> DataDir::forget() {
  std::error_code ec;
  std::filesystem::remove(path_ + "/node-id", ec);
  if (ec) return fail(Error::unavailable(path_ + "/node-id: " + ec.message()));
  return {};
}

Result<void> DataDir::remember(const NodeId& node) {
  return write_durably(path_ + "/node-id", node.value + "\n");
}

}  // namespace celld
