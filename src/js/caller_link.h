// From a caller to the event that serves it, on any two threads: says that nobody waits for the
// answer any more.
#pragma once

#include <functional>
#include <mutex>

namespace celld::js {

class CallerLink {
 public:
  // Runs the callback on this thread. Once.
  void hang_up();
  // Calls back once when the caller has hung up; at once if so now. It should only post.
  void on_hang_up(std::move_only_function<void()> callback);

 private:
  std::mutex mutex_;
  bool over_ = false;
  std::move_only_function<void()> callback_;
};

}  // namespace celld::js
