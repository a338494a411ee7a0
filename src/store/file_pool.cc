#include "store/file_pool.h"

#include <utility>

namespace celld {

FilePool::FilePool(size_t threads, size_t queue_max) : queue_max_(queue_max) {
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

FilePool::~FilePool() {
  std::deque<Job> dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(queue_);
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  for (auto& job : dropped) job(Fate::kDrop);
}

bool FilePool::submit(Job& job) {
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= queue_max_) return false;
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

void FilePool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    job(Fate::kRun);
    job = nullptr;
    lock.lock();
  }
}

}  // namespace celld
