// The pages of one database: what SQLite reads and writes, and what a commit changed.
//
// A transaction starts with its first write or truncation and lives in an overlay, so that undoing
// it is dropping the overlay. `commit` folds it in and says which pages are now different.
// Committed pages are held in memory up to `heap_bytes_max`, beyond that in a local scratch file,
// which is only a cache. Pages handed out are shared references: nobody copies them, and the store
// never changes one that it has handed out.
//
// One thread at a time. A PageSnapshot may be read on another thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/page.h"
#include "base/result.h"
#include "world/scratch_file.h"

namespace celld {

struct PageStoreOptions {
  uint64_t heap_bytes_max = 4u << 20;  // committed pages kept in memory, bytes
  // Opens the scratch file on first need. Without it everything stays in memory.
  std::function<Result<std::unique_ptr<ScratchFile>>()> open_spill;
  // Old pages that one snapshot of a spilled store keeps while it is read, bytes.
  uint64_t snapshot_bytes_max = 64u << 20;
};

// What one commit changed.
struct PageChanges {
  std::vector<NumberedPage> pages;  // sorted; only pages that differ from before
  uint32_t page_count = 0;          // size of the database after it
  uint32_t page_count_before = 0;
  bool empty() const { return pages.empty() && page_count == page_count_before; }
};

struct SpillFile;       // the scratch file of one store, shared with its snapshots
struct PreservedPages;  // what one snapshot keeps of a spilled store

// All pages as of one commit. Later commits do not show.
class PageSnapshot {
 public:
  uint32_t page_count() const { return page_count_; }
  // The page `pgno` (1 to page_count).
  //
  //   kOverloaded  the database has since been rewritten too much; take a new snapshot
  //   kUnavailable the scratch file cannot be read
  Result<PageRef> page(Pgno pgno) const;

 private:
  friend class PageStore;
  uint32_t page_count_ = 0;
  std::vector<PageRef> heap_;                  // heap mode
  std::shared_ptr<PreservedPages> preserved_;  // file mode
};

class PageStore {
 public:
  explicit PageStore(PageStoreOptions options = {});
  ~PageStore();
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // Replaces everything by these pages; those that are missing are zeros. No transaction may be
  // open. kInvalid: the pages are not those of a database with pages of kPageSize bytes.
  //
  // A database in WAL mode is turned into one that is not (bytes 18 and 19 of page 1).
  Result<void> load(std::vector<NumberedPage> pages, uint32_t page_count);
  // The same in parts, for what does not fit in memory at once.
  void load_begin(uint32_t page_count);
  Result<void> load_page(NumberedPage page);

  // Size in pages as the open transaction sees it.
  uint32_t page_count() const { return page_count_; }
  uint32_t committed_page_count() const { return committed_count_; }
  bool in_transaction() const { return open_; }
  // Pages that the open transaction has written.
  size_t transaction_pages() const { return overlay_.size(); }
  bool written(Pgno pgno) const { return overlay_.contains(pgno); }

  // Copies bytes [offset, offset + out.size()) of a page; a page that was never written is zeros.
  // `pgno` must be within page_count(). kUnavailable: the scratch file cannot be read.
  Result<void> read(Pgno pgno, uint32_t offset, std::span<uint8_t> out);
  // The whole page, kPageSize bytes.
  void write(Pgno pgno, const uint8_t* bytes);
  void truncate(uint32_t page_count);

  // Ends the transaction. Cannot fail: a page that the scratch file does not take stays in memory.
  PageChanges commit();
  void rollback();

  PageSnapshot snapshot() const;

  // Bytes of memory held for pages, the overlay included; shared pages count in full.
  uint64_t memory_bytes() const;
  bool spilled() const { return file_ != nullptr; }

 private:
  void open_transaction();
  Result<PageRef> committed_page(Pgno pgno);  // null: zeros
  void install(Pgno pgno, const PageRef& page);
  void shrink_committed(uint32_t page_count);
  void maybe_spill();

  PageStoreOptions options_;
  std::vector<PageRef> heap_;        // heap mode: index pgno - 1; null = zeros
  std::shared_ptr<SpillFile> file_;  // file mode
  bool spill_refused_ = false;

  uint32_t committed_count_ = 0;
  uint32_t page_count_ = 0;
  bool open_ = false;
  uint32_t valid_count_ = 0;  // committed pages up to here still show through the overlay
  std::unordered_map<Pgno, PageRef> overlay_;
};

}  // namespace celld
