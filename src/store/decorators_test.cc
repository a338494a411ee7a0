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
  EXPECT_LE(retry.retries(), 10u);
}

// Half of the requests get 503 SlowDown for 20 s. Readers and a lease go on; the store sees at most
// twice what it was offered.
TEST_F(Decorators, a_store_that_throttles_sees_at_most_twice_the_offered_requests) {
  for (uint32_t retry_after_ms : {0u, 1000u}) {
    for (double per_second : {5.0, 50.0, 500.0}) {
      SetUp();
      const MonoTime start = world.now();
      FaultRates rates;
      rates.latency_min = 5ms;
      rates.latency_max = 20ms;
      rates.throttle = 0.5;
      rates.retry_after_ms = retry_after_ms;
      auto throttled = random_faults(world, rates);
      faults->set_script([&](const FaultCall& call) {
        return elapsed(start) < 20s ? throttled(call) : Fault{};
      });
      auto metered = std::make_shared<MeteredStore>(faults);
      RetryStore retry(world, metered, {});
      memory->set("k", Blob("x"));
      uint64_t offered = 0, succeeded = 0, open = 0;
      auto one = [&](Task<Result<StoredObject>> task) -> Task<void> {
        Result<StoredObject> got = co_await std::move(task);
        if (got) ++succeeded;
        --open;
      };
      const auto total = static_cast<uint64_t>(per_second * 20);
      for (uint64_t i = 0; i < total; ++i) {
        const auto at = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
            static_cast<double>(i) / per_second));
        world.call_at(start + at, [&] {
          ++offered;
          ++open;
          world.spawn(one(retry.get("k", world.deadline_in(10s))));
        });
      }
      world.run_to_end();
      EXPECT_EQ(open, 0u);
      EXPECT_EQ(offered, total);
      EXPECT_LE(metered->counts().total().requests, 2 * offered) << per_second << " per second";
      EXPECT_GE(succeeded * 10, offered * 7) << per_second << " per second";
    }
  }
}

TEST_F(Decorators, a_wait_between_attempts_ends_when_the_caller_cancels) {
  script.assign(100, Fault{Fault::Kind::kThrottle, 0ms, 0ms, 60'000});
  RetryStore retry(world, faults, {});
  Cancellation cancellation;
  MonoTime start = world.now();
  world.call_at(start + 5s, [&] { cancellation.cancel(); });
  auto result = world.run(retry.get("k", Deadline::never().cancelled_by(cancellation)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(elapsed(start), 5s);
}

TEST_F(Decorators, retry_repeats_only_the_keys_of_a_batch_that_failed) {
  struct HalfDeaf final : ObjectStore {
    std::vector<std::vector<std::string>> asked;
    Task<Result<StoredObject>> get(std::string, Deadline) override { co_return fail(Error::internal("")); }
    Task<Result<StoredObject>> get_range(std::string, ByteRange, Deadline) override {
      co_return fail(Error::internal(""));
    }
    Task<SwapResult> put_if(std::string, Blob, Condition, Deadline) override {
      co_return SwapResult::rejected();
    }
    Task<Result<Version>> put(std::string, Blob, Deadline) override { co_return fail(Error::internal("")); }
    Task<Result<void>> remove(std::string, Deadline) override { co_return Result<void>{}; }
    Task<Result<ListPage>> list(ListRequest, Deadline) override { co_return fail(Error::internal("")); }
    std::string describe() const override { return "half-deaf"; }
    Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys, Deadline) override {
      asked.push_back(keys);
      std::vector<Result<void>> out(keys.size());
      for (size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] == "never") out[i] = fail(Error::make(ErrorCode::kForbidden, "no"));
        if (keys[i] == "later" && asked.size() < 3) out[i] = fail(Error::unavailable("busy"));
      }
      co_return out;
    }
  };
  auto inner = std::make_shared<HalfDeaf>();
  RetryStore retry(world, inner, {});
  std::vector<std::string> keys = {"a", "later", "never", "b"};
  auto outcomes = world.run(retry.remove_many(keys, Deadline::never()));
  EXPECT_TRUE(outcomes[0] && outcomes[1] && outcomes[3]);
  EXPECT_EQ(outcomes[2].error().code, ErrorCode::kForbidden);
  EXPECT_EQ(inner->asked, (std::vector<std::vector<std::string>>{keys, {"later"}, {"later"}}));
}

// A part that fails is sent again; one that goes on failing ends the upload, which is aborted.
TEST_F(Decorators, a_stream_survives_lost_parts_and_leaves_nothing_when_it_cannot) {
  struct Zeros final : BlobSource {
    uint64_t left = 3 * kPartBytesMin;
    Task<Result<Blob>> next(Deadline) override {
      Blob piece(std::string(std::min<uint64_t>(left, kPartBytesMin), 0));
      left -= piece.size();
      co_return piece;
    }
  };
  StreamOptions options;
  options.part_bytes = kPartBytesMin;
  auto metered = std::make_shared<MeteredStore>(faults);
  RetryStore retry(world, metered, {});
  int part_requests = 0;
  faults->set_script([&](const FaultCall& call) {
    Fault fault;
    if (call.op == StoreOp::kPutPart && ++part_requests % 2 == 1) fault.kind = Fault::Kind::kLoseAfter;
    return fault;
  });
  Zeros good;
  auto version = world.run(put_stream(world, retry, "k", good, options, Deadline::never()));
  ASSERT_TRUE(version) << version.error().message;
  EXPECT_EQ(memory->objects().at("k").body.size(), 3 * kPartBytesMin);
  EXPECT_GT(metered->counts()[StoreOp::kPutPart].requests, 3u);
  EXPECT_EQ(metered->counts()[StoreOp::kAbortUpload].requests, 0u);

  faults->set_script([&](const FaultCall& call) {
    Fault fault;
    if (call.op == StoreOp::kPutPart) fault.kind = Fault::Kind::kServerError;
    return fault;
  });
  Zeros bad;
  auto failed = world.run(put_stream(world, retry, "l", bad, options, Deadline::never()));
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("500 InternalError"));
  EXPECT_FALSE(memory->objects().contains("l"));
  EXPECT_EQ(metered->counts()[StoreOp::kAbortUpload].requests, 1u);
  EXPECT_EQ(metered->counts().outstanding, 0u);
}

