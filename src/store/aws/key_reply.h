// What the sources of temporary keys answer. Pure functions; errors never show what was answered.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "store/s3_sign.h"

namespace celld {

struct AwsKeys {
  S3Credentials keys;
  std::optional<WallMs> expires;  // nothing: they do not
};

// kInvalid unless both keys are there and everything can stand in a header.
Result<void> check_keys(const S3Credentials& keys);

// {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}: containers and instances. An answer
// that carries a "Code" other than "Success" is an error with that code and its "Message".
Result<AwsKeys> parse_metadata_keys(std::string_view json);

// {"Version": 1, "AccessKeyId", "SecretAccessKey", "SessionToken"?, "Expiration"?}.
Result<AwsKeys> parse_process_keys(std::string_view json);

// {"roleCredentials": {"accessKeyId", "secretAccessKey", "sessionToken", "expiration": ms}}.
Result<AwsKeys> parse_sso_keys(std::string_view json);

// A file of the SSO token cache.
struct SsoToken {
  std::string token;
  WallMs expires;
};
Result<SsoToken> parse_sso_token(std::string_view json);

// The XML of AssumeRole and AssumeRoleWithWebIdentity.
Result<AwsKeys> parse_sts_keys(std::string_view xml);

// "AccessDenied: the message" of an error in XML or JSON, at most 200 characters; "" when it is
// neither.
std::string shown_aws_error(std::string_view body);

}  // namespace celld
