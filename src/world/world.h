// The only door from the protocol to time, chance and scheduling.
//
// Production implements it on Asio (asio_world.h), the simulator on a seeded scheduler. All calls
// and all callbacks are on the world's one thread, except `post_from_any_thread`.
#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "world/cancel.h"
#include "world/task.h"

namespace celld {

using Duration = std::chrono::nanoseconds;

// Monotonic time since an arbitrary start. The only clock that grants authority.
struct MonoTime {
  Duration since_start{0};
  constexpr auto operator<=>(const MonoTime&) const = default;
  constexpr MonoTime operator+(Duration d) const { return MonoTime{since_start + d}; }
  constexpr MonoTime operator-(Duration d) const { return MonoTime{since_start - d}; }
  constexpr Duration operator-(MonoTime o) const { return since_start - o.since_start; }
  static constexpr MonoTime max() { return MonoTime{Duration::max()}; }
};

// When an operation gives up: at a time, or when its caller says so. Every operation that waits
// takes one.
struct Deadline {
  MonoTime at = MonoTime::max();
  Cancellation* cancellation = nullptr;  // outlives what was given this
  static constexpr Deadline never() { return {}; }

  Deadline cancelled_by(Cancellation& c) const { return Deadline{at, &c}; }
  // The same, but not after `t`.
  constexpr Deadline sooner(MonoTime t) const { return Deadline{t < at ? t : at, cancellation}; }
  bool cancelled() const { return cancellation != nullptr && cancellation->cancelled(); }
  bool passed(MonoTime now) const { return at <= now || cancelled(); }
  // For what was given up: kCancelled or kDeadline.
  Error error(std::string_view where) const;
};

using Callback = std::move_only_function<void()>;
using TimerId = uint64_t;  // 0 = none

// Work that somebody waits for goes before work that only has to be done some time.
enum class Urgency : uint8_t { kForeground, kBackground };

class World {
 public:
  virtual ~World() = default;

  virtual MonoTime now() = 0;
  virtual WallMs wall_now() = 0;
  // Fills `out` with unpredictable bytes (seeded in the simulator).
  virtual void random(std::span<uint8_t> out) = 0;

  // Calls back once at `at` or soon after; never from inside this call.
  virtual TimerId call_at(MonoTime at, Callback callback) = 0;
  // The callback will not run. No effect on a timer that has run.
  virtual void cancel(TimerId timer) = 0;
  // Calls back soon, after the present callback, in order.
  virtual void post(Callback callback) = 0;
  // The same from a foreign thread.
  virtual void post_from_any_thread(Callback callback) = 0;

  // Runs `work` where it does not hold up the world's thread, then `done` on that thread. `work` must
  // touch nothing that anybody else may change meanwhile. Not bounded by itself: what waits here is
  // a task that waits, see compute(). When the world ends first, neither may ever run.
  //
  // Production has a few threads for this. Worlds in virtual time run `work` as an event of their
  // own, after what is posted already: this is that default.
  virtual void run_aside(Urgency urgency, Callback work, Callback done);

  // Starts a task of its own; it ends by itself. Ran up to its first suspension before the return.
  void spawn(Task<void> task) { start(std::move(task)); }

  uint64_t random_u64();
  // Uniform in [0, 1).
  double random_unit();
  Deadline deadline_in(Duration d) { return Deadline{now() + d}; }
};

// co_await sleep_for(world, 50ms).
inline auto sleep_until(World& world, MonoTime at) {
  struct Awaiter {
    World& world;
    MonoTime at;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> h) {
      world.call_at(at, [h] { h.resume(); });
    }
    void await_resume() const {}
  };
  return Awaiter{world, at};
}
inline auto sleep_for(World& world, Duration d) { return sleep_until(world, world.now() + d); }

// Sleeps for `d`, or less when `deadline` comes first or the caller cancels: true for the whole.
Task<bool> sleep_within(World& world, Duration d, Deadline deadline);

// co_await yield_to(world): goes on behind the callbacks that are posted already. Costs no timer.
inline auto yield_to(World& world) {
  struct Awaiter {
    World& world;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> h) {
      world.post([h] { h.resume(); });
    }
    void await_resume() const {}
  };
  return Awaiter{world};
}

