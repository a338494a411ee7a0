// AWS Signature Version 4 for S3, payload signed; also for services that do not want its hash as a header.
//
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "world/http_transport.h"

namespace celld {

struct S3Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty for keys that do not expire
};

// What is signed. Names of headers are lower case; values have no blanks at their ends.
struct S3Unsigned {
  std::string method;
  std::string host;                                        // as sent: without the scheme's own port
  std::string path;                                        // not encoded; starts with '/'
  std::vector<std::pair<std::string, std::string>> query;  // not encoded
  HeaderList headers;                                      // without host
  std::string_view body;
  std::string body_sha256;  // sha256_hex(body), made by the caller; empty: sign() does it
};

struct S3Signed {
  std::string path_and_query;     // encoded, to be sent as it stands
  HeaderList headers;             // all to send but Host, which the transport adds
  std::string canonical_request;  // for a log: without session token
};

// Signs for one region of one service. Keeps the derived key of the day. Not thread-safe.
class S3Signer {
 public:
  explicit S3Signer(std::string region, std::string service = "s3")
      : region_(std::move(region)), service_(std::move(service)) {}

  S3Signed sign(const S3Credentials& credentials, const S3Unsigned& request, WallMs now);

 private:
  std::string region_;
  std::string service_;
  std::string key_secret_;  // what key_ was derived from
  std::string key_day_;
  std::string key_;
};

// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace celld
