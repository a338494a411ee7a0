// For tests: the strict Google Cloud Storage of tests/servers as a child process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "store/server_testing.h"

namespace celld::testing {

class GcsServer {
 public:
  explicit GcsServer(std::vector<std::string> options = {})
      : server_("tests/servers/gcs_server.mjs", std::move(options)) {}

  std::string endpoint() const { return server_.endpoint(); }
  std::string host() const { return server_.endpoint().substr(std::string("http://").size()); }

 private:
  ServerProcess server_;
};

}  // namespace celld::testing
