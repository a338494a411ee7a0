// One database page: shared, immutable once published, counted across threads.
//
// The page store of a cell, the journal buffer, a drain and a snapshot hold the same page at the
// same time; a writer that finds the count above one copies first. Pages live in slabs of their own: they
// stay for long, and between short-lived allocations of the same size would keep those from ever being
// given back to the system.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace celld {

inline constexpr uint32_t kPageSize = 4096;  // the only page size cells use

class PageRef {
 public:
  PageRef() = default;
  // A fresh page with one owner; content is uninitialised.
  static PageRef allocate() {
    PageRef r;
    r.page_ = new Page;
    return r;
  }
  static PageRef copy_of(const uint8_t* bytes) {
    PageRef r = allocate();
    std::memcpy(r.page_->bytes, bytes, kPageSize);
    return r;
  }
  PageRef(const PageRef& o) : page_(o.page_) {
    if (page_) page_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  PageRef(PageRef&& o) noexcept : page_(std::exchange(o.page_, nullptr)) {}
  PageRef& operator=(PageRef o) noexcept {
    std::swap(page_, o.page_);
    return *this;
  }
  ~PageRef() {
    if (page_ && page_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete page_;
  }

  explicit operator bool() const { return page_ != nullptr; }
  const uint8_t* data() const { return page_->bytes; }
  std::span<const uint8_t, kPageSize> bytes() const {
    return std::span<const uint8_t, kPageSize>(page_->bytes, kPageSize);
  }
  // Only the sole owner may write.
  uint8_t* mutable_data() { return page_->bytes; }
  bool unique() const { return page_->owners.load(std::memory_order_acquire) == 1; }
  friend bool operator==(const PageRef& a, const PageRef& b) { return a.page_ == b.page_; }

 private:
  // Any thread. All calls are for the same size.
  static void* allocate_bytes(size_t bytes);
  static void free_bytes(void* page);

  struct Page {
    std::atomic<uint32_t> owners{1};
    alignas(8) uint8_t bytes[kPageSize];
#ifndef __SANITIZE_ADDRESS__  // which wants to see each page come and go
    static void* operator new(size_t bytes) { return allocate_bytes(bytes); }
    static void operator delete(void* page) { free_bytes(page); }
#endif
  };
  Page* page_ = nullptr;
};

// Page number as SQLite counts: from 1.
using Pgno = uint32_t;

// SQLite takes its locks on the bytes at 1 GiB; the page there holds nothing and is never stored.
inline constexpr Pgno kLockPage = 0x40000000 / kPageSize + 1;

struct NumberedPage {
  Pgno pgno = 0;
  PageRef page;
};

}  // namespace celld
