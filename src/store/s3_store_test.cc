#include "store/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/scripted_transport_testing.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using testing::ScriptedTransport;
using testing::VirtualWorld;

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

TEST_F(S3StoreTest, virtual_hosts_and_paths_can_be_chosen) {
  options.addressing = Addressing::kVirtualHost;
  remake();
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "http://bucket.store.test:9000/k");
  options.endpoint = "";
  options.addressing = Addressing::kPath;
  remake();
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://s3.us-east-1.amazonaws.com/bucket/k");
}

TEST_F(S3StoreTest, the_quirks_of_known_hosts_are_known) {
  auto ask = [&](std::string endpoint) {
    options.endpoint = std::move(endpoint);
    options.dialect = nullptr;
    remake();
    reply(204);
    EXPECT_TRUE(world.run(store->remove("k", Deadline::never())));
  };
  ask("https://fly.storage.tigris.dev");
  EXPECT_THAT(sent(), ::testing::Contains(Pair("x-tigris-consistent", "true")));
  EXPECT_THAT(sent().back().second, HasSubstr("/auto/s3/"));
  EXPECT_THAT(sent().back().second, HasSubstr("x-tigris-consistent")) << "signed";
  ask("https://account.r2.cloudflarestorage.com:8443");
  EXPECT_THAT(sent().back().second, HasSubstr("/auto/s3/"));
  EXPECT_THAT(sent(), ::testing::Not(::testing::Contains(Pair("x-tigris-consistent", "true"))));
  ask("https://oss-eu-central-1.aliyuncs.com");
  EXPECT_EQ(url(), "https://bucket.oss-eu-central-1.aliyuncs.com/k");
  ask("https://evil-r2.cloudflarestorage.com.example");
  EXPECT_THAT(sent().back().second, HasSubstr("/us-east-1/s3/"));
  options.endpoint = "https://fsn1.your-objectstorage.com";
  remake();
  reply(412);
  EXPECT_EQ(swap("e2").outcome, SwapOutcome::kRejected);
  EXPECT_THAT(sent(), ::testing::Contains(Pair("if-match", "e2")));
}

// What Amazon answers when a bucket is elsewhere.
TEST_F(S3StoreTest, the_region_is_learned_from_a_redirect) {
  options.endpoint = "";
  remake();
  reply(301, {{"x-amz-bucket-region", "eu-central-1"}},
        "<Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must "
        "be addressed using the specified endpoint.</Message><Endpoint>bucket.s3.eu-central-1."
        "amazonaws.com</Endpoint><Bucket>bucket</Bucket></Error>");
  reply(200, {{"etag", "\"e\""}}, "x");
  EXPECT_TRUE(world.run(store->get("k", Deadline::never())));
  EXPECT_EQ(url(), "https://bucket.s3.eu-central-1.amazonaws.com/k");
  EXPECT_THAT(sent().back().second, HasSubstr("/eu-central-1/s3/"));
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://bucket.s3.eu-central-1.amazonaws.com/k");
  EXPECT_EQ(dialect->region, "eu-central-1");
  // Another client of the bucket knows it too.
  remake();
  reply(204);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://bucket.s3.eu-central-1.amazonaws.com/k");
}

TEST_F(S3StoreTest, the_region_is_learned_from_a_refused_signature) {
  reply(400, {}, "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is "
                 "wrong; expecting 'eu-west-3'</Message><Region>eu-west-3</Region></Error>");
  reply(200, {{"etag", "\"e\""}}, "x");
  EXPECT_TRUE(world.run(store->get("k", Deadline::never())));
  EXPECT_EQ(url(), "http://store.test:9000/bucket/k");
  EXPECT_THAT(sent().back().second, HasSubstr("/eu-west-3/s3/"));
}

// The first two calls are answered when both have come; by what they were signed for.
struct RegionTransport final : HttpTransport {
  RegionTransport(World& world, std::string region) : both(world), right(std::move(region)) {}
  Signal both;
  const std::string right;
  std::vector<HttpCall> calls;

