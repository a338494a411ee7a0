#include "js/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "js/workers.h"

namespace celld::js {

namespace {

// How often turns are looked at: the error of the CPU limit.
constexpr auto kPeriod = std::chrono::milliseconds(10);
constexpr auto kBlockedWhileStopping = std::chrono::seconds(1);

int64_t cpu_ns(clockid_t clock) {
  timespec t;
  if (clock_gettime(clock, &t) != 0) return 0;
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

struct Watchdog::State {
  std::mutex mutex;
  std::vector<Seat*> seats;
  int64_t budget_ns_max = INT64_MAX;
  int64_t grace_ns = 2'000'000'000;
  int64_t grace_ns_max = INT64_MAX;
  int64_t blocked_rounds_max = std::chrono::seconds(30) / kPeriod;
  int64_t blocked_rounds() const {
    constexpr int64_t kStopping = kBlockedWhileStopping / kPeriod;
    return grace_ns_max == INT64_MAX ? blocked_rounds_max : std::min(blocked_rounds_max, kStopping);
  }
};

Watchdog& Watchdog::get() {
  static Watchdog* one = new Watchdog;
  return *one;
}

Watchdog::Watchdog() : state_(new State) {
  std::thread([this] { run(); }).detach();
}

void Watchdog::run() {
  while (true) {
    std::this_thread::sleep_for(kPeriod);
    {
      std::lock_guard lock(state_->mutex);
      for (Seat* seat : state_->seats) look_at(*seat, *state_);
    }
    if (!workers().look()) Tenure::fail_elsewhere("V8's background threads do not come back");
    Tenure::report_losses();
  }
}

void Watchdog::look_at(Seat& seat, const State& state) {
  uint64_t turn = seat.turn_.load(std::memory_order_acquire);
  if (turn % 2 == 0) return;  // no turn runs
  if (seat.tenure_ && seat.tenure_->lost()) return;
  int64_t now = cpu_ns(seat.thread_clock_);
  if (seat.seen_turn_ != turn) {
    seat.seen_turn_ = turn;
    seat.seen_cpu_ns_ = seat.moved_cpu_ns_ = now;
    seat.still_rounds_ = 0;
    return;
  }
  constexpr int64_t kProgressNs = 1'000'000;
  if (now - seat.moved_cpu_ns_ >= kProgressNs) {
    seat.moved_cpu_ns_ = now;
    seat.still_rounds_ = 0;
  } else if (++seat.still_rounds_ >= state.blocked_rounds() && seat.tenure_) {
    // Rounds, not time: a process that is suspended has no rounds.
    seat.tenure_->revoke(Tenure::Loss::kBlocked);
    return;
  }
  int64_t budget = std::min(seat.budget_ns_.load(std::memory_order_relaxed), state.budget_ns_max);
  int64_t spent = now - seat.seen_cpu_ns_;
  if (spent < budget) return;
  // Fails while the thread is in code of the host: that ends by itself.
  int64_t grace = std::min(state.grace_ns, state.grace_ns_max);
  if (spent - budget >= grace && seat.tenure_ && seat.tenure_->revoke(Tenure::Loss::kCpu)) return;
  std::lock_guard turn_lock(seat.mutex_);
  if (seat.turn_.load(std::memory_order_acquire) != turn) return;
  seat.expired_.store(true, std::memory_order_release);
  seat.isolate_->TerminateExecution();
}

void Watchdog::limit_all(Duration budget, Duration grace) {
  State& state = *get().state_;
  std::lock_guard lock(state.mutex);
  state.budget_ns_max = budget.count();
  state.grace_ns_max = grace.count();
}

void Watchdog::set_grace(Duration grace) {
  State& state = *get().state_;
  std::lock_guard lock(state.mutex);
  state.grace_ns = grace.count();
}

void Watchdog::set_blocked_limit(Duration limit) {
  State& state = *get().state_;
  std::lock_guard lock(state.mutex);
  state.blocked_rounds_max = std::max<int64_t>(1, limit / kPeriod);
}

Watchdog::Seat::Seat(v8::Isolate* isolate) : isolate_(isolate), tenure_(Tenure::current()) {
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
