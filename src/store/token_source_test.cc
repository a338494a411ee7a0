#include "store/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/digest.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::HasSubstr;
using testing::VirtualWorld;

struct SlowSource final : TokenSource {
  explicit SlowSource(World& w) : world(w) {}
  World& world;
  int fetches = 0;
  bool fails = false;
  Duration life = std::chrono::hours(1);
  Task<Result<AccessToken>> fetch(Deadline) override {
    ++fetches;
    const MonoTime asked = world.now();
    co_await sleep_for(world, std::chrono::seconds(1));
    if (fails) co_return fail(Error::unavailable("nobody there"));
    co_return AccessToken{"token-" + std::to_string(fetches), asked + life};
  }
  std::string describe() const override { return "slow source"; }
};

struct TokenCacheTest : ::testing::Test {
  VirtualWorld world;
  std::shared_ptr<SlowSource> source = std::make_shared<SlowSource>(world);
  TokenCache cache{world, source};
  void TearDown() override { world.run_to_end(); }  // what is still under way
  Task<bool> sleep_task(Duration d) {
    co_await sleep_for(world, d);
    co_return true;
  }
  std::string get() {
    auto token = world.run(cache.get(world.deadline_in(std::chrono::seconds(5))));
    return token ? *token : token.error().message;
  }
};

TEST_F(TokenCacheTest, many_who_wait_cost_one_request) {
  std::vector<Task<Result<std::string>>> waiting;
  for (int i = 0; i < 50; ++i) waiting.push_back(cache.get(Deadline::never()));
  for (const auto& token : world.run(join_all(world, std::move(waiting))))
    EXPECT_EQ(token.value(), "token-1");
  EXPECT_EQ(source->fetches, 1);
}

TEST_F(TokenCacheTest, a_token_is_renewed_before_its_end_while_the_old_one_serves) {
  EXPECT_EQ(get(), "token-1");
  world.run(sleep_task(std::chrono::minutes(50)));
  EXPECT_EQ(get(), "token-1");
  EXPECT_EQ(source->fetches, 1);
  world.run(sleep_task(std::chrono::minutes(5)));
  EXPECT_EQ(get(), "token-1");  // at once
  EXPECT_EQ(source->fetches, 2);
  world.run(sleep_task(std::chrono::seconds(2)));
  EXPECT_EQ(get(), "token-2");
}

TEST_F(TokenCacheTest, a_source_that_fails_is_survived_while_the_old_token_lives) {
  EXPECT_EQ(get(), "token-1");
  source->fails = true;
  world.run(sleep_task(std::chrono::minutes(58)));
  EXPECT_EQ(get(), "token-1");
  world.run(sleep_task(std::chrono::minutes(5)));
  EXPECT_EQ(get(), "slow source: nobody there");
  source->fails = false;
  world.run(sleep_task(std::chrono::seconds(2)));
  EXPECT_THAT(get(), HasSubstr("token-"));
}

TEST_F(TokenCacheTest, a_failing_source_is_not_asked_more_than_once_a_second) {
  source->fails = true;
  for (int i = 0; i < 100; ++i) EXPECT_THAT(get(), HasSubstr("nobody there"));
  EXPECT_EQ(source->fetches, 1);
}

TEST_F(TokenCacheTest, tokens_that_have_expired_already_are_an_error) {
  source->life = std::chrono::seconds(2);
  EXPECT_THAT(get(), HasSubstr("expired"));
}

TEST_F(TokenCacheTest, a_wait_ends_at_the_deadline) {
  auto token = world.run(cache.get(world.deadline_in(std::chrono::milliseconds(100))));
  ASSERT_FALSE(token);
  EXPECT_EQ(token.error().code, ErrorCode::kDeadline);
}

TEST_F(TokenCacheTest, a_wait_ends_when_the_caller_cancels) {
  Cancellation cancellation;
  Deadline deadline = Deadline::never().cancelled_by(cancellation);
  world.call_at(world.now() + std::chrono::milliseconds(100), [&] { cancellation.cancel(); });
  auto token = world.run(cache.get(deadline));
  ASSERT_FALSE(token);
  EXPECT_EQ(token.error().code, ErrorCode::kCancelled);
}

TEST_F(TokenCacheTest, a_refused_token_is_replaced_but_not_a_later_one) {
  EXPECT_EQ(get(), "token-1");
  cache.invalidate("token-0");
  EXPECT_EQ(get(), "token-1");
  cache.invalidate("token-1");
  EXPECT_EQ(get(), "token-2");
}

TEST(Digest, base64_has_no_slack) {
  EXPECT_EQ(base64_encode("any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
  EXPECT_EQ(base64_decode("YW55IGNhcm5hbCBwbGVhcw=="), "any carnal pleas");
  EXPECT_EQ(base64_decode(""), "");
  for (const char* bad : {"YQ", "YQ=", "Y===", "YQ==YQ==", " YQ=", "Y-_=", "===="})
    EXPECT_FALSE(base64_decode(bad)) << bad;
  EXPECT_EQ(base64url_encode("\xfb\xff"), "-_8");
  EXPECT_EQ(FormText().add("a b", "c&d").add("e", "").take(), "a%20b=c%26d&e=");
}

}  // namespace
}  // namespace celld
