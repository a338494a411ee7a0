#include "store/open_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/curl_transport.h"
#include "store/file_temp_dir.h"
#include "store/s3_server_testing.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RealWorld;
using testing::S3Server;
using testing::TempDir;

struct OpenStore : ::testing::Test {
  RealWorld real;
  std::map<std::string, std::string> variables;
  int transports = 0;

  Result<std::unique_ptr<ObjectStore>> open(std::string_view spec) {
    StoreOptions options;
    options.file.fsync = Fsync::kOff;
    options.environment = [this](const std::string& name) -> std::optional<std::string> {
      auto it = variables.find(name);
      return it == variables.end() ? std::nullopt : std::optional(it->second);
    };
    HttpTransportFactory factory = [this] {
      ++transports;
      return std::make_unique<CurlTransport>(real.io(), real.world());
    };
    return open_store(real.world(), factory, spec, std::move(options));
  }
  std::string error(std::string_view spec) {
    auto store = open(spec);
    EXPECT_FALSE(store) << spec;
    return store ? "" : store.error().message;
  }
};

TEST_F(OpenStore, a_directory) {
  TempDir dir;
  auto store = open("file://" + dir.path() + "/bucket/");
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->describe(), "file://" + dir.path() + "/bucket");
  EXPECT_TRUE(real.run((*store)->put("k", Blob("x"), Deadline::never())));
}

TEST_F(OpenStore, a_bucket_with_prefix) {
  S3Server server;
  variables = {{"AWS_ACCESS_KEY_ID", "test"},
               {"AWS_SECRET_ACCESS_KEY", "secret"},
               {"AWS_ENDPOINT_URL", server.endpoint()}};
  auto inside = open("s3://bucket/some/prefix/");
  ASSERT_TRUE(inside) << inside.error().message;
  EXPECT_EQ((*inside)->describe(), "s3://bucket/some/prefix");
  auto put = real.run((*inside)->put("a/k", Blob("x"), Deadline::never()));
  ASSERT_TRUE(put) << put.error().message;
  auto whole = open("s3://bucket");
  ASSERT_TRUE(whole);
  auto all = real.run(list_all(**whole, "", Deadline::never()));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ(all->front().key, "some/prefix/a/k");
  EXPECT_EQ(transports, 2);
}

TEST_F(OpenStore, reads_are_repeated_and_conditional_writes_are_not) {
  S3Server server({"--error-500=2"});
  variables = {{"AWS_ACCESS_KEY_ID", "test"},
               {"AWS_SECRET_ACCESS_KEY", "secret"},
               {"AWS_ENDPOINT_URL_S3", server.endpoint()}};
  auto opened = open("s3://bucket");
  ASSERT_TRUE(opened);
  ObjectStore& store = **opened;
  EXPECT_EQ(real.run(store.put_if("k", Blob("x"), Condition::create(), Deadline::never())).outcome,
            SwapOutcome::kApplied);
  EXPECT_TRUE(real.run(store.get("k", Deadline::never())));  // the 2nd request fails, the 3rd works
  EXPECT_EQ(real.run(store.put_if("l", Blob("x"), Condition::create(), Deadline::never())).outcome,
            SwapOutcome::kAmbiguous);
}

TEST_F(OpenStore, the_credentials_of_the_environment_must_be_there) {
  EXPECT_THAT(error("s3://bucket"),
              AllOf(HasSubstr("s3://bucket"), HasSubstr("AWS_ACCESS_KEY_ID")));
}

TEST_F(OpenStore, a_google_bucket_and_a_prefix_in_it) {
  variables = {{"STORAGE_EMULATOR_HOST", "127.0.0.1:1"}};
  auto inside = open("gs://cells/some/prefix/");
  ASSERT_TRUE(inside) << inside.error().message;
  EXPECT_EQ((*inside)->describe(), "gs://cells/some/prefix");
  EXPECT_THAT(error("gs://"), HasSubstr("name is missing"));
  EXPECT_THAT(error("gs://No Bucket"), HasSubstr("not a bucket name"));
}

TEST_F(OpenStore, an_azure_container_and_a_prefix_in_it) {
  variables = {{"AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true"}};
  auto inside = open("az://cells/some/prefix/");
  ASSERT_TRUE(inside) << inside.error().message;
  EXPECT_EQ((*inside)->describe(), "az://cells/some/prefix");
  EXPECT_THAT(error("az://"), HasSubstr("name is missing"));
  EXPECT_THAT(error("az://No_Container"), HasSubstr("not a container name"));
  EXPECT_THAT(error("az://cells/a//b"), HasSubstr("'//'"));
  variables.clear();
  EXPECT_THAT(error("az://cells"),
              AllOf(HasSubstr("az://cells"), HasSubstr("AZURE_STORAGE_ACCOUNT")));
}

TEST_F(OpenStore, bad_specs_say_what_is_expected) {
  variables = {{"AWS_ACCESS_KEY_ID", "test"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
  EXPECT_THAT(error(""), HasSubstr("expected file:///dir, s3://bucket/prefix"));
  EXPECT_THAT(error("/data"), HasSubstr("put file:// before it"));
  EXPECT_THAT(error("data"), HasSubstr("expected"));
  EXPECT_THAT(error("file://data"), HasSubstr("three slashes"));
  EXPECT_THAT(error("file://"), HasSubstr("three slashes"));
  EXPECT_THAT(error("file:///"), HasSubstr("root directory"));
  EXPECT_THAT(error("http://store/bucket"), AllOf(HasSubstr("'http://'"), HasSubstr("expected")));
  EXPECT_THAT(error("s3://"), HasSubstr("name is missing"));
  EXPECT_THAT(error("s3:///prefix"), HasSubstr("name is missing"));
  EXPECT_THAT(error("s3://a b/prefix"), HasSubstr("not a bucket name"));
  EXPECT_THAT(error("s3://bucket/a//b"), HasSubstr("'//'"));
  EXPECT_THAT(error("s3://bucket/" + std::string(600, 'p')), HasSubstr("longer than"));
  EXPECT_THAT(error("file:///no/such/dir"), HasSubstr("/no/such/dir"));
}

}  // namespace
}  // namespace celld
