#include "sqlite/page_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "sqlite/testing.h"

namespace celld {
namespace {

using testing::image_of;
using testing::memory_spill;

std::vector<uint8_t> page_of(uint8_t fill) { return std::vector<uint8_t>(kPageSize, fill); }

uint8_t first_byte(PageStore& store, Pgno pgno) {
  uint8_t byte = 0xee;
  EXPECT_TRUE(store.read(pgno, 0, {&byte, 1}).has_value());
  return byte;
}

TEST(PageStore, commit_says_what_changed_and_skips_what_is_the_same) {
  PageStore store;
  store.write(2, page_of(2).data());
  store.write(1, page_of(1).data());
  auto first = store.commit();
  ASSERT_EQ(first.pages.size(), 2u);
  EXPECT_EQ(first.pages[0].pgno, 1u);
  EXPECT_EQ(first.pages[1].pgno, 2u);
  EXPECT_EQ(first.page_count, 2u);

  store.write(1, page_of(1).data());
  store.write(2, page_of(9).data());
  auto second = store.commit();
  ASSERT_EQ(second.pages.size(), 1u);
  EXPECT_EQ(second.pages[0].pgno, 2u);

  store.write(2, page_of(9).data());
  EXPECT_TRUE(store.commit().empty());
}

TEST(PageStore, pages_never_written_are_zeros_and_are_captured) {
  PageStore store;
  store.write(1, page_of(1).data());
  store.write(4, page_of(4).data());
  auto changes = store.commit();
  ASSERT_EQ(changes.pages.size(), 4u);
  EXPECT_EQ(changes.pages[1].page.data()[0], 0);
  EXPECT_EQ(first_byte(store, 3), 0);
}

TEST(PageStore, truncation_hides_old_content_even_after_growing_again) {
  PageStore store;
  for (Pgno p = 1; p <= 4; ++p) store.write(p, page_of(uint8_t(p)).data());
  store.commit();
  store.truncate(1);
  store.write(4, page_of(44).data());
  EXPECT_EQ(first_byte(store, 3), 0);
  auto changes = store.commit();
  ASSERT_EQ(changes.pages.size(), 3u);  // 2 and 3 are zeros now, 4 is new
  EXPECT_EQ(first_byte(store, 3), 0);
  EXPECT_EQ(first_byte(store, 4), 44);
}

TEST(PageStore, rollback_brings_back_pages_and_size) {
  PageStore store;
  for (Pgno p = 1; p <= 3; ++p) store.write(p, page_of(uint8_t(p)).data());
  store.commit();
  store.truncate(1);
  store.write(5, page_of(5).data());
  store.rollback();
  EXPECT_EQ(store.page_count(), 3u);
  EXPECT_EQ(first_byte(store, 3), 3);
  EXPECT_TRUE(store.commit().empty());
}

TEST(PageStore, the_lock_page_is_never_captured) {
  PageStore store;
  store.write(1, page_of(1).data());
  store.commit();
  store.write(kLockPage - 1, page_of(7).data());
  store.write(kLockPage + 1, page_of(8).data());
  // Growing this far makes a quarter of a million zero pages; they share one copy.
  auto changes = store.commit();
  EXPECT_EQ(changes.pages.size(), size_t{kLockPage} - 1);
  for (const auto& page : changes.pages) ASSERT_NE(page.pgno, kLockPage);
}

TEST(PageStore, load_refuses_what_is_not_a_database_of_4096_byte_pages) {
  PageStore store;
  auto garbage = store.load({{1, PageRef::copy_of(page_of(1).data())}}, 1);
  ASSERT_FALSE(garbage.has_value());
  EXPECT_EQ(garbage.error().code, ErrorCode::kInvalid);

  auto header = page_of(0);
  std::memcpy(header.data(), "SQLite format 3", 16);
  header[16] = 0x04;  // 1024
  auto small = store.load({{1, PageRef::copy_of(header.data())}}, 1);
  ASSERT_FALSE(small.has_value());
  EXPECT_NE(small.error().message.find("1024"), std::string::npos);

  header[16] = 0x10;
  header[18] = header[19] = 2;  // WAL mode
  ASSERT_TRUE(store.load({{1, PageRef::copy_of(header.data())}}, 1).has_value());
  EXPECT_EQ(image_of(store)[18], 1);
  EXPECT_FALSE(store.load({{3, PageRef::copy_of(header.data())}}, 2).has_value());
}

TEST(PageStore, a_snapshot_shows_its_commit_while_others_follow) {
  for (bool spill : {false, true}) {
    PageStoreOptions options;
    if (spill) options = {.heap_bytes_max = kPageSize, .open_spill = memory_spill()};
    PageStore store(options);
    for (Pgno p = 1; p <= 4; ++p) store.write(p, page_of(uint8_t(p)).data());
    store.commit();
    EXPECT_EQ(store.spilled(), spill);
    PageSnapshot snapshot = store.snapshot();
    store.truncate(2);
    store.write(1, page_of(11).data());
    store.commit();
    store.write(3, page_of(33).data());
    store.commit();
    ASSERT_EQ(snapshot.page_count(), 4u);
    for (Pgno p = 1; p <= 4; ++p) {
      auto page = snapshot.page(p);
      ASSERT_TRUE(page.has_value());
      EXPECT_EQ(page->data()[0], p) << "spill " << spill;
    }
  }
}

TEST(PageStore, a_snapshot_that_would_keep_too_much_gives_up_by_name) {
  PageStore store({.heap_bytes_max = kPageSize,
                   .open_spill = memory_spill(),
                   .snapshot_bytes_max = 2 * kPageSize});
  for (Pgno p = 1; p <= 8; ++p) store.write(p, page_of(uint8_t(p)).data());
  store.commit();
  PageSnapshot snapshot = store.snapshot();
  for (Pgno p = 1; p <= 8; ++p) store.write(p, page_of(uint8_t(p + 100)).data());
  store.commit();
  auto page = snapshot.page(8);
  ASSERT_FALSE(page.has_value());
  EXPECT_EQ(page.error().code, ErrorCode::kOverloaded);
}

TEST(PageStore, a_full_disk_loses_nothing) {
  bool full = false;
  PageStore store({.heap_bytes_max = kPageSize, .open_spill = memory_spill(&full)});
  for (Pgno p = 1; p <= 3; ++p) store.write(p, page_of(uint8_t(p)).data());
  store.commit();
  full = true;
  store.write(2, page_of(22).data());
  store.write(4, page_of(44).data());
  store.commit();
  EXPECT_EQ(first_byte(store, 2), 22);
  EXPECT_EQ(first_byte(store, 4), 44);
  full = false;
  store.write(2, page_of(23).data());
  store.commit();
  EXPECT_EQ(first_byte(store, 2), 23);
}

// Random writes, truncations, commits and rollbacks: heap and file behave as one, and as a model.
TEST(PageStore, spilled_equals_heap_under_random_operations) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    bool full = false;
    PageStore heap;
    PageStore file({.heap_bytes_max = 2 * kPageSize, .open_spill = memory_spill(&full)});
    testing::Replica replica;
    std::optional<PageSnapshot> kept;
    std::string kept_image;
    for (int step = 0; step < 400; ++step) {
      full = random() % 20 == 0;
      switch (random() % 8) {
        case 0: {
          uint32_t size = heap.page_count() ? random() % (heap.page_count() + 1) : 0;
          heap.truncate(size);
          file.truncate(size);
          break;
        }
        case 1:
          heap.rollback();
          file.rollback();
          break;
        case 2: {
          auto a = heap.commit();
          auto b = file.commit();
          ASSERT_EQ(a.page_count, b.page_count);
          ASSERT_EQ(a.pages.size(), b.pages.size());
          replica.apply(a.pages, a.page_count);
          ASSERT_EQ(image_of(heap), replica.image());
          ASSERT_EQ(image_of(file), replica.image());
          if (kept && random() % 2) {
            std::string now;
            for (Pgno p = 1; p <= kept->page_count(); ++p) {
              auto page = kept->page(p);
              ASSERT_TRUE(page.has_value());
              now.append(reinterpret_cast<const char*>(page->data()), kPageSize);
            }
            ASSERT_EQ(now, kept_image);
            kept.reset();
          } else if (!kept) {
            kept = file.snapshot();
            kept_image = replica.image();
          }
          break;
        }
        default: {
          auto page = page_of(uint8_t(random() % 4));
          Pgno pgno = 1 + random() % std::min<uint32_t>(12, heap.page_count() + 2);
          heap.write(pgno, page.data());
          file.write(pgno, page.data());
        }
      }
      ASSERT_EQ(heap.page_count(), file.page_count());
    }
  }
}

TEST(ScratchFile, a_real_file_holds_what_was_written_and_leaves_no_name) {
  std::string path = ::testing::TempDir() + "celld_scratch_test";
  auto file = open_scratch_file(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  auto page = page_of(7);
  ASSERT_TRUE((*file)->write(8192, page).has_value());
  std::vector<uint8_t> back(3 * kPageSize);
  ASSERT_TRUE((*file)->read(4096, back).has_value());
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(back[4096], 7);
  EXPECT_EQ(back[8192], 0);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_FALSE(open_scratch_file("/nonexistent/x").has_value());
}

}  // namespace
}  // namespace celld
