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

void Signal::notify_all() {
  auto waiters = std::exchange(state_->waiters, {});
  for (auto& w : waiters) {
    if (w->done) continue;
    w->done = true;
    w->notified = true;
    if (w->timer) world_.cancel(w->timer);
    world_.post([w] { w->handle.resume(); });
  }
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
      waiter->handle.resume();
    });
  }
  return waiter;
}

}  // namespace celld
