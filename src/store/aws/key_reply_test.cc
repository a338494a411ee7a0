#include "store/aws/key_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace celld {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSts =
    "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
    "<AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>x"
    "</SubjectFromWebIdentityToken><Credentials><SessionToken>TOKEN</SessionToken>"
    "<SecretAccessKey>SECRET</SecretAccessKey><Expiration>2026-11-30T22:00:00Z</Expiration>"
    "<AccessKeyId>ASIA</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"
    "</AssumeRoleWithWebIdentityResponse>";

void expect_keys(const Result<AwsKeys>& keys, std::string token, int64_t expires_ms) {
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->keys.access_key, "ASIA");
  EXPECT_EQ(keys->keys.secret_key, "SECRET");
  EXPECT_EQ(keys->keys.session_token, token);
  EXPECT_EQ(keys->expires ? keys->expires->value : 0, expires_ms);
}

TEST(AwsKeyReply, every_kind_is_read) {
  constexpr int64_t k22 = 1'796'076'000'000;  // 2026-11-30T22:00:00Z
  expect_keys(parse_sts_keys(kSts), "TOKEN", k22);
  expect_keys(parse_metadata_keys(R"({"Code":"Success","LastUpdated":"2026-11-30T16:00:00Z",
      "Type":"AWS-HMAC","AccessKeyId":"ASIA","SecretAccessKey":"SECRET","Token":"TOKEN",
      "Expiration":"2026-11-30T22:00:00Z"})"),
              "TOKEN", k22);
  expect_keys(parse_process_keys(
                  R"({"Version":1,"AccessKeyId":"ASIA","SecretAccessKey":"SECRET"})"),
              "", 0);
  expect_keys(parse_process_keys(R"({"Version":1,"AccessKeyId":"ASIA","SecretAccessKey":"SECRET",
      "SessionToken":"TOKEN","Expiration":"2026-11-30T22:00:00+00:00"})"),
              "TOKEN", k22);
  expect_keys(parse_sso_keys(R"({"roleCredentials":{"accessKeyId":"ASIA",
      "secretAccessKey":"SECRET","sessionToken":"TOKEN","expiration":1796076000000}})"),
              "TOKEN", k22);
  auto token = parse_sso_token(
      R"({"accessToken":"abc","expiresAt":"2026-11-30T22:00:00Z","region":"eu-west-1"})");
  ASSERT_TRUE(token);
  EXPECT_EQ(token->token, "abc");
  EXPECT_EQ(token->expires.value, k22);
}

TEST(AwsKeyReply, what_is_missing_or_wrong_is_named_without_what_was_answered) {
  for (const Error& error : {
           parse_metadata_keys(R"({"AccessKeyId":"ASIA","SecretAccessKey":""})").error(),
           parse_metadata_keys(R"({"AccessKeyId":"ASIA","Token":"SECRET"})").error(),
           parse_metadata_keys(R"({"AccessKeyId":"AS\r\nIA","SecretAccessKey":"SECRET"})").error(),
           parse_metadata_keys(
               R"({"AccessKeyId":"ASIA","SecretAccessKey":"SECRET","Token":"a b"})")
               .error(),
           parse_metadata_keys(
               R"({"AccessKeyId":"ASIA","SecretAccessKey":"SECRET","Expiration":"soon"})")
               .error(),
           parse_metadata_keys("SECRET").error(),
           parse_process_keys(R"({"AccessKeyId":"ASIA","SecretAccessKey":"SECRET"})").error(),
           parse_process_keys(
               R"({"Version":2,"AccessKeyId":"ASIA","SecretAccessKey":"SECRET"})")
               .error(),
           parse_sso_keys(R"({"accessKeyId":"ASIA"})").error(),
           parse_sts_keys("<R><XResult/></R>").error(),
           parse_sts_keys("SECRET").error(),
       }) {
    EXPECT_EQ(error.code == ErrorCode::kInvalid || error.code == ErrorCode::kCorrupt, true)
        << error.message;
    EXPECT_THAT(error.message, Not(HasSubstr("SECRET")));
    EXPECT_FALSE(error.message.empty());
  }
}

TEST(AwsKeyReply, an_error_inside_the_answer_is_an_error) {
  auto keys = parse_metadata_keys(
      R"({"Code":"AssumeRoleUnauthorizedAccess","Message":"EC2 cannot assume the role x"})");
  ASSERT_FALSE(keys);
  EXPECT_THAT(keys.error().message, HasSubstr("EC2 cannot assume the role x"));
}

TEST(AwsKeyReply, errors_are_shown) {
  EXPECT_EQ(shown_aws_error("<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                            "<Message>no &amp; no</Message></Error></ErrorResponse>"),
            "AccessDenied: no & no");
  EXPECT_EQ(shown_aws_error(R"({"__type":"UnauthorizedException","message":"expired"})"),
            "UnauthorizedException: expired");
  EXPECT_EQ(shown_aws_error("<html>"), "");
  // The message of this one quotes the canonical request, and that the session token.
  EXPECT_EQ(shown_aws_error("<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>"
                            "x-amz-security-token:TOKEN</Message></Error></ErrorResponse>"),
            "SignatureDoesNotMatch");
}

}  // namespace
}  // namespace celld
