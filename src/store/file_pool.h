// Threads that do what blocks on a disk, so that the world's thread never does.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace celld {

// A job gets kRun once on a thread of the pool, or kDrop once on the thread that destroys the pool.
class FilePool {
 public:
  enum class Fate { kRun, kDrop };
  using Job = std::move_only_function<void(Fate)>;

  // At most `queue_max` jobs wait beside the `threads` that run.
  FilePool(size_t threads, size_t queue_max);
  // Waits for the jobs that run, drops those that wait.
  ~FilePool();
  FilePool(const FilePool&) = delete;
  FilePool& operator=(const FilePool&) = delete;

  // False, and `job` untouched, when the queue is full. Any thread.
  bool submit(Job& job);

 private:
  void run();

  const size_t queue_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace celld
