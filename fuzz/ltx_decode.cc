// LTX files: any bytes are decoded or refused; what is decoded comes back after encoding it again;
// the page index of a good file leads to its pages.
// links: ltx
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "ltx/ltx.h"
#include "ltx/merge.h"

using namespace celld;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes = as_chars({data, size});
  if (auto name = parse_ltx_key(bytes)) {
    CHECK(ltx_key(*name) == bytes);
  }
  (void)decode_ltx_header(bytes);
  (void)page_index_tail_bytes(bytes, size);
  (void)decode_page_frame(bytes, 1);
  auto index = decode_page_index(bytes, size);
  if (index) {
    for (const PageIndexEntry& e : *index) {
      CHECK(e.offset < size && e.bytes <= size - e.offset) << e.pgno;
      (void)decode_page_frame(bytes.substr(e.offset, e.bytes), e.pgno);
    }
  }

  size_t seen = 0;
  auto info = read_ltx(bytes, [&](Pgno, std::span<const uint8_t, kPageSize>) { ++seen; });
  auto file = decode_ltx(bytes);
  CHECK(file.has_value() == info.has_value());
  if (!file) return 0;
  CHECK(file->pages.size() == seen && file->info == *info);
  CHECK(index && index->size() == seen) << seen;
  if (file->info.page_count > 4096) return 0;

  file->info.encoder_version = kLtxEncoderVersion;
  auto again = decode_ltx(encode_ltx(file->info, file->pages).view());
  CHECK(again && again->info == file->info && again->pages.size() == seen);
  for (size_t i = 0; i < seen; ++i) {
    CHECK(again->pages[i].pgno == file->pages[i].pgno);
    CHECK(as_chars(again->pages[i].page.bytes()) == as_chars(file->pages[i].page.bytes())) << i;
  }
  LtxFile both[] = {*file, *again};
  CHECK(merge(both)->info == file->info);
  return 0;
}
