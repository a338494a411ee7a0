// How a caller takes back what it asked for.
//
// A caller keeps a Cancellation while it waits and gives calls a deadline that points to it
// (Deadline::cancelled_by). After cancel() each of these calls ends soon, on its own, with
// kCancelled: frames are never destroyed from outside, so nothing is left that would resume them.
// The effect of a call that was cancelled may have happened, or may still happen.
#pragma once

#include <functional>
#include <utility>

namespace celld {

// On the world's thread. Outlives every call that was given it.
class Cancellation {
 public:
  // Somebody to tell. Detaches itself when it is destroyed.
  class Listener {
   public:
    Listener() = default;
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() { detach(); }

    // Calls `told` once, inside cancel(), unless detached before. It posts what it has to do: no
    // task is resumed there. Null: nobody will ever cancel. When it was cancelled already, `told`
    // is called now.
    void attach(Cancellation* to, std::move_only_function<void()> told);
    void detach();

   private:
    friend class Cancellation;
    Cancellation* to_ = nullptr;
    Listener* next_ = nullptr;
    Listener* previous_ = nullptr;
    std::move_only_function<void()> told_;
  };

  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;
  ~Cancellation();

  // The first call counts.
  void cancel();
  bool cancelled() const { return cancelled_; }

 private:
  bool cancelled_ = false;
  Listener* first_ = nullptr;
};

}  // namespace celld
