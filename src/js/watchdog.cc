#include "js/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"

namespace celld::js {

namespace {

// How often turns are looked at: the error of the CPU limit.
constexpr auto kPeriod = std::chrono::milliseconds(10);

int64_t cpu_ns(clockid_t clock) {
  timespec t;
  if (clock_gettime(clock, &t) != 0) return 0;
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

struct Watchdog::State {
  std::mutex mutex;
  std::vector<Seat*> seats;
  // What the watchdog saw when it first met a turn: CPU time is sampled by the watchdog, not by the
  // turn, so that a short turn costs no system call.
  struct Seen {
    uint64_t turn = 0;
    int64_t cpu_at_sight = 0;
  };
};

Watchdog& Watchdog::get() {
  static Watchdog* one = new Watchdog;
  return *one;
}

Watchdog::Watchdog() : state_(new State) {
  std::thread([this] { run(); }).detach();
}

void Watchdog::run() {
  std::vector<std::pair<Seat*, State::Seen>> seen;
  while (true) {
    std::this_thread::sleep_for(kPeriod);
    std::lock_guard lock(state_->mutex);
    for (Seat* seat : state_->seats) {
      uint64_t turn = seat->turn_.load(std::memory_order_acquire);
      if (turn % 2 == 0) continue;  // no turn runs
      auto it = std::find_if(seen.begin(), seen.end(), [&](auto& s) { return s.first == seat; });
      if (it == seen.end()) it = seen.insert(seen.end(), {seat, State::Seen{}});
      int64_t now = cpu_ns(seat->thread_clock_);
      if (it->second.turn != turn) {
        it->second = State::Seen{turn, now};
        continue;
      }
      if (now - it->second.cpu_at_sight < seat->budget_ns_.load(std::memory_order_relaxed)) continue;
      std::lock_guard turn_lock(seat->mutex_);
      if (seat->turn_.load(std::memory_order_acquire) != turn) continue;
      seat->expired_.store(true, std::memory_order_release);
      seat->isolate_->TerminateExecution();
    }
  }
}

Watchdog::Seat::Seat(v8::Isolate* isolate) : isolate_(isolate) {
  CHECK(pthread_getcpuclockid(pthread_self(), &thread_clock_) == 0) << "no CPU clock";
  State& state = *Watchdog::get().state_;
  std::lock_guard lock(state.mutex);
  state.seats.push_back(this);
}

Watchdog::Seat::~Seat() {
  State& state = *Watchdog::get().state_;
  std::lock_guard lock(state.mutex);
  std::erase(state.seats, this);
}

void Watchdog::Seat::begin(Duration budget) {
  expired_.store(false, std::memory_order_relaxed);
  budget_ns_.store(budget.count(), std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
}

void Watchdog::Seat::end() {
  // After this no termination can hit the isolate on behalf of the turn.
  turn_.fetch_add(1, std::memory_order_acq_rel);
  std::lock_guard lock(mutex_);
}

}  // namespace celld::js
