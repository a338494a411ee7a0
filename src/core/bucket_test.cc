#include "core/bucket.h"

#include <gtest/gtest.h>

#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

struct BucketTest : ::testing::Test {
  Fleet fleet{1};
  TestNodeWorld node{fleet.world};
  SimStore store{fleet.world, node, fleet.bucket};
  bool stopped = false;
  Bucket bucket{node, store, seconds(2), [this] { return stopped; }};

  Settled settle(const std::string& key, const std::string& body, Condition condition,
                 Duration time = seconds(20)) {
    return fleet.run(bucket.settle(key, Blob(body), std::move(condition), node.deadline_in(time)));
  }
};

TEST_F(BucketTest, an_applied_write_whose_reply_is_lost_is_found_by_reading_back) {
  int lost = 0;
  store.lose_reply = [&](const std::string& op, const std::string&) { return op == "put_if" && lost++ < 1; };
  Settled s = settle("k", "ours", Condition::create());
  EXPECT_EQ(s.kind, Settled::kApplied);
  EXPECT_EQ(s.version, fleet.bucket.get("k")->version);
}

TEST_F(BucketTest, a_request_that_never_arrived_is_repeated_with_the_same_bytes) {
  int lost = 0;
  store.lose_request = [&](const std::string& op, const std::string&) { return op == "put_if" && lost++ < 3; };
  EXPECT_EQ(settle("k", "ours", Condition::create()).kind, Settled::kApplied);
  EXPECT_EQ(fleet.bucket.get("k")->body.view(), "ours");
}

// Every other request is answered 503 SlowDown, beginning with the first.
struct ThrottlingStore final : ObjectStore {
  explicit ThrottlingStore(ObjectStore& i) : inner(i) {}
  ObjectStore& inner;
  int requests = 0;
  bool has_effect = false;  // although it says otherwise
  uint32_t pause_ms = 1;
  bool refuses() { return ++requests % 2 == 1; }
  Error slow_down() const {
    Error error = Error::unavailable("503 SlowDown");
    error.retry_after_ms = pause_ms;
    return error;
  }

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override {
    if (refuses()) co_return fail(slow_down());
    co_return co_await inner.get(std::move(key), deadline);
  }
  Task<Result<StoredObject>> get_range(std::string, ByteRange, Deadline) override { co_return fail(slow_down()); }
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition, Deadline deadline) override {
    const bool refused = refuses();
    if (refused && !has_effect) co_return SwapResult::ambiguous(slow_down());
    SwapResult result = co_await inner.put_if(std::move(key), std::move(body), std::move(condition), deadline);
    if (refused) co_return SwapResult::ambiguous(slow_down());
    co_return result;
  }
  Task<Result<Version>> put(std::string, Blob, Deadline) override { co_return fail(slow_down()); }
  Task<Result<void>> remove(std::string, Deadline) override { co_return fail(slow_down()); }
  Task<Result<ListPage>> list(ListRequest, Deadline) override { co_return fail(slow_down()); }
  std::string describe() const override { return "throttling"; }
};

// Writes and looks by turns would find every write refused.
TEST_F(BucketTest, a_store_that_refuses_every_other_request_gets_a_write_done_with_two) {
  ThrottlingStore throttling(store);
  Bucket throttled{node, throttling, seconds(2), [] { return false; }};
  for (int i = 1; i <= 5; ++i) {
    Settled s = fleet.run(throttled.settle("k" + std::to_string(i), Blob("ours"), Condition::create(),
                                           node.deadline_in(seconds(20))));
    EXPECT_EQ(s.kind, Settled::kApplied);
    EXPECT_EQ(throttling.requests, 2 * i);
  }
  throttling.has_effect = true;
  Settled s = fleet.run(throttled.settle("l", Blob("ours"), Condition::create(), node.deadline_in(seconds(20))));
  EXPECT_EQ(s.kind, Settled::kApplied) << "the second attempt was refused by the first";
  EXPECT_EQ(s.version, fleet.bucket.get("l")->version);
}

TEST_F(BucketTest, a_throttled_request_is_not_repeated_before_the_pause_that_the_store_asks_for_or_two_seconds) {
  ThrottlingStore throttling(store);
  Bucket throttled{node, throttling, seconds(2), [] { return false; }};
  fleet.bucket.put("k", Blob("there"));
  for (auto [asked_ms, heard] : {std::pair(1000u, seconds(1)), std::pair(3'600'000u, seconds(2))}) {
    throttling.pause_ms = asked_ms;
    const Duration jitter = std::chrono::milliseconds(500);  // of the first repetition, and the requests
    MonoTime began = fleet.world.now();
    EXPECT_TRUE(fleet.run(throttled.get("k", node.deadline_in(seconds(20)))));
    EXPECT_GE(fleet.world.now() - began, heard) << "get, " << asked_ms << " ms";
    EXPECT_LE(fleet.world.now() - began, heard + jitter) << "get, " << asked_ms << " ms";
    began = fleet.world.now();
    Settled s = fleet.run(throttled.settle("k" + std::to_string(asked_ms), Blob("ours"), Condition::create(),
                                           node.deadline_in(seconds(20))));
    EXPECT_EQ(s.kind, Settled::kApplied);
    EXPECT_GE(fleet.world.now() - began, heard) << "write, " << asked_ms << " ms";
    EXPECT_LE(fleet.world.now() - began, heard + jitter) << "write, " << asked_ms << " ms";
  }
  // A pause that the caller cannot wait for ends at once, with what the store said.
  const MonoTime began = fleet.world.now();
  auto late = fleet.run(throttled.get("k", node.deadline_in(seconds(1))));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "503 SlowDown");
  EXPECT_LE(fleet.world.now() - began, Duration(seconds(1)));
}

