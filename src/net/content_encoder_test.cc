#include "net/content_encoder.h"

#include <gtest/gtest.h>

#include "net/content_decoder.h"

namespace celld {
namespace {

std::string decode_all(ContentDecoder& decoder, std::string_view coded) {
  std::string out;
  while (true) {
    size_t before = out.size();
    auto used = decoder.decode(coded, out, 1000);
    EXPECT_TRUE(used.has_value());
    if (!used) return out;
    coded.remove_prefix(*used);
    if (coded.empty() && out.size() - before < 1000) return out;
  }
}

TEST(ContentEncoder, every_chunk_can_be_decoded_when_it_has_come) {
  for (std::string_view coding : {"gzip", "br", " GZIP "}) {
    auto encoder = ContentEncoder::make(coding);
    ASSERT_NE(encoder, nullptr) << coding;
    auto decoder = ContentDecoder::make(coding);
    EXPECT_EQ(decode_all(*decoder, encoder->encode("first ")), "first ") << coding;
    std::string large(300'000, 'x');
    large[1000] = 'y';
    EXPECT_EQ(decode_all(*decoder, encoder->encode(large)), large) << coding;
    EXPECT_FALSE(decoder->complete());
    EXPECT_EQ(decode_all(*decoder, encoder->finish()), "") << coding;
    EXPECT_TRUE(decoder->complete()) << coding;
  }
}

TEST(ContentEncoder, nothing_is_a_coded_nothing) {
  for (std::string_view coding : {"gzip", "br"}) {
    auto decoder = ContentDecoder::make(coding);
    std::string coded = ContentEncoder::make(coding)->finish();
    EXPECT_FALSE(coded.empty());
    EXPECT_EQ(decode_all(*decoder, coded), "");
    EXPECT_TRUE(decoder->complete());
  }
}

TEST(ContentEncoder, other_codings_are_left_alone) {
  for (std::string_view coding : {"", "identity", "deflate", "gzip, br", "zstd"}) {
    EXPECT_EQ(ContentEncoder::make(coding), nullptr) << coding;
  }
}

}  // namespace
}  // namespace celld
