#include "world/work_pool.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace celld {

WorkPool::WorkPool(size_t threads) : background_max_(threads - 1) {
  CHECK(threads >= 2 && threads <= 1024) << threads;
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { run(); });
    pthread_setname_np(threads_.back().native_handle(), "aside");
  }
}

WorkPool::~WorkPool() {
  std::deque<Callback> dropped[2];  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped[0].swap(foreground_);
    dropped[1].swap(background_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkPool::submit(Urgency urgency, Callback job) {
  {
    std::lock_guard lock(mutex_);
    (urgency == Urgency::kForeground ? foreground_ : background_).push_back(std::move(job));
  }
  wake_.notify_one();
}

void WorkPool::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] {
      return stopping_ || !foreground_.empty() ||
             (!background_.empty() && background_running_ < background_max_);
    });
    if (stopping_) return;
    bool background = foreground_.empty();
    std::deque<Callback>& queue = background ? background_ : foreground_;
    Callback job = std::move(queue.front());
    queue.pop_front();
    if (background) ++background_running_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    if (!background) continue;
    --background_running_;
    // One that was left waiting for want of this place.
    if (!background_.empty()) wake_.notify_one();
  }
}

}  // namespace celld
