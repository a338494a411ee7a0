#include "base/bytes.h"

#include <gtest/gtest.h>

#include "base/hex.h"

namespace celld {
namespace {

TEST(Bytes, numbers_come_back_as_they_were) {
  std::string out;
  put_be(out, 0x0102030405060708, 8);
  put_be(out, 0xfffe, 2);
  for (uint64_t v : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{300}, UINT64_MAX})
    put_uvarint(out, v);
  ByteReader in(out);
  EXPECT_EQ(in.u8(), 1);
  EXPECT_EQ(in.be(7), 0x02030405060708u);
  EXPECT_EQ(in.u16(), 0xfffe);
  for (uint64_t v : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{300}, UINT64_MAX})
    EXPECT_EQ(in.uvarint(), v);
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.left(), 0u);
}

TEST(Bytes, a_reader_past_the_end_fails_for_ever) {
  ByteReader in("abc");
  EXPECT_EQ(in.u32(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.u8(), 0);
  EXPECT_EQ(in.take(1), "");
  EXPECT_FALSE(in.ok());
}

TEST(Bytes, only_the_shortest_varint_is_accepted) {
  for (std::string_view bad : {std::string_view("\x80\x00", 2), std::string_view("\x80"),
                               std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
                               std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")}) {
    ByteReader in(bad);
    in.uvarint();
    EXPECT_FALSE(in.ok());
  }
}

TEST(Hex, fixed_width_round_trip) {
  EXPECT_EQ(hex_fixed(0xbeef, 4), "beef");
  EXPECT_EQ(hex_fixed(1, 16), "0000000000000001");
  EXPECT_EQ(parse_hex_fixed("ffffffffffffffff", 16), UINT64_MAX);
  for (const char* bad : {"", "abc", "ABCD", "00-1", "0x01", "00001"})
    EXPECT_FALSE(parse_hex_fixed(bad, 4)) << bad;
}

TEST(Hex, decimals_have_one_form) {
  EXPECT_EQ(parse_decimal("0"), 0u);
  EXPECT_EQ(parse_decimal("18446744073709551615"), UINT64_MAX);
  for (const char* bad :
       {"", "00", "01", "-1", "+1", " 1", "1 ", "18446744073709551616", "99999999999999999999"}) {
    EXPECT_FALSE(parse_decimal(bad)) << bad;
  }
}

}  // namespace
}  // namespace celld
