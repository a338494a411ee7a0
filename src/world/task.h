// Task<T>: the coroutine type of the protocol code.
//
// Lazy (starts when awaited or spawned), single-threaded (a task and everything it awaits run on
// one thread: the world's), moved not copied. An exception that leaves a task ends the process:
// expected failures are values.
//
// g++ 12 destroys some temporaries twice inside a co_await expression. Therefore: never pass a
// braced initialiser, a temporary aggregate, a lambda or a ternary with non-trivial members as an
// argument inside `co_await f(...)`; name it first and std::move it in. Coroutine parameters are
// taken by value, or by reference only to what provably outlives the task.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "base/check.h"

namespace celld {

template <class T>
class Task;

namespace task_detail {

struct PromiseBase {
  std::coroutine_handle<> continuation;

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> done) noexcept {
      auto next = done.promise().continuation;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  std::suspend_always initial_suspend() noexcept { return {}; }
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() { std::terminate(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& v) {
    value.emplace(std::forward<U>(v));
  }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
};

}  // namespace task_detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle h) : handle_(h) {}
  Task(Task&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Task& operator=(Task&& o) noexcept {
    if (this != &o) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(o.handle_, nullptr);
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  auto operator co_await() && {
    struct Awaiter {
      Handle handle;
      bool await_ready() { return !handle || handle.done(); }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
        handle.promise().continuation = caller;
        return handle;
      }
      T await_resume() {
        if constexpr (!std::is_void_v<T>) return std::move(*handle.promise().value);
      }
    };
    CHECK(handle_) << "awaiting an empty task";
    return Awaiter{handle_};
  }

  // For World::spawn: gives up the frame; it destroys itself at the end.
  Handle release() { return std::exchange(handle_, nullptr); }

 private:
  Handle handle_ = nullptr;
};

namespace task_detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

// Runs a task to its end and frees itself.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};
inline Detached run_detached(Task<void> task) { co_await std::move(task); }

}  // namespace task_detail

// Starts `task` now, on this thread; its frame lives until it ends.
inline void start(Task<void> task) { task_detail::run_detached(std::move(task)); }

}  // namespace celld
