#include "store/open_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "net/acceptor.h"
#include "net/curl_transport.h"
#include "net/http_server.h"
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
  long connections_max = 128;
  std::shared_ptr<StoreShared> shared;

  Result<std::unique_ptr<ObjectStore>> open(std::string_view spec) {
    StoreOptions options;
    options.file.fsync = Fsync::kOff;
    options.shared = shared;
    options.environment = [this](const std::string& name) -> std::optional<std::string> {
      auto it = variables.find(name);
      return it == variables.end() ? std::nullopt : std::optional(it->second);
    };
    HttpTransportFactory factory = [this] {
      ++transports;
      CurlTransportOptions pool;
      pool.connections_per_host_max = connections_max;
      return std::make_unique<CurlTransport>(real.io(), real.world(), pool);
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
  EXPECT_EQ(transports, 4);
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

TEST_F(OpenStore, without_credentials_the_first_request_says_what_was_looked_for) {
  variables = {{"AWS_EC2_METADATA_DISABLED", "true"}, {"HOME", "/no/such/home"}};
  auto opened = open("s3://bucket");
  ASSERT_TRUE(opened) << opened.error().message;
  auto object = real.run((*opened)->get("k", real.world().deadline_in(std::chrono::seconds(20))));
  ASSERT_FALSE(object);
  EXPECT_EQ(object.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(object.error().message,
              AllOf(HasSubstr("s3://bucket"), HasSubstr("AWS_ACCESS_KEY_ID is not set"),
                    HasSubstr("/no/such/home/.aws/config")));
}

TEST_F(OpenStore, region_and_endpoint_may_stand_in_the_profile) {
  TempDir home;
  S3Server server({"--region=eu-south-9"});
  std::filesystem::create_directory(home.path() + "/.aws");
  std::ofstream(home.path() + "/.aws/config")
      << "[profile x]\nregion = eu-south-9\nendpoint_url = " << server.endpoint()
      << "\naws_access_key_id = test\naws_secret_access_key = secret\n";
  variables = {{"HOME", home.path()}, {"AWS_PROFILE", "x"}};
  auto opened = open("s3://bucket");
  ASSERT_TRUE(opened) << opened.error().message;
  auto put = real.run((*opened)->put("k", Blob("x"), Deadline::never()));
  EXPECT_TRUE(put) << put.error().message;
}

TEST_F(OpenStore, stores_of_one_bucket_share_their_credentials) {
  variables = {{"AWS_ACCESS_KEY_ID", "test"}, {"AWS_SECRET_ACCESS_KEY", "secret"}};
  shared = std::make_shared<StoreShared>();
  ASSERT_TRUE(open("s3://bucket"));
  auto first = shared->aws;
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(open("s3://bucket"));
  EXPECT_EQ(shared->aws, first);
  EXPECT_EQ(transports, 3) << "a pool for each store and one for the credentials";
}

// The pools of leases and of data are apart: whatever the data does, a renewal finds a connection.
TEST_F(OpenStore, slow_uploads_do_not_delay_a_renewal) {
  std::vector<std::shared_ptr<HttpExchange>> held;
  HttpServer server(real.io(), HttpLimits{}, [&](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->head().target.find("/data") != std::string::npos) {
      held.push_back(std::move(exchange));
      return;
    }
    exchange->respond(200, "", "etag\n\"e\"\n", Blob());
  });
  std::vector<Acceptor::Sink> sinks;
  sinks.push_back([&](int fd) { server.adopt(fd); });
  auto acceptor = *Acceptor::listen(real.io(), "127.0.0.1", 0, std::move(sinks));
  variables = {{"AWS_ACCESS_KEY_ID", "test"},
               {"AWS_SECRET_ACCESS_KEY", "secret"},
               {"AWS_ENDPOINT_URL_S3", "http://127.0.0.1:" + std::to_string(acceptor->port())}};
  connections_max = 3;
  auto data = open("s3://bucket");
  auto lease = open("s3://bucket");
  ASSERT_TRUE(data && lease);
  Cancellation end;
  int ended = 0;
  auto watch = [&](Task<Result<Version>> task) -> Task<void> {
    Result<Version> result = co_await std::move(task);
    EXPECT_FALSE(result);
    ++ended;
  };
  Deadline until_end = Deadline::never().cancelled_by(end);
  for (int i = 0; i < 10; ++i) {
    real.world().spawn(watch((*data)->put("data/" + std::to_string(i), Blob("x"), until_end)));
  }
  real.run_until([&] { return held.size() == 3; });
  for (int i = 0; i < 5; ++i) {
    Deadline soon = real.world().deadline_in(std::chrono::seconds(20));
    SwapResult renewed =
        real.run((*lease)->put_if("nodes/a", Blob("x"), Condition::create(), soon));
    EXPECT_EQ(renewed.outcome, SwapOutcome::kApplied) << renewed.error.message;
  }
  EXPECT_EQ(held.size(), 3u);
  end.cancel();
  real.run_until([&] { return ended == 10; });
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
