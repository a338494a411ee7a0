// For tests: Azurite as a child process.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "store/s3_credentials.h"
#include "store/server_testing.h"

namespace celld::testing {

class Azurite {
 public:
  static constexpr int kContainers = 90;
  Azurite()
      : server_("tests/servers/azurite.mjs", {"--containers=" + std::to_string(kContainers)}) {}

  std::string endpoint() const { return server_.endpoint() + "/devstoreaccount1"; }
  // Empty, and not given to anybody else.
  std::string next_container() {
    CHECK(used_ < kContainers) << "more tests than containers";
    return "bucket-" + std::to_string(++used_);
  }
  Environment environment() const {
    return [proxy = server_.endpoint()](const std::string& name) -> std::optional<std::string> {
      if (name != "AZURE_STORAGE_CONNECTION_STRING") return std::nullopt;
      return "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=" + proxy;
    };
  }

 private:
  ServerProcess server_;
  int used_ = 0;
};

}  // namespace celld::testing
