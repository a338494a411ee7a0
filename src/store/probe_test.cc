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

// A recovery that does not see the last slot of a dead node's journal forgets what was
// acknowledged.
TEST_F(ProbeOfServer, lists_that_are_behind_stop_the_start) {
  EXPECT_THAT(violation({"--stale-list"}),
              AllOf(HasSubstr("'list-after-write'"), HasSubstr("lost writes")));
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

// What diagnose says of each step: "create=ok reject-create=broken ...", without those that were
// kept.
std::string diagnosis(const std::vector<ProbeLine>& lines) {
  std::string out;
  for (const ProbeLine& line : lines) {
    if (line.outcome == ProbeOutcome::kKept) continue;
    const char* what = line.outcome == ProbeOutcome::kBroken   ? "broken"
                       : line.outcome == ProbeOutcome::kFailed ? "failed"
                                                               : "skipped";
    out += (out.empty() ? "" : " ") + std::string(line.step) + "=" + what;
  }
  return out;
}

TEST(Diagnose, a_good_store_keeps_every_promise_and_nothing_stays) {
  VirtualWorld world;
  MemoryStore store(world);
  std::vector<ProbeLine> lines;
  DiagnoseOptions options;
  options.on_line = [&](const ProbeLine& line) { lines.push_back(line); };
  EXPECT_TRUE(world.run(diagnose_store(world, store, std::move(options))));
  EXPECT_EQ(diagnosis(lines), "");
  EXPECT_EQ(lines.size(), 15u);
  EXPECT_TRUE(store.objects().empty());
}

TEST(Diagnose, what_only_reads_writes_nothing) {
  VirtualWorld world;
  auto memory = std::make_shared<MemoryStore>(world);
  memory->set("some/key", Blob("body"));
  FaultStore store(world, memory, [&](const FaultCall& call) {
    EXPECT_TRUE(call.op == StoreOp::kGet || call.op == StoreOp::kGetRange ||
                call.op == StoreOp::kList);
    return Fault{};
  });
  int kept = 0;
  DiagnoseOptions options;
  options.read_only = true;
  options.on_line = [&](const ProbeLine& line) { kept += line.outcome == ProbeOutcome::kKept; };
  EXPECT_TRUE(world.run(diagnose_store(world, store, std::move(options))));
  EXPECT_EQ(kept, 2);
}

// Lost replies leave outcomes open: that is no violation, and one winner is still found.
TEST(Diagnose, racers_whose_replies_are_lost_are_no_violation) {
  VirtualWorld world;
  auto memory = std::make_shared<MemoryStore>(world);
  FaultStore store(world, memory, [&](const FaultCall& call) {
    const bool racing = call.key.ends_with("/create") || call.key.ends_with("/swap");
    return Fault{racing && call.op == StoreOp::kPutIf && call.number % 2 == 0
                     ? Fault::Kind::kLoseAfter
                     : Fault::Kind::kNone};
  });
  std::vector<ProbeLine> lines;
  DiagnoseOptions options;
  options.on_line = [&](const ProbeLine& line) { lines.push_back(line); };
  (void)world.run(diagnose_store(world, store, std::move(options)));
  EXPECT_THAT(diagnosis(lines), ::testing::Not(HasSubstr("broken")));
}

TEST(Diagnose, each_violation_is_found_by_its_step) {
  struct Case {
    std::vector<std::string> server;
    const char* expected;
  };
  for (const Case& c :
       {Case{{}, ""},
        Case{{"--ignore-if-none-match"}, "reject-create=broken racing-creates=broken"},
        Case{{"--ignore-if-match"},
             "reject-stale=broken read-after-write=skipped ranged-read=skipped "
             "list-after-write=skipped racing-swaps=broken"},
        Case{{"--stale-list"},
             "list-after-write=broken list-order=broken list-after-delete=broken"},
        Case{{"--not-implemented"},
             "create=broken reject-create=skipped update=skipped reject-stale=skipped "
             "read-after-write=skipped ranged-read=skipped list-after-write=skipped "
             "racing-creates=broken racing-swaps=broken"},
        Case{{"--ignore-range"}, "ranged-read=broken large-object=failed read=broken"}}) {
    S3Server server(c.server);
    RealWorld real;
    S3Options s3 = server.options("bucket");
    s3.dialect = std::make_shared<StoreDialect>();
    auto store =
        S3Store::make(real.world(), std::make_shared<CurlTransport>(real.io(), real.world()), s3);
    ASSERT_TRUE(store);
    std::vector<ProbeLine> lines;
    DiagnoseOptions options;
    options.dialect = s3.dialect;
    options.on_line = [&](const ProbeLine& line) { lines.push_back(line); };
    EXPECT_EQ(real.run(diagnose_store(real.world(), **store, std::move(options))),
              *c.expected == 0);
    EXPECT_EQ(diagnosis(lines), c.expected);
  }
}

}  // namespace
}  // namespace celld
