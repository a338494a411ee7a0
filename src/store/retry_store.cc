#include "store/retry_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace celld {

namespace {

constexpr double kEarnedBySuccess = 0.1;

bool passing(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOverloaded;
}

}  // namespace

RetryStore::RetryStore(World& world, std::shared_ptr<ObjectStore> inner, Options options)
    : world_(world), inner_(std::move(inner)), options_(options), budget_(options.budget_max) {
  CHECK(options_.attempts_max >= 1 && options_.backoff_first > Duration(0));
}

std::optional<Duration> RetryStore::next_wait(const Error& error, uint32_t attempts,
                                              Deadline deadline) {
  if (!passing(error) || error.retry == Retry::kNever) return std::nullopt;
  if (attempts >= options_.attempts_max || budget_ < 1) return std::nullopt;
  const uint32_t doublings = std::min(attempts - 1, 20u);
  const Duration ceiling =
      std::min(options_.backoff_first * (1u << doublings), options_.backoff_max);
  // Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
  Duration wait(static_cast<int64_t>(static_cast<double>(ceiling.count()) * world_.random_unit()));
  if (error.retry_after_ms != 0) wait += std::chrono::milliseconds(error.retry_after_ms);
  // The subtraction cannot overflow: a deadline of "never" is the largest time there is.
  if (deadline.at - world_.now() <= wait) return std::nullopt;
  return wait;
}

template <class R>
Task<R> RetryStore::repeat(std::move_only_function<Task<R>()> attempt, Deadline deadline) {
  for (uint32_t attempts = 1;; ++attempts) {
    Task<R> task = attempt();
    R result = co_await std::move(task);
    if (result || !passing(result.error())) {
      budget_ = std::min(budget_ + kEarnedBySuccess, static_cast<double>(options_.budget_max));
      co_return result;
    }
    std::optional<Duration> wait = next_wait(result.error(), attempts, deadline);
    if (!wait) {
      if (attempts > 1) {
        result.error().message += " (gave up after " + std::to_string(attempts) + " attempts)";
      }
      co_return result;
    }
    budget_ -= 1;
    ++retries_;
    co_await sleep_for(world_, *wait);
  }
}

Task<Result<StoredObject>> RetryStore::get(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<StoredObject>>()> attempt =
      [this, key = std::move(key), deadline] { return inner_->get(key, deadline); };
  return repeat(std::move(attempt), deadline);
}

Task<Result<StoredObject>> RetryStore::get_range(std::string key, ByteRange range,
                                                 Deadline deadline) {
  std::move_only_function<Task<Result<StoredObject>>()> attempt = [this, key = std::move(key),
                                                                   range, deadline] {
    return inner_->get_range(key, range, deadline);
  };
  return repeat(std::move(attempt), deadline);
}

Task<SwapResult> RetryStore::put_if(std::string key, Blob body, Condition condition,
                                    Deadline deadline) {
  return inner_->put_if(std::move(key), std::move(body), std::move(condition), deadline);
}

Task<Result<Version>> RetryStore::put(std::string key, Blob body, Deadline deadline) {
  std::move_only_function<Task<Result<Version>>()> attempt = [this, key = std::move(key),
                                                              body = std::move(body), deadline] {
    return inner_->put(key, body, deadline);
  };
  return repeat(std::move(attempt), deadline);
}

Task<Result<void>> RetryStore::remove(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<void>>()> attempt = [this, key = std::move(key), deadline] {
    return inner_->remove(key, deadline);
  };
  return repeat(std::move(attempt), deadline);
}

Task<Result<ListPage>> RetryStore::list(ListRequest request, Deadline deadline) {
  std::move_only_function<Task<Result<ListPage>>()> attempt =
      [this, request = std::move(request), deadline] { return inner_->list(request, deadline); };
  return repeat(std::move(attempt), deadline);
}

}  // namespace celld
