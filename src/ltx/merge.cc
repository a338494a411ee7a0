#include "ltx/merge.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/check.h"

namespace celld {

namespace {

std::string range(const LtxInfo& info) {
  return std::to_string(info.min.value) + "-" + std::to_string(info.max.value);
}

PageRef zero_page() {
  PageRef page = PageRef::allocate();
  std::memset(page.mutable_data(), 0, kPageSize);
  return page;
}

}  // namespace

Result<LtxFile> merge(std::span<const LtxFile> files) {
  CHECK(!files.empty()) << "nothing to merge";
  LtxFile out;
  out.info = files[0].info;
  std::unordered_map<Pgno, PageRef> pages;
  uint32_t low_water = out.info.page_count;  // the smallest size on the way
  Txid last_min = out.info.min;
  for (size_t i = 0; i < files.size(); ++i) {
    const LtxInfo& info = files[i].info;
    if (info.min < last_min) {
      return fail(Error::corrupt("merge: LTX " + range(info) + " out of order"));
    }
    last_min = info.min;
    if (i > 0) {
      if (info.min > out.info.max.next()) {
        return fail(Error::corrupt("merge: TXIDs " + std::to_string(out.info.max.value + 1) +
                                   " to " + std::to_string(info.min.value - 1) + " are missing"));
      }
      if (info.max <= out.info.max) continue;
    }
    if (info.page_count < out.info.page_count) {
      std::erase_if(pages, [&](const auto& entry) { return entry.first > info.page_count; });
    }
    for (const NumberedPage& page : files[i].pages) pages[page.pgno] = page.page;
    out.info.max = info.max;
    out.info.page_count = info.page_count;
    out.info.timestamp = info.timestamp;
    low_water = std::min(low_water, info.page_count);
  }
  out.info.encoder_version = kLtxEncoderVersion;
  PageRef zero;
  for (Pgno pgno = low_water + 1; pgno <= out.info.page_count; ++pgno) {
    if (pgno == kLockPage || pages.contains(pgno)) continue;
    if (!zero) zero = zero_page();
    pages[pgno] = zero;
  }
  out.pages.reserve(pages.size());
  for (auto& [pgno, page] : pages) out.pages.push_back({pgno, std::move(page)});
  std::sort(out.pages.begin(), out.pages.end(),
            [](const NumberedPage& a, const NumberedPage& b) { return a.pgno < b.pgno; });
  return out;
}

}  // namespace celld
