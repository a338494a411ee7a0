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

// Of the suite that AWS publishes for all services (aws-sig-v4-test-suite), those that apply: a path is not
// normalised for S3, and no header is sent twice.
TEST(SignSuite, signatures_are_those_that_are_published) {
  struct Case {
    const char* name;
    S3Unsigned request;
    const char* signature;
  };
  const std::string unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const Case cases[] = {
      {"get-vanilla", {.method = "GET", .path = "/"},
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"get-unreserved", {.method = "GET", .path = "/" + unreserved},
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-space", {.method = "GET", .path = "/example space/"},
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"get-utf8", {.method = "GET", .path = "/\xe1\x88\xb4"},
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-vanilla-query-order-key-case",
       {.method = "GET", .path = "/", .query = {{"Param2", "value2"}, {"Param1", "value1"}}},
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-query-order-value",
       {.method = "GET", .path = "/", .query = {{"Param1", "value2"}, {"Param1", "value1"}}},
       "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
      {"get-vanilla-utf8-query", {.method = "GET", .path = "/", .query = {{"\xe1\x88\xb4", "bar"}}},
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"post-x-www-form-urlencoded",
       {.method = "POST", .path = "/", .headers = {{"content-type", "application/x-www-form-urlencoded"}},
        .body = "Param1=value1"},
       "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
  };
  const WallMs now{1440938160000};  // 2015-08-30T12:36:00Z
  S3Credentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
  S3Signer signer("us-east-1", "service");
  auto signature = [&](S3Unsigned request) {
    request.host = "example.amazonaws.com";
    std::string authorization = signer.sign(credentials, request, now).headers.back().second;
    return authorization.substr(authorization.rfind('=') + 1);
  };
  for (const Case& c : cases) EXPECT_EQ(signature(c.request), c.signature) << c.name;
  credentials.session_token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
  EXPECT_EQ(signature(cases[0].request), "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8")
      << "get-vanilla-with-session-token";
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
