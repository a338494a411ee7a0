#include "ltx/ltx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/bytes.h"
#include "ltx/crc64.h"

namespace celld {
namespace {

using ::testing::HasSubstr;

PageRef page_of(uint32_t seed, bool compressible) {
  PageRef page = PageRef::allocate();
  std::mt19937 random(seed);
  for (size_t i = 0; i < kPageSize; ++i) {
    page.mutable_data()[i] = static_cast<uint8_t>(compressible ? seed + i / 100 : random());
  }
  return page;
}

std::string content(const PageRef& page) { return std::string(as_chars(page.bytes())); }

std::map<Pgno, std::string> contents(const std::vector<NumberedPage>& pages) {
  std::map<Pgno, std::string> out;
  for (const NumberedPage& p : pages) out[p.pgno] = content(p.page);
  return out;
}

struct Sample {
  LtxInfo info;
  std::vector<NumberedPage> pages;
};

Sample random_sample(uint32_t seed) {
  std::mt19937 random(seed);
  Sample s;
  s.info.page_count = random() % 30;
  s.info.min = Txid(random() % 3 ? 2 + random() % 1000 : 1);
  s.info.max = Txid(s.info.min.value + random() % 50);
  s.info.timestamp = WallMs{static_cast<int64_t>(random())};
  for (Pgno pgno = 1; pgno <= s.info.page_count; ++pgno) {
    if (random() % 2) s.pages.push_back({pgno, page_of(random(), random() % 2)});
  }
  return s;
}

std::string error_of(std::string_view bytes) {
  auto file = decode_ltx(bytes);
  return file ? "no error" : file.error().message;
}

TEST(Crc64, has_the_check_value_of_go_iso) {
  EXPECT_EQ(crc64(0, as_bytes("123456789")), 0xb90956c775a41001u);
  EXPECT_EQ(crc64(0, {}), 0u);
}

TEST(Crc64, pieces_give_the_same_as_the_whole) {
  std::string text = content(page_of(7, false));
  uint64_t whole = crc64(0, as_bytes(text));
  for (size_t cut : {0, 1, 7, 8, 9, 63, 4095, 4096}) {
    uint64_t first = crc64(0, as_bytes(std::string_view(text).substr(0, cut)));
    EXPECT_EQ(crc64(first, as_bytes(std::string_view(text).substr(cut))), whole) << cut;
  }
}

TEST(Ltx, random_page_sets_come_back_as_they_were) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Sample s = random_sample(seed);
    Blob bytes = encode_ltx(s.info, s.pages);
    auto file = decode_ltx(bytes.view());
    ASSERT_TRUE(file) << seed << " " << file.error().message;
    EXPECT_EQ(file->info, s.info) << seed;
    auto expected = contents(s.pages);
    if (is_snapshot(s.info)) {
      for (Pgno p = 1; p <= s.info.page_count; ++p) {
        expected.try_emplace(p, std::string(kPageSize, '\0'));
      }
    }
    EXPECT_EQ(contents(file->pages), expected) << seed;
    EXPECT_EQ(*decode_ltx_header(bytes.view()), s.info);
    // The bytes are a function of the content.
    EXPECT_EQ(encode_ltx(file->info, file->pages), bytes) << seed;
  }
}

TEST(Ltx, the_bytes_of_encoder_version_1_never_change) {
  Sample s{{.min = Txid(2), .max = Txid(3), .page_count = 5, .timestamp = WallMs{1000}},
           {{2, page_of(2, true)}, {5, page_of(5, true)}}};
  EXPECT_EQ(crc64(0, as_bytes(encode_ltx(s.info, s.pages).view())), 1951109244811700270u);
  s.info.min = Txid(1);
  EXPECT_EQ(crc64(0, as_bytes(encode_ltx(s.info, s.pages).view())), 12060813570835215937u);
}

