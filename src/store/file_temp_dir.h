// For tests: an empty directory that goes away with the test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace celld::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = ::testing::TempDir() + "celld-store-XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace celld::testing
