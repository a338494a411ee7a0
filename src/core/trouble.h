// Lasting trouble with the bucket, told once when it has lasted a while and once when it is over.
#pragma once

#include <string>

#include "core/core.h"

namespace celld {

// One kind of trouble. On the control thread.
class TroubleWatch {
 public:
  // What is over sooner is no news.
  static constexpr Duration kToldAfter = std::chrono::seconds(1);

  TroubleWatch(World& world, CoreHost& host, Trouble kind) : world_(world), host_(host), kind_(kind) {}

  // Something that began at `began` has not succeeded so far.
  void failed(MonoTime began, const std::string& detail) {
    if (!since_) since_ = began;
    Duration lasted = world_.now() - *since_;
    if (told_ || lasted < kToldAfter) return;
    told_ = true;
    host_.on_trouble(TroubleReport{kind_, false, lasted, detail});
  }
  void succeeded() {
    if (told_) host_.on_trouble(TroubleReport{kind_, true, world_.now() - *since_, {}});
    told_ = false;
    since_.reset();
  }

 private:
  World& world_;
  CoreHost& host_;
  const Trouble kind_;
  std::optional<MonoTime> since_;
  bool told_ = false;
};

}  // namespace celld
