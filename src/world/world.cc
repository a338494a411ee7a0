#include "world/world.h"

namespace celld {

uint64_t World::random_u64() {
  uint8_t raw[8];
  random(raw);
  uint64_t v = 0;
  for (uint8_t b : raw) v = v << 8 | b;
  return v;
}

double World::random_unit() { return static_cast<double>(random_u64() >> 11) * 0x1.0p-53; }

void World::run_aside(Urgency, Callback work, Callback done) {
  post([work = std::move(work), done = std::move(done)]() mutable {
    work();
    done();
  });
}

void Signal::wake(std::shared_ptr<Waiter> w) {
  w->done = true;
  w->notified = true;
  if (w->timer) world_.cancel(w->timer);
  w->cancelled.detach();
  world_.post([w = std::move(w)] { w->handle.resume(); });
}

void Signal::notify_all() {
  for (auto& w : std::exchange(state_->waiters, {})) wake(std::move(w));
}

void Signal::notify_one() {
  if (state_->waiters.empty()) return;
  std::shared_ptr<Waiter> first = std::move(state_->waiters.front());
  state_->waiters.pop_front();
  wake(std::move(first));
}

std::shared_ptr<Signal::Waiter> Signal::enlist(std::coroutine_handle<> h, Deadline deadline) {
  auto waiter = std::make_shared<Waiter>();
  waiter->handle = h;
  state_->waiters.push_back(waiter);
  if (deadline.at != MonoTime::max()) {
    waiter->timer = world_.call_at(deadline.at, [waiter, state = state_] {
      if (waiter->done) return;
      waiter->done = true;
      std::erase(state->waiters, waiter);
      waiter->cancelled.detach();
      waiter->handle.resume();
    });
  }
  // The signal may be gone by then, the world is not.
  auto give_up = [weak = std::weak_ptr(waiter), state = state_, &world = world_] {
    auto waiting = weak.lock();
    if (!waiting || waiting->done) return;
    waiting->done = true;
    std::erase(state->waiters, waiting);
    if (waiting->timer) world.cancel(waiting->timer);
    world.post([waiting] { waiting->handle.resume(); });
  };
  waiter->cancelled.attach(deadline.cancellation, std::move(give_up));
  return waiter;
}

Error Deadline::error(std::string_view where) const {
  return cancelled() ? Error::cancelled("the caller went away").at(where)
                     : Error::deadline("the deadline passed").at(where);
}

Task<bool> sleep_within(World& world, Duration d, Deadline deadline) {
  const MonoTime end = world.now() + d;
  const bool whole = end <= deadline.at;
  Signal never(world);
  co_await never.wait_until(deadline.sooner(end));
  co_return whole && !deadline.cancelled();
}

}  // namespace celld
