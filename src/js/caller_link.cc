#include "js/caller_link.h"

#include <utility>

namespace celld::js {

void CallerLink::hang_up() {
  std::move_only_function<void()> told;
  {
    std::lock_guard lock(mutex_);
    over_ = true;
    told = std::exchange(callback_, nullptr);
  }
  if (told) told();
}

void CallerLink::on_hang_up(std::move_only_function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!over_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

}  // namespace celld::js
