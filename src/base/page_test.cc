#include "base/page.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace celld {
namespace {

PageRef filled(uint8_t byte) {
  PageRef page = PageRef::allocate();
  std::memset(page.mutable_data(), byte, kPageSize);
  return page;
}

bool holds(const PageRef& page, uint8_t byte) {
  for (uint8_t b : page.bytes()) {
    if (b != byte) return false;
  }
  return true;
}

TEST(Page, pages_never_overlap_however_they_come_and_go) {
  std::mt19937 random(1);
  std::vector<std::pair<PageRef, uint8_t>> pages;
  for (int i = 0; i < 20'000; ++i) {
    bool grow = pages.empty() || random() % 1000 < (i / 5000 % 2 == 0 ? 700 : 300);
    if (grow) {
      uint8_t byte = static_cast<uint8_t>(random());
      pages.emplace_back(filled(byte), byte);
    } else {
      size_t at = random() % pages.size();
      ASSERT_TRUE(holds(pages[at].first, pages[at].second));
      std::swap(pages[at], pages.back());
      pages.pop_back();
    }
  }
  for (auto& [page, byte] : pages) ASSERT_TRUE(holds(page, byte));
}

TEST(Page, pages_are_freed_by_other_threads_than_took_them) {
  std::vector<std::vector<PageRef>> heaps(4);
  auto each = [&](auto work) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < heaps.size(); ++i) threads.emplace_back([&, i] { work(i); });
    for (auto& t : threads) t.join();
  };
  for (int round = 0; round < 10; ++round) {
    each([&](size_t i) {
      for (int n = 0; n < 300; ++n) heaps[i].push_back(filled(static_cast<uint8_t>(i)));
    });
    each([&](size_t i) {
      size_t other = (i + 1) % heaps.size();
      for (auto& page : heaps[other]) {
        if (!holds(page, static_cast<uint8_t>(other))) std::abort();
      }
      heaps[other].clear();
    });
  }
}

}  // namespace
}  // namespace celld
