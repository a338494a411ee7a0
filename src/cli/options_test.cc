#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace celld {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

// The environment of a test, without the variables that celld reads.
class Options : public ::testing::Test {
 protected:
  Options() {
    for (const char* name :
         {"CELLD_BUCKET", "CELLD_ADDR", "CELLD_INTERNAL_ADDR", "CELLD_ADVERTISE",
          "CELLD_UNSAFE_PUBLIC_ADVERTISE", "CELLD_DATA", "CELLD_TTL_MS", "CELLD_CPU_LIMIT_MS",
          "CELLD_HEAP_LIMIT_MB", "CELLD_LOOPS", "CELLD_IDLE_EVICT_MS", "S3_ENDPOINT", "AWS_REGION",
          "AWS_DEFAULT_REGION", "CLOUDFLARE_ENV"}) {
      unsetenv(name);
    }
  }
  ~Options() override {
    for (const auto& name : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  template <class T>
  T parse(std::vector<std::string> arguments) {
    auto command = parse_command_line(arguments);
    if (auto* request = std::get_if<ExitRequest>(&command)) ADD_FAILURE() << request->text;
    return std::get<T>(std::move(command));
  }
  std::string refusal(std::vector<std::string> arguments) {
    auto command = parse_command_line(arguments);
    auto* request = std::get_if<ExitRequest>(&command);
    EXPECT_TRUE(request && request->status == 2);
    return request ? request->text : "accepted";
  }
  std::vector<std::string> set_;
};

TEST_F(Options, dev_has_defaults) {
  auto dev = parse<DevOptions>({"dev"});
  EXPECT_EQ(dev.project, ".");
  EXPECT_FALSE(dev.port);
  EXPECT_FALSE(dev.ip);
  EXPECT_FALSE(dev.bucket);
  EXPECT_TRUE(dev.watch);
  EXPECT_FALSE(dev.clean);
  EXPECT_TRUE(dev.vars.empty());
  EXPECT_EQ(dev.tuning.cpu_limit, 30s);
  EXPECT_EQ(dev.tuning.heap_limit_mb, 128u);
}

TEST_F(Options, dev_takes_everything) {
  auto dev = parse<DevOptions>({"dev", "app", "--port", "0", "--host", "localhost", "--no-watch",
                                "--bucket", "file:///tmp/b", "--clean", "--config", "w.toml", "--var",
                                "A:1:2", "--var", "B:", "--data", "d", "--cpu-limit-ms", "500"});
  EXPECT_EQ(dev.project, "app");
  EXPECT_EQ(dev.port, 0);
  EXPECT_EQ(dev.ip, "127.0.0.1");
  EXPECT_FALSE(dev.watch);
  EXPECT_TRUE(dev.clean);
  EXPECT_EQ(dev.bucket->url, "file:///tmp/b");
  EXPECT_EQ(dev.config, "w.toml");
  EXPECT_EQ(dev.data, "d");
  EXPECT_EQ(dev.tuning.cpu_limit, 500ms);
  EXPECT_EQ(dev.vars, (std::vector<Var>{{"A", VarKind::kText, "1:2"}, {"B", VarKind::kText, ""}}));
}

TEST_F(Options, a_var_does_not_swallow_the_project) {
  auto dev = parse<DevOptions>({"dev", "--var", "A:1", "app"});
  EXPECT_EQ(dev.project, "app");
  EXPECT_EQ(dev.vars.size(), 1u);
}

TEST_F(Options, dev_never_takes_the_fleets_bucket_from_the_environment) {
  set("CELLD_BUCKET", "s3://production");
  EXPECT_FALSE(parse<DevOptions>({"dev"}).bucket);
}

TEST_F(Options, deploy_needs_a_bucket_unless_dry) {
  EXPECT_THAT(refusal({"deploy"}), HasSubstr("celld deploy: --bucket (or CELLD_BUCKET) is needed"));
  auto dry = parse<DeployOptions>({"deploy", "app", "--dry-run", "--outdir", "out"});
  EXPECT_TRUE(dry.dry_run);
  EXPECT_EQ(dry.outdir, "out");
  EXPECT_THAT(refusal({"deploy", "--bucket", "file:///b", "--outdir", "x"}), HasSubstr("--dry-run"));
  set("CELLD_BUCKET", "file:///b");
  EXPECT_EQ(parse<DeployOptions>({"deploy"}).bucket.url, "file:///b");
  EXPECT_EQ(parse<DeployOptions>({"deploy", "--bucket", "s3://x"}).bucket.url, "s3://x");
}

TEST_F(Options, a_node_runs_with_or_without_its_name) {
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"--bucket", "s3://b/p", "--listen", "[::1]:80", "--data", "/d"},
        std::vector<std::string>{"node", "--bucket", "s3://b/p", "--listen", "[::1]:80", "--data", "/d"}}) {
    auto node = parse<NodeOptions>(arguments);
    EXPECT_EQ(node.bucket.url, "s3://b/p");
    EXPECT_EQ(node.listen, (ListenAddress{"::1", 80}));
    EXPECT_EQ(node.data, "/d");
    EXPECT_EQ(node.tuning.lease_ttl, 10s);
  }
}

