#include "store/retry_store.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace celld {

namespace {

constexpr double kEarnedBySuccess = 0.8;

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
  if (!passing(error) || error.retry == Retry::kNever || deadline.cancelled()) return std::nullopt;
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

void RetryStore::earn() {
  budget_ = std::min(budget_ + kEarnedBySuccess, static_cast<double>(options_.budget_max));
}

template <class R>
Task<R> RetryStore::repeat(std::move_only_function<Task<R>()> attempt, Deadline deadline) {
  for (uint32_t attempts = 1;; ++attempts) {
    Task<R> task = attempt();
    R result = co_await std::move(task);
    if (result || !passing(result.error())) {
      earn();
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
    co_await sleep_within(world_, *wait, deadline);
    if (deadline.cancelled()) co_return fail(deadline.error(result.error().message));
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

Task<Result<ObjectInfo>> RetryStore::head(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<ObjectInfo>>()> attempt =
      [this, key = std::move(key), deadline] { return inner_->head(key, deadline); };
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

class RetryStore::RetriedUpload final : public Upload {
 public:
  RetriedUpload(RetryStore& store, std::unique_ptr<Upload> inner)
      : store_(store), inner_(std::move(inner)) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    std::move_only_function<Task<Result<void>>()> attempt =
        [this, number, body = std::move(body), deadline] {
          return inner_->put_part(number, body, deadline);
        };
    return store_.repeat(std::move(attempt), deadline);
  }
  Task<Result<Version>> finish(Deadline deadline) override {
    std::move_only_function<Task<Result<Version>>()> attempt = [this, deadline] {
      return inner_->finish(deadline);
    };
    return store_.repeat(std::move(attempt), deadline);
  }
  Task<Result<void>> abort(Deadline deadline) override {
    std::move_only_function<Task<Result<void>>()> attempt = [this, deadline] {
      return inner_->abort(deadline);
    };
    return store_.repeat(std::move(attempt), deadline);
  }

 private:
  RetryStore& store_;
  const std::unique_ptr<Upload> inner_;
};

// A begin whose reply was lost leaves an empty upload behind, which costs nothing but its entry.
Task<Result<std::unique_ptr<Upload>>> RetryStore::begin_upload(std::string key,
                                                               uint64_t part_bytes,
                                                               Deadline deadline) {
  std::move_only_function<Task<Result<std::unique_ptr<Upload>>>()> attempt =
      [this, key = std::move(key), part_bytes, deadline] {
        return inner_->begin_upload(key, part_bytes, deadline);
      };
  auto begun = co_await repeat(std::move(attempt), deadline);
  if (!begun) co_return fail(std::move(begun).error());
  co_return std::make_unique<RetriedUpload>(*this, std::move(*begun));
}

Task<Result<void>> RetryStore::remove(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<void>>()> attempt = [this, key = std::move(key), deadline] {
    return inner_->remove(key, deadline);
  };
  return repeat(std::move(attempt), deadline);
}

Task<std::vector<Result<void>>> RetryStore::remove_many(std::vector<std::string> keys,
                                                        Deadline deadline) {
  std::vector<Result<void>> outcomes(keys.size());
  std::vector<size_t> left(keys.size());  // indexes of what is to be sent
  std::iota(left.begin(), left.end(), size_t(0));
  for (uint32_t attempts = 1;; ++attempts) {
    std::vector<std::string> sent;
    for (size_t i : left) sent.push_back(keys[i]);
    std::vector<Result<void>> got = co_await inner_->remove_many(std::move(sent), deadline);
    std::vector<size_t> again;
    for (size_t i = 0; i < left.size(); ++i) {
      if (!got[i] && passing(got[i].error())) again.push_back(left[i]);
      outcomes[left[i]] = std::move(got[i]);
    }
    if (again.empty()) {
      earn();
      co_return outcomes;
    }
    Error error = outcomes[again.front()].error();
    for (size_t i : again) {
      error.retry_after_ms = std::max(error.retry_after_ms, outcomes[i].error().retry_after_ms);
    }
    std::optional<Duration> wait = next_wait(error, attempts, deadline);
    if (!wait) co_return outcomes;
    budget_ -= 1;
    ++retries_;
    co_await sleep_within(world_, *wait, deadline);
    if (deadline.cancelled()) {
      for (size_t i : again) outcomes[i] = fail(deadline.error(outcomes[i].error().message));
      co_return outcomes;
    }
    left = std::move(again);
  }
}

Task<Result<ListPage>> RetryStore::list(ListRequest request, Deadline deadline) {
  std::move_only_function<Task<Result<ListPage>>()> attempt =
      [this, request = std::move(request), deadline] { return inner_->list(request, deadline); };
  return repeat(std::move(attempt), deadline);
}

}  // namespace celld
