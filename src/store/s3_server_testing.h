// For tests: the strict S3 server of tests/servers as a child process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "store/s3_store.h"
#include "store/server_testing.h"

namespace celld::testing {

class S3Server {
 public:
  explicit S3Server(std::vector<std::string> options = {})
      : server_("tests/servers/s3_server.mjs", std::move(options)) {}

  std::string endpoint() const { return server_.endpoint(); }

  S3Options options(std::string bucket) const {
    S3Options out;
    out.bucket = std::move(bucket);
    out.endpoint = endpoint();
    out.credentials = fixed_credentials({"test", "secret", ""});
    return out;
  }

 private:
  ServerProcess server_;
};

}  // namespace celld::testing
