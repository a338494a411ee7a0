#include "store/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/curl_transport.h"
#include "store/aws/chain.h"
#include "store/fault_store.h"
#include "store/memory_store.h"
#include "store/s3_server_testing.h"
#include "store/s3_store.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RealWorld;
using testing::S3Server;
using testing::VirtualWorld;

TEST(Probe, a_good_store_passes_and_keeps_nothing) {
  VirtualWorld world;
  MemoryStore store(world);
  EXPECT_TRUE(world.run(probe_store(world, store, {})));
  EXPECT_TRUE(store.objects().empty());
}

// A connection reset during the probe's conditional writes leaves them ambiguous.
TEST(Probe, transport_errors_are_tried_three_times_with_fresh_keys) {
  VirtualWorld world;
  auto memory = std::make_shared<MemoryStore>(world);
  for (uint64_t good_after : {3u, 1000u}) {
    std::vector<std::string> keys;
    FaultStore store(world, memory, [&](const FaultCall& call) {
      if (call.op == StoreOp::kPutIf) keys.push_back(call.key);
      return Fault{call.number < good_after ? Fault::Kind::kLoseAfter : Fault::Kind::kNone};
    });
    auto result = world.run(probe_store(world, store, {}));
    if (good_after == 3) {
      EXPECT_TRUE(result);
    } else {
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
      EXPECT_THAT(result.error().message, AllOf(HasSubstr("memory://"), HasSubstr("3 attempts")));
      EXPECT_EQ(keys.size(), 3u);
      EXPECT_NE(keys[0], keys[1]);
    }
  }
}

TEST(Probe, a_store_that_never_answers_ends_in_time) {
  VirtualWorld world;
  auto memory = std::make_shared<MemoryStore>(world);
  FaultStore store(world, memory, [](const FaultCall&) { return Fault{Fault::Kind::kHang}; });
  MonoTime start = world.now();
  EXPECT_FALSE(world.run(probe_store(world, store, {})));
  EXPECT_LT(world.now() - start, std::chrono::seconds(40));
}

struct ProbeOfServer : ::testing::Test {
  RealWorld real;
  std::shared_ptr<StoreDialect> dialect = std::make_shared<StoreDialect>();

  Result<void> probe_s3(S3Options options) {
    options.dialect = dialect;
    auto made = S3Store::make(real.world(),
                              std::make_shared<CurlTransport>(real.io(), real.world()), options);
    CHECK(made) << made.error().message;
    ProbeOptions probe_options;
    probe_options.dialect = dialect;
    probe_options.backoff_first = std::chrono::milliseconds(1);
    return real.run(probe_store(real.world(), **made, probe_options));
  }
  Result<void> probe(std::vector<std::string> server_options) {
    S3Server server(std::move(server_options));
    return probe_s3(server.options("bucket"));
  }
  std::string violation(std::vector<std::string> server_options) {
    auto result = probe(std::move(server_options));
    if (result) return "";
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr("s3://bucket"));
    return result.error().message;
  }
};

TEST_F(ProbeOfServer, good_stores_pass) {
  auto result = probe({"--etags=unique"});
  EXPECT_TRUE(result) << result.error().message;
}

// See conformance_test.cc for the variables.
TEST_F(ProbeOfServer, an_external_store_passes) {
  Environment environment = process_environment();
  auto endpoint = environment("CELLD_TEST_S3_ENDPOINT");
  if (!endpoint) GTEST_SKIP() << "CELLD_TEST_S3_ENDPOINT is not set";
  S3Options options;
  options.endpoint = *endpoint;
  options.bucket = environment("CELLD_TEST_S3_BUCKET").value_or("celld-test");
  options.region = environment("AWS_REGION").value_or("us-east-1");
  options.credentials =
      aws_credentials(real.world(), std::make_shared<CurlTransport>(real.io(), real.world()),
                      aws_host(real.world(), environment));
  auto result = probe_s3(options);
  EXPECT_TRUE(result) << result.error().message;
  const bool bare = environment("CELLD_TEST_S3_BARE_ETAGS").has_value();
  EXPECT_EQ(dialect->etag_quotes, bare ? EtagQuotes::kBare : EtagQuotes::kQuoted);
}

TEST_F(ProbeOfServer, the_quoting_of_etags_is_found_out) {
  auto bare = probe({"--if-match=bare"});
  EXPECT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(dialect->etag_quotes, EtagQuotes::kBare);
  auto quoted = probe({"--if-match=quoted"});
  EXPECT_TRUE(quoted) << quoted.error().message;
  EXPECT_EQ(dialect->etag_quotes, EtagQuotes::kQuoted);
}

// A store that ignores If-Match silently would let two nodes own one cell.
TEST_F(ProbeOfServer, ignored_conditions_stop_the_start) {
  EXPECT_THAT(violation({"--ignore-conditions"}), HasSubstr("'reject-create'"));
  EXPECT_THAT(violation({"--ignore-if-none-match"}), HasSubstr("'reject-create'"));
  EXPECT_THAT(violation({"--ignore-if-match"}), HasSubstr("'reject-stale'"));
}

// One build of MinIO answered NoSuchKey to a conditional create of an absent object.
TEST_F(ProbeOfServer, no_such_key_on_create_names_the_step) {
  EXPECT_THAT(violation({"--no-such-key-on-create"}),
              AllOf(HasSubstr("'create'"), HasSubstr("NoSuchKey")));
}

TEST_F(ProbeOfServer, a_store_without_conditional_writes_names_the_step) {
  EXPECT_THAT(violation({"--not-implemented"}), AllOf(HasSubstr("'create'"), HasSubstr("501")));
}

TEST_F(ProbeOfServer, ignored_ranges_and_missing_etags_are_violations) {
  EXPECT_THAT(violation({"--ignore-range"}), HasSubstr("'ranged-read'"));
  EXPECT_THAT(violation({"--no-etag"}), HasSubstr("ETag"));
}

TEST_F(ProbeOfServer, refused_keys_and_missing_buckets_fail_at_once) {
  S3Server server({"--bucket=other"});
  auto missing = probe_s3(server.options("bucket"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(missing.error().message, HasSubstr("NoSuchBucket"));
  S3Options options = server.options("other");
  options.credentials = fixed_credentials({"test", "wrong", ""});
  auto refused = probe_s3(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kForbidden);
  EXPECT_THAT(refused.error().message, HasSubstr("SignatureDoesNotMatch"));
}

TEST_F(ProbeOfServer, dropped_replies_are_no_violation) {
  auto never = probe({"--fail-after-effect=1"});
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, ErrorCode::kUnavailable) << never.error().message;
}

TEST_F(ProbeOfServer, nobody_there_is_clear) {
  std::string endpoint;
  {
    S3Server server;
    endpoint = server.endpoint();
  }
  S3Server unused;
  S3Options options = unused.options("bucket");
  options.endpoint = endpoint;
  auto result = probe_s3(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(result.error().message, AllOf(HasSubstr("s3://bucket"), HasSubstr("3 attempts")));
}

}  // namespace
}  // namespace celld
