// What V8 wants to run later on the thread of an isolate: callbacks of FinalizationRegistry, what
// Atomics.waitAsync waits for, steps of the collector.
#pragma once

#include <v8-platform.h>
#include <v8.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace celld::js {

// The tasks of one isolate. V8 adds them from any thread; all else belongs to the isolate's.
class ForegroundTasks final : public v8::TaskRunner {
 public:
  // Asks for ripen(task) after so long, and then run(). On the isolate's thread, perhaps while
  // JavaScript or the collector is on the stack. Tasks of other threads ask for nothing: the next
  // run() finds them.
  using Wake = std::function<void(uint64_t task, std::chrono::nanoseconds after)>;

  // Any thread. The one runner of the isolate, made when first asked for.
  static std::shared_ptr<ForegroundTasks> of(v8::Isolate* isolate);
  // No task of the isolate runs any more. After Isolate::Dispose(), which still adds some.
  static void forget(v8::Isolate* isolate);

  explicit ForegroundTasks(v8::Isolate* isolate) : isolate_(isolate) {}
  void set_wake(Wake wake);
  // The time that the task had to wait has passed.
  void ripen(uint64_t task);
  // Whether run() has work now.
  bool due();
  // Runs what is due, in a turn of the isolate. Tasks that these add wait for the next run().
  void run();

  // --- v8::TaskRunner ---
  void PostTask(std::unique_ptr<v8::Task> task) override { add(std::move(task), 0); }
  void PostNonNestableTask(std::unique_ptr<v8::Task> task) override { add(std::move(task), 0); }
  void PostDelayedTask(std::unique_ptr<v8::Task> task, double seconds) override { add(std::move(task), seconds); }
  void PostNonNestableDelayedTask(std::unique_ptr<v8::Task> task, double seconds) override {
    add(std::move(task), seconds);
  }
  void PostIdleTask(std::unique_ptr<v8::IdleTask>) override {}
  bool IdleTasksEnabled() override { return false; }
  bool NonNestableTasksEnabled() const override { return true; }
  bool NonNestableDelayedTasksEnabled() const override { return true; }

 private:
  struct Later {
    uint64_t id;
    bool ripe;
    std::unique_ptr<v8::Task> task;
  };
  void add(std::unique_ptr<v8::Task> task, double seconds);

  v8::Isolate* const isolate_;
  std::mutex mutex_;
  std::vector<Later> tasks_;  // in the order in which they came
  uint64_t last_ = 0;
  Wake wake_;
  bool closed_ = false;
};

}  // namespace celld::js
