// Ends JavaScript that runs too long.
//
// One thread for the process. It compares the CPU time of each loop thread with the budget of the
// turn that runs there, and terminates the turn when it is spent. A thread that does not end its turn
// even then loses its tenure.
#pragma once

#include <v8.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>

#include "js/tenure.h"
#include "world/world.h"

namespace celld::js {

class Watchdog {
 public:
  // From now on no turn of the process gets more than this, and no thread more grace. Any thread.
  static void limit_all(Duration budget, Duration grace);
  // CPU time that a turn may use after it was told to end; then its thread is given up. Any thread.
  static void set_grace(Duration grace);
  // How long a turn may use no CPU time at all before its thread is given up. Any thread.
  static void set_blocked_limit(Duration limit);
  // Starts the watchdog, which also reports lost tenures.
  static void start() { get(); }

  // The place of one isolate. Belongs to the thread that creates it.
  class Seat {
   public:
    explicit Seat(v8::Isolate* isolate);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    // A turn begins, with this much CPU time to spend.
    void begin(Duration budget);
    // It ends: from here on no termination hits the isolate on its behalf.
    void end();
    // Whether the watchdog ended the turn since begin().
    bool expired() const { return expired_.load(std::memory_order_acquire); }
    // Whether a turn runs that the watchdog wants to end.
    bool must_stop() const {
      return expired() && turn_.load(std::memory_order_relaxed) % 2 != 0;
    }

   private:
    friend class Watchdog;
    v8::Isolate* const isolate_;
    Tenure* const tenure_;  // of the thread; null: none
    clockid_t thread_clock_;
    std::mutex mutex_;                     // orders termination before the end of the turn
    std::atomic<int64_t> budget_ns_{0};
    std::atomic<uint64_t> turn_{0};  // odd while one runs
    std::atomic<bool> expired_{false};
    // Of the watchdog's thread: the turn that it met last, and the CPU time it saw then. CPU time is
    // sampled there, not by the turn, so that a short turn costs no system call.
    uint64_t seen_turn_ = 0;
    int64_t seen_cpu_ns_ = 0;
    int64_t moved_cpu_ns_ = 0;  // the last time that there was progress
    int64_t still_rounds_ = 0;  // since then
  };

 private:
  static Watchdog& get();
  Watchdog();
  void run();
  struct State;
  static void look_at(Seat& seat, const State& state);
  State* state_;
};

}  // namespace celld::js
