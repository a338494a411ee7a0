#include "ltx/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/bytes.h"

namespace celld {
namespace {

using ::testing::HasSubstr;

PageRef page_of(char fill) {
  PageRef page = PageRef::allocate();
  std::memset(page.mutable_data(), fill, kPageSize);
  return page;
}

// A database as a reader sees it: pages that were never written are zeros.
struct Database {
  uint32_t page_count = 0;
  std::map<Pgno, std::string> pages;

  void apply(const LtxFile& file) {
    uint32_t count = file.info.page_count;
    std::erase_if(pages, [&](const auto& entry) { return entry.first > count; });
    for (const NumberedPage& p : file.pages) pages[p.pgno] = std::string(as_chars(p.page.bytes()));
    page_count = count;
  }
  std::string image() const {
    std::string out;
    for (Pgno p = 1; p <= page_count; ++p) {
      auto it = pages.find(p);
      out += it == pages.end() ? std::string(kPageSize, '\0') : it->second;
    }
    return out;
  }
};

LtxFile file(uint64_t min, uint64_t max, uint32_t count, std::map<Pgno, char> pages) {
  LtxFile f;
  f.info = {.min = Txid(min),
            .max = Txid(max),
            .page_count = count,
            .timestamp = WallMs{static_cast<int64_t>(max)}};
  for (auto [pgno, fill] : pages) f.pages.push_back({pgno, page_of(fill)});
  return f;
}

// A history of single commits, with growth, shrinking and pages that are never written.
std::vector<LtxFile> random_history(uint32_t seed, uint64_t first, size_t commits) {
  std::mt19937 random(seed);
  std::vector<LtxFile> files;
  uint32_t count = 1 + random() % 10;
  for (size_t i = 0; i < commits; ++i) {
    if (random() % 3 == 0) count = random() % 12;
    std::map<Pgno, char> pages;
    for (Pgno p = 1; p <= count; ++p) {
      if (random() % 3 == 0) pages[p] = static_cast<char>('A' + random() % 50);
    }
    files.push_back(file(first + i, first + i, count, pages));
  }
  return files;
}

TEST(Merge, equals_applying_one_after_the_other) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    auto base = random_history(seed * 2, 1, 3);
    auto files = random_history(seed * 2 + 1, 4, 1 + seed % 8);
    Database one_by_one;
    for (const auto& f : base) one_by_one.apply(f);
    Database at_once = one_by_one;
    for (const auto& f : files) one_by_one.apply(f);
    auto merged = merge(files);
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(merged->info.min, files.front().info.min);
    EXPECT_EQ(merged->info.max, files.back().info.max);
    EXPECT_EQ(merged->info.timestamp, files.back().info.timestamp);
    // Through the codec, as an object in the bucket.
    auto stored = decode_ltx(encode_ltx(merged->info, merged->pages).view());
    ASSERT_TRUE(stored) << stored.error().message;
    at_once.apply(*stored);
    ASSERT_EQ(at_once.page_count, one_by_one.page_count) << seed;
    ASSERT_EQ(at_once.image(), one_by_one.image()) << seed;
  }
}

TEST(Merge, any_grouping_gives_the_same_snapshot) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    auto files = random_history(seed, 1, 7);
    auto whole = merge(files);
    ASSERT_TRUE(whole);
    std::vector<LtxFile> halves;
    halves.push_back(*merge(std::span(files).first(1 + seed % 6)));
    halves.push_back(*merge(std::span(files).subspan(1 + seed % 6)));
    auto again = merge(halves);
    ASSERT_TRUE(again);
    EXPECT_EQ(encode_ltx(again->info, again->pages), encode_ltx(whole->info, whole->pages)) << seed;
  }
}

TEST(Merge, overlapping_snapshot_does_not_stop_the_compactor) {
  // Level 1 covers 1 to 4, a full snapshot 1 to 6, increments follow.
  std::vector<LtxFile> files = {file(1, 4, 2, {{1, 'a'}, {2, 'b'}}),
                                file(1, 6, 2, {{1, 'c'}, {2, 'd'}}), file(3, 5, 2, {{1, 'x'}}),
                                file(5, 8, 2, {{2, 'e'}})};
  auto merged = merge(files);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->info.min, Txid(1));
  EXPECT_EQ(merged->info.max, Txid(8));
  ASSERT_EQ(merged->pages.size(), 2u);
  EXPECT_EQ(merged->pages[0].page.data()[0], 'c');
  EXPECT_EQ(merged->pages[1].page.data()[0], 'e');
}

TEST(Merge, a_gap_names_what_is_missing) {
  std::vector<LtxFile> files = {file(1, 4, 1, {{1, 'a'}}), file(7, 8, 1, {{1, 'b'}})};
  auto merged = merge(files);
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(merged.error().message, HasSubstr("TXIDs 5 to 6 are missing"));
  std::swap(files[0], files[1]);
  EXPECT_THAT(merge(files).error().message, HasSubstr("out of order"));
}

TEST(Merge, shares_pages_instead_of_copying_them) {
  std::vector<LtxFile> files = {file(1, 1, 1, {{1, 'a'}})};
  EXPECT_EQ(merge(files)->pages[0].page, files[0].pages[0].page);
}

}  // namespace
}  // namespace celld
