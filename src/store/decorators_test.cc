#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/fault_store.h"
#include "store/memory_store.h"
#include "store/metered_store.h"
#include "store/retry_store.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::VirtualWorld;

struct Decorators : ::testing::Test {
  VirtualWorld world;
  std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>(world);
  std::shared_ptr<FaultStore> faults;
  std::vector<Fault> script;  // by request; afterwards all is well

  void SetUp() override {
    faults = std::make_shared<FaultStore>(world, memory, [this](const FaultCall& call) {
      return call.number <= script.size() ? script[call.number - 1] : Fault{};
    });
  }
  Duration elapsed(MonoTime since) { return world.now() - since; }
};

TEST_F(Decorators, every_request_takes_the_delay) {
  FaultStore slow(world, memory, 20ms);
  MonoTime start = world.now();
  EXPECT_TRUE(world.run(slow.put("k", Blob("x"), Deadline::never())));
  EXPECT_EQ(elapsed(start), 20ms);
  EXPECT_TRUE(world.run(slow.get("k", Deadline::never())));
  EXPECT_EQ(elapsed(start), 40ms);
}

TEST_F(Decorators, a_lost_reply_has_its_effect_and_a_lost_request_has_none) {
  script = {Fault{Fault::Kind::kLoseAfter}, Fault{Fault::Kind::kLoseBefore}};
  SwapResult after =
      world.run(faults->put_if("after", Blob("x"), Condition::create(), Deadline::never()));
  SwapResult before =
      world.run(faults->put_if("before", Blob("x"), Condition::create(), Deadline::never()));
  EXPECT_EQ(after.outcome, SwapOutcome::kAmbiguous);
  EXPECT_EQ(before.outcome, SwapOutcome::kAmbiguous);
  EXPECT_TRUE(memory->objects().contains("after"));
  EXPECT_FALSE(memory->objects().contains("before"));
}

TEST_F(Decorators, a_request_given_up_can_land_later) {
  script = {Fault{Fault::Kind::kNone, 5s, 0s}};
  MonoTime start = world.now();
  SwapResult result =
      world.run(faults->put_if("late", Blob("x"), Condition::create(), world.deadline_in(1s)));
  EXPECT_EQ(result.outcome, SwapOutcome::kAmbiguous);
  EXPECT_EQ(result.error.code, ErrorCode::kDeadline);
  EXPECT_EQ(elapsed(start), 1s);
  EXPECT_FALSE(memory->objects().contains("late"));
  world.run_to_end();
  EXPECT_TRUE(memory->objects().contains("late"));
}

TEST_F(Decorators, a_duplicated_create_is_rejected_by_itself_but_answered_as_applied) {
  script = {Fault{Fault::Kind::kDuplicate}};
  SwapResult result =
      world.run(faults->put_if("k", Blob("x"), Condition::create(), Deadline::never()));
  EXPECT_EQ(result.outcome, SwapOutcome::kApplied);
}

