#include "sqlite/page_store.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace celld {
namespace {

constexpr uint8_t kZeros[kPageSize] = {};

const PageRef& zero_page() {
  static const PageRef page = PageRef::copy_of(kZeros);
  return page;
}

const uint8_t* bytes_or_zeros(const PageRef& page) { return page ? page.data() : kZeros; }

uint64_t offset_of(Pgno pgno) { return uint64_t{pgno - 1} * kPageSize; }

}  // namespace

// The mutex orders a reader of a snapshot against the commits of the store.
struct SpillFile {
  std::mutex mutex;
  std::unique_ptr<ScratchFile> file;
  std::unordered_map<Pgno, PageRef> refused;  // pages that the disk did not take
  std::vector<std::weak_ptr<PreservedPages>> snapshots;

  Result<PageRef> page(Pgno pgno) {
    if (auto it = refused.find(pgno); it != refused.end()) return it->second;
    PageRef page = PageRef::allocate();
    TRY(file->read(offset_of(pgno), {page.mutable_data(), kPageSize}));
    return page;
  }
  // Keeps the present content of `pgno` for the snapshots that would miss it.
  void preserve(Pgno pgno);
  void store(Pgno pgno, const PageRef& page) {
    if (file->write(offset_of(pgno), {bytes_or_zeros(page), kPageSize})) {
      refused.erase(pgno);
    } else {
      refused[pgno] = page ? page : zero_page();
    }
  }
};

struct PreservedPages {
  std::shared_ptr<SpillFile> spill;
  uint32_t page_count = 0;
  uint64_t bytes_max = 0;
  std::unordered_map<Pgno, PageRef> pages;  // as they were at the snapshot
  std::optional<Error> lost;                // why the snapshot can no longer be read
};

void SpillFile::preserve(Pgno pgno) {
  std::erase_if(snapshots, [](const auto& weak) { return weak.expired(); });
  PageRef old;
  for (const auto& weak : snapshots) {
    auto snapshot = weak.lock();
    if (!snapshot || snapshot->lost || pgno > snapshot->page_count ||
        snapshot->pages.contains(pgno)) {
      continue;
    }
    if (uint64_t{snapshot->pages.size() + 1} * kPageSize > snapshot->bytes_max) {
      snapshot->lost = Error::overloaded("snapshot: the database was rewritten while it was read");
      snapshot->pages.clear();
      continue;
    }
    if (!old) {
      auto read = page(pgno);
      if (!read) {
        snapshot->lost = read.error().at("snapshot");
        continue;
      }
      old = std::move(*read);
    }
    snapshot->pages.emplace(pgno, old);
  }
}

Result<PageRef> PageSnapshot::page(Pgno pgno) const {
  CHECK(pgno >= 1 && pgno <= page_count_) << "page " << pgno << " of " << page_count_;
  if (!preserved_) {
    const PageRef& page = heap_[pgno - 1];
    return page ? page : zero_page();
  }
  std::lock_guard lock(preserved_->spill->mutex);
  if (preserved_->lost) return fail(*preserved_->lost);
  if (auto it = preserved_->pages.find(pgno); it != preserved_->pages.end()) return it->second;
  return preserved_->spill->page(pgno);
}

PageStore::PageStore(PageStoreOptions options) : options_(std::move(options)) {}
PageStore::~PageStore() = default;

void PageStore::load_begin(uint32_t page_count) {
  CHECK(!open_) << "load inside a transaction";
  heap_.clear();
  file_.reset();
  overlay_.clear();
  committed_count_ = page_count_ = page_count;
  maybe_spill();
  if (!file_) heap_.resize(page_count);
}

Result<void> PageStore::load_page(NumberedPage page) {
  if (page.pgno < 1 || page.pgno > committed_count_ || !page.page) {
    return fail(Error::invalid("database: page " + std::to_string(page.pgno) + " of " +
                               std::to_string(committed_count_)));
  }
  if (page.pgno == 1) {
    const uint8_t* header = page.page.data();
    uint32_t page_size = header[16] << 8 | header[17];
    if (std::memcmp(header, "SQLite format 3", 16) != 0) {
      return fail(Error::invalid("database: page 1 has no SQLite header"));
    }
    if (page_size != kPageSize) {
      return fail(Error::invalid("database: pages of " + std::to_string(page_size) +
                                 " bytes, only " + std::to_string(kPageSize) + " is supported"));
    }
    if (header[18] == 2 || header[19] == 2) {
      page.page = PageRef::copy_of(header);
      page.page.mutable_data()[18] = page.page.mutable_data()[19] = 1;
    }
  }
  install(page.pgno, page.page);
  return {};
}

Result<void> PageStore::load(std::vector<NumberedPage> pages, uint32_t page_count) {
  load_begin(page_count);
  for (auto& page : pages) TRY(load_page(std::move(page)));
  return {};
}

void PageStore::open_transaction() {
  if (open_) return;
  open_ = true;
  valid_count_ = committed_count_;
}

Result<PageRef> PageStore::committed_page(Pgno pgno) {
  if (!file_) return heap_[pgno - 1];
  // Only this thread writes the file, so its own reads need no lock.
  return file_->page(pgno);
}

