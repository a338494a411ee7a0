#include "js/tenure.h"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "js/native.h"
#include "js/platform.h"
#include "js/watchdog.h"

namespace celld::js {
namespace {

using namespace std::chrono_literals;

// A thread with a tenure that does what it is told, step by step.
struct Holder {
  std::shared_ptr<Tenure> tenure;
  std::promise<std::pair<Tenure::Loss, std::string>> lost;

  // Runs f on a thread of its own; what is given up stays for ever.
  template <class F>
  static Holder& start(F f) {
    static std::vector<std::unique_ptr<Holder>>& kept = *new std::vector<std::unique_ptr<Holder>>;
    Holder& holder = *kept.emplace_back(std::make_unique<Holder>());
    std::promise<void> ready;
    std::thread([&holder, &ready, f] {
      holder.tenure = Tenure::begin([&holder](Tenure::Loss loss, const std::string& detail) {
        holder.lost.set_value({loss, detail});
      });
      ready.set_value();
      f();
      holder.tenure->end();
    }).detach();
    ready.get_future().get();
    return holder;
  }
};

struct Step {
  std::promise<void> promise;
  std::shared_future<void> future = promise.get_future().share();
};

TEST(Tenure, is_taken_only_in_javascript_and_then_the_thread_never_comes_back) {
  static auto& in_javascript = *new Step;
  static auto& in_native = *new Step;
  static auto& back_in_javascript = *new Step;
  static auto& go = *new std::array<Step, 3>;
  static auto& touched = *new std::atomic<bool>(false);
  auto& holder = Holder::start([&] {
    JavaScriptScope javascript;
    in_javascript.promise.set_value();
    go[0].future.wait();
    {
      HostScope native;
      in_native.promise.set_value();
      go[1].future.wait();
    }
    back_in_javascript.promise.set_value();
    go[2].future.wait();
    HostScope native;
    touched = true;
  });
  in_javascript.future.wait();
  go[0].promise.set_value();
  in_native.future.wait();
  EXPECT_FALSE(holder.tenure->revoke(Tenure::Loss::kCpu));
  EXPECT_FALSE(holder.tenure->lost());
  go[1].promise.set_value();
  back_in_javascript.future.wait();
  EXPECT_TRUE(holder.tenure->revoke(Tenure::Loss::kCpu));
  EXPECT_FALSE(holder.tenure->revoke(Tenure::Loss::kBlocked));
  go[2].promise.set_value();
  Tenure::report_losses();
  Tenure::report_losses();  // once is enough
  EXPECT_EQ(holder.lost.get_future().get().first, Tenure::Loss::kCpu);
  // Long enough for a thread that does not stop.
  for (auto end = std::chrono::steady_clock::now() + 100ms; std::chrono::steady_clock::now() < end;) {
    ASSERT_FALSE(touched);
    std::this_thread::yield();
  }
}

TEST(Tenure, a_thread_gives_up_with_a_reason) {
  auto& holder = Holder::start([] { on_v8_failure("Fatal JavaScript invalid size error 200000001"); });
  auto lost = holder.lost.get_future();
  Watchdog::start();
  ASSERT_EQ(lost.wait_for(30s), std::future_status::ready);
  auto [loss, detail] = lost.get();
  EXPECT_EQ(loss, Tenure::Loss::kFatal);
  EXPECT_EQ(detail, "Fatal JavaScript invalid size error 200000001");
  EXPECT_TRUE(holder.tenure->lost());
}

TEST(Tenure, a_failure_of_a_thread_without_tenure_is_reported_elsewhere) {
  static auto& told = *new std::promise<std::string>;
  Tenure::on_failure_elsewhere([&](const std::string& detail) { told.set_value(detail); });
  std::thread([] { on_v8_failure("out of memory"); }).detach();
  Watchdog::start();
  auto future = told.get_future();
  ASSERT_EQ(future.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(future.get(), "out of memory");
  Tenure::on_failure_elsewhere(nullptr);
}

TEST(Tenure, is_taken_from_a_turn_that_waits_without_end) {
  static auto& never = *new Step;
  Watchdog::set_blocked_limit(100ms);
  auto& holder = Holder::start([&] {
    start_v8();
    v8::Isolate::CreateParams params;
    params.array_buffer_allocator = v8::ArrayBuffer::Allocator::NewDefaultAllocator();
    auto* seat = new Watchdog::Seat(v8::Isolate::New(params));
    seat->begin(std::chrono::hours(1));
    JavaScriptScope javascript;
    never.future.wait();
  });
  auto lost = holder.lost.get_future();
  ASSERT_EQ(lost.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(lost.get().first, Tenure::Loss::kBlocked);
  Watchdog::set_blocked_limit(30s);
}

TEST(TenureDeathTest, a_failure_that_nobody_asked_for_ends_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        start_v8();
        v8::Isolate::CreateParams params;
        params.array_buffer_allocator = v8::ArrayBuffer::Allocator::NewDefaultAllocator();
        v8::Isolate* isolate = v8::Isolate::New(params);
        v8::Isolate::Scope scope(isolate);
        v8::HandleScope handles(isolate);
        v8::Local<v8::Context> context = v8::Context::New(isolate);
        v8::Context::Scope context_scope(context);
        v8::Script::Compile(context, to_v8(isolate, "('x'.repeat(2e8) + 1).split('')"))
            .ToLocalChecked()
            ->Run(context)
            .IsEmpty();
      },
      "V8 failed: Fatal JavaScript invalid size error");
}

}  // namespace
}  // namespace celld::js
