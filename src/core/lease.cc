#include "core/lease.h"

#include <algorithm>

#include "base/marks.h"
#include "core/bucket.h"

namespace celld {

namespace {

int64_t ms(Duration d) { return d / std::chrono::milliseconds(1); }

}  // namespace

std::string_view to_string(FenceReason reason) {
  switch (reason) {
    case FenceReason::kExpired: return "expired";
    case FenceReason::kMissing: return "missing";
    case FenceReason::kReplaced: return "replaced";
    case FenceReason::kJournalFenced: return "fenced-journal";
  }
  return "unknown";
}

LeaseKeeper::LeaseKeeper(World& world, ObjectStore& store, const CoreOptions& options, OnLost on_lost)
    : world_(world),
      store_(store),
      key_(node_key(options.node)),
      ttl_(options.lease_ttl),
      on_lost_(std::move(on_lost)),
      wake_(world),
      changed_(world),
      tasks_(world) {
  CHECK(ttl_ >= std::chrono::milliseconds(100)) << "lease TTL of " << ms(ttl_) << " ms";
  record_.node = options.node;
  record_.name = options.name;
  record_.addr = options.addr;
  record_.probe_public_key = options.probe_public_key;
  record_.peer_protocol = options.peer_protocol;
  record_.generation = options.generation;
}

bool LeaseKeeper::has_authority() const {
  if (MUTANT("trust-wall-time")) return !lost_ && !closed_ && world_.wall_now() < record_.expires;
  return !lost_ && !closed_ && world_.now() < authority_until_;
}

void LeaseKeeper::set_authority(MonoTime until) {
  authority_until_ = until;
  authority_until_ns_.store(until.since_start.count(), std::memory_order_release);
}

void LeaseKeeper::lose(FenceReason reason, std::string detail) {
  if (lost_ || closed_) return;
  lost_ = reason;
  authority_until_ = MonoTime{Duration::min()};
  authority_until_ns_.store(INT64_MIN, std::memory_order_release);
  wake_.notify_all();
  changed_.notify_all();
  on_lost_(reason, std::move(detail));
}

LeaseKeeper::Attempt LeaseKeeper::next_attempt() {
  Attempt attempt;
  attempt.started = world_.now();
  attempt.record = record_;
  attempt.record.seq = ++last_seq_;
  attempt.record.expires = WallMs{world_.wall_now().value + ms(ttl_)};
  attempt.record.journal.drained = std::max(record_.journal.drained, drained_wanted_);
  if (closing_) {
    attempt.record.journal.state = *closing_;
    attempt.record.expires = world_.wall_now();
  }
  attempt.body = Blob(encode_node(attempt.record));
  return attempt;
}

Task<Result<void>> LeaseKeeper::open() {
  CHECK(last_seq_ == 0) << "the lease is opened twice";
  Attempt attempt = next_attempt();
  MonoTime expires = attempt.started + ttl_;
  Deadline deadline{expires};
  Bucket bucket(world_, store_, ttl_ / 5, [] { return false; });
  std::string key = key_;
  Blob body = attempt.body;
  Condition condition = Condition::create();
  Settled settled =
      co_await bucket.settle(std::move(key), std::move(body), std::move(condition), deadline);
  if (settled.kind == Settled::kRejected) {
    Error e = Error::make(ErrorCode::kExists, key_ + ": another process runs under this node id");
    co_return fail(std::move(e));
  }
  if (settled.kind == Settled::kUnsettled) co_return fail(settled.error.at("creating the lease"));
  if (world_.now() >= expires) {
    Error e = Error::unavailable(key_ + ": the store took longer than one lease to confirm it");
    co_return fail(std::move(e));
  }
  adopt(attempt, std::move(settled.version));
  tasks_.spawn(run());
  tasks_.spawn(watch_expiry());
  co_return Result<void>{};
}

void LeaseKeeper::adopt(const Attempt& attempt, Version version) {
  CHECK(attempt.record.journal.drained >= record_.journal.drained) << "drained falls";
  Attempt applied = attempt;  // `attempt` may be one of those cleared below
  record_ = std::move(applied.record);
  version_ = std::move(version);
  renewed_at_ = applied.started;
  attempts_.clear();
  last_trouble_.clear();
  if (record_.journal.state != JournalState::kOpen) {
    closed_ = true;
    authority_until_ = MonoTime{Duration::min()};
    authority_until_ns_.store(INT64_MIN, std::memory_order_release);
  } else {
    set_authority((MUTANT("authority-from-the-reply") ? world_.now() : applied.started) + ttl_);
  }
  changed_.notify_all();
  wake_.notify_all();
}

Task<void> LeaseKeeper::run() {
  while (!lost_ && !closed_) {
    MonoTime due = renewed_at_ + ttl_ / 3;
    bool something_to_publish = closing_ || drained_wanted_ > record_.journal.drained ||
                                renewed_at_ < confirm_wanted_;
    if (!something_to_publish && world_.now() < due) {
      co_await wake_.wait_until(Deadline{due});
      continue;
    }
    if (!co_await renew()) co_return;
  }
}

Task<void> LeaseKeeper::watch_expiry() {
  while (!lost_ && !closed_ && !MUTANT("renew-after-expiry") && !MUTANT("trust-wall-time")) {
    if (world_.now() >= authority_until_) {
      COVERAGE_MARK("lease-expired");
      lose(FenceReason::kExpired,
           "no renewal was applied for " + std::to_string(ms(world_.now() - renewed_at_)) + " ms" +
               (last_trouble_.empty() ? "" : "; last: " + last_trouble_));
      co_return;
    }
    Deadline expiry{authority_until_};
    co_await changed_.wait_until(expiry);
  }
}

Deadline LeaseKeeper::attempt_deadline() const {
  // A request that hangs must leave time for others: half of what remains, at most a fifth of the
  // TTL, at least a twentieth.
  Duration left = authority_until_ - world_.now();
  Duration share = std::clamp(left / 2, ttl_ / 20, ttl_ / 5);
  return Deadline{world_.now() + share};
}

Task<bool> LeaseKeeper::renew() {
  Backoff backoff(world_, ttl_ / 200, ttl_ / 20);
  PutOffLook put_off_look;
  for (;;) {
    attempts_.push_back(next_attempt());
    Attempt attempt = attempts_.back();
    std::string key = key_;
    Blob body = attempt.body;
    Condition condition = Condition::swap(version_);
    SwapResult swap = co_await store_.put_if(std::move(key), std::move(body), std::move(condition),
                                             attempt_deadline());
    // An expired lease never becomes valid again, not even by a late success.
    if (lost_) co_return false;
    if (world_.now() >= authority_until_ && !MUTANT("renew-after-expiry") && !MUTANT("trust-wall-time")) {
      COVERAGE_MARK("renewal-reply-after-the-end");
      lose(FenceReason::kExpired, "the reply to a renewal came after the end of the lease");
      co_return false;
    }
    if (swap.outcome == SwapOutcome::kApplied) {
      adopt(attempt, std::move(swap.version));
      co_return true;
    }
    if (swap.outcome == SwapOutcome::kAmbiguous) {
      last_trouble_ = swap.error.message;
      if (put_off_look.after(swap)) {
        // As long as the store asks, but with an eighth of what remains there are some thirty attempts.
        Duration longest = std::max((authority_until_ - world_.now()) / 8, ttl_ / 200);
        Deadline pause{world_.now() + std::min(asked_pause(swap.error) + backoff.next(), longest)};
        while (world_.now() < pause.at) {
          co_await wake_.wait_until(pause);
          if (lost_) co_return false;
        }
        continue;
      }
    }

    // Refused or unknown: what is there decides. It may be any of our attempts.
    std::string read_key = key_;
    Result<StoredObject> found = co_await store_.get(std::move(read_key), attempt_deadline());
    if (lost_) co_return false;
    if (world_.now() >= authority_until_ && !MUTANT("renew-after-expiry") && !MUTANT("trust-wall-time")) {
      COVERAGE_MARK("read-back-after-the-end");
      lose(FenceReason::kExpired, "the record could be read back only after the end of the lease");
      co_return false;
    }
    if (found) {
      auto ours = std::find_if(attempts_.begin(), attempts_.end(),
                               [&](const Attempt& a) { return a.body == found->body; });
      if (ours != attempts_.end()) {
        COVERAGE_MARK("renewal-found-applied");
        // Its own start counts, which may be long ago.
        adopt(*ours, std::move(found->version));
        co_return true;
      }
      if (found->version == version_) COVERAGE_MARK("renewal-not-yet-applied");
      if (found->version != version_) {
        COVERAGE_MARK("lease-replaced");
        lose_to(*found);
        co_return false;
      }
    } else if (found.error().code == ErrorCode::kNotFound) {
      lose(FenceReason::kMissing, key_ + " does not exist any more");
      co_return false;
    } else {
      last_trouble_ = "read-back failed: " + found.error().message;
    }
    Deadline pause{world_.now() + backoff.next()};
    while (world_.now() < pause.at) {
      co_await wake_.wait_until(pause);
      if (lost_) co_return false;
    }
  }
}

void LeaseKeeper::lose_to(const StoredObject& found) {
  Result<NodeRecord> record = decode_node(found.body.view(), key_);
  std::string what;
  if (!record) {
    what = record.error().message;
  } else if (record->journal.state != JournalState::kOpen) {
    what = key_ + ": a takeover set the journal to " + std::string(to_string(record->journal.state));
  } else {
    what = key_ + ": somebody else wrote seq " + std::to_string(record->seq);
  }
  lose(FenceReason::kReplaced, std::move(what));
}

Task<Result<void>> LeaseKeeper::advance_drained(Slot slot) {
  drained_wanted_ = std::max(drained_wanted_, slot);
  wake_.notify_all();
  while (record_.journal.drained < slot) {
    if (lost_ || closed_) {
      Error e = Error::fenced(key_ + ": the lease is lost, drained slot not published");
      co_return fail(std::move(e));
    }
    co_await changed_.wait();
  }
  co_return Result<void>{};
}

Task<Result<void>> LeaseKeeper::confirm() {
  const MonoTime asked = world_.now();
  confirm_wanted_ = asked;
  wake_.notify_all();
  while (renewed_at_ < asked) {
    if (lost_ || closed_) {
      Error e = Error::fenced(key_ + ": the lease is lost, nothing confirms what was written");
      co_return fail(std::move(e));
    }
    co_await changed_.wait();
  }
  co_return Result<void>{};
}

Task<Result<void>> LeaseKeeper::close(JournalState end, Deadline deadline) {
  CHECK(end == JournalState::kLeft || end == JournalState::kRecovered) << to_string(end);
  closing_ = end;
  wake_.notify_all();
  while (!closed_ && !lost_) {
    bool notified = co_await changed_.wait_until(deadline);
    if (!notified && !closed_ && !lost_) {
      abandon();
      Error e = Error::unavailable(key_ + ": the journal could not be closed in time");
      co_return fail(std::move(e));
    }
  }
  if (lost_) {
    Error e = Error::fenced(key_ + ": the lease is lost");
    co_return fail(std::move(e));
  }
  co_return Result<void>{};
}

void LeaseKeeper::abandon() {
  if (lost_ || closed_) return;
  on_lost_ = [](FenceReason, std::string) {};
  lose(FenceReason::kExpired, "abandoned");
}

}  // namespace celld
