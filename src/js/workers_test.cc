#include "js/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace celld::js {
namespace {

using namespace std::chrono_literals;

class Call final : public v8::Task {
 public:
  explicit Call(std::function<void()> f) : f_(std::move(f)) {}
  void Run() override { f_(); }

 private:
  std::function<void()> f_;
};

std::unique_ptr<v8::Task> call(std::function<void()> f) { return std::make_unique<Call>(std::move(f)); }

// What runs detached needs it until the process ends.
Workers& fresh() { return *new Workers(20ms); }

// Calls look() until the future is there; false after a while.
bool comes(Workers& workers, std::future<void>& future) {
  for (auto end = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < end;) {
    if (future.wait_for(5ms) == std::future_status::ready) return true;
    workers.look();
  }
  return false;
}

TEST(Workers, run_tasks_one_after_the_other_and_delayed_ones_later) {
  Workers& workers = fresh();
  std::string order;
  std::promise<void> done;
  auto future = done.get_future();
  workers.post_delayed(call([&] { order += 'c'; done.set_value(); }), 0.05);
  workers.post(call([&] { order += 'a'; }));
  workers.post(call([&] { order += 'b'; }));
  ASSERT_TRUE(comes(workers, future));
  EXPECT_EQ(order, "abc");
}

TEST(Workers, tasks_that_wait_for_ever_do_not_hold_up_others) {
  Workers& workers = fresh();
  static auto& never = *new std::promise<void>;
  std::shared_future<void> gate = never.get_future().share();
  for (int i = 0; i < 3; ++i) workers.post(call([gate] { gate.wait(); }));
  std::promise<void> done;
  auto future = done.get_future();
  workers.post(call([&] { done.set_value(); }));
  EXPECT_TRUE(comes(workers, future));
}

TEST(Workers, say_when_too_many_wait) {
  Workers& workers = fresh();
  static auto& never = *new std::promise<void>;
  std::shared_future<void> gate = never.get_future().share();
  for (size_t i = 0; i <= Workers::kThreadsMax; ++i) workers.post(call([gate] { gate.wait(); }));
  bool fine = true;
  for (auto end = std::chrono::steady_clock::now() + 60s; fine && std::chrono::steady_clock::now() < end;) {
    fine = workers.look();
    std::this_thread::yield();
  }
  EXPECT_FALSE(fine);
}

}  // namespace
}  // namespace celld::js
