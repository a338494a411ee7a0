#include "js/platform.h"

#include <libplatform/libplatform.h>
#include <v8.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>

#include "js/foreground.h"
#include "js/v8_failure.h"
#include "js/workers.h"

namespace celld::js {

namespace {

thread_local double clock_ms = 0;       // 0: this thread runs no JavaScript
thread_local double performance_ms = 0;

double wall_ms() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

// V8's default platform with background threads of ours, and with a clock that stands still within a
// turn: Date in all its forms asks the platform for the time.
class Platform final : public v8::Platform {
 public:
  explicit Platform(std::unique_ptr<v8::Platform> base) : base_(std::move(base)) {}

  v8::PageAllocator* GetPageAllocator() override { return base_->GetPageAllocator(); }
  v8::ZoneBackingAllocator* GetZoneBackingAllocator() override {
    return base_->GetZoneBackingAllocator();
  }
  void OnCriticalMemoryPressure() override { base_->OnCriticalMemoryPressure(); }
  bool OnCriticalMemoryPressure(size_t length) override {
    return base_->OnCriticalMemoryPressure(length);
  }
  int NumberOfWorkerThreads() override { return 1; }
  std::shared_ptr<v8::TaskRunner> GetForegroundTaskRunner(v8::Isolate* isolate) override {
    return ForegroundTasks::of(isolate);
  }
  void CallOnWorkerThread(std::unique_ptr<v8::Task> task) override {
    workers().post(std::move(task));
  }
  void CallBlockingTaskOnWorkerThread(std::unique_ptr<v8::Task> task) override {
    workers().post(std::move(task));
  }
  void CallLowPriorityTaskOnWorkerThread(std::unique_ptr<v8::Task> task) override {
    workers().post(std::move(task));
  }
  void CallDelayedOnWorkerThread(std::unique_ptr<v8::Task> task, double delay) override {
    workers().post_delayed(std::move(task), delay);
  }
  bool IdleTasksEnabled(v8::Isolate* isolate) override { return base_->IdleTasksEnabled(isolate); }
  std::unique_ptr<v8::JobHandle> PostJob(v8::TaskPriority priority,
                                         std::unique_ptr<v8::JobTask> task) override {
    return v8::platform::NewDefaultJobHandle(this, priority, std::move(task), 1);
  }
  double MonotonicallyIncreasingTime() override { return base_->MonotonicallyIncreasingTime(); }
  double CurrentClockTimeMillis() override { return clock_ms > 0 ? clock_ms : wall_ms(); }
  v8::TracingController* GetTracingController() override { return base_->GetTracingController(); }

 private:
  std::unique_ptr<v8::Platform> base_;
};

}  // namespace

void start_v8() {
  static std::once_flag once;
  std::call_once(once, [] {
    watch_failures();
    // WebAssembly memory does not ask the allocator of the isolate: 128 MiB at most.
    v8::V8::SetFlagsFromString("--wasm-max-mem-pages=2048");
#if V8_MAJOR_VERSION >= 13
    // Unrolled loops without a stack check would ignore termination.
    v8::V8::SetFlagsFromString("--no-turboshaft-loop-unrolling");
#endif
    static Platform* platform = new Platform(v8::platform::NewSingleThreadedDefaultPlatform());
    v8::V8::InitializePlatform(platform);
    v8::V8::Initialize();
  });
}

void advance_javascript_clock() {
  clock_ms = wall_ms();
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  performance_ms = std::floor(std::chrono::duration<double, std::milli>(since).count());
}

double javascript_performance_now() { return performance_ms; }

}  // namespace celld::js
