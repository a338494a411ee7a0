// What V8 wants to run on the thread of the isolate: turns of no event.
#include "js/isolate_internal.h"
#include "js/tenure.h"

namespace celld::js {

void IsolateHost::watch_tasks() {
  tasks_ = ForegroundTasks::of(isolate_);
  // Called by V8, so nothing runs at once.
  tasks_->set_wake([this](uint64_t task, Duration after) {
    HostScope host;
    auto run = [this, alive = alive_, task] {
      if (!*alive) return;
      tasks_->ripen(task);
      run_tasks();
    };
    if (after.count() > 0) {
      world_.call_at(world_.now() + after, run);
    } else if (!std::exchange(tasks_posted_, true)) {
      world_.post(run);
    }
  });
  // What such a task throws has nobody else to tell.
  isolate_->AddMessageListener([](v8::Local<v8::Message>, v8::Local<v8::Value> thrown) {
    HostScope scope;
    IsolateHost& host = isolate_host(v8::Isolate::GetCurrent());
    if (host.isolate_->IsExecutionTerminating()) return;
    host.services_.log(LogLevel::kError, "Uncaught " + host.describe_thrown(thrown));
  });
}

void IsolateHost::run_tasks() {
  tasks_posted_ = false;
  if (condemned_ || !tasks_->due()) return;
  turn({}, 0, [this](v8::Isolate*, v8::Local<v8::Context>) { tasks_->run(); });
}

}  // namespace celld::js
