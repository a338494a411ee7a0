#include "store/file_disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "base/check.h"
#include "store/file_layout.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr uint32_t kLockFiles = 256;  // keys share lock files by hash: a bound, not an identity
constexpr int kPublishTriesMax = 32;

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    ssize_t n = ::getrandom(raw.data() + filled, bytes - filled, 0);
    CHECK(n > 0 || errno == EINTR) << "getrandom failed";
    if (n > 0) filled += static_cast<size_t>(n);
  }
  return hex_lower(raw);
}

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error("write", errno));
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<void> write_all_at(int fd, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error("write", errno));
    }
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

// Reads up to `length` bytes; fewer only at the end of the file.
Result<std::string> read_at(int fd, uint64_t offset, size_t length) {
  std::string out;
  int failed = 0;
  out.resize_and_overwrite(length, [&](char* data, size_t) {
    size_t filled = 0;
    while (filled < length) {
      ssize_t n = ::pread(fd, data + filled, length - filled, static_cast<off_t>(offset + filled));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) failed = errno;
      if (n <= 0) break;
      filled += static_cast<size_t>(n);
    }
    return filled;
  });
  if (failed != 0) return fail(errno_error("read", failed));
  return out;
}

struct OpenObject {
  UniqueFd fd;
  ObjectHeader header;
};

// kNotFound when there is no such object.
Result<OpenObject> open_object(int objects_fd, std::string_view key) {
  KeyPath path = key_path(key);
  path.directories.push_back(path.leaf);
  const std::string joined = DirCache::join(path.directories);
  UniqueFd fd(::openat(objects_fd, joined.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT || errno == ENOTDIR) return fail(Error::not_found("no such object"));
    return fail(errno_error("open", errno));
  }
  struct stat st;
  if (::fstat(fd.get(), &st) != 0) return fail(errno_error("stat", errno));
  TRY_ASSIGN(std::string head, read_at(fd.get(), 0, kObjectHeaderBytes));
  TRY_ASSIGN(ObjectHeader header, decode_object_header(head));
  if (static_cast<uint64_t>(st.st_size) != kObjectHeaderBytes + header.body_bytes) {
    return fail(Error::corrupt("object file has " + std::to_string(st.st_size) +
                               " bytes, its header promises " +
                               std::to_string(kObjectHeaderBytes + header.body_bytes)));
  }
  return OpenObject{std::move(fd), std::move(header)};
}

// FNV-1a: every process, whatever it was built with, must choose the same lock file.
uint32_t lock_number(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : key) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<uint32_t>((hash >> 32 ^ hash) % kLockFiles);
}

Error abandoned_error() { return Error::deadline("the deadline passed before the write began"); }

enum class Published { kYes, kExists, kDirectoryGone };

// Gives the temporary file its final name unless that is taken.
Result<Published> publish_new(int from_dir, const char* from, int to_dir, const char* to) {
  if (::renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0) return Published::kYes;
  if (errno == EINVAL || errno == ENOSYS) {  // a file system without that flag
    if (::linkat(from_dir, from, to_dir, to, 0) == 0) {
      ::unlinkat(from_dir, from, 0);
      return Published::kYes;
    }
  }
  if (errno == EEXIST) return Published::kExists;
  if (errno == ENOENT) return Published::kDirectoryGone;
  return fail(errno_error("rename", errno));
}

Result<Published> publish_over(int from_dir, const char* from, int to_dir, const char* to) {
  if (::renameat(from_dir, from, to_dir, to) == 0) return Published::kYes;
  if (errno == ENOENT) return Published::kDirectoryGone;
  return fail(errno_error("rename", errno));
}

}  // namespace

void PublishedKeys::enter(std::string_view key) {
  std::lock_guard lock(mutex_);
  keys_.emplace(key);
}

void PublishedKeys::leave(std::string_view key) {
  {
    std::lock_guard lock(mutex_);
    keys_.erase(keys_.find(key));
  }
  left_.notify_all();
}

void PublishedKeys::wait_for(std::string_view key) {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return keys_.find(key) == keys_.end(); });
}

namespace {

class PublishScope {
 public:
  PublishScope(PublishedKeys& keys, std::string_view key) : keys_(keys), key_(key) {
    keys_.enter(key_);
  }
  ~PublishScope() { keys_.leave(key_); }
  PublishScope(const PublishScope&) = delete;
  PublishScope& operator=(const PublishScope&) = delete;

 private:
  PublishedKeys& keys_;
  const std::string_view key_;
};

}  // namespace

// A written and synced file under the session's directory; unlinked unless it was published.
struct FileDisk::Temp {
  int dir = -1;
  std::string name;
  std::string token;