TEST_F(Decorators, a_hanging_request_ends_at_the_deadline) {
  script = {Fault{Fault::Kind::kHang}};
  auto result = world.run(faults->get("k", world.deadline_in(3s)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadline);
}

TEST_F(Decorators, retry_repeats_reads_until_they_succeed) {
  memory->set("k", Blob("x"));
  script = {Fault{Fault::Kind::kServerError}, Fault{Fault::Kind::kLoseAfter}};
  RetryStore retry(world, faults, {});
  auto object = world.run(retry.get("k", Deadline::never()));
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(retry.retries(), 2u);
}

TEST_F(Decorators, retry_never_repeats_a_conditional_write) {
  script = {Fault{Fault::Kind::kLoseAfter}};
  RetryStore retry(world, faults, {});
  SwapResult result =
      world.run(retry.put_if("k", Blob("x"), Condition::create(), Deadline::never()));
  EXPECT_EQ(result.outcome, SwapOutcome::kAmbiguous);
  EXPECT_EQ(retry.retries(), 0u);
}

TEST_F(Decorators, retry_does_not_repeat_what_is_definite) {
  RetryStore retry(world, faults, {});
  EXPECT_EQ(world.run(retry.get("none", Deadline::never())).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(retry.retries(), 0u);
}

TEST_F(Decorators, retry_ends_before_the_deadline_with_the_real_cause) {
  script.assign(100, Fault{Fault::Kind::kServerError});
  RetryStore retry(world, faults, {});
  MonoTime start = world.now();
  auto result = world.run(retry.get("k", world.deadline_in(400ms)));
  ASSERT_FALSE(result);
  EXPECT_LE(elapsed(start), 400ms);
  EXPECT_THAT(result.error().message, HasSubstr("500 InternalError"));
  EXPECT_THAT(result.error().message, HasSubstr("gave up after"));
}

TEST_F(Decorators, retry_gives_up_without_a_deadline_too) {
  script.assign(100, Fault{Fault::Kind::kServerError});
  RetryStore retry(world, faults, {});
  EXPECT_FALSE(world.run(retry.get("k", Deadline::never())));
  EXPECT_EQ(retry.retries(), 7u);
}

TEST_F(Decorators, retry_waits_as_long_as_the_store_asks) {
  Fault throttle{Fault::Kind::kThrottle};
  throttle.retry_after_ms = 3000;
  script = {throttle};
  memory->set("k", Blob("x"));
  RetryStore retry(world, faults, {});
  MonoTime start = world.now();
  EXPECT_TRUE(world.run(retry.get("k", Deadline::never())));
  EXPECT_GE(elapsed(start), 3s);
  EXPECT_LE(elapsed(start), 3s + 50ms);
}

TEST_F(Decorators, retry_backs_off_exponentially_with_jitter) {
  script.assign(7, Fault{Fault::Kind::kServerError});
  memory->set("k", Blob("x"));
  Duration least = Duration::max(), most{0};
  for (int i = 0; i < 50; ++i) {
    SetUp();
    RetryStore retry(world, faults, {});
    MonoTime start = world.now();
    ASSERT_TRUE(world.run(retry.get("k", Deadline::never())));
    least = std::min(least, elapsed(start));
    most = std::max(most, elapsed(start));
  }
  // At most 50 + 100 + ... + 3200 ms, on average half of it.
  EXPECT_LE(most, 6350ms);
  EXPECT_GT(most, 3175ms);
  EXPECT_LT(least, 3175ms);
}

TEST_F(Decorators, a_dead_store_gets_no_storm_of_retries) {
  script.assign(100'000, Fault{Fault::Kind::kServerError});
  RetryStore retry(world, faults, {});
  for (int i = 0; i < 1000; ++i) (void)world.run(retry.get("k", Deadline::never()));
  EXPECT_LE(retry.retries(), 100u);
}

TEST_F(Decorators, metered_counts_by_operation_and_area) {
  MeteredStore metered(memory);
  (void)world.run(
      metered.put_if("journal/n/1", Blob("12345"), Condition::create(), Deadline::never()));
  (void)world.run(
      metered.put_if("journal/n/1", Blob("12345"), Condition::create(), Deadline::never()));
  (void)world.run(metered.get("journal/n/1", Deadline::never()));
  (void)world.run(metered.get("cells/x", Deadline::never()));
  (void)world.run(metered.put("cells/x", Blob("1"), Deadline::never()));
  (void)world.run(metered.get_range("cells/x", ByteRange{0, 1}, Deadline::never()));
  (void)world.run(metered.list({}, Deadline::never()));
  (void)world.run(metered.remove("cells/x", Deadline::never()));
  const StoreCounts& counts = metered.counts();
  EXPECT_EQ(counts[StoreOp::kPutIf].requests, 2u);
  EXPECT_EQ(counts[StoreOp::kPutIf].rejected, 1u);
  EXPECT_EQ(counts[StoreOp::kPutIf].bytes_up, 10u);
  EXPECT_EQ(counts[StoreOp::kGet].requests, 2u);
  EXPECT_EQ(counts[StoreOp::kGet].not_found, 1u);
  EXPECT_EQ(counts[StoreOp::kGet].bytes_down, 5u);
  EXPECT_EQ(counts.total().requests, 8u);
  EXPECT_EQ(counts.by_area.at("journal")[static_cast<size_t>(StoreOp::kPutIf)].requests, 2u);
  EXPECT_EQ(counts.round_trips, 8u);
  EXPECT_EQ(counts.outstanding, 0u);
  EXPECT_THAT(counts.summary(), HasSubstr("8 requests"));
  metered.reset();
  EXPECT_EQ(metered.counts().total().requests, 0u);
  EXPECT_EQ(metered.counts().round_trips, 0u);
}

TEST_F(Decorators, parallel_requests_are_one_round_trip) {
  auto slow = std::make_shared<FaultStore>(world, memory, 20ms);
  MeteredStore metered(slow);
  for (int round = 0; round < 2; ++round) {
    std::vector<Task<Result<Version>>> tasks;
    for (int i = 0; i < 10; ++i) {
      tasks.push_back(metered.put("k" + std::to_string(i), Blob("x"), Deadline::never()));
    }
    (void)world.run(join_all(world, std::move(tasks)));
  }
  EXPECT_EQ(metered.counts().total().requests, 20u);
  EXPECT_EQ(metered.counts().round_trips, 2u);
  EXPECT_EQ(metered.counts().outstanding_max, 10u);
}

TEST_F(Decorators, content_tokens_let_a_stale_swap_succeed) {
  MemoryStore content(world, {MemoryStore::Tokens::kContent});
  Version first = *world.run(content.put("k", Blob("A"), Deadline::never()));
  (void)world.run(content.put("k", Blob("B"), Deadline::never()));
  (void)world.run(content.put("k", Blob("A"), Deadline::never()));
  Condition stale = Condition::swap(first);
  SwapResult result =
      world.run(content.put_if("k", Blob("C"), std::move(stale), Deadline::never()));
  EXPECT_EQ(result.outcome, SwapOutcome::kApplied);
}

}  // namespace
}  // namespace celld
