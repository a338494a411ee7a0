#include "js/workers.h"

#include <pthread.h>

#include <thread>
#include <utility>

namespace celld::js {

Workers& workers() {
  static Workers* one = new Workers(std::chrono::milliseconds(500));
  return *one;
}

void Workers::start_thread() {
  ++threads_;
  std::thread([this] {
    pthread_setname_np(pthread_self(), "v8-worker");
    run();
  }).detach();
}

void Workers::post(std::unique_ptr<v8::Task> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.emplace_back(Clock::now(), std::move(task));
    if (threads_ == 0) start_thread();
  }
  changed_.notify_one();
}

void Workers::post_delayed(std::unique_ptr<v8::Task> task, double seconds) {
  {
    std::lock_guard lock(mutex_);
    auto delay = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    delayed_.emplace(Clock::now() + delay, std::move(task));
    if (threads_ == 0) start_thread();
  }
  changed_.notify_one();
}

void Workers::take_due() {
  Clock::time_point now = Clock::now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    tasks_.emplace_back(now, std::move(delayed_.begin()->second));
    delayed_.erase(delayed_.begin());
  }
}

bool Workers::look() {
  std::lock_guard lock(mutex_);
  take_due();
  if (tasks_.empty() || idle_ > 0 || Clock::now() - tasks_.front().first < patience_) return true;
  if (threads_ == kThreadsMax) return false;
  tasks_.front().first = Clock::now();  // it has to start first
  start_thread();
  return true;
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    take_due();
    if (tasks_.empty()) {
      if (idle_ > 0) break;  // one is enough to wait
      ++idle_;
      if (delayed_.empty()) {
        changed_.wait(lock);
      } else {
        Clock::time_point until = delayed_.begin()->first;  // which may go meanwhile
        changed_.wait_until(lock, until);
      }
      --idle_;
      continue;
    }
    std::unique_ptr<v8::Task> task = std::move(tasks_.front().second);
    tasks_.pop_front();
    // What waits behind it has moved.
    if (!tasks_.empty()) tasks_.front().first = Clock::now();
    lock.unlock();
    task->Run();
    task.reset();
    lock.lock();
  }
  --threads_;
}

}  // namespace celld::js
