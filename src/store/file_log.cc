#include "store/file_log.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "store/file_layout.h"

namespace celld {

namespace {

constexpr size_t kBootBytes = 36;
constexpr size_t kHeadBytes = 4096;
constexpr std::string_view kMagic = "celld file log 1\n";
constexpr size_t kMagicBytes = 24;
constexpr size_t kKeyBytesMax = 1024;

// All numbers in the machine's order: a log never leaves its machine.
struct Head {
  char magic[kMagicBytes];
  char boot_id[kBootBytes];
  uint32_t crc;  // of all but itself
  uint64_t generation;
};
static_assert(sizeof(Head) == 72);

struct RecordHead {
  uint32_t crc;  // of the rest of the record, padding excluded
  uint32_t body_bytes;
  uint64_t generation;
  uint16_t key_bytes;
  uint8_t kind;
  uint8_t zero[5];
  char token[kTokenBytes];
};
static_assert(sizeof(RecordHead) == 56);

uint32_t crc_of(uint32_t before, std::string_view bytes) {
  if (bytes.empty()) return before;  // zlib begins anew when there is no pointer
  return static_cast<uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

uint32_t crc_of_head(Head head) {
  head.crc = 0;
  return crc_of(0, bytes_of(head));
}

uint32_t crc_of_record(RecordHead head, std::string_view key, std::string_view body) {
  head.crc = 0;
  return crc_of(crc_of(crc_of(0, bytes_of(head)), key), body);
}

size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

size_t record_bytes(const LogRecord& record) {
  return padded(sizeof(RecordHead) + record.key.size() + record.body.size());
}

bool valid(uint8_t kind, std::string_view token, size_t body_bytes) {
  switch (static_cast<LogRecord::Kind>(kind)) {
    case LogRecord::Kind::kPut:
    case LogRecord::Kind::kFile: {
      const bool hex = std::ranges::all_of(
          token, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
      return hex &&
             (body_bytes == 0 || static_cast<LogRecord::Kind>(kind) == LogRecord::Kind::kPut);
    }
    case LogRecord::Kind::kRemove:
      return body_bytes == 0;
  }
  return false;
}

bool read_head(std::string_view half, Head& head) {
  if (half.size() < kHeadBytes) return false;
  std::memcpy(&head, half.data(), sizeof head);
  if (std::string_view(head.magic, kMagic.size()) != kMagic) return false;
  return crc_of_head(head) == head.crc;
}

void read_records(std::string_view half, uint64_t generation, std::vector<OwnedLogRecord>& out) {
  half.remove_prefix(kHeadBytes);
  while (half.size() >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, half.data(), sizeof head);
    if (head.generation != generation || head.key_bytes == 0 || head.key_bytes > kKeyBytesMax)
      return;
    if (head.body_bytes > FileLog::kBodyBytesMax) return;
    const size_t bytes = padded(sizeof head + head.key_bytes + head.body_bytes);
    if (bytes > half.size()) return;
    const std::string_view key = half.substr(sizeof head, head.key_bytes);
    const std::string_view body = half.substr(sizeof head + head.key_bytes, head.body_bytes);
    if (crc_of_record(head, key, body) != head.crc) return;
    const std::string_view token(head.token, kTokenBytes);
    if (!valid(head.kind, token, body.size())) return;
    const auto kind = static_cast<LogRecord::Kind>(head.kind);
    out.push_back({kind, std::string(key),
                   kind == LogRecord::Kind::kRemove ? std::string() : std::string(token),
                   std::string(body)});
    half.remove_prefix(bytes);
  }
}

Result<void> write_parts(int fd, uint64_t offset, std::array<iovec, 4> parts) {
  size_t first = 0;
  while (true) {
    while (first < parts.size() && parts[first].iov_len == 0) ++first;
    if (first == parts.size()) return {};
    const ssize_t n = ::pwritev(fd, &parts[first], static_cast<int>(parts.size() - first),
                                static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail(errno_error("write of the log", errno));
    }
    offset += static_cast<uint64_t>(n);
    for (size_t left = static_cast<size_t>(n); left > 0;) {
      const size_t step = std::min(left, parts[first].iov_len);
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + step;
      parts[first].iov_len -= step;
      left -= step;
      if (parts[first].iov_len == 0) ++first;
    }
  }
}

uint64_t random_epoch() {
  uint64_t epoch = 0;
  while (epoch == 0) {
    const ssize_t n = ::getrandom(&epoch, sizeof epoch, 0);
    CHECK(n == sizeof epoch || errno == EINTR) << "getrandom failed";
  }
  return epoch;
}

iovec part(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

}  // namespace

std::vector<OwnedLogRecord> read_log(std::string_view bytes, std::string& boot_id) {
  boot_id.clear();
  std::vector<std::pair<uint64_t, std::string_view>> halves;
  for (size_t offset = 0; offset < bytes.size(); offset += FileLog::kHalfBytes) {
    const std::string_view half = bytes.substr(offset, FileLog::kHalfBytes);
    Head head;
    if (!read_head(half, head)) continue;
    halves.emplace_back(head.generation, half);
    boot_id.assign(head.boot_id, kBootBytes);
  }
  std::ranges::sort(halves, {}, &std::pair<uint64_t, std::string_view>::first);
  std::vector<OwnedLogRecord> records;
  for (const auto& [generation, half] : halves) read_records(half, generation, records);
  return records;
}

FileLog::FileLog(UniqueFd fd, std::string boot_id, std::shared_ptr<SyncHealth> health,
                 Settle settle)
    : fd_(std::move(fd)),
      boot_id_(std::move(boot_id)),
      health_(std::move(health)),
      epoch_(random_epoch()),
      settle_(std::move(settle)) {}

Result<std::shared_ptr<FileLog>> FileLog::create(int root_fd, std::string_view boot_id,
                                                 std::shared_ptr<SyncHealth> health,
                                                 Settle settle) {
  if (boot_id.size() != kBootBytes) return fail(Error::invalid("the boot has no name"));
  UniqueFd fd(::openat(root_fd, kName, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return fail(errno_error("create of the log", errno));
  std::shared_ptr<FileLog> log(
      new FileLog(std::move(fd), std::string(boot_id), std::move(health), std::move(settle)));
  if (auto prepared = log->prepare(root_fd); !prepared) {
    ::unlinkat(root_fd, kName, 0);
    return fail(std::move(prepared).error());
  }
  log->settler_ = std::thread([raw = log.get()] { raw->run_settler(); });
  return log;
}

Result<void> FileLog::prepare(int root_fd) {
  // Written, not only allocated: a later fdatasync then changes nothing but these blocks.
  const std::string zeros(kHalfBytes, '\0');
  for (uint64_t half = 0; half < halves_.size(); ++half) {
    TRY(write_parts(fd_.get(), half * kHalfBytes, {part(zeros)}));
  }
  TRY(start_half(0));
  if (::fsync(fd_.get()) != 0) return fail(errno_error("fsync of the log", errno));
  if (::fsync(root_fd) != 0) return fail(errno_error("fsync", errno));
  return {};
}

FileLog::~FileLog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (settler_.joinable()) settler_.join();
}

// The head becomes durable together with the first record.
Result<void> FileLog::start_half(size_t half) {
  Half& next = halves_[half];
  next.generation = std::max(halves_[0].generation, halves_[1].generation) + 1;
  next.settled = false;
  active_ = half;
  used_ = kHeadBytes;
  Head head{};
  std::memcpy(head.magic, kMagic.data(), kMagic.size());
  std::memcpy(head.boot_id, boot_id_.data(), kBootBytes);
  head.generation = next.generation;
  head.crc = crc_of_head(head);
  return write_parts(fd_.get(), half * kHalfBytes, {part(bytes_of(head))});
}

Result<void> FileLog::write_at(uint64_t offset, const LogRecord& record, uint64_t generation) {
  RecordHead head{};
  head.body_bytes = static_cast<uint32_t>(record.body.size());
  head.generation = generation;
  head.key_bytes = static_cast<uint16_t>(record.key.size());
  head.kind = static_cast<uint8_t>(record.kind);
  std::ranges::copy(record.token, head.token);
  head.crc = crc_of_record(head, record.key, record.body);
  return write_parts(fd_.get(), offset,
                     {part(bytes_of(head)), part(record.key), part(record.body)});
}

Result<FileLog::Appended> FileLog::write(const LogRecord& record) {
  const size_t bytes = record_bytes(record);
  std::unique_lock lock(mutex_);
  TRY(health_->check());
  while (used_ + bytes > kHalfBytes) {
    const size_t other = 1 - active_;
    if (halves_[other].settled) {
      if (auto started = start_half(other); !started) {
        health_->fail(EIO);
        return fail(std::move(started).error());
      }
      changed_.notify_all();
    } else {
      changed_.wait(lock);
      TRY(health_->check());
    }
  }
  // In order, each whole before the next: whoever syncs makes all before it durable as well.
  Half& half = halves_[active_];
  TRY(write_at(active_ * kHalfBytes + used_, record, half.generation));
  used_ += bytes;
  ++half.entries;
  half.keys.emplace(record.key);
  return Appended{active_, group_.changed()};
}

Result<void> FileLog::sync(uint64_t change) {
  return group_.wait(change, *health_, [this] { return ::fdatasync(fd_.get()) == 0 ? 0 : errno; });
}

Result<FileLog::Entry> FileLog::append_unsynced(const std::shared_ptr<FileLog>& log,
                                                const LogRecord& record) {
  TRY_ASSIGN(const Appended appended, log->write(record));
  return Entry(log, appended.half);
}

Result<FileLog::Entry> FileLog::append(const std::shared_ptr<FileLog>& log,
                                       const LogRecord& record) {
  TRY_ASSIGN(const Appended appended, log->write(record));
  Entry entry(log, appended.half);
  TRY(log->sync(appended.change));
  return entry;
}

Result<void> FileLog::sync_all() { return sync(group_.last()); }

Result<void> FileLog::settle_all() {
  std::unordered_set<std::string> keys;
  {
    std::lock_guard lock(mutex_);
    for (const Half& half : halves_) keys.insert(half.keys.begin(), half.keys.end());
  }
  const int failed = settle_(keys);
  if (failed == 0) return {};
  health_->fail(failed);
  return fail(errno_error("sync of what the log says", failed));
}

void FileLog::end_entry(size_t half) {
  std::lock_guard lock(mutex_);
  if (--halves_[half].entries == 0 && half != active_) changed_.notify_all();
}

// Makes the effects of a full half durable, so that it can be written again.
void FileLog::run_settler() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Half& full = halves_[1 - active_];
    if (full.settled || full.entries > 0) {
      changed_.wait(lock);
      continue;
    }
    // Nobody adds to it, and only this thread takes away.
    lock.unlock();
    const int failed = settle_(full.keys);
    lock.lock();
    if (failed == 0) {
      full.settled = true;
      full.keys.clear();
    } else {
      health_->fail(failed);
    }
    changed_.notify_all();
    if (failed != 0) return;
  }
}

std::string this_boot() {
  UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[kBootBytes];
  if (!fd || ::read(fd.get(), text, sizeof text) != static_cast<ssize_t>(sizeof text)) return {};
  return std::string(text, sizeof text);
}

}  // namespace celld
