#include "store/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using testing::VirtualWorld;

// Answers what the test wrote down and keeps what was sent.
class ScriptedTransport final : public HttpTransport {
 public:
  std::vector<HttpCall> calls;
  std::deque<Result<HttpReply>> replies;

  Task<Result<HttpReply>> perform(HttpCall call) override {
    calls.push_back(std::move(call));
    CHECK(!replies.empty()) << "an unexpected call to " << calls.back().url;
    Result<HttpReply> reply = std::move(replies.front());
    replies.pop_front();
    co_return reply;
  }
};

struct ExpiringCredentials final : CredentialSource {
  int invalidated = 0;
  Task<Result<S3Credentials>> get(Deadline) override {
    co_return S3Credentials{"key", "secret", "token-" + std::to_string(invalidated)};
  }
  void invalidate() override { ++invalidated; }
};

struct S3StoreTest : ::testing::Test {
  VirtualWorld world;
  std::shared_ptr<ScriptedTransport> transport = std::make_shared<ScriptedTransport>();
  std::shared_ptr<ExpiringCredentials> credentials = std::make_shared<ExpiringCredentials>();
  std::shared_ptr<StoreDialect> dialect = std::make_shared<StoreDialect>();
  S3Options options;
  std::unique_ptr<S3Store> store;

  void SetUp() override {
    options.bucket = "bucket";
    options.endpoint = "http://store.test:9000/";
    options.credentials = credentials;
    options.dialect = dialect;
    remake();
  }
  void remake() {
    auto made = S3Store::make(world, transport, options);
    ASSERT_TRUE(made) << made.error().message;
    store = std::move(*made);
  }
  void reply(int status, HeaderList headers = {}, std::string body = {}) {
    transport->replies.push_back(HttpReply{status, std::move(headers), std::move(body)});
  }
  std::string url() { return transport->calls.back().url; }
  const HeaderList& sent() { return transport->calls.back().headers; }
  SwapResult swap(const std::string& token) {
    return world.run(
        store->put_if("k", Blob("x"), Condition::swap(Version{token}), Deadline::never()));
  }
  static std::string error_xml(const std::string& code) {
    return "<Error><Code>" + code + "</Code><Message>m</Message></Error>";
  }
};

TEST_F(S3StoreTest, an_endpoint_means_path_style) {
  reply(200, {{"etag", "\"e\""}}, "body");
  ASSERT_TRUE(world.run(store->get("a b/c", Deadline::never())));
  EXPECT_EQ(url(), "http://store.test:9000/bucket/a%20b/c");
}

TEST_F(S3StoreTest, amazon_means_a_host_for_the_bucket) {
  options.endpoint = "";
  options.region = "eu-west-1";
  remake();
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://bucket.s3.eu-west-1.amazonaws.com/k");
  options.bucket = "dotted.bucket";
  remake();
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://s3.eu-west-1.amazonaws.com/dotted.bucket/k");
}

TEST_F(S3StoreTest, the_own_port_of_a_scheme_is_not_sent) {
  options.endpoint = "https://store.test:443";
  remake();
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://store.test/bucket/k");
}

TEST_F(S3StoreTest, bad_options_are_named) {
  auto error = [&](S3Options o) { return S3Store::make(world, transport, o).error().message; };
  S3Options bad = options;
  bad.bucket = "a/b";
  EXPECT_THAT(error(bad), HasSubstr("a/b"));
  bad = options;
  bad.endpoint = "store.test";
  EXPECT_THAT(error(bad), HasSubstr("store.test"));
  bad.endpoint = "http://user@store.test";
  EXPECT_THAT(error(bad), HasSubstr("endpoint"));
  bad.endpoint = "http://store.test/path";
  EXPECT_THAT(error(bad), HasSubstr("endpoint"));
  bad = options;
  bad.region = "us east";
  EXPECT_THAT(error(bad), HasSubstr("us east"));
  bad = options;
  bad.credentials = nullptr;
  EXPECT_THAT(error(bad), HasSubstr("credentials"));
}

TEST_F(S3StoreTest, conditions_are_sent_in_the_dialect_of_the_store) {
  reply(200, {{"etag", "\"e1\""}});
  SwapResult created =
      world.run(store->put_if("k", Blob("x"), Condition::create(), Deadline::never()));
  EXPECT_EQ(created.outcome, SwapOutcome::kApplied);
  EXPECT_THAT(sent(), ::testing::Contains(Pair("if-none-match", "*")));
  reply(200, {{"etag", "\"e2\""}});
  EXPECT_EQ(swap("e1").version.token, "e2");
  EXPECT_THAT(sent(), ::testing::Contains(Pair("if-match", "\"e1\"")));
  dialect->etag_quotes = EtagQuotes::kBare;
  reply(412);
  EXPECT_EQ(swap("e2").outcome, SwapOutcome::kRejected);
  EXPECT_THAT(sent(), ::testing::Contains(Pair("if-match", "e2")));
}

