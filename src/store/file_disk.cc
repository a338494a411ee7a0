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
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>

#include "base/check.h"
#include "store/file_layout.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr int kPublishTriesMax = 32;
constexpr int kReadTriesMax = 1000;  // each lost to a whole write of the same key
constexpr char kChangedMeanwhile[] = "the object changed while it was read";
// Writes without a log before this process looks whether it can have one, and how often it looks.
constexpr uint32_t kLookWrites = 16;
constexpr std::chrono::seconds kLookEvery{1};

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
  std::string head;  // its bytes
  ino_t inode = 0;
};

// kNotFound when there is no such object. What was read counts only if still_there() afterwards.
Result<OpenObject> open_object(int objects_fd, const std::string& path) {
  OpenObject object;
  object.fd = UniqueFd(::openat(objects_fd, path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!object.fd) {
    if (errno == ENOENT || errno == ENOTDIR) return fail(Error::not_found("no such object"));
    return fail(errno_error("open", errno));
  }
  TRY_ASSIGN(object.head, read_at(object.fd.get(), 0, kObjectHeaderBytes));
  struct stat st;
  if (::fstat(object.fd.get(), &st) != 0) return fail(errno_error("stat", errno));
  object.inode = st.st_ino;
  auto header = decode_object_header(object.head);
  if (header && static_cast<uint64_t>(st.st_size) != kObjectHeaderBytes + header->body_bytes) {
    header = fail(Error::corrupt("object file has " + std::to_string(st.st_size) +
                                 " bytes, its header promises " +
                                 std::to_string(kObjectHeaderBytes + header->body_bytes)));
  }
  if (header) {
    object.header = std::move(*header);
    return object;
  }
  // A file that became spare after it was opened is no damage.
  if (::fstatat(objects_fd, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 ||
      st.st_ino != object.inode) {
    return fail(Error::make(ErrorCode::kUnavailable, kChangedMeanwhile));
  }
  TRY_ASSIGN(const std::string again, read_at(object.fd.get(), 0, kObjectHeaderBytes));
  if (again != object.head) return fail(Error::make(ErrorCode::kUnavailable, kChangedMeanwhile));
  return fail(std::move(header).error());
}

// Whether what was read since open_object is the object's. A file is written again only after it
// lost its name, its head last; so one that has its name, and the same valid head before and
// after, did not change in between.
Result<bool> still_there(int objects_fd, const std::string& path, const OpenObject& object) {
  struct stat st;
  if (::fstatat(objects_fd, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return fail(errno_error("stat", errno));
  }
  if (st.st_ino != object.inode) return false;
  TRY_ASSIGN(const std::string head, read_at(object.fd.get(), 0, kObjectHeaderBytes));
  return head == object.head;
}

std::string object_path(std::string_view key) {
  KeyPath path = key_path(key);
  path.directories.push_back(path.leaf);
  return DirCache::join(path.directories);
}

// `read(object)` of the object in one state, again while it changes meanwhile.
template <class Read>
auto read_whole(int objects_fd, std::string_view key, Read read)
    -> decltype(read(std::declval<OpenObject&>())) {
  const std::string path = object_path(key);
  for (int tries = 0; tries < kReadTriesMax; ++tries) {
    auto object = open_object(objects_fd, path);
    if (!object) {
      if (object.error().message == kChangedMeanwhile) continue;
      return fail(std::move(object).error());
    }
    auto result = read(*object);
    TRY_ASSIGN(bool there, still_there(objects_fd, path, *object));
    if (there) return result;
  }
  return fail(Error::unavailable("the object is replaced again and again"));
}

// The token and size of the object as it is now.
Result<ObjectHeader> read_header(int objects_fd, std::string_view key) {
  return read_whole(objects_fd, key,
                    [](OpenObject& object) -> Result<ObjectHeader> { return object.header; });
}

Error removed_error() { return Error::unavailable("the directory is removed again and again"); }

Error expelled_error() {
  return Error::unavailable(
      "this process kept a lock for long, as one that is stopped does, and another went on without "
      "it; restart");
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

// Gives the temporary file its final name. `exchanged` when what had that name has the temporary
// one now.
Result<Published> publish_over(int from_dir, const char* from, int to_dir, const char* to,
                               bool& exchanged) {
  exchanged = ::renameat2(from_dir, from, to_dir, to, RENAME_EXCHANGE) == 0;
  if (exchanged) return Published::kYes;
  // Nothing had that name, or the file system cannot exchange.
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

// A file under the session's directory; unlinked unless it was published.
struct FileDisk::Temp {
  int dir = -1;
  std::string name;
  std::string token;
  UniqueFd fd;
  bool synced = false;

  Temp(int d, std::string n, std::string t) : dir(d), name(std::move(n)), token(std::move(t)) {}
  Temp(Temp&& o) noexcept
      : dir(o.dir),
        name(std::exchange(o.name, {})),
        token(std::move(o.token)),
        fd(std::move(o.fd)),
        synced(o.synced) {}
  Temp& operator=(Temp&&) = delete;
  ~Temp() {
    if (!name.empty()) ::unlinkat(dir, name.c_str(), 0);
  }
  void published() { name.clear(); }
};

// One write under way. No other write of this process to its key runs meanwhile.
class FileDisk::Write {
 public:
  Write(std::string_view k, std::unique_lock<std::mutex> s, std::shared_ptr<FileLog> l)
      : key(k), log(std::move(l)), stripe_(std::move(s)) {}

  // Whether the record of a body of this size replaces the sync of its file.
  bool by_log(size_t body_bytes) const { return log && body_bytes <= FileLog::kBodyBytesMax; }

  // Whether it can end without its effect: what is in the log has to happen.
  bool may_stop(const Abandoned& abandoned) const {
    return !entry && abandoned.load(std::memory_order_relaxed);
  }

  const std::string_view key;
  const std::shared_ptr<FileLog> log;  // null: every step is synced
  std::optional<FileLog::Entry> entry;
  bool logged = false;  // the record holds all of the effect

 private:
  std::unique_lock<std::mutex> stripe_;
};

Result<FileDisk::Write> FileDisk::begin_write(std::string_view key, const Abandoned& abandoned) {
  TRY(health_->check());
  if (expelled()) return fail(expelled_error());
  auto stripe = stripes_.lock(key);
  if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
  // Chosen under the stripe, so that the records of a key are in the order of its writes.
  TRY_ASSIGN(auto log, current_log());
  return Write(key, std::move(stripe), std::move(log));
}

// Does nothing without a log. From here on the write happens, now or after a power failure, unless
// another process opens the directory first.
Result<void> FileDisk::log_intent(Write& write, LogRecord::Kind kind, std::string_view token,
                                  std::string_view body) {
  if (!write.log) return {};
  if (kind == LogRecord::Kind::kPut && !write.by_log(body.size())) kind = LogRecord::Kind::kFile;
  write.logged = kind != LogRecord::Kind::kFile;
  LogRecord record{kind, write.key, token,
                   kind == LogRecord::Kind::kPut ? body : std::string_view()};
  TRY_ASSIGN(FileLog::Entry entry, FileLog::append(write.log, record));
  write.entry.emplace(std::move(entry));
  return {};
}

// After the effect became visible. `temp` is null for a removal.
Result<void> FileDisk::make_durable(const Write& write, const Temp* temp, DirHandle& dir) {
  // Whoever opens the directory makes everything durable after the word and before it drops the
  // log: if the word has not changed by now, the effect is either in the log or durable.
  if (write.logged && keeps(*write.log)) return {};
  if (fsync_ == Fsync::kOn && temp != nullptr && !temp->synced && ::fsync(temp->fd.get()) != 0) {
    const int failed = errno;
    health_->fail(failed);
    return fail(errno_error("fsync", failed));
  }
  return dir.sync();
}

// This process's log, if it can have one. While it has none, no log is there: records of what
// writes without a log have changed since would be done again after a power failure.
Result<std::shared_ptr<FileLog>> FileDisk::current_log() {
  std::shared_ptr<FileLog> none;
  if (fsync_ == Fsync::kOff) return none;
  std::lock_guard lock(logger_.mutex);
  // Whoever opened the directory meanwhile ends the log as well, but may die on the way.
  if (logger_.log && !keeps(*logger_.log)) TRY(end_log());
  if (logger_.log || ++logger_.writes < kLookWrites) return logger_.log;
  const auto now = std::chrono::steady_clock::now();
  if (now - logger_.looked < kLookEvery) return none;
  logger_.looked = now;
  logger_.writes = 0;
  auto open_lock = OpenLock::take(locks_.get(), std::chrono::milliseconds(0));
  if (!open_lock) return none;
  if (auto only = alone(); !only || !*only) return none;
  // A log that cannot be made costs speed, nothing else.
  auto log = FileLog::create(root_.get(), boot_id_, health_,
                             [this](const auto& keys) { return settle(keys); });
  if (!log) return none;
  logger_.log = std::move(*log);
  table_.set_logger(logger_.log->epoch());
  return logger_.log;
}

// Under the logger's mutex. The log that has the name is this process's own: nobody else can have
// begun one while this process has its session.
Result<void> FileDisk::end_log() {
  TRY(logger_.log->settle_all());
  if (::unlinkat(root_.get(), FileLog::kName, 0) != 0 && errno != ENOENT) {
    const int failed = errno;
    health_->fail(failed);
    return fail(errno_error("unlink of the log", failed));
  }
  if (::fsync(root_.get()) != 0) {
    const int failed = errno;
    health_->fail(failed);
    return fail(errno_error("fsync", failed));
  }
  logger_.log.reset();
  return {};
}

// Syncs what has a name now, and the directories of all. Only what the keys stand for: the file
// system may be full of what others wrote.
int FileDisk::settle(const std::unordered_set<std::string>& keys) {
  // What cannot be opened (too many files are) can be synced all the same.
  auto sync_everything = [this] { return ::syncfs(root_.get()) == 0 ? 0 : errno; };
  std::unordered_set<std::string> directories;
  for (const std::string& key : keys) {
    const KeyPath path = key_path(key);
    const std::string directory = DirCache::join(path.directories);
    const std::string file = directory.empty() ? path.leaf : directory + "/" + path.leaf;
    directories.insert(directory.empty() ? "." : directory);
    UniqueFd fd(::openat(objects_->root_fd(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd && errno != ENOENT && errno != ENOTDIR) return sync_everything();
    if (fd && ::fsync(fd.get()) != 0) return errno;
  }
  for (const std::string& directory : directories) {
    UniqueFd fd(
        ::openat(objects_->root_fd(), directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd && errno != ENOENT && errno != ENOTDIR) return sync_everything();
    if (fd && ::fsync(fd.get()) != 0) return errno;
  }
  return 0;
}

Result<StoredObject> FileDisk::read(std::string_view key, const ByteRange* range) {
  auto whole = [range](OpenObject& object) -> Result<StoredObject> {
    ByteRange wanted{0, object.header.body_bytes};
    if (range != nullptr) {
      TRY_ASSIGN(wanted, clip_range(*range, object.header.body_bytes));
    }
    TRY_ASSIGN(std::string body, read_at(object.fd.get(), kObjectHeaderBytes + wanted.offset,
                                         static_cast<size_t>(wanted.length)));
    if (body.size() != wanted.length) return fail(Error::corrupt("object file was cut while read"));
    StoredObject out;
    out.body = Blob(std::move(body));
    out.version.token = object.header.token;
    out.object_bytes = object.header.body_bytes;
    return out;
  };
  TRY_ASSIGN(StoredObject object, read_whole(objects_->root_fd(), key, whole));
  published_.wait_for(key);
  TRY(health_->check());
  return object;
}

Result<ObjectInfo> FileDisk::stat(std::string_view key) {
  TRY_ASSIGN(ObjectHeader header, read_header(objects_->root_fd(), key));
  published_.wait_for(key);
  TRY(health_->check());
  ObjectInfo info;
  info.version.token = std::move(header.token);
  info.bytes = header.body_bytes;
  return info;
}

FileDisk::Temp FileDisk::name_temp(std::string token) {
  return Temp(session_.get(), std::to_string(++temp_count_), std::move(token));
}

Result<void> FileDisk::create_temp(Temp& temp) {
  temp.fd = UniqueFd(
      ::openat(temp.dir, temp.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!temp.fd) return fail(errno_error("create of a temporary file", errno));
  return {};
}

// Makes the file of a spare one, if there is one.
Result<bool> FileDisk::take_spare(Temp& temp, std::string_view body) {
  if (body.size() > SpareFiles::kFileBytesMax) return false;
  std::optional<std::string> name = spares_.take();
  if (!name) return false;
  temp.name = std::move(*name);
  temp.fd = UniqueFd(::openat(temp.dir, temp.name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!temp.fd) return fail(errno_error("open of a temporary file", errno));
  const int fd = temp.fd.get();
  struct stat st;
  if (::fstat(fd, &st) != 0) return fail(errno_error("stat", errno));
  if (st.st_nlink != 1) {  // somebody's copy of the directory shares its bytes
    ::unlinkat(temp.dir, temp.name.c_str(), 0);
    temp.name = std::to_string(++temp_count_);
    return false;
  }
  // Whoever still reads the object that this was sees that it changed: no valid head while the
  // body does.
  TRY(write_all_at(fd, 0, std::string(kObjectHeaderBytes, '\n')));
  TRY(write_all_at(fd, kObjectHeaderBytes, body));
  const off_t bytes = static_cast<off_t>(kObjectHeaderBytes + body.size());
  if (st.st_size > bytes && ::ftruncate(fd, bytes) != 0) {
    return fail(errno_error("truncate", errno));
  }
  TRY(write_all_at(fd, 0, encode_object_header({temp.token, body.size()})));
  return true;
}

Result<void> FileDisk::fill_temp(Temp& temp, std::string_view body, bool sync) {
  TRY_ASSIGN(const bool spare, take_spare(temp, body));
  if (!spare) {
    TRY(create_temp(temp));
    auto write = [&]() -> Result<void> {
      TRY(write_all_at(temp.fd.get(), 0, encode_object_header({temp.token, body.size()})));
      return write_all_at(temp.fd.get(), kObjectHeaderBytes, body);
    };
    // A full disk may have room in the spare files.
    if (auto written = write(); !written && spares_.clear(temp.dir)) {
      TRY(write());
    } else if (!written) {
      return written;
    }
  }
  if (sync && ::fsync(temp.fd.get()) != 0) return fail(errno_error("fsync", errno));
  temp.synced = sync;
  return {};
}

// Keeps the file under the temporary name, whose object is gone durably, to be written again.
void FileDisk::spare(Temp& temp) {
  struct stat st;
  if (::fstatat(temp.dir, temp.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return;
  spares_.add(temp.dir, std::exchange(temp.name, {}), static_cast<uint64_t>(st.st_size));
}

Result<FileDisk::Temp> FileDisk::write_temp(const Blob& body, const Write& write) {
  Temp temp = name_temp(random_hex(kTokenBytes / 2));
  const bool sync = fsync_ == Fsync::kOn && !write.by_log(body.size());
  TRY(fill_temp(temp, body.view(), sync));
  return temp;
}

SwapResult FileDisk::create(std::string_view key, const Blob& body, const Abandoned& abandoned) {
  const KeyPath path = key_path(key);
  auto attempt = [&]() -> Result<SwapResult> {
    TRY_ASSIGN(Write write, begin_write(key, abandoned));
    TRY_ASSIGN(auto dir, objects_->make(path.directories));
    if (::faccessat(dir->fd(), path.leaf.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
      return SwapResult::rejected();
    }
    TRY_ASSIGN(Temp temp, write_temp(body, write));
    if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
    TRY(log_intent(write, LogRecord::Kind::kPut, temp.token, body.view()));
    for (int tries = 0; tries < kPublishTriesMax; ++tries) {
      PublishScope scope(published_, key);
      TRY_ASSIGN(Published done,
                 publish_new(temp.dir, temp.name.c_str(), dir->fd(), path.leaf.c_str()));
      if (done == Published::kExists) return SwapResult::rejected();
      if (done == Published::kYes) {
        temp.published();
        TRY(make_durable(write, &temp, *dir));
        return SwapResult::applied(Version{temp.token});
      }
      objects_->forget(path.directories);
      TRY_ASSIGN(dir, objects_->make(path.directories));
    }
    return fail(expelled() ? expelled_error() : removed_error());
  };
  auto result = attempt();
  return result ? std::move(*result) : SwapResult::ambiguous(std::move(result).error());
}

SwapResult FileDisk::swap(std::string_view key, const Blob& body, const Version& version,
                          const Abandoned& abandoned) {
  const KeyPath path = key_path(key);
  // Whether the object is there in that version.
  auto current = [&]() -> Result<bool> {
    auto header = read_header(objects_->root_fd(), key);
    if (header) return header->token == version.token;
    if (header.error().code == ErrorCode::kNotFound) return false;
    return fail(std::move(header).error());
  };
  auto attempt = [&]() -> Result<SwapResult> {
    TRY_ASSIGN(Write write, begin_write(key, abandoned));
    // A look without the lock spares losers the write. With a log it is the one that counts: only
    // a process that has opened the directory since, and dropped the log, can change what it saw.
    TRY_ASSIGN(bool holds, current());
    if (!holds) return SwapResult::rejected();
    TRY_ASSIGN(Temp temp, write_temp(body, write));
    if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
    TRY(log_intent(write, LogRecord::Kind::kPut, temp.token, body.view()));
    TRY_ASSIGN(UniqueFd lock, lock_key(key, abandoned));
    if (write.may_stop(abandoned)) return fail(abandoned_error());
    TRY_ASSIGN(holds, current());
    if (!holds) return SwapResult::rejected();
    TRY_ASSIGN(auto dir, objects_->open(path.directories));
    if (!dir) return SwapResult::rejected();
    PublishScope scope(published_, key);
    bool exchanged = false;
    TRY_ASSIGN(Published done,
               publish_over(temp.dir, temp.name.c_str(), dir->fd(), path.leaf.c_str(), exchanged));
    if (done != Published::kYes) {
      return fail(expelled() ? expelled_error() : Error::unavailable("the directory was removed"));
    }
    if (!exchanged) temp.published();
    lock = UniqueFd();
    TRY(make_durable(write, &temp, *dir));
    if (exchanged) spare(temp);
    return SwapResult::applied(Version{temp.token});
  };
  auto result = attempt();
  return result ? std::move(*result) : SwapResult::ambiguous(std::move(result).error());
}

Result<Version> FileDisk::replace(std::string_view key, const Blob& body,
                                  const Abandoned& abandoned) {
  TRY_ASSIGN(Write write, begin_write(key, abandoned));
  TRY_ASSIGN(Temp temp, write_temp(body, write));
  if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
  TRY(log_intent(write, LogRecord::Kind::kPut, temp.token, body.view()));
  return put_in_place(write, temp, abandoned);
}

// Whatever was there.
Result<Version> FileDisk::put_in_place(Write& write, Temp& temp, const Abandoned& abandoned) {
  const KeyPath path = key_path(write.key);
  for (int tries = 0; tries < kPublishTriesMax; ++tries) {
    TRY_ASSIGN(auto dir, objects_->make(path.directories));
    TRY_ASSIGN(UniqueFd lock, lock_key(write.key, abandoned));
    if (write.may_stop(abandoned)) return fail(abandoned_error());
    PublishScope scope(published_, write.key);
    bool exchanged = false;
    TRY_ASSIGN(Published done,
               publish_over(temp.dir, temp.name.c_str(), dir->fd(), path.leaf.c_str(), exchanged));
    if (done == Published::kYes) {
      if (!exchanged) temp.published();
      lock = UniqueFd();
      TRY(make_durable(write, &temp, *dir));
      if (exchanged) spare(temp);
      return Version{temp.token};
    }
    objects_->forget(path.directories);
  }
  return fail(expelled() ? expelled_error() : removed_error());
}

struct FileDisk::Growing {
  explicit Growing(Temp t) : temp(std::move(t)) {}
  Temp temp;
};

Result<std::shared_ptr<FileDisk::Growing>> FileDisk::grow() {
  TRY(health_->check());
  auto growing = std::make_shared<Growing>(name_temp(random_hex(kTokenBytes / 2)));
  TRY(create_temp(growing->temp));
  return growing;
}

Result<void> FileDisk::write_at(Growing& object, uint64_t offset, const Blob& body) {
  return write_all_at(object.temp.fd.get(), kObjectHeaderBytes + offset, body.view());
}

Result<Version> FileDisk::publish(Growing& object, std::string_view key, uint64_t bytes,
                                  const Abandoned& abandoned) {
  Temp& temp = object.temp;
  if (temp.name.empty()) return Version{temp.token};
  const int fd = temp.fd.get();
  // A part that was sent twice may have been longer the first time.
  if (::ftruncate(fd, static_cast<off_t>(kObjectHeaderBytes + bytes)) != 0) {
    return fail(errno_error("truncate", errno));
  }
  ObjectHeader header{temp.token, bytes};
  TRY(write_all_at(fd, 0, encode_object_header(header)));
  if (fsync_ == Fsync::kOn && ::fsync(fd) != 0) return fail(errno_error("fsync", errno));
  temp.synced = true;
  TRY_ASSIGN(Write write, begin_write(key, abandoned));
  if (abandoned.load(std::memory_order_relaxed)) return fail(abandoned_error());
  TRY(log_intent(write, LogRecord::Kind::kFile, temp.token, {}));
  return put_in_place(write, temp, abandoned);
}

// One of several that share their syncs.
struct FileDisk::Removal {
  KeyPath path;
  std::string_view key;
  std::shared_ptr<DirHandle> dir;  // null: nothing is there
  std::shared_ptr<FileLog> log;
  std::optional<Temp> gone;  // the object's file
};

// Unlike what is written, a removal may be visible before its record is durable: a power failure
// leaves the object or does not. Only its file must not be written again before.
Result<void> FileDisk::take_away(Removal& removal, const Abandoned& abandoned) {
  TRY_ASSIGN(Write write, begin_write(removal.key, abandoned));
  removal.path = key_path(removal.key);
  TRY_ASSIGN(removal.dir, objects_->open(removal.path.directories));
  if (!removal.dir) return {};
  const char* leaf = removal.path.leaf.c_str();
  removal.log = write.log;
  // Without a record, but what took the object away is made durable all the same.
  if (write.log && ::faccessat(removal.dir->fd(), leaf, F_OK, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (write.log) {
    LogRecord record{LogRecord::Kind::kRemove, removal.key, {}, {}};
    TRY_ASSIGN(FileLog::Entry entry, FileLog::append_unsynced(write.log, record));
    write.entry.emplace(std::move(entry));
  }
  Temp gone = name_temp({});
  TRY_ASSIGN(UniqueFd lock, lock_key(removal.key, abandoned));
  if (write.may_stop(abandoned)) return fail(abandoned_error());
  if (::renameat(removal.dir->fd(), leaf, gone.dir, gone.name.c_str()) == 0) {
    removal.gone.emplace(std::move(gone));
  } else if (errno != ENOENT) {
    return fail(errno_error("rename", errno));
  } else if (expelled()) {
    return fail(expelled_error());
  }
  return {};
}

std::vector<Result<void>> FileDisk::remove_many(const std::vector<std::string>& keys,
                                                const Abandoned& abandoned) {
  std::vector<Result<void>> outcomes(keys.size());
  std::vector<Removal> removals(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (abandoned.load(std::memory_order_relaxed)) {
      outcomes[i] = fail(abandoned_error());
      continue;
    }
    removals[i].key = keys[i];
    outcomes[i] = take_away(removals[i], abandoned);
  }
  std::map<std::string, Result<void>> synced;  // directories
  for (size_t i = 0; i < keys.size(); ++i) {
    Removal& removal = removals[i];
    if (!outcomes[i] || !removal.dir) continue;
    // The first sync of a log is that of all.
    if (removal.log) outcomes[i] = removal.log->sync_all();
    if (outcomes[i] && (!removal.log || !keeps(*removal.log))) {
      const std::string directory = DirCache::join(removal.path.directories);
      auto known = synced.find(directory);
      if (known == synced.end()) known = synced.emplace(directory, removal.dir->sync()).first;
      outcomes[i] = known->second;
    }
    if (!outcomes[i]) continue;
    if (removal.gone) spare(*removal.gone);
    remove_empty_directories(std::move(removal.path.directories));
  }
  return outcomes;
}

Result<void> FileDisk::remove(std::string_view key, const Abandoned& abandoned) {
  return std::move(remove_many({std::string(key)}, abandoned).front());
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

// The effects of a log of another boot. Nobody else has the directory open.
Result<void> FileDisk::do_again(const std::vector<OwnedLogRecord>& records) {
  std::unordered_map<std::string_view, std::vector<const OwnedLogRecord*>> of_key;
  for (const auto& record : records) of_key[record.key].push_back(&record);
  for (const auto& [key, history] : of_key) {
    const KeyPath path = key_path(key);
    // The last one counts; a file that never got its name leaves what was before.
    for (auto last = history.rbegin(); last != history.rend(); ++last) {
      const OwnedLogRecord& record = **last;
      if (record.kind == LogRecord::Kind::kFile) {
        auto header = read_header(objects_->root_fd(), key);
        if (header && header->token == record.token) break;
        continue;
      }
      if (record.kind == LogRecord::Kind::kRemove) {
        TRY_ASSIGN(auto dir, objects_->open(path.directories));
        if (dir && ::unlinkat(dir->fd(), path.leaf.c_str(), 0) != 0 && errno != ENOENT) {
          return fail(errno_error("unlink", errno));
        }
        break;
      }
      TRY_ASSIGN(auto dir, objects_->make(path.directories));
      Temp temp = name_temp(record.token);
      TRY(fill_temp(temp, record.body, false));
      bool exchanged = false;
      TRY_ASSIGN(Published done, publish_over(temp.dir, temp.name.c_str(), dir->fd(),
                                              path.leaf.c_str(), exchanged));
      if (done != Published::kYes)
        return fail(Error::unavailable("a directory is removed by others"));
      if (!exchanged) temp.published();
      break;
    }
  }
  return {};
}

}  // namespace celld
