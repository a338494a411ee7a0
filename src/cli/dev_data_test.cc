#include "cli/dev_data.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace celld {
namespace {

namespace fs = std::filesystem;

class DevData : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "celld-dev-data-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "text";
  }
  std::string at(const std::string& name) { return (root_ / name).string(); }
  fs::path root_;
};

TEST_F(DevData, clean_removes_only_what_celld_dev_made) {
  ASSERT_TRUE(prepare_dev_data(at("ours"), false));
  write(root_ / "ours/bucket/x");
  write(root_ / "ours/node/scratch/y");
  ASSERT_TRUE(prepare_dev_data(at("ours"), false));
  EXPECT_TRUE(fs::exists(root_ / "ours/bucket/x"));
  ASSERT_TRUE(prepare_dev_data(at("ours"), true));
  EXPECT_FALSE(fs::exists(root_ / "ours/bucket"));
  EXPECT_FALSE(fs::exists(root_ / "ours/node"));
  // And again.
  write(root_ / "ours/bucket/x");
  ASSERT_TRUE(prepare_dev_data(at("ours"), true));
  EXPECT_FALSE(fs::exists(root_ / "ours/bucket"));
}

// The symptom was a home directory that was gone.
TEST_F(DevData, clean_refuses_a_folder_of_somebody_else) {
  write(root_ / "documents/letter");
  for (int i = 0; i < 2; ++i) {
    auto refused = prepare_dev_data(at("documents"), true);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(at("documents")), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("--clean"), std::string::npos);
    EXPECT_TRUE(fs::exists(root_ / "documents/letter"));
    // Used as it is, it does not become ours.
    ASSERT_TRUE(prepare_dev_data(at("documents"), false));
  }
}

TEST_F(DevData, clean_takes_an_empty_folder_and_one_that_is_not_there) {
  fs::create_directories(root_ / "empty");
  EXPECT_TRUE(prepare_dev_data(at("empty"), true));
  EXPECT_TRUE(prepare_dev_data(at("deep/er"), true));
  EXPECT_TRUE(fs::is_directory(root_ / "deep/er"));
}

TEST_F(DevData, a_file_is_no_folder) {
  write(root_ / "file");
  EXPECT_FALSE(prepare_dev_data(at("file"), true));
  EXPECT_FALSE(prepare_dev_data(at("file"), false));
  EXPECT_TRUE(fs::exists(root_ / "file"));
}

}  // namespace
}  // namespace celld