TEST_F(S3StoreTest, a_conditional_write_is_sent_once_whatever_happens) {
  transport->replies.push_back(fail(Error::unavailable("connection reset")));
  SwapResult reset = swap("e");
  EXPECT_EQ(reset.outcome, SwapOutcome::kAmbiguous);
  EXPECT_THAT(reset.error.message, ::testing::AllOf(HasSubstr("s3://bucket"), HasSubstr("'k'"),
                                                    HasSubstr("connection reset")));
  reply(500, {}, error_xml("InternalError"));
  SwapResult loser = swap("e");
  EXPECT_EQ(loser.outcome, SwapOutcome::kAmbiguous);
  EXPECT_THAT(loser.error.message, HasSubstr("InternalError"));
  EXPECT_EQ(transport->calls.size(), 2u);
}

TEST_F(S3StoreTest, a_missing_bucket_is_no_missing_object) {
  reply(404, {}, error_xml("NoSuchBucket"));
  auto object = world.run(store->get("k", Deadline::never()));
  ASSERT_FALSE(object);
  EXPECT_EQ(object.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(object.error().message, HasSubstr("s3://bucket: get 'k': 404 NoSuchBucket"));
  reply(404, {}, "<html>proxy</html>");
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().code, ErrorCode::kUnavailable);
  reply(404, {}, error_xml("NoSuchKey"));
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().code, ErrorCode::kNotFound);
}

TEST_F(S3StoreTest, expired_keys_are_fetched_anew) {
  reply(400, {}, error_xml("ExpiredToken"));
  EXPECT_FALSE(world.run(store->get("k", Deadline::never())));
  EXPECT_EQ(credentials->invalidated, 1);
  reply(200, {{"etag", "\"e\""}}, "x");
  EXPECT_TRUE(world.run(store->get("k", Deadline::never())));
  EXPECT_THAT(sent(), ::testing::Contains(Pair("x-amz-security-token", "token-1")));
}

TEST_F(S3StoreTest, an_ignored_range_is_found_out) {
  reply(200, {{"etag", "\"e\""}}, "0123456789");
  auto part = world.run(store->get_range("k", ByteRange{2, 3}, Deadline::never()));
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().code, ErrorCode::kUnsupported);
  reply(206, {{"etag", "\"e\""}, {"content-range", "bytes 2-3/10"}}, "23");
  EXPECT_FALSE(world.run(store->get_range("k", ByteRange{2, 3}, Deadline::never())));
  reply(206, {{"etag", "\"e\""}, {"content-range", "bytes 2-4/10"}}, "234");
  EXPECT_TRUE(world.run(store->get_range("k", ByteRange{2, 3}, Deadline::never())));
}

TEST_F(S3StoreTest, a_reply_without_etag_is_not_taken_for_success) {
  reply(200, {}, "x");
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().code, ErrorCode::kUnsupported);
  reply(200);
  EXPECT_EQ(swap("e").outcome, SwapOutcome::kAmbiguous);
}

TEST_F(S3StoreTest, delete_of_nothing_succeeds_but_not_in_a_missing_bucket) {
  reply(404, {}, error_xml("NoSuchKey"));
  EXPECT_TRUE(world.run(store->remove("k", Deadline::never())));
  reply(404, {}, error_xml("NoSuchBucket"));
  EXPECT_FALSE(world.run(store->remove("k", Deadline::never())));
}

TEST_F(S3StoreTest, small_bodies_are_sent_without_big_buffers) {
  reply(200, {{"etag", "\"e\""}});
  ASSERT_TRUE(world.run(store->put("k", Blob("12345"), Deadline::never())));
  EXPECT_EQ(transport->calls.back().body.view(), "12345");
  EXPECT_LE(transport->calls.back().reply_bytes_max, 64u << 10);
}

TEST(S3CredentialsFromEnvironment, names_what_is_missing) {
  Environment none = [](const std::string&) { return std::optional<std::string>(); };
  EXPECT_THAT(credentials_from(none).error().message, HasSubstr("AWS_ACCESS_KEY_ID"));
  Environment half = [](const std::string& name) {
    return name == "AWS_ACCESS_KEY_ID" ? std::optional<std::string>("a") : std::nullopt;
  };
  EXPECT_THAT(credentials_from(half).error().message, HasSubstr("AWS_SECRET_ACCESS_KEY"));
}

}  // namespace
}  // namespace celld