TEST_F(Decorators, truncated_bodies_are_failures_and_writes_of_them_have_no_effect) {
  memory->set("k", Blob("x"));
  script.assign(4, Fault{Fault::Kind::kTruncate});
  EXPECT_EQ(world.run(faults->get("k", Deadline::never())).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(world.run(faults->put("l", Blob("x"), Deadline::never())));
  auto swap = world.run(faults->put_if("m", Blob("x"), Condition::create(), Deadline::never()));
  EXPECT_EQ(swap.outcome, SwapOutcome::kAmbiguous);
  EXPECT_FALSE(memory->objects().contains("l") || memory->objects().contains("m"));
  EXPECT_FALSE(world.run(faults->list({}, Deadline::never())));
}

TEST_F(Decorators, random_faults_happen_as_often_as_told) {
  FaultRates rates;
  rates.latency_min = 1ms;
  rates.latency_max = 3ms;
  rates.reset_before = 0.1;
  rates.reset_after = 0.1;
  rates.truncate = 0.1;
  rates.throttle = 0.1;
  rates.retry_after_ms = 700;
  rates.error = 0.05;
  rates.error_burst = 4;
  auto script = random_faults(world, rates);
  std::map<Fault::Kind, int> seen;
  uint64_t number = 0;
  int errors_in_a_row = 0, shortest = 1000;
  for (int i = 0; i < 20'000; ++i) {
    Fault fault = script(FaultCall{StoreOp::kGet, "k", ++number});
    ++seen[fault.kind];
    EXPECT_TRUE(fault.before >= 1ms && fault.before <= 3ms);
    EXPECT_EQ(fault.retry_after_ms, fault.kind == Fault::Kind::kThrottle ? 700u : 0u);
    if (fault.kind == Fault::Kind::kServerError) {
      ++errors_in_a_row;
    } else {
      if (errors_in_a_row > 0) shortest = std::min(shortest, errors_in_a_row);
      errors_in_a_row = 0;
    }
  }
  EXPECT_EQ(shortest, 4);
  EXPECT_NEAR(seen[Fault::Kind::kLoseBefore], 1740, 200);
  EXPECT_NEAR(seen[Fault::Kind::kThrottle], 1740, 200);
  EXPECT_NEAR(seen[Fault::Kind::kServerError], 3480, 500);
}

TEST_F(Decorators, metered_tells_costs_and_latencies) {
  auto slow = std::make_shared<FaultStore>(world, memory, 20ms);
  MeteredStore metered(world, slow);
  for (int i = 0; i < 10; ++i) (void)world.run(metered.put("k", Blob("x"), Deadline::never()));
  (void)world.run(metered.get("k", Deadline::never()));
  (void)world.run(metered.head("k", Deadline::never()));
  (void)world.run(metered.list({}, Deadline::never()));
  (void)world.run(metered.remove("k", Deadline::never()));
  const StoreCounts& counts = metered.counts();
  EXPECT_EQ(counts.requests_of(CostClass::kWrite), 11u);
  EXPECT_EQ(counts.requests_of(CostClass::kRead), 2u);
  EXPECT_EQ(counts.requests_of(CostClass::kFree), 1u);
  const LatencyHistogram& puts = counts.latency[static_cast<size_t>(StoreOp::kPut)];
  EXPECT_EQ(puts.count, 10u);
  EXPECT_EQ(puts.sum, 200ms);
  EXPECT_EQ(puts.quantile(0.5), 32768us);
  EXPECT_EQ(LatencyHistogram().quantile(0.5), 0us);
  LatencyHistogram exact;
  for (auto d : {0us, 1us, 2us, 3us, 4us}) exact.add(d);
  EXPECT_EQ(exact.buckets[0], 2u);
  EXPECT_EQ(exact.buckets[1], 1u);
  EXPECT_EQ(exact.buckets[2], 2u);
  exact.add(1h);
  EXPECT_EQ(exact.buckets.back(), 1u);
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
