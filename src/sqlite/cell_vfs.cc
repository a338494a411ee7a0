#include "sqlite/cell_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "base/check.h"
#include "world/host.h"

namespace celld {
namespace {

constexpr char kVfsName[] = "cell";
constexpr char kFileName[] = "cell.db";
constexpr int kSectorBytes = 4096;
// The store takes whole pages, in any order, and shows them at once.
constexpr int kCharacteristics = SQLITE_IOCAP_POWERSAFE_OVERWRITE | SQLITE_IOCAP_ATOMIC4K |
                                 SQLITE_IOCAP_SAFE_APPEND | SQLITE_IOCAP_SEQUENTIAL;

SqliteHost g_host;
std::atomic<uint64_t> g_temp_bytes{0};
// The file that sqlite3_open_v2 is opening on this thread.
thread_local CellFile* t_opening = nullptr;

// --- the database file ---

struct MainFile {
  sqlite3_file base;
  CellFile* file;
};

CellFile& cell(sqlite3_file* f) { return *reinterpret_cast<MainFile*>(f)->file; }

int main_close(sqlite3_file*) { return SQLITE_OK; }

int main_read(sqlite3_file* f, void* buffer, int amount, sqlite3_int64 offset) {
  PageStore& store = *cell(f).store;
  auto out = std::span(static_cast<uint8_t*>(buffer), static_cast<size_t>(amount));
  uint64_t at = static_cast<uint64_t>(offset);
  while (!out.empty()) {
    auto pgno = static_cast<Pgno>(at / kPageSize + 1);
    auto in_page = static_cast<uint32_t>(at % kPageSize);
    if (pgno > store.page_count()) {
      std::memset(out.data(), 0, out.size());
      return SQLITE_IOERR_SHORT_READ;
    }
    size_t n = std::min<size_t>(out.size(), kPageSize - in_page);
    if (!store.read(pgno, in_page, out.first(n))) return SQLITE_IOERR_READ;
    out = out.subspan(n);
    at += n;
  }
  return SQLITE_OK;
}

int main_write(sqlite3_file* f, const void* bytes, int amount, sqlite3_int64 offset) {
  if (amount != static_cast<int>(kPageSize) || offset % kPageSize != 0) return SQLITE_IOERR_WRITE;
  CellFile& file = cell(f);
  auto pgno = static_cast<Pgno>(offset / kPageSize + 1);
  // Once it is too large SQLite undoes it, which writes the old pages.
  if (!file.too_large && !file.undoing && file.store->transaction_pages() >= file.transaction_pages_max &&
      !file.store->written(pgno)) {
    file.too_large = true;
    return SQLITE_FULL;
  }
  file.store->write(pgno, static_cast<const uint8_t*>(bytes));
  return SQLITE_OK;
}

int main_truncate(sqlite3_file* f, sqlite3_int64 size) {
  if (size % kPageSize != 0) return SQLITE_IOERR_TRUNCATE;
  cell(f).store->truncate(static_cast<uint32_t>(size / kPageSize));
  return SQLITE_OK;
}

int main_sync(sqlite3_file*, int) { return SQLITE_OK; }

int main_size(sqlite3_file* f, sqlite3_int64* size) {
  *size = sqlite3_int64{cell(f).store->page_count()} * kPageSize;
  return SQLITE_OK;
}

int main_lock(sqlite3_file*, int) { return SQLITE_OK; }

int main_reserved(sqlite3_file*, int* out) {
  *out = 0;
  return SQLITE_OK;
}

int main_control(sqlite3_file* f, int op, void*) {
  CellFile& file = cell(f);
  switch (op) {
    case SQLITE_FCNTL_SYNC:
      // Asked before a commit, and again while a refused commit is undone.
      if (!file.refused && !file.undoing && file.sink && !file.sink->may_commit()) {
        file.refused = true;
        return SQLITE_IOERR;
      }
      return SQLITE_OK;
    case SQLITE_FCNTL_COMMIT_PHASETWO: {
      PageChanges changes = file.store->commit();
      if (file.sink && !changes.empty()) {
        file.sink->on_commit(std::move(changes.pages), changes.page_count);
      }
      return SQLITE_OK;
    }
    default:
      return SQLITE_NOTFOUND;
  }
}

int sector_size(sqlite3_file*) { return kSectorBytes; }
int characteristics(sqlite3_file*) { return kCharacteristics; }

constexpr sqlite3_io_methods kMainMethods = {
    .iVersion = 1,
    .xClose = main_close,
    .xRead = main_read,
    .xWrite = main_write,
    .xTruncate = main_truncate,
    .xSync = main_sync,
    .xFileSize = main_size,
    .xLock = main_lock,
    .xUnlock = main_lock,
    .xCheckReservedLock = main_reserved,
    .xFileControl = main_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

// --- temporary files ---

constexpr uint64_t kTempChunk = 64u << 10;

struct TempContent {
  std::vector<std::unique_ptr<uint8_t[]>> chunks;
  uint64_t size = 0;

  ~TempContent() { resize_chunks(0); }
  void resize_chunks(size_t count) {
    while (chunks.size() > count) {
      chunks.pop_back();
      g_temp_bytes.fetch_sub(kTempChunk, std::memory_order_relaxed);
    }
  }
  bool grow_to(uint64_t bytes) {
    if (bytes > kTempFileBytesMax) return false;
    while (chunks.size() * kTempChunk < bytes) {
      if (g_temp_bytes.fetch_add(kTempChunk, std::memory_order_relaxed) + kTempChunk >
          kTempBytesMax) {
        g_temp_bytes.fetch_sub(kTempChunk, std::memory_order_relaxed);
        return false;
      }
      chunks.push_back(std::make_unique<uint8_t[]>(kTempChunk));
    }
    return true;
  }
};

struct TempFile {
  sqlite3_file base;
  TempContent* content;
};

TempContent& temp(sqlite3_file* f) { return *reinterpret_cast<TempFile*>(f)->content; }

int temp_close(sqlite3_file* f) {
  delete &temp(f);
  return SQLITE_OK;
}

int temp_read(sqlite3_file* f, void* buffer, int amount, sqlite3_int64 offset) {
  TempContent& content = temp(f);
  auto* out = static_cast<uint8_t*>(buffer);
  auto left = static_cast<uint64_t>(amount);
  auto at = static_cast<uint64_t>(offset);
  while (left > 0 && at < content.size) {
    uint64_t n = std::min({left, kTempChunk - at % kTempChunk, content.size - at});
    std::memcpy(out, content.chunks[at / kTempChunk].get() + at % kTempChunk, n);
    out += n;
    at += n;
    left -= n;
  }
  if (left == 0) return SQLITE_OK;
  std::memset(out, 0, left);
  return SQLITE_IOERR_SHORT_READ;
}

int temp_write(sqlite3_file* f, const void* bytes, int amount, sqlite3_int64 offset) {
  TempContent& content = temp(f);
  auto* in = static_cast<const uint8_t*>(bytes);
  auto left = static_cast<uint64_t>(amount);
  auto at = static_cast<uint64_t>(offset);
  if (!content.grow_to(at + left)) return SQLITE_FULL;
  content.size = std::max(content.size, at + left);
  while (left > 0) {
    uint64_t n = std::min(left, kTempChunk - at % kTempChunk);
    std::memcpy(content.chunks[at / kTempChunk].get() + at % kTempChunk, in, n);
    in += n;
    at += n;
    left -= n;
  }
  return SQLITE_OK;
}

int temp_truncate(sqlite3_file* f, sqlite3_int64 size) {
  TempContent& content = temp(f);
  auto bytes = static_cast<uint64_t>(size);
  if (bytes >= content.size) return SQLITE_OK;
  content.size = bytes;
  content.resize_chunks((bytes + kTempChunk - 1) / kTempChunk);
  if (uint64_t tail = bytes % kTempChunk) {
    std::memset(content.chunks.back().get() + tail, 0, kTempChunk - tail);
  }
  return SQLITE_OK;
}

int temp_size(sqlite3_file* f, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(temp(f).size);
  return SQLITE_OK;
}

int temp_control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }

constexpr sqlite3_io_methods kTempMethods = {
    .iVersion = 1,
    .xClose = temp_close,
    .xRead = temp_read,
    .xWrite = temp_write,
    .xTruncate = temp_truncate,
    .xSync = main_sync,
    .xFileSize = temp_size,
    .xLock = main_lock,
    .xUnlock = main_lock,
    .xCheckReservedLock = main_reserved,
    .xFileControl = temp_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

// --- the file system ---

int vfs_open(sqlite3_vfs*, const char*, sqlite3_file* f, int flags, int* out_flags) {
  f->pMethods = nullptr;
  if (flags & SQLITE_OPEN_MAIN_DB) {
    if (t_opening == nullptr) return SQLITE_CANTOPEN;
    auto* main = reinterpret_cast<MainFile*>(f);
    main->file = t_opening;
    f->pMethods = &kMainMethods;
  } else if (flags & (SQLITE_OPEN_TEMP_DB | SQLITE_OPEN_TRANSIENT_DB | SQLITE_OPEN_TEMP_JOURNAL |
                      SQLITE_OPEN_SUBJOURNAL)) {
    reinterpret_cast<TempFile*>(f)->content = new TempContent;
    f->pMethods = &kTempMethods;
  } else {
    return SQLITE_CANTOPEN;  // a journal or a WAL: the connection is not in its mode
  }
  if (out_flags) *out_flags = flags;
  return SQLITE_OK;
}

int vfs_delete(sqlite3_vfs*, const char*, int) { return SQLITE_OK; }

int vfs_access(sqlite3_vfs*, const char*, int, int* out) {
  *out = 0;
  return SQLITE_OK;
}

int vfs_full_pathname(sqlite3_vfs*, const char* name, int size, char* out) {
  size_t n = std::strlen(name);
  if (n + 1 > static_cast<size_t>(size)) return SQLITE_CANTOPEN;
  std::memcpy(out, name, n + 1);
  return SQLITE_OK;
}

int vfs_random(sqlite3_vfs*, int size, char* out) {
  g_host.random({reinterpret_cast<uint8_t*>(out), static_cast<size_t>(size)});
  return size;
}

int vfs_sleep(sqlite3_vfs*, int) { return 0; }

int vfs_time_ms(sqlite3_vfs*, sqlite3_int64* out) {
  constexpr sqlite3_int64 kUnixEpochMs = 210866760000000;  // in milliseconds of the Julian day
  *out = kUnixEpochMs + g_host.wall_now().value;
  return SQLITE_OK;
}

int vfs_time(sqlite3_vfs* vfs, double* out) {
  sqlite3_int64 ms = 0;
  vfs_time_ms(vfs, &ms);
  *out = static_cast<double>(ms) / 86400000.0;
  return SQLITE_OK;
}

int vfs_last_error(sqlite3_vfs*, int, char*) { return 0; }

void must(int rc, const char* what) { CHECK(rc == SQLITE_OK) << what << ": " << rc; }

void register_once(SqliteHost host) {
  g_host = host;
  // Pages come from the general allocator one by one, and there is no per-connection pool: an
  // idle connection holds nothing it does not use.
  must(sqlite3_config(SQLITE_CONFIG_MULTITHREAD), "SQLITE_CONFIG_MULTITHREAD");
  must(sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0), "SQLITE_CONFIG_MEMSTATUS");
  must(sqlite3_config(SQLITE_CONFIG_PAGECACHE, nullptr, 0, 0), "SQLITE_CONFIG_PAGECACHE");
  must(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), "SQLITE_CONFIG_LOOKASIDE");
  must(sqlite3_config(SQLITE_CONFIG_MMAP_SIZE, sqlite3_int64{0}, sqlite3_int64{0}),
       "SQLITE_CONFIG_MMAP_SIZE");
  must(sqlite3_config(SQLITE_CONFIG_URI, 0), "SQLITE_CONFIG_URI");
  must(sqlite3_initialize(), "sqlite3_initialize");