TEST_F(Options, every_node_option_has_its_twin_in_the_environment) {
  set("CELLD_BUCKET", "s3://b");
  set("CELLD_ADDR", "0.0.0.0:9999");
  set("CELLD_INTERNAL_ADDR", "0.0.0.0:9998");
  set("CELLD_ADVERTISE", "8.8.8.8:9998");
  set("CELLD_UNSAFE_PUBLIC_ADVERTISE", "1");
  set("CELLD_DATA", "/data");
  set("CELLD_TTL_MS", "5000");
  set("CELLD_CPU_LIMIT_MS", "100");
  set("CELLD_HEAP_LIMIT_MB", "64");
  set("CELLD_LOOPS", "3");
  set("CELLD_IDLE_EVICT_MS", "0");
  set("S3_ENDPOINT", "http://127.0.0.1:9000");
  set("AWS_DEFAULT_REGION", "eu-1");
  auto node = parse<NodeOptions>({});
  EXPECT_EQ(node.bucket.url, "s3://b");
  EXPECT_EQ(node.listen, (ListenAddress{"0.0.0.0", 9999}));
  EXPECT_EQ(node.internal.listen, (ListenAddress{"0.0.0.0", 9998}));
  EXPECT_EQ(node.internal.advertise, "8.8.8.8:9998");
  EXPECT_EQ(node.data, "/data");
  EXPECT_EQ(node.tuning.lease_ttl, 5s);
  EXPECT_EQ(node.tuning.cpu_limit, 100ms);
  EXPECT_EQ(node.tuning.heap_limit_mb, 64u);
  EXPECT_EQ(node.tuning.loops, 3u);
  EXPECT_EQ(node.tuning.idle_evict, 0ms);
  EXPECT_EQ(node.bucket.endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(parse<NodeOptions>({"--bucket", "az://b"}).bucket.endpoint, "") << "S3_ENDPOINT is of s3://";
  EXPECT_EQ(node.bucket.region, "eu-1");
  EXPECT_EQ(parse<NodeOptions>({"--ttl-ms", "2000"}).tuning.lease_ttl, 2s) << "an option wins";
  EXPECT_EQ(parse<NodeOptions>({"node", "--ttl-ms", "2000"}).tuning.lease_ttl, 2s);
  EXPECT_EQ(parse<NodeOptions>({"node"}).listen.port, 9999);
}

TEST_F(Options, mistakes_say_what_and_how_to_fix_it) {
  EXPECT_THAT(refusal({"--bucket", "my-bucket"}), HasSubstr("s3://bucket/prefix"));
  EXPECT_THAT(refusal({"--bucket", "file://relative"}), HasSubstr("absolute path"));
  EXPECT_THAT(refusal({"--bucket", "s3://"}), HasSubstr("names no bucket"));
  EXPECT_THAT(refusal({"--bucket", "s3://b", "--listen", "8787"}), HasSubstr("IP:PORT"));
  EXPECT_THAT(refusal({"--bucket", "s3://b", "--listen", "1.2.3.4:70000"}), HasSubstr("IP:PORT"));
  EXPECT_THAT(refusal({"--bucket", "s3://b", "--ttl-ms", "1"}), HasSubstr("from 1000 to 300000"));
  EXPECT_THAT(refusal({"--bucket", "s3://b", "--ttl-ms", "1e9"}), HasSubstr("whole number"));
  EXPECT_THAT(refusal({"--bucket", "s3://b", "--listen", "0.0.0.0:80"}), HasSubstr("--internal-listen"));
  EXPECT_THAT(refusal({"node", "--bucket", "s3://b", "--internal-listen", "10.0.0.4"}), HasSubstr("IP:PORT"));
  EXPECT_THAT(refusal({"--bucket", "s3://b", "--internal-listen", "10.0.0.4:80", "--advertise", "a_b:80"}),
              HasSubstr("'a_b:80' names neither"));
  EXPECT_THAT(refusal({"dev", "--port", "99999"}), HasSubstr("--port"));
  EXPECT_THAT(refusal({"dev", "--host", "example.com"}), HasSubstr("IP address"));
  EXPECT_THAT(refusal({"dev", "--var", "A=1"}), HasSubstr("NAME:VALUE"));
  EXPECT_THAT(refusal({"dev", "--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(refusal({"dev", "--bogus"}), HasSubstr("Run 'celld dev --help'"));
  EXPECT_THAT(refusal({"serve"}), HasSubstr("serve"));
  EXPECT_THAT(refusal({"dev", "a", "b"}), HasSubstr("b"));
  set("CELLD_TTL_MS", "soon");
  EXPECT_THAT(refusal({"--bucket", "s3://b"}), HasSubstr("'soon' is not a whole number"));
}

// TOOL-07: CLOUDFLARE_ENV and --env must mean the same; here neither is there yet.
TEST_F(Options, named_environments_are_refused_by_name) {
  EXPECT_THAT(refusal({"dev", "--env", "staging"}), HasSubstr("CLOUDFLARE_ENV) are not supported yet"));
  set("CLOUDFLARE_ENV", "staging");
  EXPECT_THAT(refusal({"deploy", "--bucket", "s3://b"}), HasSubstr("not supported yet"));
  EXPECT_EQ(parse<NodeOptions>({"--bucket", "s3://b"}).bucket.url, "s3://b") << "nodes have none";
}

TEST_F(Options, help_and_version_are_for_stdout) {
  auto text = [](std::vector<std::string> arguments) {
    auto request = std::get<ExitRequest>(parse_command_line(arguments));
    EXPECT_EQ(request.status, 0);
    return request.text;
  };
  EXPECT_THAT(text({"--version"}), ::testing::MatchesRegex("celld [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_THAT(text({}), HasSubstr("celld deploy --bucket"));
  EXPECT_THAT(text({"--help"}), HasSubstr("CELLD_BUCKET"));
  EXPECT_THAT(text({"dev", "--help"}), HasSubstr("--no-watch"));
  EXPECT_THAT(text({"dev", "--help"}), Not(HasSubstr("--env")));
}

TEST_F(Options, diagnose_bucket_needs_a_bucket) {
  auto diagnose = parse<DiagnoseBucketOptions>({"diagnose", "bucket", "--bucket", "s3://b/p", "--endpoint",
                                                "http://127.0.0.1:9000", "--region", "r", "--read-only"});
  EXPECT_EQ(diagnose.bucket.url, "s3://b/p");
  EXPECT_EQ(diagnose.bucket.endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(diagnose.bucket.region, "r");
  EXPECT_TRUE(diagnose.read_only);
  EXPECT_THAT(refusal({"diagnose", "bucket"}), HasSubstr("--bucket"));
  EXPECT_THAT(refusal({"diagnose"}), HasSubstr("subcommand"));
  set("CELLD_BUCKET", "gs://b");
  EXPECT_EQ(parse<DiagnoseBucketOptions>({"diagnose", "bucket"}).bucket.url, "gs://b");
}

}  // namespace
}  // namespace celld