TEST(Ltx, layout_is_that_of_ltx_v3) {
  Sample s{{.min = Txid(2), .max = Txid(3), .page_count = 5, .timestamp = WallMs{1000}},
           {{2, page_of(2, true)}, {5, page_of(5, false)}}};
  Blob blob = encode_ltx(s.info, s.pages);
  ByteReader in(blob.view());
  EXPECT_EQ(in.take(4), "LTX1");
  EXPECT_EQ(in.u32(), 2u);  // no checksum of the database
  EXPECT_EQ(in.u32(), 4096u);
  EXPECT_EQ(in.u32(), 5u);
  EXPECT_EQ(in.u64(), 2u);
  EXPECT_EQ(in.u64(), 3u);
  EXPECT_EQ(in.u64(), 1000u);
  EXPECT_EQ(in.u64(), 0u);
  in.take(32 + 20);
  EXPECT_EQ(in.offset(), 100u);
  EXPECT_EQ(in.u32(), 2u);
  EXPECT_EQ(in.u16(), 1u);
  in.take(in.u32());
  EXPECT_EQ(in.u32(), 5u);
  EXPECT_EQ(in.u16(), 1u);
  in.take(in.u32());
  EXPECT_EQ(in.take(6), std::string_view("\0\0\0\0\0\0", 6));
  size_t index_at = in.offset();
  EXPECT_EQ(in.uvarint(), 2u);
  EXPECT_EQ(in.uvarint(), 100u);
  in.uvarint();
  EXPECT_EQ(in.uvarint(), 5u);
  in.uvarint();
  in.uvarint();
  EXPECT_EQ(in.uvarint(), 0u);
  size_t index_size = in.offset() - index_at;
  EXPECT_EQ(in.u64(), index_size);
  EXPECT_EQ(in.u64(), 0u);  // no checksum of the database
  EXPECT_EQ(in.u64() >> 63, 1u);
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.left(), 0u);
}

TEST(Ltx, a_snapshot_carries_the_checksum_of_the_whole_database) {
  Sample s{{.min = Txid(1), .max = Txid(9), .page_count = 3},
           {{1, page_of(1, true)}, {2, page_of(2, false)}, {3, page_of(3, true)}}};
  uint64_t database = 0;
  for (const auto& p : s.pages) database ^= page_checksum(p.pgno, p.page.bytes());
  Blob bytes = encode_ltx(s.info, s.pages);
  EXPECT_EQ(ByteReader(bytes.view().substr(bytes.size() - 16)).u64(), database | kLtxChecksumFlag);
  EXPECT_EQ(ByteReader(bytes.view().substr(4)).u32(), 0u);
}

TEST(Ltx, an_empty_database_is_a_snapshot_without_pages) {
  LtxInfo info{.min = Txid(1), .max = Txid(4), .page_count = 0};
  Blob bytes = encode_ltx(info, {});
  auto file = decode_ltx(bytes.view());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->info, info);
  EXPECT_TRUE(file->pages.empty());
  EXPECT_EQ(ByteReader(bytes.view().substr(bytes.size() - 16)).u64(), kLtxChecksumFlag);
}

TEST(Ltx, every_truncation_is_an_error) {
  for (uint32_t seed : {1u, 2u, 5u}) {
    Sample s = random_sample(seed);
    Blob bytes = encode_ltx(s.info, s.pages);
    for (size_t n = 0; n < bytes.size(); n += n < 300 || n + 300 > bytes.size() ? 1 : 37) {
      auto file = decode_ltx(bytes.view().substr(0, n));
      ASSERT_FALSE(file) << seed << " cut to " << n;
      EXPECT_THAT(file.error().message, HasSubstr("offset"));
    }
    EXPECT_FALSE(decode_ltx(std::string(bytes.view()) + '\0'));
  }
}

TEST(Ltx, a_flipped_bit_never_changes_what_is_read) {
  Sample s{{.min = Txid(2), .max = Txid(3), .page_count = 5},
           {{2, page_of(2, true)}, {5, page_of(5, true)}}};
  for (Txid min : {Txid(1), Txid(2)}) {
    s.info.min = min;
    std::string bytes(encode_ltx(s.info, s.pages).view());
    auto expected = contents(decode_ltx(bytes)->pages);
    size_t noticed = 0;
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
      if (auto file = decode_ltx(bytes)) {
        // LZ4 has several ways to say the same page, and the checksum is over pages.
        EXPECT_EQ(file->info, s.info) << "bit " << bit;
        EXPECT_EQ(contents(file->pages), expected) << "bit " << bit;
      } else {
        ++noticed;
        EXPECT_TRUE(file.error().code == ErrorCode::kCorrupt ||
                    file.error().code == ErrorCode::kUnsupported);
      }
      bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    }
    EXPECT_GT(noticed, bytes.size() * 8 * 9 / 10);
  }
}

// The same bytes with `value` at `at`.
std::string forged(Blob blob, size_t at, uint64_t value, int width) {
  std::string bytes(blob.view());
  std::string field;
  put_be(field, value, width);
  bytes.replace(at, field.size(), field);
  return bytes;
}

