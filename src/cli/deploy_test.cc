#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/commands.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DeployCommand : public ::testing::Test {
 protected:
  DeployCommand() {
    std::string pattern = (fs::temp_directory_path() / "celld-deploy-XXXXXX").string();
    dir_ = fs::canonical(mkdtemp(pattern.data()));
    write("app/wrangler.jsonc", R"({"name": "w", "main": "index.js", "compatibility_date": "2026-01-01",
                                    "vars": {"TOKEN": "public"}})");
    write("app/index.js", "export default { fetch() { return new Response('deployed-code') } }");
    options_.project = dir_ / "app";
    options_.bucket.url = "file://" + (dir_ / "bucket").string();
  }
  ~DeployCommand() override { fs::remove_all(dir_); }
  void write(std::string_view name, std::string_view text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  // Exit status, with what was printed in out_ and err_.
  int run() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    int status = run_deploy(options_);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }
  // Whether a file of the bucket has `text` in it.
  bool bucket_holds(std::string_view text) {
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / "bucket")) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes(std::istreambuf_iterator<char>(in), {});
      if (bytes.contains(text)) return true;
    }
    return false;
  }

  fs::path dir_;
  DeployOptions options_;
  std::string out_, err_;
};

TEST_F(DeployCommand, deploys_to_a_folder_and_prints_the_version) {
  ASSERT_EQ(run(), 0) << err_;
  EXPECT_THAT(out_, ::testing::MatchesRegex("[0-9a-f]{16}\n"));
  EXPECT_THAT(err_, HasSubstr("wrangler.jsonc"));
  EXPECT_TRUE(bucket_holds("deployed-code"));
  std::string first = out_;
  ASSERT_EQ(run(), 0) << err_;
  EXPECT_EQ(out_, first);
  EXPECT_THAT(err_, HasSubstr("already"));
}

// TOOL-06: .dev.vars is for development and is never uploaded.
TEST_F(DeployCommand, dev_vars_are_never_uploaded) {
  write("app/.dev.vars", "TOKEN=hidden-in-dev\n");
  ASSERT_EQ(run(), 0) << err_;
  EXPECT_TRUE(bucket_holds("public"));
  EXPECT_FALSE(bucket_holds("hidden-in-dev"));
}

// TOOL-10: a configuration in a parent folder is used without notice.
TEST_F(DeployCommand, the_configuration_used_is_printed_and_config_wins) {
  write("other/wrangler.toml", "name = 'other'\nmain = 'i.js'\ncompatibility_date = '2026-01-01'\n");
  write("other/i.js", "export default {}");
  options_.config = dir_ / "other/wrangler.toml";
  ASSERT_EQ(run(), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("other/wrangler.toml"));
  EXPECT_THAT(err_, HasSubstr("Deployed other"));
}

TEST_F(DeployCommand, a_dry_run_writes_the_modules_and_nothing_else) {
  options_.dry_run = true;
  options_.outdir = dir_ / "out";
  ASSERT_EQ(run(), 0) << err_;
  EXPECT_TRUE(fs::exists(dir_ / "out/index.js"));
  EXPECT_TRUE(fs::exists(dir_ / "out/index.js.map"));
  EXPECT_FALSE(fs::exists(dir_ / "bucket"));
  EXPECT_EQ(out_, "");
}

TEST_F(DeployCommand, failures_are_explained_on_stderr) {
  write("app/index.js", "export default {");
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_, HasSubstr("index.js:1:"));
  EXPECT_EQ(out_, "");
  write("app/wrangler.jsonc", R"({"name": "w", "main": "index.js"})");
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(err_, HasSubstr("compatibility_date"));
}

}  // namespace
}  // namespace celld