TEST_F(BucketTest, a_node_that_stops_does_not_wait_for_a_pause_to_end) {
  ThrottlingStore throttling(store);
  throttling.pause_ms = 2000;
  bool stopped = false;
  Bucket throttled{node, throttling, seconds(2), [&] { return stopped; }};
  fleet.world.call_at(fleet.world.now() + std::chrono::milliseconds(100), [&] { stopped = true; });
  const MonoTime began = fleet.world.now();
  Settled s = fleet.run(throttled.settle("k", Blob("ours"), Condition::create(), node.deadline_in(seconds(20))));
  EXPECT_EQ(s.kind, Settled::kUnsettled);
  EXPECT_LE(fleet.world.now() - began, Duration(seconds(1)));
}

// Answers 503 to every write although each has its effect: it must not be asked for ever.
TEST_F(BucketTest, a_write_that_is_always_throttled_is_looked_at_in_the_end) {
  struct AlwaysThrottling final : ObjectStore {
    explicit AlwaysThrottling(ObjectStore& i) : inner(i) {}
    ObjectStore& inner;
    unsigned puts = 0;
    Task<Result<StoredObject>> get(std::string key, Deadline deadline) override {
      co_return co_await inner.get(std::move(key), deadline);
    }
    Task<Result<StoredObject>> get_range(std::string, ByteRange, Deadline) override { co_return fail(Error()); }
    Task<SwapResult> put_if(std::string key, Blob body, Condition condition, Deadline deadline) override {
      ++puts;
      co_await inner.put_if(std::move(key), std::move(body), std::move(condition), deadline);
      Error error = Error::unavailable("503 SlowDown");
      error.retry_after_ms = 1;
      co_return SwapResult::ambiguous(std::move(error));
    }
    Task<Result<Version>> put(std::string, Blob, Deadline) override { co_return fail(Error()); }
    Task<Result<void>> remove(std::string, Deadline) override { co_return fail(Error()); }
    Task<Result<ListPage>> list(ListRequest, Deadline) override { co_return fail(Error()); }
    std::string describe() const override { return "always throttling"; }
  } throttling(store);
  Bucket throttled{node, throttling, seconds(2), [] { return false; }};
  Settled s = fleet.run(throttled.settle("k", Blob("ours"), Condition::create(), node.deadline_in(seconds(60))));
  EXPECT_EQ(s.kind, Settled::kApplied) << s.error.message;
  EXPECT_EQ(throttling.puts, PutOffLook::kMax + 1);
}

TEST_F(BucketTest, a_rejection_shows_what_is_there_instead) {
  Version old = fleet.bucket.put("k", Blob("v1"));
  fleet.bucket.put("k", Blob("v2"));
  Settled s = settle("k", "ours", Condition::swap(old));
  EXPECT_EQ(s.kind, Settled::kRejected);
  ASSERT_TRUE(s.current);
  EXPECT_EQ(s.current->body.view(), "v2");
  EXPECT_EQ(settle("none", "ours", Condition::swap(old)).kind, Settled::kRejected);
}

TEST_F(BucketTest, a_rejection_by_our_own_earlier_attempt_counts_as_applied) {
  Version old = fleet.bucket.put("k", Blob("v1"));
  int call = 0;  // the first attempt applies without reply, and so does every read-back fail once
  store.lose_reply = [&](const std::string&, const std::string&) { return call++ < 2; };
  EXPECT_EQ(settle("k", "ours", Condition::swap(old)).kind, Settled::kApplied);
}

TEST_F(BucketTest, what_is_not_known_at_the_deadline_is_unsettled_not_rejected) {
  store.cut_off = true;
  EXPECT_EQ(settle("k", "ours", Condition::create(), seconds(5)).kind, Settled::kUnsettled);
  EXPECT_EQ(fleet.world.now().since_start, std::min<Duration>(fleet.world.now().since_start, seconds(6)));
}

TEST_F(BucketTest, reads_are_repeated_within_the_deadline_and_end_when_stopped) {
  int lost = 0;
  store.lose_reply = [&](const std::string&, const std::string&) { return lost++ < 2; };
  fleet.bucket.put("k", Blob("v"));
  EXPECT_TRUE(fleet.run(bucket.get("k", node.deadline_in(seconds(20)))));
  EXPECT_EQ(fleet.run(bucket.get("absent", node.deadline_in(seconds(20)))).error().code, ErrorCode::kNotFound);
  store.cut_off = true;
  EXPECT_EQ(fleet.run(bucket.get("k", node.deadline_in(seconds(3)))).error().code, ErrorCode::kUnavailable);
  stopped = true;
  EXPECT_EQ(fleet.run(bucket.get("k", Deadline::never())).error().code, ErrorCode::kFenced);
}

}  // namespace
}  // namespace celld::testing
