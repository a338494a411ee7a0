#include "world/cancel.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "world/test_world.h"

namespace celld {
namespace {

using namespace std::chrono_literals;

Task<void> keep(Task<bool> task, std::optional<bool>& out) { out = co_await std::move(task); }
Task<void> wait_on(Signal& signal, Deadline deadline, std::optional<bool>& out) {
  out = co_await signal.wait_until(deadline);
}

TEST(Cancellation, tells_every_listener_once_in_any_order_of_leaving) {
  Cancellation cancellation;
  std::string told;
  auto first = std::make_unique<Cancellation::Listener>();
  auto second = std::make_unique<Cancellation::Listener>();
  Cancellation::Listener third;
  first->attach(&cancellation, [&] { told += "1"; });
  second->attach(&cancellation, [&] { told += "2"; });
  third.attach(&cancellation, [&] {
    told += "3";
    first.reset();  // a listener may take others with it
  });
  second.reset();
  cancellation.cancel();
  cancellation.cancel();
  EXPECT_EQ(told, "3");
  Cancellation::Listener late;
  late.attach(&cancellation, [&] { told += "late"; });
  EXPECT_EQ(told, "3late");
}

TEST(Cancellation, ends_waits_and_sleeps_without_resuming_anybody_inside) {
  TestWorld world(1);
  Cancellation cancellation;
  Signal signal(world);
  std::optional<bool> waited, timed, slept;
  world.spawn(wait_on(signal, Deadline::never().cancelled_by(cancellation), waited));
  world.spawn(wait_on(signal, world.deadline_in(10s).cancelled_by(cancellation), timed));
  world.spawn(keep(sleep_within(world, 5s, Deadline::never().cancelled_by(cancellation)), slept));
  world.run_for(1s);
  cancellation.cancel();
  EXPECT_FALSE(waited || timed || slept);
  world.run_for(0s);
  EXPECT_EQ(waited, false);
  EXPECT_EQ(timed, false);
  EXPECT_EQ(slept, false);
  world.run_for(20s);  // no timer is left that would resume them again
}

TEST(Cancellation, a_wait_that_ended_by_itself_is_not_told) {
  TestWorld world(1);
  Cancellation cancellation;
  Signal signal(world);
  std::optional<bool> notified, late;
  world.spawn(wait_on(signal, Deadline::never().cancelled_by(cancellation), notified));
  world.spawn(wait_on(signal, world.deadline_in(1s).cancelled_by(cancellation), late));
  signal.notify_all();
  cancellation.cancel();
  world.run_for(2s);
  EXPECT_EQ(notified, true);
  EXPECT_EQ(late, true);
}

TEST(Cancellation, a_signal_may_go_before_the_cancellation) {
  TestWorld world(1);
  Cancellation cancellation;
  std::optional<bool> out;
  auto signal = std::make_unique<Signal>(world);
  world.spawn(wait_on(*signal, Deadline::never().cancelled_by(cancellation), out));
  cancellation.cancel();
  signal.reset();
  world.run_for(1s);
  EXPECT_EQ(out, false);
}

TEST(SleepWithin, says_whether_it_was_the_whole) {
  TestWorld world(1);
  std::optional<bool> whole, part;
  world.spawn(keep(sleep_within(world, 1s, world.deadline_in(1s)), whole));
  world.spawn(keep(sleep_within(world, 3s, world.deadline_in(2s)), part));
  world.run_for(1s);
  EXPECT_EQ(whole, true);
  EXPECT_FALSE(part);
  world.run_for(1s);
  EXPECT_EQ(part, false);
}

TEST(DeadlineError, says_why) {
  Cancellation cancellation;
  Deadline deadline = Deadline::never().cancelled_by(cancellation);
  EXPECT_FALSE(deadline.passed(MonoTime{}));
  EXPECT_EQ(deadline.error("x").code, ErrorCode::kDeadline);
  cancellation.cancel();
  EXPECT_TRUE(deadline.sooner(MonoTime{}).passed(MonoTime{}));
  EXPECT_EQ(deadline.error("x").code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace celld