  Task<Result<HttpReply>> perform(HttpCall call) override {
    const bool ok = call.headers.back().second.contains("/" + right + "/s3/");
    calls.push_back(std::move(call));
    both.notify_all();
    while (calls.size() < 2) co_await both.wait();
    if (ok) co_return HttpReply{200, {{"etag", "\"e\""}}, "x"};
    co_return HttpReply{301, {{"x-amz-bucket-region", right}}, ""};
  }
};

TEST_F(S3StoreTest, two_requests_that_went_to_the_wrong_region_both_go_to_the_right_one) {
  options.endpoint = "";
  auto wire = std::make_shared<RegionTransport>(world, "eu-central-1");
  auto made = S3Store::make(world, wire, options);
  ASSERT_TRUE(made);
  std::vector<Task<Result<StoredObject>>> gets;
  for (const char* key : {"a", "b"}) gets.push_back((*made)->get(key, Deadline::never()));
  for (auto& got : world.run(join_all(world, std::move(gets)))) {
    EXPECT_TRUE(got) << got.error().message;
  }
  EXPECT_EQ(wire->calls.size(), 4u);
}

TEST_F(S3StoreTest, a_region_learned_while_a_body_is_hashed_counts_for_host_and_signature_alike) {
  options.endpoint = "";
  remake();
  const std::string body(1 << 20, 'b');
  std::vector<Task<Result<Version>>> both;
  both.push_back(store->put("large", Blob(body), Deadline::never()));  // is hashed aside, which takes a moment
  both.push_back(store->put("small", Blob("s"), Deadline::never()));
  reply(301, {{"x-amz-bucket-region", "eu-central-1"}});
  for (int i = 0; i < 2; ++i) reply(200, {{"etag", "\"e\""}});
  for (auto& put : world.run(join_all(world, std::move(both)))) EXPECT_TRUE(put) << put.error().message;
  ASSERT_EQ(transport->calls.size(), 3u);
  EXPECT_EQ(url(), "https://bucket.s3.eu-central-1.amazonaws.com/large");
  S3Unsigned large;
  large.method = "PUT";
  large.host = "bucket.s3.eu-central-1.amazonaws.com";
  large.path = "/large";
  large.body = body;
  S3Signer signer("eu-central-1");
  const S3Credentials keys{"key", "secret", "token-0"};
  EXPECT_EQ(sent().back(), signer.sign(keys, large, world.wall_now()).headers.back());
}

TEST_F(S3StoreTest, a_region_is_learned_once_for_each_request) {
  for (const char* region : {"eu-west-1", "eu-west-2"}) {
    reply(301, {{"x-amz-bucket-region", region}}, error_xml("PermanentRedirect"));
  }
  auto object = world.run(store->get("k", Deadline::never()));
  ASSERT_FALSE(object);
  EXPECT_THAT(object.error().message, HasSubstr("eu-west-2"));
  reply(301, {{"x-amz-bucket-region", "evil.example/"}}, error_xml("PermanentRedirect"));
  EXPECT_FALSE(world.run(store->get("k", Deadline::never())));
  reply(301, {}, error_xml("PermanentRedirect"));
  EXPECT_FALSE(world.run(store->get("k", Deadline::never())));
  EXPECT_EQ(transport->calls.size(), 4u);
}

TEST_F(S3StoreTest, a_conditional_write_is_not_sent_again_to_the_right_region) {
  reply(301, {{"x-amz-bucket-region", "eu-west-1"}}, error_xml("PermanentRedirect"));
  SwapResult first = swap("e");
  EXPECT_EQ(first.outcome, SwapOutcome::kAmbiguous);
  EXPECT_EQ(first.error.code, ErrorCode::kUnavailable) << "worth another try";
  EXPECT_EQ(transport->calls.size(), 1u);
  reply(200, {{"etag", "\"e2\""}});
  EXPECT_EQ(swap("e").outcome, SwapOutcome::kApplied);
  EXPECT_THAT(sent().back().second, HasSubstr("/eu-west-1/s3/"));
}

