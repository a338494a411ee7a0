#include "node/data_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace celld {
namespace {

namespace fs = std::filesystem;

class DataDirTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "celld-data-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string path() const { return root_ / "a" / "data"; }

  fs::path root_;
  const NodeId node_{"0123456789abcdef0123456789abcdef"};
};

TEST_F(DataDirTest, is_made_with_its_parents_and_knows_no_predecessor) {
  auto dir = DataDir::open(path());
  ASSERT_TRUE(dir) << dir.error().message;
  EXPECT_FALSE(dir->predecessor());
  EXPECT_TRUE(fs::is_directory(dir->scratch()));
}

TEST_F(DataDirTest, remembers_the_node_that_was_here_last) {
  {
    auto dir = DataDir::open(path());
    ASSERT_TRUE(dir);
    ASSERT_TRUE(dir->remember(NodeId("ffffffffffffffffffffffffffffffff")));
    ASSERT_TRUE(dir->remember(node_));
  }
  auto again = DataDir::open(path());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->predecessor(), node_);
}

TEST_F(DataDirTest, a_node_that_left_in_good_order_is_nobodys_predecessor) {
  {
    auto dir = DataDir::open(path());
    ASSERT_TRUE(dir);
    ASSERT_TRUE(dir->remember(node_));
    ASSERT_TRUE(dir->forget());
    EXPECT_TRUE(dir->forget()) << "nothing to forget is fine";
  }
  auto again = DataDir::open(path());
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->predecessor());
}

TEST_F(DataDirTest, one_process_at_a_time) {
  auto first = DataDir::open(path());
  ASSERT_TRUE(first);
  {
    // A moved handle is the same lock.
    DataDir moved(std::move(*first));
    auto second = DataDir::open(path());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(second.error().message.find("in use by another celld"), std::string::npos);
  }
  EXPECT_TRUE(DataDir::open(path()));
}

TEST_F(DataDirTest, scratch_files_of_the_predecessor_are_gone) {
  {
    auto dir = DataDir::open(path());
    std::ofstream(dir->scratch() + "/C:1.pages") << "old";
  }
  auto dir = DataDir::open(path());
  ASSERT_TRUE(dir);
  EXPECT_TRUE(fs::is_empty(dir->scratch()));
}

TEST_F(DataDirTest, a_damaged_node_id_is_named) {
  fs::create_directories(path());
  std::ofstream(path() + "/node-id") << "NOT/AN/ID\n";
  auto dir = DataDir::open(path());
  ASSERT_FALSE(dir);
  EXPECT_EQ(dir.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(dir.error().message.find("node-id"), std::string::npos);
}

TEST_F(DataDirTest, a_file_in_its_place_is_an_error) {
  std::ofstream(root_ / "file") << "x";
  auto dir = DataDir::open(root_ / "file");
  ASSERT_FALSE(dir);
  EXPECT_NE(dir.error().message.find("file"), std::string::npos);
}

}  // namespace
}  // namespace celld
