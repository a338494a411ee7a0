#include "core/core.h"

#include <algorithm>

#include "core/alarms.h"
#include "core/bucket.h"
#include "core/commit.h"
#include "core/drain.h"
#include "core/journal.h"
#include "core/lease.h"
#include "core/ownership.h"
#include "core/records.h"
#include "core/recovery.h"
#include "core/wake_scan.h"

namespace celld {

namespace {

// A store that is away at start ends the process with a clear message.
constexpr Duration kStartTime = std::chrono::seconds(30);
constexpr Duration kRecoverPredecessorTime = std::chrono::minutes(2);
constexpr size_t kReleasesInFlight = 32;

}  // namespace

std::string_view to_string(Trouble kind) {
  switch (kind) {
    case Trouble::kJournal: return "journal";
    case Trouble::kDrain: return "drain";
    case Trouble::kCompaction: return "compaction";
    case Trouble::kPressure: return "pressure";
  }
  return "unknown";
}

class Core::Impl {
 public:
  Impl(World& world, ObjectStore& data, ObjectStore& lease_store, CoreHost& host, CoreOptions options)
      : world_(world),
        options_(std::move(options)),
        host_(host),
        lease_(world, lease_store, options_,
               [this](FenceReason reason, std::string detail) { on_lost(reason, std::move(detail)); }),
        bucket_(world, data, options_.request_timeout, [this] { return lease_.lost() || ended_; }),
        journal_(world, data, lease_, host, options_,
                 [this](std::span<const Commit* const> commits) { on_durable(commits); }),
        recoverer_(world, bucket_, options_.node, options_.lease_ttl),
        alarms_(world, bucket_, host, options_.node),
        ownership_(world, bucket_, lease_, journal_, recoverer_, alarms_, options_,
                   [this] { drainer_.request(); }),
        drainer_(world, bucket_, lease_, journal_, ownership_, alarms_, host, options_),
        scanner_(world, bucket_, recoverer_, alarms_, options_),
        releases_(world) {}

  Task<Result<void>> start();
  Task<Result<Activation>> activate(CellId cell, Deadline deadline, std::optional<OwnedElsewhere>* elsewhere,
                                    MonoTime patience);
  void commit(Commit commit, EncodedCommit encoded);
  Task<Result<void>> release(CellId cell);
  Task<Result<void>> shutdown(Deadline deadline);
  void set_alarm(const CellId& cell, std::optional<WallMs> at) {
    alarms_.restored(cell, at);
    drainer_.something_to_do();
  }
  bool under_pressure() const {
    return journal_.bytes_undrained() >= options_.undrained_bytes_max;
  }
  size_t running() {
    return lease_.running() + journal_.running() + ownership_.tasks().running() +
           drainer_.tasks().running() + recoverer_.tasks().running() + alarms_.tasks().running() +
           scanner_.tasks().running() + releases_.running();
  }

  LeaseKeeper& lease() { return lease_; }
  Journal& journal() { return journal_; }
  Ownership& ownership() { return ownership_; }

 private:
  Task<Result<void>> check_format(Deadline deadline);
  Task<Result<void>> close(Deadline deadline);
  void on_lost(FenceReason reason, std::string detail);
  void on_durable(std::span<const Commit* const> commits);
  void stop_background();

