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

// A file of the SSO token cache, as `aws sso login` writes it.
struct SsoToken {
  std::string token;
  WallMs expires;
  // What it is renewed with; empty where the file does not say, as for logins without an sso-session.
  std::string refresh_token;
  std::string client_id;
  std::string client_secret;
  std::optional<WallMs> client_expires;

  // "", or what renewing lacks at that time.
  std::string not_renewable(WallMs now) const;
};
Result<SsoToken> parse_sso_token(std::string_view json);

// The body of a CreateToken request that renews it.
std::string sso_renewal_request(const SsoToken& token);

// What the file `cached` becomes when CreateToken has answered `json`: {"accessToken", "expiresIn" in
// seconds, "refreshToken"?}. What else is in it stays.
Result<std::string> renewed_sso_cache(std::string_view cached, std::string_view json, WallMs now);

// The XML of AssumeRole and AssumeRoleWithWebIdentity.
Result<AwsKeys> parse_sts_keys(std::string_view xml);

// "AccessDenied: the message" of an error in XML or JSON, at most 200 characters; "" when it is
// neither.
std::string shown_aws_error(std::string_view body);

}  // namespace celld