  Temp(int d, std::string n, std::string t) : dir(d), name(std::move(n)), token(std::move(t)) {}
  Temp(Temp&& o) noexcept
      : dir(o.dir), name(std::exchange(o.name, {})), token(std::move(o.token)) {}
  Temp& operator=(Temp&&) = delete;
  ~Temp() {
    if (!name.empty()) ::unlinkat(dir, name.c_str(), 0);
  }
  void published() { name.clear(); }
};

Result<StoredObject> FileDisk::read(std::string_view key, const ByteRange* range) {
  TRY_ASSIGN(OpenObject object, open_object(objects_->root_fd(), key));
  ByteRange all{0, object.header.body_bytes};
  if (range != nullptr) {
    TRY_ASSIGN(all, clip_range(*range, object.header.body_bytes));
  }
  TRY_ASSIGN(std::string body, read_at(object.fd.get(), kObjectHeaderBytes + all.offset,
                                       static_cast<size_t>(all.length)));
  if (body.size() != all.length) return fail(Error::corrupt("object file was cut while read"));
  published_.wait_for(key);
  TRY(health_->check());
  StoredObject out;
  out.body = Blob(std::move(body));
  out.version.token = std::move(object.header.token);
  out.object_bytes = object.header.body_bytes;
  return out;
}

Result<ObjectInfo> FileDisk::stat(std::string_view key) {
  TRY_ASSIGN(OpenObject object, open_object(objects_->root_fd(), key));
  published_.wait_for(key);
  TRY(health_->check());
  ObjectInfo info;
  info.version.token = std::move(object.header.token);
  info.bytes = object.header.body_bytes;
  return info;
}

