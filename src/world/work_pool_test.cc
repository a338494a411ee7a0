#include "world/work_pool.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <latch>
#include <string>
#include <thread>

#include "world/asio_world.h"

namespace celld {
namespace {

TEST(WorkPool, what_somebody_waits_for_goes_first_and_finds_a_thread_free) {
  WorkPool pool(2);
  std::mutex mutex;
  std::string order;
  auto note = [&](char c) {
    std::lock_guard lock(mutex);
    order += c;
  };
  std::latch release(1), foreground_done(1), all_done(3);
  // Of two threads the background gets one, however much waits.
  for (char c : {'a', 'b'}) {
    pool.submit(Urgency::kBackground, [&, c] {
      release.wait();
      note(c);
      all_done.count_down();
    });
  }
  pool.submit(Urgency::kForeground, [&] {
    note('f');
    foreground_done.count_down();
    all_done.count_down();
  });
  foreground_done.wait();
  release.count_down();
  all_done.wait();
  EXPECT_EQ(order, "fab");
}

TEST(WorkPool, jobs_that_wait_at_the_end_are_dropped_and_those_that_run_are_waited_for) {
  auto ended = std::make_shared<bool>(false);
  auto ran = std::make_shared<bool>(false);
  std::latch running(1);
  std::thread release;
  std::latch go(1);
  {
    WorkPool pool(2);
    pool.submit(Urgency::kBackground, [&running, &go, ended] {
      running.count_down();
      go.wait();
      *ended = true;
    });
    pool.submit(Urgency::kBackground, [ran] { *ran = true; });
    running.wait();
    release = std::thread([&go] { go.count_down(); });
  }
  release.join();
  EXPECT_TRUE(*ended);
  EXPECT_LE(ran.use_count(), 1) << "the job is gone";
}

// The job ends only when the world's thread has done something else meanwhile.
TEST(AsioWorld, its_thread_goes_on_while_work_runs_aside) {
  boost::asio::io_context io;
  AsioWorld world(io);
  std::latch turned(1);
  std::thread::id made_on, resumed_on;
  std::string result;
  auto task = [](World& w, std::latch& wait_for, std::thread::id& made, std::thread::id& resumed,
                 std::string& out) -> Task<void> {
    std::move_only_function<std::string()> work = [&] {
      wait_for.wait();
      made = std::this_thread::get_id();
      return std::string("made aside");
    };
    out = co_await compute<std::string>(w, Urgency::kForeground, std::move(work));
    resumed = std::this_thread::get_id();
  };
  world.spawn(task(world, turned, made_on, resumed_on, result));
  world.post([&] { turned.count_down(); });
  io.run();  // does not run dry before the work is done
  EXPECT_EQ(result, "made aside");
  EXPECT_NE(made_on, std::this_thread::get_id());
  EXPECT_EQ(resumed_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace celld
