#include "store/s3_sign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace celld {
namespace {

// The examples of
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
struct SignExamples : ::testing::Test {
  S3Signer signer{"us-east-1"};
  S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  WallMs now{1369353600000};  // 2013-05-24T00:00:00Z
  S3Unsigned request{.method = "GET", .host = "examplebucket.s3.amazonaws.com", .path = "/"};

  std::string signature() {
    S3Signed out = signer.sign(credentials, request, now);
    std::string authorization = out.headers.back().second;
    return authorization.substr(authorization.rfind('=') + 1);
  }
};

TEST_F(SignExamples, get_object_with_range) {
  request.path = "/test.txt";
  request.headers = {{"range", "bytes=0-9"}};
  EXPECT_EQ(signature(), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST_F(SignExamples, put_object_with_a_character_to_encode) {
  request.method = "PUT";
  request.path = "/test$file.text";
  request.headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                     {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  request.body = "Welcome to Amazon S3.";
  EXPECT_EQ(signature(), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(signer.sign(credentials, request, now).path_and_query, "/test%24file.text");
}

TEST_F(SignExamples, query_without_value) {
  request.query = {{"lifecycle", ""}};
  EXPECT_EQ(signature(), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST_F(SignExamples, query_in_any_order) {
  request.query = {{"prefix", "J"}, {"max-keys", "2"}};
  EXPECT_EQ(signature(), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  EXPECT_EQ(signer.sign(credentials, request, now).path_and_query, "/?max-keys=2&prefix=J");
}

TEST_F(SignExamples, the_kept_key_changes_with_day_and_secret) {
  const std::string first = signature();
  now.value += 24 * 3600 * 1000;
  const std::string next_day = signature();
  EXPECT_NE(first, next_day);
  credentials.secret_key = "another";
  EXPECT_NE(signature(), next_day);
  credentials.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  now.value -= 24 * 3600 * 1000;
  EXPECT_EQ(signature(), first);
}

TEST_F(SignExamples, session_token_is_signed_and_sent_but_not_for_a_log) {
  credentials.session_token = "very-secret-token";
  S3Signed out = signer.sign(credentials, request, now);
  EXPECT_THAT(out.headers,
              ::testing::Contains(::testing::Pair("x-amz-security-token", "very-secret-token")));
  EXPECT_THAT(out.headers.back().second, ::testing::HasSubstr("x-amz-date;x-amz-security-token,"));
  EXPECT_THAT(out.canonical_request, ::testing::Not(::testing::HasSubstr("very-secret-token")));
  EXPECT_THAT(out.canonical_request, ::testing::HasSubstr("x-amz-security-token"));
}

}  // namespace
}  // namespace celld
