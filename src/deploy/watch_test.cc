#include "deploy/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>

namespace celld {
namespace {

namespace fs = std::filesystem;

class Watch : public ::testing::Test {
 protected:
  Watch() {
    std::string pattern = (fs::temp_directory_path() / "celld-watch-XXXXXX").string();
    dir_ = fs::canonical(mkdtemp(pattern.data()));
    fs::create_directories(dir_ / "src/deep");
    fs::create_directories(dir_ / "node_modules/x");
  }
  ~Watch() override {
    watcher_.reset();
    fs::remove_all(dir_);
  }
  void start() {
    auto started = ProjectWatcher::start(dir_, [this](const std::vector<std::string>& paths) {
      std::lock_guard lock(mutex_);
      ++calls_;
      seen_.insert(paths.begin(), paths.end());
      changed_.notify_all();
    });
    ASSERT_TRUE(started) << started.error().message;
    watcher_ = std::move(*started);
  }
  void write(std::string_view name) { std::ofstream(dir_ / name) << "x"; }
  // Waits until `name` has been reported.
  bool reported(const std::string& name) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return seen_.contains(name); });
  }

  fs::path dir_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> seen_;
  int calls_ = 0;
  std::unique_ptr<ProjectWatcher> watcher_;
};

TEST_F(Watch, files_that_are_written_created_moved_or_deleted_are_reported) {
  write("src/deep/a.ts");
  write("b.ts");
  start();
  write("src/deep/a.ts");
  EXPECT_TRUE(reported("src/deep/a.ts"));
  write("new.ts");
  EXPECT_TRUE(reported("new.ts"));
  fs::rename(dir_ / "b.ts", dir_ / "src/c.ts");
  EXPECT_TRUE(reported("b.ts"));
  EXPECT_TRUE(reported("src/c.ts"));
  fs::remove(dir_ / "new.ts");
}

TEST_F(Watch, folders_made_later_are_watched_too) {
  start();
  fs::create_directories(dir_ / "later/inner");
  EXPECT_TRUE(reported("later"));
  write("later/inner/x.ts");
  EXPECT_TRUE(reported("later/inner/x.ts"));
}

TEST_F(Watch, ignored_folders_are_silent) {
  start();
  write("node_modules/x/y.js");
  fs::create_directories(dir_ / ".celld/state");
  write(".celld/state/db");
  write("last.ts");
  ASSERT_TRUE(reported("last.ts"));
  std::lock_guard lock(mutex_);
  EXPECT_THAT(seen_, ::testing::ElementsAre("last.ts"));
}

TEST_F(Watch, many_changes_at_once_are_few_calls) {
  start();
  for (int i = 0; i < 300; ++i) write("src/f" + std::to_string(i % 30));
  write("z.ts");
  ASSERT_TRUE(reported("z.ts"));
  std::lock_guard lock(mutex_);
  EXPECT_LT(calls_, 30);
}

TEST_F(Watch, a_folder_that_is_not_there_is_named) {
  auto started = ProjectWatcher::start(dir_ / "nothing", [](const auto&) {});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace celld
