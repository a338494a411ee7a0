#include "core/bucket.h"

#include <algorithm>

#include "base/marks.h"

namespace celld {

using std::chrono::milliseconds;

namespace {

// Short enough that a blip costs little, long enough that a thousand nodes do not hammer a store
// that comes back.
constexpr Duration kBackoffBase = milliseconds(20);
constexpr Duration kBackoffCap = milliseconds(1000);

bool worth_repeating(const Error& e) {
  return e.code == ErrorCode::kUnavailable || e.code == ErrorCode::kDeadline ||
         e.code == ErrorCode::kOverloaded || e.code == ErrorCode::kCancelled;
}

// Whether there was time for it before the deadline. Ends early when `stopped` turns true.
Task<bool> wait_in_time(World& world, const std::function<bool()>& stopped, Duration wait, Deadline deadline) {
  constexpr Duration kLook = milliseconds(500);  // a node that stops waits no longer for this
  MonoTime due = world.now() + wait;
  if (due >= deadline.at) co_return false;
  while (world.now() < due && !stopped()) co_await sleep_for(world, std::min(due - world.now(), kLook));
  co_return true;
}

Error stopped_error(const std::string& key) {
  return Error::fenced(key + ": this node has stopped");
}

// Repeats `attempt` (a function that makes one request) until success, a lasting error, the
// deadline, or the stop. `attempt` lives in the caller's frame.
template <class T, class Attempt>
Task<Result<T>> repeat(World& world, const std::function<bool()>& stopped, std::string key,
                       Deadline deadline, Attempt& attempt) {
  Backoff backoff(world, kBackoffBase, kBackoffCap);
  for (;;) {
    if (stopped()) {
      Error e = stopped_error(key);
      co_return fail(std::move(e));
    }
    Result<T> r = co_await attempt();
    if (r || !worth_repeating(r.error()) || deadline.cancelled()) co_return r;
    Duration wait = asked_pause(r.error()) + backoff.next();
    bool in_time = co_await wait_in_time(world, stopped, wait, deadline);
    if (!in_time) co_return r;
  }
}

}  // namespace

Bucket::Bucket(World& world, ObjectStore& store, Duration request_timeout,
               std::function<bool()> stopped)
    : world_(world), store_(store), request_timeout_(request_timeout), stopped_(std::move(stopped)) {}

Deadline Bucket::request_deadline(Deadline deadline, uint64_t bytes) {
  return deadline.sooner(world_.now() + request_timeout_ + transfer_time(bytes));
}

Task<Result<StoredObject>> Bucket::get(std::string key, Deadline deadline, uint64_t bytes) {
  auto attempt = [&] { return store_.get(key, request_deadline(deadline, bytes)); };
  co_return co_await repeat<StoredObject>(world_, stopped_, key, deadline, attempt);
}

Task<Result<StoredObject>> Bucket::get_range(std::string key, ByteRange range, Deadline deadline) {
  auto attempt = [&] { return store_.get_range(key, range, request_deadline(deadline)); };
  co_return co_await repeat<StoredObject>(world_, stopped_, key, deadline, attempt);
}

Task<Result<void>> Bucket::put(std::string key, Blob body, Deadline deadline) {
  auto attempt = [&] { return store_.put(key, body, request_deadline(deadline, body.size())); };
  Result<Version> r = co_await repeat<Version>(world_, stopped_, key, deadline, attempt);
  if (!r) co_return fail(std::move(r).error());
  co_return Result<void>{};
}

Task<Result<void>> Bucket::remove(std::string key, Deadline deadline) {
  auto attempt = [&] { return store_.remove(key, request_deadline(deadline)); };
  co_return co_await repeat<void>(world_, stopped_, key, deadline, attempt);
}

// One request. What it did not delete stays in `left`, which is the caller's.
Task<Result<void>> Bucket::remove_left(std::vector<std::string>& left, Deadline deadline) {
  std::vector<std::string> keys = left;
  auto outcomes = co_await store_.remove_many(std::move(keys), request_deadline(deadline));
  Result<void> worst;
  std::vector<std::string> failed;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i]) continue;
    failed.push_back(std::move(left[i]));
    if (worst || !worth_repeating(outcomes[i].error())) worst = std::move(outcomes[i]);
  }
  left = std::move(failed);
  co_return worst;
}

Task<Result<void>> Bucket::remove_many(std::vector<std::string> keys, Deadline deadline) {
  std::vector<std::string> some;
  auto attempt = [&] { return remove_left(some, deadline); };
  for (size_t at = 0; at < keys.size(); at += kDeletesTogether) {
    const size_t end = std::min(keys.size(), at + kDeletesTogether);
    some.assign(keys.begin() + static_cast<ptrdiff_t>(at), keys.begin() + static_cast<ptrdiff_t>(end));
    std::string first = some.front();
    CO_TRY(co_await repeat<void>(world_, stopped_, std::move(first), deadline, attempt));
  }
  co_return Result<void>{};
}