Result<UniqueFd> FileDisk::create_temp(const Temp& temp) {
  UniqueFd fd(::openat(temp.dir, temp.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("create of a temporary file", errno));
  return fd;
}

Result<FileDisk::Temp> FileDisk::write_temp(const Blob& body) {
  Temp temp(session_.get(), std::to_string(++temp_count_), random_hex(kTokenBytes / 2));
  TRY_ASSIGN(UniqueFd fd, create_temp(temp));
  ObjectHeader header{temp.token, body.size()};
  TRY(write_all(fd.get(), encode_object_header(header)));
  TRY(write_all(fd.get(), body.view()));
  if (fsync_ == Fsync::kOn && ::fsync(fd.get()) != 0) return fail(errno_error("fsync", errno));
  return temp;
}

Result<UniqueFd> FileDisk::lock_key(std::string_view key, const Abandoned& abandoned) {
  char name[8];
  ::snprintf(name, sizeof name, "%02x", lock_number(key));
  UniqueFd fd(::openat(locks_.get(), name, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("open of a lock file", errno));
  // A holder that is stopped must not take this thread with it: so no blocking flock.
  auto pause = std::chrono::microseconds(50);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(errno_error("flock", errno));
    if (abandoned.load(std::memory_order_relaxed)) {
      return fail(Error::deadline("another process held the lock of this key until the deadline"));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
  return fd;
}

SwapResult FileDisk::create(std::string_view key, const Blob& body, const Abandoned& abandoned) {
  const KeyPath path = key_path(key);
  auto attempt = [&]() -> Result<SwapResult> {
    TRY(health_->check());
    TRY_ASSIGN(auto dir, objects_->make(path.directories));
    if (::faccessat(dir->fd(), path.leaf.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
      return SwapResult::rejected();
    }
    TRY_ASSIGN(Temp temp, write_temp(body));
    for (int tries = 0; tries < kPublishTriesMax; ++tries) {
      if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
      PublishScope scope(published_, key);
      TRY_ASSIGN(Published done,
                 publish_new(temp.dir, temp.name.c_str(), dir->fd(), path.leaf.c_str()));
      if (done == Published::kExists) return SwapResult::rejected();
      if (done == Published::kYes) {
        temp.published();
        TRY(dir->sync());
        return SwapResult::applied(Version{temp.token});
      }
      objects_->forget(path.directories);
      TRY_ASSIGN(dir, objects_->make(path.directories));
    }
    return fail(Error::unavailable("the directory is removed again and again"));
  };
  auto result = attempt();
  return result ? std::move(*result) : SwapResult::ambiguous(std::move(result).error());
}

SwapResult FileDisk::swap(std::string_view key, const Blob& body, const Version& version,
                          const Abandoned& abandoned) {
  const KeyPath path = key_path(key);
  // Whether the object is there in that version.
  auto current = [&]() -> Result<bool> {
    auto object = open_object(objects_->root_fd(), key);
    if (object) return object->header.token == version.token;
    if (object.error().code == ErrorCode::kNotFound) return false;
    return fail(std::move(object).error());
  };
  auto attempt = [&]() -> Result<SwapResult> {
    TRY(health_->check());
    // A look without the lock spares losers the write; the one that counts is below.
    TRY_ASSIGN(bool holds, current());
    if (!holds) return SwapResult::rejected();
    TRY_ASSIGN(Temp temp, write_temp(body));
    TRY_ASSIGN(UniqueFd lock, lock_key(key, abandoned));
    TRY_ASSIGN(holds, current());
    if (!holds) return SwapResult::rejected();
    TRY_ASSIGN(auto dir, objects_->open(path.directories));
    if (!dir) return SwapResult::rejected();
    if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
    PublishScope scope(published_, key);
    TRY_ASSIGN(Published done,
               publish_over(temp.dir, temp.name.c_str(), dir->fd(), path.leaf.c_str()));
    if (done != Published::kYes) return fail(Error::unavailable("the directory was removed"));
    temp.published();
    lock = UniqueFd();
    TRY(dir->sync());
    return SwapResult::applied(Version{temp.token});
  };
  auto result = attempt();
  return result ? std::move(*result) : SwapResult::ambiguous(std::move(result).error());
}

Result<Version> FileDisk::replace(std::string_view key, const Blob& body,
                                  const Abandoned& abandoned) {
  TRY(health_->check());
  TRY_ASSIGN(Temp temp, write_temp(body));
  return put_in_place(temp, key, abandoned);
}

// Whatever was there.
Result<Version> FileDisk::put_in_place(Temp& temp, std::string_view key,
                                       const Abandoned& abandoned) {
  const KeyPath path = key_path(key);
  for (int tries = 0; tries < kPublishTriesMax; ++tries) {
    TRY_ASSIGN(auto dir, objects_->make(path.directories));
    TRY_ASSIGN(UniqueFd lock, lock_key(key, abandoned));
    if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
    PublishScope scope(published_, key);
    TRY_ASSIGN(Published done,
               publish_over(temp.dir, temp.name.c_str(), dir->fd(), path.leaf.c_str()));
    if (done == Published::kYes) {
      temp.published();
      lock = UniqueFd();
      TRY(dir->sync());
      return Version{temp.token};
    }
    objects_->forget(path.directories);
  }
  return fail(Error::unavailable("the directory is removed again and again"));
}

struct FileDisk::Growing {
  Growing(Temp t, UniqueFd f) : temp(std::move(t)), fd(std::move(f)) {}
  Temp temp;
  UniqueFd fd;
};

Result<std::shared_ptr<FileDisk::Growing>> FileDisk::grow() {
  TRY(health_->check());
  Temp temp(session_.get(), std::to_string(++temp_count_), random_hex(kTokenBytes / 2));
  TRY_ASSIGN(UniqueFd fd, create_temp(temp));
  return std::make_shared<Growing>(std::move(temp), std::move(fd));
}

Result<void> FileDisk::write_at(Growing& object, uint64_t offset, const Blob& body) {
  return write_all_at(object.fd.get(), kObjectHeaderBytes + offset, body.view());
}

Result<Version> FileDisk::publish(Growing& object, std::string_view key, uint64_t bytes,
                                  const Abandoned& abandoned) {
  TRY(health_->check());
  if (object.temp.name.empty()) return Version{object.temp.token};
  const int fd = object.fd.get();
  // A part that was sent twice may have been longer the first time.
  if (::ftruncate(fd, static_cast<off_t>(kObjectHeaderBytes + bytes)) != 0) {
    return fail(errno_error("truncate", errno));
  }
  ObjectHeader header{object.temp.token, bytes};
  TRY(write_all_at(fd, 0, encode_object_header(header)));
  if (fsync_ == Fsync::kOn && ::fsync(fd) != 0) return fail(errno_error("fsync", errno));
  return put_in_place(object.temp, key, abandoned);
}

Result<void> FileDisk::remove(std::string_view key, const Abandoned& abandoned) {
  TRY(health_->check());
  KeyPath path = key_path(key);
  TRY_ASSIGN(auto dir, objects_->open(path.directories));
  if (!dir) return {};
  {
    TRY_ASSIGN(UniqueFd lock, lock_key(key, abandoned));
    if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
    if (::unlinkat(dir->fd(), path.leaf.c_str(), 0) != 0 && errno != ENOENT) {
      return fail(errno_error("unlink", errno));
    }
  }
  TRY(dir->sync());
  remove_empty_directories(std::move(path.directories));
  return {};
}

void FileDisk::remove_empty_directories(std::vector<std::string> path) {
  // A directory that this process writes to stays: making it again would cost the next write.
  for (; !path.empty(); path.pop_back()) {
    const std::string joined = DirCache::join(path);
    if (objects_->recent(joined)) return;
    if (::unlinkat(objects_->root_fd(), joined.c_str(), AT_REMOVEDIR) != 0) return;
  }
}

Result<ListPage> FileDisk::list(const ListRequest& request) {
  TRY(health_->check());
  return list_object_tree(objects_->root_fd(), request);
}

}  // namespace celld
