#include "js/foreground.h"

#include <algorithm>
#include <unordered_map>

#include "js/tenure.h"

namespace celld::js {

namespace {

constexpr double kDelaySecondsMax = 1e9;  // what nanoseconds can count, with room

std::mutex all_mutex;
std::unordered_map<v8::Isolate*, std::shared_ptr<ForegroundTasks>>& all() {
  static auto* map = new std::unordered_map<v8::Isolate*, std::shared_ptr<ForegroundTasks>>;
  return *map;
}

}  // namespace

std::shared_ptr<ForegroundTasks> ForegroundTasks::of(v8::Isolate* isolate) {
  std::lock_guard lock(all_mutex);
  auto& tasks = all()[isolate];
  if (!tasks) tasks = std::make_shared<ForegroundTasks>(isolate);
  return tasks;
}

void ForegroundTasks::forget(v8::Isolate* isolate) {
  std::shared_ptr<ForegroundTasks> tasks;
  {
    std::lock_guard lock(all_mutex);
    auto node = all().extract(isolate);
    if (node.empty()) return;
    tasks = std::move(node.mapped());
  }
  std::vector<Later> dropped;  // destroyed outside the lock: a task may own anything
  std::lock_guard lock(tasks->mutex_);
  tasks->closed_ = true;
  tasks->wake_ = nullptr;
  dropped = std::move(tasks->tasks_);
}

void ForegroundTasks::set_wake(Wake wake) {
  std::vector<uint64_t> ripe;
  {
    std::lock_guard lock(mutex_);
    wake_ = wake;
    for (Later& later : tasks_) {
      later.ripe = true;
      ripe.push_back(later.id);
    }
  }
  for (uint64_t id : ripe) wake(id, std::chrono::nanoseconds(0));
}

void ForegroundTasks::add(std::unique_ptr<v8::Task> task, double seconds) {
  auto after = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, kDelaySecondsMax)));
  Wake wake;
  uint64_t id;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (v8::Isolate::TryGetCurrent() == isolate_) wake = wake_;
    id = ++last_;
    tasks_.push_back(Later{id, !wake || after.count() == 0, std::move(task)});
  }
  if (wake) wake(id, after);
}

void ForegroundTasks::ripen(uint64_t task) {
  std::lock_guard lock(mutex_);
  for (Later& later : tasks_) {
    if (later.id == task) later.ripe = true;
  }
}

bool ForegroundTasks::due() {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(tasks_, &Later::ripe);
}

void ForegroundTasks::run() {
  std::vector<std::unique_ptr<v8::Task>> due;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(tasks_, [&](Later& later) {
      if (later.ripe) due.push_back(std::move(later.task));
      return later.ripe;
    });
  }
  for (auto& task : due) {
    v8::HandleScope handles(isolate_);
    JavaScriptScope javascript;
    task->Run();
  }
}

}  // namespace celld::js