Task<Result<ListPage>> Bucket::list(ListRequest request, Deadline deadline) {
  auto attempt = [&] { return store_.list(request, request_deadline(deadline)); };
  co_return co_await repeat<ListPage>(world_, stopped_, request.prefix, deadline, attempt);
}

Task<Result<std::vector<ListedObject>>> Bucket::list_all(std::string prefix, std::string start_after,
                                                         size_t keys_max, Deadline deadline) {
  std::vector<ListedObject> all;
  for (;;) {
    ListRequest request;
    request.prefix = prefix;
    request.start_after = start_after;
    CO_TRY_ASSIGN(ListPage page, co_await list(std::move(request), deadline));
    std::move(page.objects.begin(), page.objects.end(), std::back_inserter(all));
    if (all.size() > keys_max) {
      Error e = Error::overloaded(prefix + ": more than " + std::to_string(keys_max) + " objects");
      co_return fail(std::move(e));
    }
    if (!page.more) co_return all;
    start_after = std::move(page.next_start_after);
  }
}

Task<SwapResult> Bucket::put_if(std::string key, Blob body, Condition condition, Deadline deadline) {
  co_return co_await store_.put_if(std::move(key), std::move(body), std::move(condition),
                                   request_deadline(deadline));
}

Task<Settled> Bucket::settle(std::string key, Blob body, Condition condition, Deadline deadline,
                             AttemptFailed* failed) {
  Backoff backoff(world_, kBackoffBase, kBackoffCap);
  Settled out;
  out.error = Error::unavailable(key + ": conditional write not settled");
  PutOffLook put_off_look;
  for (;;) {
    if (stopped_()) {
      out.error = stopped_error(key);
      co_return out;
    }
    SwapResult swap = co_await store_.put_if(key, body, condition, request_deadline(deadline, body.size()));
    if (swap.outcome == SwapOutcome::kApplied) {
      out.kind = Settled::kApplied;
      out.version = std::move(swap.version);
      co_return out;
    }
    bool ambiguous = swap.outcome == SwapOutcome::kAmbiguous;
    const bool again = put_off_look.after(swap);
    if (ambiguous) {
      out.error = std::move(swap.error);
      if (failed) (*failed)(out.error);
    }
    if (ambiguous && MUTANT("take-ambiguous-for-applied")) {
      out.kind = Settled::kApplied;
      co_return out;
    }
    if (ambiguous && MUTANT("retry-blindly")) continue;
    if (!ambiguous && MUTANT("retry-blindly")) {
      out.kind = Settled::kRejected;
      co_return out;
    }
    if (again) {
      COVERAGE_MARK("throttled-write-repeated");
      Duration wait = asked_pause(out.error) + backoff.next();
      bool in_time = co_await wait_in_time(world_, stopped_, wait, deadline);
      if (!in_time) co_return out;
      continue;
    }
    // Refused: perhaps by an earlier attempt of our own. Ambiguous: perhaps applied.
    Deadline look = deadline.sooner(world_.now() + request_timeout_ + transfer_time(body.size()));
    Result<StoredObject> now_there = co_await get(key, look, body.size());
    if (now_there) {
      if (now_there->body == body) {
        if (ambiguous) COVERAGE_MARK("ambiguous-swap-was-applied");
        if (!ambiguous) COVERAGE_MARK("rejected-by-an-own-attempt");
        out.kind = Settled::kApplied;
        out.version = std::move(now_there->version);
        co_return out;
      }
      bool condition_holds = condition.version && *condition.version == now_there->version;
      if (!condition_holds) {  // and since a version never comes back, never will again
        out.kind = Settled::kRejected;
        out.current = std::move(*now_there);
        co_return out;
      }
    } else if (now_there.error().code == ErrorCode::kNotFound) {
      if (condition.version) {  // what we would replace is gone
        out.kind = Settled::kRejected;
        co_return out;
      }
    } else {
      COVERAGE_MARK("read-back-failed");
      out.error = std::move(now_there).error();
      if (failed) (*failed)(out.error);
      if (!worth_repeating(out.error)) co_return out;
    }
    if (!now_there) COVERAGE_MARK("ambiguous-swap-not-yet-applied");
    // Not yet applied, or not known, which is all that this proves: the same bytes once more.
    Duration wait = backoff.next();
    bool in_time = co_await wait_in_time(world_, stopped_, wait, deadline);
    if (!in_time) co_return out;
  }
}

}  // namespace celld
