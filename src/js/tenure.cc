#include "js/tenure.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"

namespace celld::js {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Tenure>> tenures;  // also those that were lost
  std::function<void(const std::string&)> elsewhere;
};

Registry& registry() {
  static Registry* one = new Registry;
  return *one;
}

// The first failure on a thread without tenure: 0 none, 1 being written, 2 written, 3 reported.
std::atomic<int> elsewhere_state{0};
std::atomic<bool> elsewhere_wanted{false};
char elsewhere_detail[256];

void copy_detail(char* to, size_t size, const char* detail) {
  std::strncpy(to, detail ? detail : "", size - 1);
}

}  // namespace

thread_local Tenure* Tenure::current_ = nullptr;

Tenure::Tenure(OnLost on_lost) : thread_(gettid()), on_lost_(std::move(on_lost)) {}

std::shared_ptr<Tenure> Tenure::begin(OnLost on_lost) {
  CHECK(!current_) << "a thread with two tenures";
  std::shared_ptr<Tenure> tenure(new Tenure(std::move(on_lost)));
  current_ = tenure.get();
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.tenures.push_back(tenure);
  return tenure;
}

void Tenure::end() {
  CHECK(current_ == this) << "the tenure of another thread";
  current_ = nullptr;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::erase_if(r.tenures, [this](auto& t) { return t.get() == this; });
}

bool Tenure::revoke(Loss loss) {
  State expected = State::kJavaScript;
  if (!state_.compare_exchange_strong(expected, State::kLost, std::memory_order_acq_rel)) return false;
  // What it still computes, nobody waits for.
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread_), 19);
  Loss none = Loss::kNone;
  if (loss_.compare_exchange_strong(none, loss)) explained_.store(true, std::memory_order_release);
  return true;
}

void Tenure::give_up(Loss loss, const char* detail) {
  Loss none = Loss::kNone;
  if (loss_.compare_exchange_strong(none, loss)) {
    copy_detail(detail_, sizeof detail_, detail);
    explained_.store(true, std::memory_order_release);
  }
  state_.store(State::kLost, std::memory_order_release);
  park();
}

void Tenure::park() {
  for (;;) pause();
}

void Tenure::report_losses() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  for (auto& tenure : r.tenures) {
    if (tenure->told_ || !tenure->lost() || !tenure->explained_.load(std::memory_order_acquire)) continue;
    tenure->told_ = true;
    tenure->on_lost_(tenure->loss_.load(std::memory_order_relaxed), tenure->detail_);
  }
  int written = 2;
  if (r.elsewhere && elsewhere_state.compare_exchange_strong(written, 3)) r.elsewhere(elsewhere_detail);
}

void Tenure::forget() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  told_ = true;
}

void Tenure::on_failure_elsewhere(std::function<void(const std::string&)> callback) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.elsewhere = std::move(callback);
  elsewhere_wanted.store(r.elsewhere != nullptr, std::memory_order_release);
}

void Tenure::fail_elsewhere(const char* detail) {
  int none = 0;
  if (!elsewhere_state.compare_exchange_strong(none, 1)) return;
  copy_detail(elsewhere_detail, sizeof elsewhere_detail, detail);
  elsewhere_state.store(2, std::memory_order_release);
}

void on_v8_failure(const char* detail) {
  if (Tenure* tenure = Tenure::current()) tenure->give_up(Tenure::Loss::kFatal, detail);
  if (!elsewhere_wanted.load(std::memory_order_acquire)) return;
  Tenure::fail_elsewhere(detail);
  Tenure::park();
}

}  // namespace celld::js
