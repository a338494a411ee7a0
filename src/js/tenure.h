// The right of a loop thread to act for its loop, and how it is taken away.
//
// Code of the user can bring a thread into a state that it does not come back from: one call of a
// built-in function that runs for minutes and looks at nothing, or a failure after which V8 would end
// the process. Such a thread is given up. It never touches the state of its loop again, so another
// thread can go on with it; what it held of V8 is left as it is until the process ends.
//
// A thread is *in JavaScript* between the moment it enters V8 to run code of the user and the moment it
// is back in code of the host. Only there can another thread take its tenure away, and it finds out on
// its way back, before it touches anything. In code of the host only the thread itself gives up.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace celld::js {

class Tenure {
 public:
  enum class Loss : uint8_t {
    kNone,
    kCpu,      // does not end although its CPU time is up
    kBlocked,  // waits for something that does not come
    kMemory,   // a heap that grows within one call beyond all bounds
    kFatal,    // V8 cannot go on
  };
  // Once, on the thread of the watchdog; must only post. `detail`: what V8 said, if it did.
  using OnLost = std::function<void(Loss loss, const std::string& detail)>;

  // The calling thread holds a tenure from now on, until it calls end() or loses it.
  static std::shared_ptr<Tenure> begin(OnLost on_lost);
  void end();
  // Nobody is to be told of its loss any more. Any thread.
  void forget();
  // Of the calling thread; null: it has none, and V8 may end the process.
  static Tenure* current() { return current_; }

  // Takes the tenure away if the thread is in JavaScript; false if it is not. Any other thread.
  bool revoke(Loss loss);
  // The thread of the tenure, anywhere: gives up and never returns. Takes no lock, allocates nothing.
  [[noreturn]] void give_up(Loss loss, const char* detail);
  // To be called where V8 calls the host without the host's state being touched.
  void stop_if_lost() {
    if (lost()) park();
  }
  bool lost() const { return state_.load(std::memory_order_acquire) == State::kLost; }

  // Tells of losses that nobody has been told of. The watchdog's thread.
  static void report_losses();
  // Where a failure of V8 on a thread without tenure is reported: the process should be ended in good
  // order soon. Empty: such a failure ends the process at once. It must only post. Any thread.
  static void on_failure_elsewhere(std::function<void(const std::string& detail)> callback);
  // Reports such a failure; the first counts. Takes no lock, allocates nothing. Any thread.
  static void fail_elsewhere(const char* detail);

 private:
  friend class JavaScriptScope;
  friend class HostScope;
  friend void on_v8_failure(const char* detail);
  enum class State : uint8_t { kHost, kJavaScript, kLost };

  explicit Tenure(OnLost on_lost);
  [[noreturn]] static void park();
  // Back in code of the host, or never.
  void return_to_host() {
    State expected = State::kJavaScript;
    if (!state_.compare_exchange_strong(expected, State::kHost, std::memory_order_acq_rel)) park();
  }

  static thread_local Tenure* current_;
  std::atomic<State> state_{State::kHost};
  std::atomic<Loss> loss_{Loss::kNone};
  std::atomic<bool> explained_{false};  // loss_ and detail_ are final
  bool told_ = false;                   // under the lock of the registry
  char detail_[256] = {};
  const pid_t thread_;
  const OnLost on_lost_;
};

// Code of the user may run in here. The scope itself must touch nothing of the host.
class JavaScriptScope {
 public:
  JavaScriptScope() : tenure_(Tenure::current_) {
    if (!tenure_) return;
    if (tenure_->state_.load(std::memory_order_relaxed) == Tenure::State::kHost) {
      tenure_->state_.store(Tenure::State::kJavaScript, std::memory_order_release);
    } else {
      tenure_ = nullptr;  // within another
    }
  }
  ~JavaScriptScope() {
    if (tenure_) tenure_->return_to_host();
  }
  JavaScriptScope(const JavaScriptScope&) = delete;
  JavaScriptScope& operator=(const JavaScriptScope&) = delete;

 private:
  Tenure* tenure_;
};

// What V8 calls and what touches the state of the host.
class HostScope {
 public:
  HostScope() : tenure_(Tenure::current_) {
    if (!tenure_) return;
    if (tenure_->state_.load(std::memory_order_relaxed) == Tenure::State::kHost) {
      tenure_ = nullptr;
    } else {
      tenure_->return_to_host();
    }
  }
  ~HostScope() {
    if (tenure_) tenure_->state_.store(Tenure::State::kJavaScript, std::memory_order_release);
  }
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  Tenure* tenure_;
};

// V8 cannot go on, on this thread: gives up its tenure, or reports it elsewhere and never returns.
// Returns if nobody has asked for either; then the process has to end.
void on_v8_failure(const char* detail);

}  // namespace celld::js