Result<void> PageStore::read(Pgno pgno, uint32_t offset, std::span<uint8_t> out) {
  CHECK(pgno >= 1 && pgno <= page_count_) << "page " << pgno << " of " << page_count_;
  CHECK(offset + out.size() <= kPageSize) << offset << " + " << out.size();
  if (open_) {
    if (auto it = overlay_.find(pgno); it != overlay_.end()) {
      std::memcpy(out.data(), it->second.data() + offset, out.size());
      return {};
    }
    if (pgno > valid_count_) {
      std::memset(out.data(), 0, out.size());
      return {};
    }
  }
  if (file_ && file_->refused.empty()) return file_->file->read(offset_of(pgno) + offset, out);
  TRY_ASSIGN(PageRef page, committed_page(pgno));
  std::memcpy(out.data(), bytes_or_zeros(page) + offset, out.size());
  return {};
}

void PageStore::write(Pgno pgno, const uint8_t* bytes) {
  CHECK(pgno >= 1 && pgno != kLockPage) << "write of page " << pgno;
  open_transaction();
  PageRef& page = overlay_[pgno];
  if (page && page.unique()) {
    std::memcpy(page.mutable_data(), bytes, kPageSize);
  } else {
    page = PageRef::copy_of(bytes);
  }
  page_count_ = std::max(page_count_, pgno);
}

void PageStore::truncate(uint32_t page_count) {
  if (page_count == page_count_) return;
  open_transaction();
  if (page_count < page_count_) {
    std::erase_if(overlay_, [&](const auto& entry) { return entry.first > page_count; });
    valid_count_ = std::min(valid_count_, page_count);
  }
  page_count_ = page_count;
}

void PageStore::install(Pgno pgno, const PageRef& page) {
  if (!file_) {
    heap_[pgno - 1] = page;
    return;
  }
  std::lock_guard lock(file_->mutex);
  file_->preserve(pgno);
  file_->store(pgno, page);
}

void PageStore::shrink_committed(uint32_t page_count) {
  if (page_count >= committed_count_) return;
  if (!file_) {
    heap_.resize(page_count);
    return;
  }
  std::lock_guard lock(file_->mutex);
  for (Pgno pgno = page_count + 1; !file_->refused.empty() && pgno <= committed_count_; ++pgno) {
    if (file_->refused.contains(pgno)) file_->preserve(pgno);
  }
  std::erase_if(file_->refused, [&](const auto& entry) { return entry.first > page_count; });
  std::erase_if(file_->snapshots, [](const auto& weak) { return weak.expired(); });
  // A snapshot that still reads keeps the end of the file: the space comes back with the next
  // truncation, and what is written there later is preserved page by page.
  if (file_->snapshots.empty()) file_->file->truncate(uint64_t{page_count} * kPageSize);
}

PageChanges PageStore::commit() {
  PageChanges changes;
  changes.page_count_before = committed_count_;
  changes.page_count = page_count_;
  if (!open_) return changes;

  // SQLite may grow a database without writing every page in between.
  for (Pgno pgno = valid_count_ + 1; pgno <= page_count_; ++pgno) {
    if (pgno != kLockPage && !overlay_.contains(pgno)) overlay_.emplace(pgno, zero_page());
  }
  changes.pages.reserve(overlay_.size());
  for (auto& [pgno, page] : overlay_) {
    CHECK(pgno <= page_count_) << "page " << pgno << " beyond " << page_count_;
    if (pgno <= committed_count_) {
      // A page that cannot be read counts as different.
      auto before = committed_page(pgno);
      if (before && std::memcmp(bytes_or_zeros(*before), page.data(), kPageSize) == 0) continue;
    }
    changes.pages.push_back({pgno, std::move(page)});
  }
  std::sort(changes.pages.begin(), changes.pages.end(),
            [](const NumberedPage& a, const NumberedPage& b) { return a.pgno < b.pgno; });

  shrink_committed(page_count_);
  committed_count_ = page_count_;
  maybe_spill();
  if (!file_) heap_.resize(page_count_);
  for (const auto& [pgno, page] : changes.pages) install(pgno, page);

  rollback();
  return changes;
}

void PageStore::rollback() {
  if (overlay_.size() > 64) {
    overlay_ = {};  // gives the buckets back
  } else {
    overlay_.clear();
  }
  open_ = false;
  page_count_ = committed_count_;
  valid_count_ = 0;
}

// Moves the committed pages to the scratch file once they are too many.
void PageStore::maybe_spill() {
  if (file_ || spill_refused_ || !options_.open_spill) return;
  if (uint64_t{committed_count_} * kPageSize <= options_.heap_bytes_max) return;
  auto opened = options_.open_spill();
  if (!opened) {
    spill_refused_ = true;  // everything stays in memory
    return;
  }
  file_ = std::make_shared<SpillFile>();
  file_->file = std::move(*opened);
  for (size_t i = 0; i < heap_.size(); ++i) {
    if (heap_[i]) file_->store(static_cast<Pgno>(i + 1), heap_[i]);
  }
  heap_ = {};
}

PageSnapshot PageStore::snapshot() const {
  PageSnapshot out;
  out.page_count_ = committed_count_;
  if (!file_) {
    out.heap_ = heap_;
    return out;
  }
  out.preserved_ = std::make_shared<PreservedPages>();
  out.preserved_->spill = file_;
  out.preserved_->page_count = committed_count_;
  out.preserved_->bytes_max = options_.snapshot_bytes_max;
  std::lock_guard lock(file_->mutex);
  file_->snapshots.push_back(out.preserved_);
  return out;
}

uint64_t PageStore::memory_bytes() const {
  uint64_t pages = overlay_.size();
  for (const auto& page : heap_) pages += page ? 1 : 0;
  if (file_) pages += file_->refused.size();
  return pages * kPageSize + heap_.capacity() * sizeof(PageRef);
}

}  // namespace celld