TEST(Ltx, errors_name_the_reason) {
  Sample s{{.min = Txid(2), .max = Txid(3), .page_count = 5}, {{2, page_of(2, true)}}};
  Blob good = encode_ltx(s.info, s.pages);
  EXPECT_THAT(error_of(""), HasSubstr("offset 0: ends inside the header"));
  EXPECT_THAT(error_of(forged(good, 0, 0x4c545832, 4)), HasSubstr("magic"));
  EXPECT_THAT(error_of(forged(good, 8, 512, 4)), HasSubstr("page size 512"));
  EXPECT_THAT(error_of(forged(good, 12, UINT32_MAX, 4)), HasSubstr("4294967295 pages"));
  EXPECT_THAT(error_of(forged(good, 16, 4, 8)), HasSubstr("TXID range 4 to 3"));
  EXPECT_THAT(error_of(forged(good, 84, 1, 4)), HasSubstr("reserved"));
  EXPECT_THAT(error_of(forged(good, 100, 6, 4)), HasSubstr("page 6 after page 0 of 5"));
  EXPECT_THAT(error_of(forged(good, 100, 1, 4)), HasSubstr("index differs"));
  EXPECT_THAT(error_of(forged(good, 104, 0, 2)), HasSubstr("LZ4 frames"));
  EXPECT_THAT(error_of(forged(good, 106, UINT32_MAX, 4)), HasSubstr("compressed size"));
  EXPECT_THAT(error_of(forged(good, 106, 3, 4)), HasSubstr("does not decompress"));
  EXPECT_THAT(error_of(forged(good, good.size() - 8, 1, 8)), HasSubstr("file checksum"));
  EXPECT_THAT(error_of(forged(good, good.size() - 24, 1, 8)),
              HasSubstr("length of the page index"));
}

TEST(Ltx, a_snapshot_with_a_page_missing_is_refused) {
  // Renaming the range of an increment to begin at 1 does not make a snapshot of it.
  Sample s{{.min = Txid(2), .max = Txid(3), .page_count = 5}, {{2, page_of(2, true)}}};
  std::string bytes = forged(encode_ltx(s.info, s.pages), 16, 1, 8);
  EXPECT_THAT(error_of(bytes), HasSubstr("flags"));
  bytes.replace(4, 4, std::string(4, '\0'));
  EXPECT_THAT(error_of(bytes), HasSubstr("a snapshot of 5 pages holds 1"));
}

TEST(Ltx, a_snapshot_whose_database_checksum_is_wrong_is_refused) {
  LtxInfo info{.min = Txid(1), .max = Txid(4), .page_count = 0};
  std::string bytes(encode_ltx(info, {}).view());
  // Without pages the file checksum is over all bytes before it.
  auto with = [&](uint64_t post_apply) {
    std::string forged = bytes.substr(0, bytes.size() - 16);
    put_be(forged, post_apply, 8);
    put_be(forged, crc64(0, as_bytes(forged)) | kLtxChecksumFlag, 8);
    return forged;
  };
  EXPECT_EQ(with(kLtxChecksumFlag), bytes);
  EXPECT_THAT(error_of(with(kLtxChecksumFlag | 1)), HasSubstr("database checksum"));
  EXPECT_THAT(error_of(with(0)), HasSubstr("database checksum"));
}

TEST(Ltx, read_ltx_hands_over_the_same_pages) {
  Sample s = random_sample(12);
  Blob bytes = encode_ltx(s.info, s.pages);
  std::map<Pgno, std::string> seen;
  auto info = read_ltx(bytes.view(), [&](Pgno pgno, std::span<const uint8_t, kPageSize> page) {
    seen[pgno] = std::string(as_chars(page));
  });
  ASSERT_TRUE(info);
  EXPECT_EQ(seen, contents(decode_ltx(bytes.view())->pages));
}