struct S3UploadTest : S3StoreTest {
  std::unique_ptr<Upload> begin() {
    reply(200, {}, "<InitiateMultipartUploadResult><UploadId>the+id</UploadId>"
                   "</InitiateMultipartUploadResult>");
    auto upload = world.run(store->begin_upload("a b", kPartBytesMin, Deadline::never()));
    EXPECT_TRUE(upload);
    return std::move(*upload);
  }
  Result<void> put_part(Upload& upload, uint32_t number) {
    return world.run(upload.put_part(number, Blob("x"), Deadline::never()));
  }
};

TEST_F(S3UploadTest, says_what_amazon_wants) {
  auto upload = begin();
  EXPECT_EQ(url(), "http://store.test:9000/bucket/a%20b?uploads=");
  reply(200, {{"etag", "\"e1\""}});
  ASSERT_TRUE(put_part(*upload, 1));
  EXPECT_EQ(url(), "http://store.test:9000/bucket/a%20b?partNumber=1&uploadId=the%2Bid");
  reply(200, {}, "<CompleteMultipartUploadResult><ETag>&quot;whole-1&quot;</ETag>"
                 "</CompleteMultipartUploadResult>");
  auto version = world.run(upload->finish(Deadline::never()));
  ASSERT_TRUE(version) << version.error().message;
  EXPECT_EQ(version->token, "whole-1");
  EXPECT_THAT(std::string(transport->calls.back().body.view()),
              HasSubstr("<Part><PartNumber>1</PartNumber><ETag>&quot;e1&quot;</ETag></Part>"));
}

TEST_F(S3UploadTest, a_200_with_an_error_inside_is_a_failure) {
  auto upload = begin();
  reply(200, {{"etag", "\"e1\""}});
  ASSERT_TRUE(put_part(*upload, 1));
  reply(200, {}, "\n   <?xml version=\"1.0\"?>" + error_xml("InternalError"));
  auto version = world.run(upload->finish(Deadline::never()));
  ASSERT_FALSE(version);
  EXPECT_EQ(version.error().code, ErrorCode::kUnavailable) << "worth another try";
}

// Ceph RGW 16 leaves the ETag empty.
TEST_F(S3UploadTest, a_finish_that_names_no_version_is_followed_by_a_look) {
  auto upload = begin();
  reply(200, {{"etag", "\"e1\""}});
  ASSERT_TRUE(put_part(*upload, 1));
  reply(200, {}, "<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>");
  reply(200, {{"etag", "\"whole-1\""}, {"content-length", "1"}});
  auto version = world.run(upload->finish(Deadline::never()));
  ASSERT_TRUE(version) << version.error().message;
  EXPECT_EQ(version->token, "whole-1");
  reply(200, {}, "<Whatever/>");
  EXPECT_FALSE(world.run(upload->finish(Deadline::never())));
}

// The reply to the first finish was lost; the store has forgotten the upload.
TEST_F(S3UploadTest, a_finish_that_is_repeated_finds_its_object) {
  auto upload = begin();
  reply(200, {{"etag", "\"e1\""}});
  ASSERT_TRUE(put_part(*upload, 1));
  reply(404, {}, error_xml("NoSuchUpload"));
  reply(200, {{"etag", "\"whole-1\""}, {"content-length", "1"}});
  auto version = world.run(upload->finish(Deadline::never()));
  ASSERT_TRUE(version) << version.error().message;
  EXPECT_EQ(version->token, "whole-1");
  reply(404, {}, error_xml("NoSuchUpload"));
  reply(200, {{"etag", "\"other\""}, {"content-length", "77"}});
  EXPECT_FALSE(world.run(upload->finish(Deadline::never()))) << "an object of another size";
}

