#include "store/aws/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/aws/aws_testing.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::FakeHost;
using testing::VirtualWorld;

std::string iso8601(WallMs at) {
  std::time_t seconds = static_cast<std::time_t>(at.value / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// A credential server of a container: numbered keys that live for `life`, after `delay`.
class KeyServer final : public HttpTransport {
 public:
  explicit KeyServer(World& world) : world_(world) {}
  int fetches = 0;
  Duration life = 1h;
  Duration delay = 10ms;
  int status = 200;
  bool same_keys = false;
  std::optional<WallMs> same_expiry;

  Task<Result<HttpReply>> perform(HttpCall call) override {
    HttpReply reply;
    const int number = ++fetches;
    reply.status = status;
    WallMs expires{world_.wall_now().value + life / 1ms};
    if (same_expiry) expires = *same_expiry;
    reply.body = R"({"AccessKeyId":"A)" + std::to_string(same_keys ? 1 : number) +
                 R"(","SecretAccessKey":"S","Token":"T","Expiration":")" + iso8601(expires) + "\"}";
    bool whole = co_await sleep_within(world_, delay, call.deadline);
    if (!whole) co_return fail(call.deadline.error("the key server"));
    co_return reply;
  }

 private:
  World& world_;
};

struct AwsChainTest : ::testing::Test {
  VirtualWorld world;
  std::shared_ptr<KeyServer> server = std::make_shared<KeyServer>(world);
  std::shared_ptr<FakeHost> host = std::make_shared<FakeHost>();
  std::shared_ptr<CredentialSource> chain;

  void SetUp() override {
    host->variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/keys";
    chain = aws_credentials(world, server, host);
  }
  Result<S3Credentials> get() { return world.run(chain->get(world.deadline_in(60s))); }
  std::string key() {
    auto keys = get();
    return keys ? keys->access_key : "<" + keys.error().message + ">";
  }
  void wait(Duration d) {
    struct Flag {
      bool done = false;
    };
    auto flag = std::make_shared<Flag>();
    world.call_at(world.now() + d, [flag] { flag->done = true; });
    while (!flag->done) ASSERT_TRUE(world.step());
  }
};

TEST_F(AwsChainTest, many_requests_are_one_fetch) {
  std::vector<Task<Result<S3Credentials>>> tasks;
  for (int i = 0; i < 50; ++i) tasks.push_back(chain->get(world.deadline_in(60s)));
  for (auto& keys : world.run(join_all(world, std::move(tasks)))) {
    ASSERT_TRUE(keys);
    EXPECT_EQ(keys->access_key, "A1");
  }
  EXPECT_EQ(server->fetches, 1);
}

TEST_F(AwsChainTest, keys_are_fetched_anew_before_they_expire_and_nobody_waits) {
  EXPECT_EQ(key(), "A1");
  wait(44min);  // of 60; the last quarter is the window, less up to a quarter of it
  EXPECT_EQ(key(), "A1");
  EXPECT_EQ(server->fetches, 1);
  wait(5min);
  server->delay = 3s;
  MonoTime before = world.now();
  EXPECT_EQ(key(), "A1") << "the old keys, at once";
  EXPECT_EQ(world.now(), before);
  EXPECT_EQ(server->fetches, 2);
  EXPECT_EQ(key(), "A1");
  wait(4s);
  EXPECT_EQ(key(), "A2");
  EXPECT_EQ(server->fetches, 2);
}

TEST_F(AwsChainTest, the_old_keys_are_kept_until_they_expire) {
  EXPECT_EQ(key(), "A1");
  server->status = 500;
  wait(50min);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(key(), "A1");
    wait(1min);
  }
  EXPECT_EQ(key(), "A1");
  // Three attempts each, with pauses of up to a minute between.
  EXPECT_LE(server->fetches, 1 + 3 * 20);
  wait(2min);
  EXPECT_THAT(key(), HasSubstr("500"));
  server->status = 200;
  wait(1min);
  EXPECT_THAT(key(), HasSubstr("A"));
  EXPECT_THAT(key(), Not(HasSubstr("<")));
}

TEST_F(AwsChainTest, a_server_that_goes_on_giving_the_old_keys_is_not_flooded) {
  server->same_expiry = WallMs{world.wall_now().value + 3'600'000};
  server->same_keys = true;
  EXPECT_EQ(key(), "A1");
  wait(50min);
  for (int i = 0; i < 540; ++i) {
    EXPECT_EQ(key(), "A1");
    wait(1s);
  }
  EXPECT_LE(server->fetches, 12);
  EXPECT_GE(server->fetches, 2);
}

TEST_F(AwsChainTest, keys_that_live_shorter_than_the_pause_between_fetches_leave_no_gap) {
  server->life = 20s;
  for (int i = 0; i < 120; ++i) {
    EXPECT_THAT(key(), Not(HasSubstr("<"))) << i << " s";
    wait(1s);
  }
  EXPECT_LE(server->fetches, 12);
}

TEST_F(AwsChainTest, failures_are_remembered_for_a_moment) {
  server->status = 403;
  for (int i = 0; i < 100; ++i) EXPECT_THAT(key(), HasSubstr("container"));
  EXPECT_EQ(server->fetches, 1);
  wait(2s);
  server->status = 200;
  EXPECT_EQ(key(), "A2");
}

TEST_F(AwsChainTest, keys_that_the_store_refuses_are_fetched_anew_but_not_all_the_time) {
  EXPECT_EQ(key(), "A1");
  chain->invalidate();
  EXPECT_EQ(key(), "A1") << "they were fetched a moment ago";
  wait(6s);
  EXPECT_EQ(key(), "A2");
  for (int i = 0; i < 100; ++i) {
    chain->invalidate();
    get();
  }
  EXPECT_EQ(server->fetches, 2);
}

TEST_F(AwsChainTest, the_chain_stays_with_the_source_that_had_keys) {
  EXPECT_EQ(key(), "A1");
  host->variables["AWS_ACCESS_KEY_ID"] = "SOMEBODY";
  host->variables["AWS_SECRET_ACCESS_KEY"] = "ELSE";
  wait(2h);
  EXPECT_EQ(key(), "A2");
}

TEST_F(AwsChainTest, a_configured_source_that_fails_hides_no_cause) {
  server->status = 404;
  host->variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1";
  EXPECT_THAT(key(), ::testing::AllOf(HasSubstr("credentials from the container"),
                                      HasSubstr("skipped were: environment"), HasSubstr("404")));
  EXPECT_EQ(server->fetches, 1) << "the instance was not asked";
}

TEST_F(AwsChainTest, waiting_ends_with_the_deadline_and_the_cancellation) {
  server->delay = 20s;
  auto late = world.run(chain->get(world.deadline_in(1s)));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kDeadline);
  Cancellation cancellation;
  cancellation.cancel();
  auto gone = world.run(chain->get(Deadline::never().cancelled_by(cancellation)));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kCancelled);
  chain.reset();  // the fetch goes on and ends by itself
  world.run_to_end();
}

TEST_F(AwsChainTest, keys_that_have_expired_already_are_no_keys) {
  server->life = -1s;
  EXPECT_THAT(key(), HasSubstr("expired already"));
}

TEST_F(AwsChainTest, fixed_keys_are_asked_for_once) {
  host->variables = {{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "S"}};
  EXPECT_EQ(key(), "A");
  host->variables["AWS_ACCESS_KEY_ID"] = "B";
  wait(100h);
  EXPECT_EQ(key(), "A");
  chain->invalidate();
  EXPECT_EQ(key(), "B");
}

}  // namespace
}  // namespace celld
