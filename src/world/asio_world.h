// The production world: one Asio io_context, run by one thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>

#include "world/world.h"

namespace celld {

class WorkPool;

class AsioWorld final : public World {
 public:
  // `io` outlives this and is run by exactly one thread.
  explicit AsioWorld(boost::asio::io_context& io);
  ~AsioWorld() override;

  MonoTime now() override;
  WallMs wall_now() override;
  void random(std::span<uint8_t> out) override;
  TimerId call_at(MonoTime at, Callback callback) override;
  void cancel(TimerId timer) override;
  void post(Callback callback) override;
  void post_from_any_thread(Callback callback) override;
  // On threads that start with the first call: half as many as the machine has cores, at least two;
  // one of them is always left to what is kForeground.
  void run_aside(Urgency urgency, Callback work, Callback done) override;

 private:
  struct Timers;
  boost::asio::io_context& io_;
  std::unique_ptr<Timers> timers_;
  std::unique_ptr<WorkPool> aside_;
};

}  // namespace celld