// A report: one part of a large upload got 403, and the process neither failed nor recovered.
TEST_F(S3UploadTest, a_part_that_is_refused_is_an_error_that_names_it) {
  auto upload = begin();
  reply(403, {}, error_xml("SignatureDoesNotMatch"));
  auto part = put_part(*upload, 7);
  ASSERT_FALSE(part);
  EXPECT_THAT(part.error().message, ::testing::AllOf(HasSubstr("upload 'a b': part 7"),
                                                     HasSubstr("SignatureDoesNotMatch")));
  reply(404, {}, error_xml("NoSuchUpload"));
  EXPECT_TRUE(world.run(upload->abort(Deadline::never())));
}

TEST_F(S3StoreTest, many_keys_are_deleted_with_one_request) {
  reply(200, {}, "<DeleteResult><Deleted><Key>a&amp;b</Key></Deleted><Error><Key>c</Key><Code>"
                 "AccessDenied</Code><Message>no</Message></Error><Error><Key>d</Key><Code>SlowDown"
                 "</Code></Error></DeleteResult>");
  reply(204);
  auto outcomes = world.run(store->remove_many({"a&b", "c", "d", "e", "\x01"}, Deadline::never()));
  ASSERT_EQ(outcomes.size(), 5u);
  EXPECT_TRUE(outcomes[0]);
  EXPECT_EQ(outcomes[1].error().code, ErrorCode::kForbidden);
  EXPECT_THAT(outcomes[1].error().message, HasSubstr("delete 'c'"));
  EXPECT_EQ(outcomes[2].error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(outcomes[3].error().code, ErrorCode::kUnavailable) << "the reply does not speak of it";
  EXPECT_TRUE(outcomes[4]) << "what XML cannot say is deleted alone";
  const HttpCall& call = transport->calls.front();
  EXPECT_EQ(call.method, "POST");
  EXPECT_EQ(call.url, "http://store.test:9000/bucket?delete=");
  EXPECT_THAT(call.headers, ::testing::Contains(Pair("content-md5", ::testing::_)));
  EXPECT_EQ(transport->calls.back().url, "http://store.test:9000/bucket/%01");
}

TEST_F(S3StoreTest, a_store_that_knows_no_batches_is_asked_for_one_once) {
  for (int round = 0; round < 2; ++round) {
    if (round == 0) reply(501, {}, error_xml("NotImplemented"));
    const int deletes = round == 0 ? 4 : 3;  // one to find out
    for (int i = 0; i < deletes; ++i) reply(204);
    auto outcomes = world.run(store->remove_many({"a", "b", "c"}, Deadline::never()));
    for (const auto& outcome : outcomes) EXPECT_TRUE(outcome);
  }
  EXPECT_FALSE(dialect->batch_delete);
  EXPECT_TRUE(transport->replies.empty());
}

TEST_F(S3StoreTest, a_store_that_names_no_deleted_key_is_asked_for_one_each) {
  reply(200, {}, "<DeleteResult/>");
  for (int i = 0; i < 4; ++i) reply(204);  // one to find out
  auto outcomes = world.run(store->remove_many({"a", "b", "c"}, Deadline::never()));
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome);
  EXPECT_FALSE(dialect->batch_delete);
  EXPECT_TRUE(transport->replies.empty());
}

TEST_F(S3StoreTest, a_batch_that_is_refused_for_other_reasons_is_refused) {
  reply(403, {}, error_xml("AccessDenied"));
  reply(403, {}, error_xml("AccessDenied"));
  auto outcomes = world.run(store->remove_many({"a", "b"}, Deadline::never()));
  EXPECT_EQ(outcomes[0].error().code, ErrorCode::kForbidden);
  EXPECT_EQ(outcomes[1].error().code, ErrorCode::kForbidden);
  EXPECT_TRUE(dialect->batch_delete);
}

}  // namespace
}  // namespace celld