// The value of `work`, made aside (World::run_aside): for whatever takes time in proportion to data.
// Name the function first: co_await compute<T>(world, urgency, std::move(work)).
template <class T>
Task<T> compute(World& world, Urgency urgency, std::move_only_function<T()> work) {
  struct Awaiter {
    World& world;
    Urgency urgency;
    std::move_only_function<T()>& work;
    std::optional<T>& value;
    bool await_ready() const { return false; }
    // May be resumed before this has returned; touches nothing after the call.
    void await_suspend(std::coroutine_handle<> h) {
      auto run = [this] {
        value.emplace(work());
        work = nullptr;
      };
      world.run_aside(urgency, std::move(run), [h] { h.resume(); });
    }
    void await_resume() const {}
  };
  std::optional<T> value;
  Awaiter awaiter{world, urgency, work, value};
  co_await awaiter;
  co_return std::move(*value);
}

// A condition that tasks wait for. Waiters are resumed through World::post, in order, and must
// look again: a wake-up promises nothing.
class Signal {
 public:
  explicit Signal(World& world) : world_(world), state_(std::make_shared<State>()) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  // Wakes what still waits, so that no frame is lost.
  ~Signal() { notify_all(); }

  void notify_all();
  // Wakes the one that waits for longest.
  void notify_one();

  // co_await signal.wait_until(deadline): true when notified, false when the deadline came first
  // or the caller cancelled.
  auto wait_until(Deadline deadline) {
    struct Awaiter {
      Signal& signal;
      Deadline deadline;
      std::shared_ptr<Waiter> waiter;
      bool await_ready() const { return false; }
      void await_suspend(std::coroutine_handle<> h) { waiter = signal.enlist(h, deadline); }
      bool await_resume() const { return waiter->notified; }
    };
    return Awaiter{*this, deadline, nullptr};
  }
  // co_await signal.wait(): until the next notify_all.
  auto wait() { return wait_until(Deadline::never()); }

 private:
  struct Waiter {
    std::coroutine_handle<> handle;
    TimerId timer = 0;
    bool notified = false;
    bool done = false;
    Cancellation::Listener cancelled;
  };
  struct State {
    std::deque<std::shared_ptr<Waiter>> waiters;  // none of them done
  };
  void wake(std::shared_ptr<Waiter> w);
  std::shared_ptr<Waiter> enlist(std::coroutine_handle<> h, Deadline deadline);

  World& world_;
  std::shared_ptr<State> state_;
};

// A one-shot value handed from callbacks to a task: co_await slot.take().
// `set` may come before or after the wait; only the first counts.
template <class T>
class OneShot {
 public:
  explicit OneShot(World& world) : world_(world) {}
  OneShot(const OneShot&) = delete;
  OneShot& operator=(const OneShot&) = delete;

  bool has_value() const { return value_.has_value(); }
  void set(T value) {
    if (value_) return;
    value_.emplace(std::move(value));
    if (auto h = std::exchange(waiter_, nullptr)) world_.post([h] { h.resume(); });
  }
  auto take() {
    struct Awaiter {
      OneShot& self;
      bool await_ready() const { return self.value_.has_value(); }
      void await_suspend(std::coroutine_handle<> h) { self.waiter_ = h; }
      T await_resume() { return std::move(*self.value_); }
    };
    return Awaiter{*this};
  }

 private:
  World& world_;
  std::optional<T> value_;
  std::coroutine_handle<> waiter_;
};

// Runs all tasks at once and returns their values in order.
template <class T>
Task<std::vector<T>> join_all(World& world, std::vector<Task<T>> tasks) {
  struct Shared {
    std::vector<std::optional<T>> values;
    size_t left;
    Signal done;
    Shared(World& w, size_t n) : values(n), left(n), done(w) {}
  };
  auto shared = std::make_shared<Shared>(world, tasks.size());
  auto run_one = [](std::shared_ptr<Shared> s, size_t i, Task<T> task) -> Task<void> {
    s->values[i].emplace(co_await std::move(task));
    if (--s->left == 0) s->done.notify_all();
  };
  for (size_t i = 0; i < tasks.size(); ++i) start(run_one(shared, i, std::move(tasks[i])));
  while (shared->left > 0) co_await shared->done.wait();
  std::vector<T> out;
  out.reserve(shared->values.size());
  for (auto& v : shared->values) out.push_back(std::move(*v));
  co_return out;
}

}  // namespace celld