  World& world_;
  const CoreOptions options_;
  CoreHost& host_;
  bool ended_ = false;
  LeaseKeeper lease_;
  Bucket bucket_;
  Journal journal_;
  Recoverer recoverer_;
  AlarmKeeper alarms_;
  Ownership ownership_;
  Drainer drainer_;
  WakeScanner scanner_;
  TaskScope releases_;
};

Task<Result<void>> Core::Impl::check_format(Deadline deadline) {
  std::string key(kFormatKey);
  Result<StoredObject> got = co_await bucket_.get(key, deadline);
  if (!got && got.error().code == ErrorCode::kNotFound) {
    FormatRecord record;
    record.written_by = "celld";
    Blob body(encode_format(record));
    Condition condition = Condition::create();
    Settled settled = co_await bucket_.settle(key, std::move(body), std::move(condition), deadline);
    if (settled.kind == Settled::kApplied) co_return Result<void>{};
    if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
    got = co_await bucket_.get(key, deadline);  // another first node was faster
  }
  if (!got) co_return fail(std::move(got).error());
  Result<FormatRecord> record = decode_format(got->body.view());
  if (!record) co_return fail(std::move(record).error());
  co_return Result<void>{};
}

Task<Result<void>> Core::Impl::start() {
  Deadline deadline = world_.deadline_in(kStartTime);
  Result<void> format = co_await check_format(deadline);
  if (!format) co_return fail(format.error().at("bucket " + bucket_.describe()));
  if (options_.predecessor && *options_.predecessor != options_.node) {
    // Its directory is locked by us, so it is gone: no need to wait for its lease.
    NodeId predecessor = *options_.predecessor;
    Deadline recovery = world_.deadline_in(kRecoverPredecessorTime);
    CO_TRY(co_await recoverer_.recover(predecessor, recovery));
  }
  CO_TRY(co_await lease_.open());
  Deadline announcing = world_.deadline_in(kStartTime);
  Result<void> announced = co_await scanner_.announce(announcing);
  if (!announced) {
    lease_.abandon();
    Deadline ending = world_.deadline_in(std::chrono::seconds(1));
    co_await lease_.join(ending);
    co_return fail(announced.error().at("joining the fleet"));
  }
  drainer_.start();
  alarms_.start();
  scanner_.start();
  co_return Result<void>{};
}

Task<Result<Activation>> Core::Impl::activate(CellId cell, Deadline deadline,
                                              std::optional<OwnedElsewhere>* elsewhere, MonoTime patience) {
  if (!lease_.has_authority()) {
    Error e = Error::fenced(cell.value + ": this node has no authority");
    co_return fail(std::move(e));
  }
  Result<Activation> result = co_await ownership_.activate(cell, deadline, elsewhere, patience);
  if (result && !lease_.has_authority()) {
    Error e = Error::fenced(cell.value + ": this node has lost its authority");
    co_return fail(std::move(e));
  }
  drainer_.something_to_do();
  co_return result;
}

void Core::Impl::commit(Commit commit, EncodedCommit encoded) {
  if (lease_.lost() || ended_) return;
  ownership_.committed(commit);
  alarms_.committed(commit);
  journal_.append(std::move(commit), std::move(encoded));
}

void Core::Impl::on_durable(std::span<const Commit* const> commits) {
  std::vector<Proven> proven;
  for (const Commit* commit : commits) {
    OwnedCell* cell = ownership_.find(commit->cell);
    CHECK(cell) << commit->cell << " was given up with commits under way";
    cell->proven = commit->txid;
    alarms_.proven(*commit);
    bool same = !proven.empty() && proven.back().cell == commit->cell &&
                proven.back().epoch == commit->epoch;
    if (same) {
      proven.back().txid = commit->txid;
    } else {
      proven.push_back({commit->cell, commit->epoch, commit->txid});
    }
  }
  host_.on_proven(proven);
  ownership_.progress().notify_all();
  drainer_.something_to_do();
}

void Core::Impl::stop_background() {
  scanner_.stop();
  alarms_.stop();
}

void Core::Impl::on_lost(FenceReason reason, std::string detail) {
  stop_background();
  drainer_.stop();
  ownership_.progress().notify_all();
  host_.on_fenced(reason, std::move(detail));
}

Task<Result<void>> Core::Impl::release(CellId cell) {
  Result<void> released = co_await ownership_.release(cell);
  drainer_.something_to_do();
  co_return released;
}

Task<Result<void>> Core::Impl::close(Deadline deadline) {
  ownership_.stop_claims();
  // Everything that we own, with bounded parallelism.
  std::vector<CellId> cells = ownership_.cells();
  struct Progress {
    Progress(World& world) : permits(world, kReleasesInFlight) {}
    Permits permits;
    std::string trouble;
  };
  auto progress = std::make_shared<Progress>(world_);
  auto release_one = [](Impl* self, CellId cell, std::shared_ptr<Progress> p) -> Task<void> {
    co_await p->permits.acquire();
    Result<void> done = co_await self->ownership_.release(cell);
    // A cell that was taken over and never looked at stays in our name; our journal will say
    // recovered, so whoever wants it claims it.
    if (!done && done.error().code != ErrorCode::kInvalid) p->trouble = done.error().message;
    p->permits.release();
  };
  for (const CellId& cell : cells) releases_.spawn(release_one(this, cell, progress));
  if (!co_await releases_.join(deadline)) {
    Error e = Error::deadline("shutdown: cells are not all released");
    co_return fail(std::move(e));
  }
  if (!progress->trouble.empty()) {
    Error e = Error::unavailable("shutdown: " + progress->trouble);
    co_return fail(std::move(e));
  }
  while (!journal_.idle() && !lease_.lost()) {
    bool notified = co_await ownership_.progress().wait_until(deadline);
    if (!notified) {
      Error e = Error::deadline("shutdown: the journal is not drained");
      co_return fail(std::move(e));
    }
  }
  drainer_.stop();
  if (!co_await drainer_.tasks().join(deadline)) {
    Error e = Error::deadline("shutdown: a drain did not end");
    co_return fail(std::move(e));
  }
  if (lease_.lost()) {
    Error e = Error::fenced("shutdown: the lease is lost");
    co_return fail(std::move(e));
  }
  // A cell that was not released stays in our name, and so the record has to stay as well.
  bool nothing_left = ownership_.cells().empty() && !ownership_.claims_unsettled();
  JournalState end = nothing_left ? JournalState::kLeft : JournalState::kRecovered;
  CO_TRY(co_await lease_.close(end, deadline));
  // Only garbage from here on: nothing of it is needed once the record says so. The record itself is
  // for others to delete (Recoverer::forget): one that is missing would have to be taken for lost.
  journal_.delete_all();
  bool slots_gone = co_await journal_.join(deadline);
  (void)slots_gone;
  if (end == JournalState::kRecovered) co_return Result<void>{};  // the index tells of what stays
  Result<void> index_gone = co_await alarms_.remove_index(deadline);
  (void)index_gone.has_value();
  co_return Result<void>{};
}

Task<Result<void>> Core::Impl::shutdown(Deadline deadline) {
  stop_background();
  Result<void> closed = co_await close(deadline);
  ended_ = true;
  lease_.abandon();  // no effect when closed
  drainer_.stop();
  ownership_.progress().notify_all();
  // Everything ends by itself now: waits see the end, requests their timeouts.
  Deadline last{std::max(deadline.at, world_.now())};
  co_await scanner_.tasks().join(last);
  co_await alarms_.tasks().join(last);
  co_await drainer_.tasks().join(last);
  co_await ownership_.tasks().join(last);
  co_await recoverer_.tasks().join(last);
  co_await releases_.join(last);
  co_await journal_.join(last);
  co_await lease_.join(last);
  co_return closed;
}

Core::Core(World& world, ObjectStore& data, ObjectStore& lease, CoreHost& host, CoreOptions options)
    : impl_(std::make_unique<Impl>(world, data, lease, host, std::move(options))) {}

Core::~Core() {
  if (impl_->running() > 0) static_cast<void>(impl_.release());
}

Task<Result<void>> Core::start() { return impl_->start(); }
bool Core::has_authority() const { return impl_->lease().has_authority(); }
const std::atomic<int64_t>& Core::authority_until_ns() const {
  return impl_->lease().authority_until_ns();
}
Task<Result<Activation>> Core::activate(CellId cell, Deadline deadline,
                                        std::optional<OwnedElsewhere>* elsewhere, MonoTime patience) {
  return impl_->activate(std::move(cell), deadline, elsewhere, patience);
}
void Core::commit(Commit commit, EncodedCommit encoded) {
  impl_->commit(std::move(commit), std::move(encoded));
}
void Core::commit(Commit commit) {
  EncodedCommit encoded = encode_commit(commit);
  impl_->commit(std::move(commit), std::move(encoded));
}
size_t Core::journal_bytes_waiting() const { return impl_->journal().bytes_waiting(); }
size_t Core::undrained_bytes() const { return impl_->journal().bytes_undrained(); }
bool Core::under_pressure() const { return impl_->under_pressure(); }
Txid Core::proven(const CellId& cell) const {
  OwnedCell* owned = impl_->ownership().find(cell);
  return owned ? owned->proven : Txid(0);
}
bool Core::owns(const CellId& cell) const {
  OwnedCell* owned = impl_->ownership().find(cell);
  return owned && !owned->releasing;
}
void Core::set_alarm(const CellId& cell, std::optional<WallMs> at) { impl_->set_alarm(cell, at); }
Task<Result<void>> Core::release(CellId cell) { return impl_->release(std::move(cell)); }
Task<Result<void>> Core::shutdown(Deadline deadline) { return impl_->shutdown(deadline); }

}  // namespace celld
