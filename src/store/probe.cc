#include "store/probe.h"

#include <string_view>
#include <utility>

#include "base/hex.h"

namespace celld {

namespace {

constexpr std::string_view kFirst = "celld probe 1";
constexpr std::string_view kOther = "celld probe 2, refused";
constexpr std::string_view kSecond = "celld probe 3, after the swap";
constexpr std::string_view kStale = "celld probe 4, stale";

// One run over one key. Errors of kind kUnsupported are violations of the contract.
class Probe {
 public:
  Probe(ObjectStore& store, std::string key, Deadline deadline)
      : store_(store), key_(std::move(key)), deadline_(deadline) {}

  Task<Result<void>> run() {
    Result<void> result = co_await steps();
    // Whatever happened, the key goes; a store that cannot delete it keeps one tiny object.
    std::string key = key_;
    Result<void> removed = co_await store_.remove(std::move(key), deadline_);
    if (result && !removed) co_return fail(removed.error());
    co_return result;
  }

  // The swap on the current version was rejected: perhaps for the way the version was quoted.
  bool update_rejected() const { return update_rejected_; }

 private:
  Error violation(std::string_view step, std::string_view what) const {
    return Error::unsupported(store_.describe() + ": the store breaks its contract at step '" +
                              std::string(step) + "': " + std::string(what));
  }

  // "No such object" as an answer to a write, or a feature that is missing, is the store's fault;
  // the rest may pass.
  Error judge(std::string_view step, const Error& error) const {
    if (error.code == ErrorCode::kNotFound || error.code == ErrorCode::kUnsupported) {
      return violation(step, error.message);
    }
    return error;
  }

  Task<SwapResult> write(std::string_view text, Condition condition) {
    std::string key = key_;
    Blob body{std::string(text)};
    co_return co_await store_.put_if(std::move(key), std::move(body), std::move(condition),
                                     deadline_);
  }

  // The object holds `text` at `version`.
  Task<Result<void>> expect(std::string_view step, std::string_view text, Version version) {
    std::string key = key_;
    Result<StoredObject> object = co_await store_.get(std::move(key), deadline_);
    if (!object) co_return fail(judge(step, object.error()));
    if (object->body.view() != text) {
      co_return fail(
          violation(step, "a refused write is there all the same, or an applied one is not"));
    }
    if (object->version != version) {
      co_return fail(violation(step, "a read gives another version than the write did"));
    }
    co_return Result<void>{};
  }

  Task<Result<void>> steps() {
    Condition create = Condition::create();
    SwapResult created = co_await write(kFirst, create);
    if (created.outcome == SwapOutcome::kAmbiguous) {
      co_return fail(judge("create", created.error));
    }
    if (created.outcome == SwapOutcome::kRejected) {
      co_return fail(violation("create", "a create of a key that does not exist was refused"));
    }

    SwapResult again = co_await write(kOther, create);
    if (again.outcome == SwapOutcome::kAmbiguous) {
      co_return fail(judge("reject-create", again.error));
    }
    if (again.outcome == SwapOutcome::kApplied) {
      co_return fail(violation(
          "reject-create", "a create of a key that exists was applied (If-None-Match is ignored)"));
    }
    Version first = created.version;
    CO_TRY(co_await expect("reject-create", kFirst, first));

    Condition on_first = Condition::swap(first);
    SwapResult updated = co_await write(kSecond, on_first);
    if (updated.outcome == SwapOutcome::kAmbiguous) {
      co_return fail(judge("update", updated.error));
    }
    if (updated.outcome == SwapOutcome::kRejected) {
      update_rejected_ = true;
      co_return fail(violation("update", "a swap on the current version was refused"));
    }
    if (updated.version == first) {
      co_return fail(violation("update", "a swap left the version as it was"));
    }

    SwapResult stale = co_await write(kStale, on_first);
    if (stale.outcome == SwapOutcome::kAmbiguous) {
      co_return fail(judge("reject-stale", stale.error));
    }
    if (stale.outcome == SwapOutcome::kApplied) {
      co_return fail(
          violation("reject-stale", "a swap on an old version was applied (If-Match is ignored)"));
    }
    Version second = updated.version;
    CO_TRY(co_await expect("reject-stale", kSecond, second));

    std::string key = key_;
    ByteRange range{6, 5};
    Result<StoredObject> part = co_await store_.get_range(std::move(key), range, deadline_);
    if (!part) co_return fail(judge("ranged-read", part.error()));
    if (part->body.view() != kSecond.substr(6, 5) || part->object_bytes != kSecond.size() ||
        part->version != updated.version) {
      co_return fail(violation("ranged-read", "the store answered another range than asked"));
    }
    co_return Result<void>{};
  }

  ObjectStore& store_;
  const std::string key_;
  const Deadline deadline_;
  bool update_rejected_ = false;
};

bool passing(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadline ||
         error.code == ErrorCode::kOverloaded;
}

}  // namespace

Task<Result<void>> probe_store(World& world, ObjectStore& store, ProbeOptions options) {
  Duration backoff = options.backoff_first;
  uint32_t attempts = 0;
  bool other_dialect_tried = false;
  while (true) {
    std::string key = "probe/" + hex_fixed(world.random_u64(), 16);
    Probe probe(store, std::move(key), world.deadline_in(options.attempt_timeout));
    Result<void> result = co_await probe.run();
    if (result) co_return result;
    if (probe.update_rejected() && options.dialect && !other_dialect_tried) {
      other_dialect_tried = true;
      options.dialect->etag_quotes = options.dialect->etag_quotes == EtagQuotes::kQuoted
                                         ? EtagQuotes::kBare
                                         : EtagQuotes::kQuoted;
      continue;
    }
    if (!passing(result.error())) co_return result;
    if (++attempts >= options.attempts_max) {
      Error error = result.error();
      error.message = store.describe() + ": the store could not be probed in " +
                      std::to_string(attempts) + " attempts: " + error.message;
      co_return fail(std::move(error));
    }
    co_await sleep_for(world, backoff);
    backoff *= 2;
  }
}

}  // namespace celld