  static sqlite3_vfs vfs = {};
  vfs.iVersion = 2;
  vfs.szOsFile = static_cast<int>(std::max(sizeof(MainFile), sizeof(TempFile)));
  vfs.mxPathname = 64;
  vfs.zName = kVfsName;
  vfs.xOpen = vfs_open;
  vfs.xDelete = vfs_delete;
  vfs.xAccess = vfs_access;
  vfs.xFullPathname = vfs_full_pathname;
  vfs.xRandomness = vfs_random;
  vfs.xSleep = vfs_sleep;
  vfs.xCurrentTime = vfs_time;
  vfs.xGetLastError = vfs_last_error;
  vfs.xCurrentTimeInt64 = vfs_time_ms;
  // The default, so that SQLite's own generator is seeded through it too.
  must(sqlite3_vfs_register(&vfs, 1), "sqlite3_vfs_register");
}

}  // namespace

void init_sqlite(SqliteHost host) {
  static std::once_flag once;
  std::call_once(once, register_once, host);
}

void init_sqlite() { init_sqlite(SqliteHost{host_random, host_wall_now}); }

int open_cell_file(CellFile* file, sqlite3** db) {
  CHECK(file->store != nullptr) << "a cell file without a store";
  CHECK(t_opening == nullptr) << "nested open";
  t_opening = file;
  int rc = sqlite3_open_v2(
      kFileName, db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
      kVfsName);
  t_opening = nullptr;
  if (rc != SQLITE_OK && *db) {
    sqlite3_close_v2(*db);
    *db = nullptr;
  }
  return rc;
}

uint64_t temp_file_bytes() { return g_temp_bytes.load(std::memory_order_relaxed); }

}  // namespace celld