TEST(Ltx, single_pages_are_found_through_the_index) {
  for (uint32_t seed = 20; seed < 60; ++seed) {
    Sample s = random_sample(seed);
    Blob blob = encode_ltx(s.info, s.pages);
    std::string_view bytes = blob.view();
    auto needed = page_index_tail_bytes(bytes.substr(bytes.size() - 24), bytes.size());
    ASSERT_TRUE(needed) << needed.error().message;
    ASSERT_LE(*needed, bytes.size());
    std::string_view tail = bytes.substr(bytes.size() - *needed);
    auto index = decode_page_index(tail, bytes.size());
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_EQ(*index, *decode_page_index(bytes, bytes.size()));
    auto pages = decode_ltx(bytes)->pages;
    ASSERT_EQ(index->size(), pages.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      const PageIndexEntry& e = (*index)[i];
      EXPECT_EQ(e.pgno, pages[i].pgno);
      auto page = decode_page_frame(bytes.substr(e.offset, e.bytes), e.pgno);
      ASSERT_TRUE(page) << page.error().message;
      EXPECT_EQ(content(*page), content(pages[i].page));
      EXPECT_FALSE(decode_page_frame(bytes.substr(e.offset, e.bytes), e.pgno + 1));
      EXPECT_FALSE(decode_page_frame(bytes.substr(e.offset, e.bytes - 1), e.pgno));
    }
    auto short_tail = decode_page_index(tail.substr(1), bytes.size());
    ASSERT_FALSE(short_tail);
    EXPECT_EQ(short_tail.error().code, ErrorCode::kInvalid);
  }
}

TEST(Ltx, a_page_index_that_lies_is_refused) {
  Sample s{{.min = Txid(2), .max = Txid(3), .page_count = 5},
           {{2, page_of(2, true)}, {5, page_of(5, true)}}};
  std::string good(encode_ltx(s.info, s.pages).view());
  size_t index_bytes = *page_index_tail_bytes(good, good.size());
  for (size_t at = good.size() - index_bytes; at < good.size() - 16; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] ^= static_cast<char>(1 << bit);
      auto index = decode_page_index(bad, bad.size());
      // A page number may change unnoticed, its place may not: the frame then shows the lie.
      if (!index) continue;
      auto e = (*index)[0].pgno == 2 ? (*index)[1] : (*index)[0];
      EXPECT_FALSE(decode_page_frame(std::string_view(bad).substr(e.offset, e.bytes), e.pgno));
    }
  }
  EXPECT_FALSE(page_index_tail_bytes(std::string(24, '\xff'), 1 << 20));
  EXPECT_FALSE(page_index_tail_bytes(std::string(24, '\0'), 10));
}

TEST(LtxKey, names_come_back_as_they_were) {
  LtxName name{CellId("Counter:0123abcd"), Epoch(17), 0x9, Txid(1), Txid(0xff)};
  std::string key = ltx_key(name);
  EXPECT_EQ(key, "cells/Counter:0123abcd/ltx/e17/0009/0000000000000001-00000000000000ff.ltx");
  EXPECT_EQ(parse_ltx_key(key), name);
  EXPECT_TRUE(key.starts_with(ltx_prefix(name.cell)));
  name = {CellId("a"), Epoch(kCounterMax), 0xffff, Txid(kCounterMax), Txid(kCounterMax)};
  EXPECT_EQ(parse_ltx_key(ltx_key(name)), name);
}

TEST(LtxKey, anything_else_is_not_a_name) {
  std::string good = "cells/C:1/ltx/e2/0000/0000000000000001-0000000000000002.ltx";
  ASSERT_TRUE(parse_ltx_key(good));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_ltx_key(good.substr(0, n)));
  for (const char* bad : {
           "cells/C:1/ltx/e2/0000/0000000000000001-0000000000000002.ltx ",
           "/cells/C:1/ltx/e2/0000/0000000000000001-0000000000000002.ltx",
           "cells//ltx/e2/0000/0000000000000001-0000000000000002.ltx",
           "cells/../ltx/e2/0000/0000000000000001-0000000000000002.ltx",
           "cells/C 1/ltx/e2/0000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e02/0000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e0/0000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e/0000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e-2/0000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e99999999999999999999/0000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e2/000/0000000000000001-0000000000000002.ltx",
           "cells/C:1/ltx/e2/0000/000000000000000A-000000000000000B.ltx",
           "cells/C:1/ltx/e2/0000/0000000000000000-0000000000000002.ltx",
           "cells/C:1/ltx/e2/0000/0000000000000003-0000000000000002.ltx",
           "cells/C:1/ltx/e2/0000/0000000000000001_0000000000000002.ltx",
           "cells/C:1/ltx/e2/0000/0000000000000001-0000000000000002.tmp",
           "cells/C:1/ltx/e2/0000/0000000000000003-ffffffffffffffff.ltx",
           "cells/C:1/own.json",
       }) {
    EXPECT_FALSE(parse_ltx_key(bad)) << bad;
  }
}

}  // namespace
}  // namespace celld
