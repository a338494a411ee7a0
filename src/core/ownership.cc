#include "core/ownership.h"

#include <algorithm>

#include "base/marks.h"

namespace celld {

namespace {

using std::chrono::milliseconds;

// Claims of others that we lose to, in one activation, before giving up.
constexpr unsigned kRejectionsMax = 8;
// A request for a claim is not cut short by the callers' deadline: what was sent is brought to an end.
constexpr Duration kStepTime = std::chrono::seconds(10);
// A restore goes on after the callers' deadlines, for this long.
constexpr Duration kRestoreTime = std::chrono::minutes(10);
// How long a restored image waits for the next caller when all before it have gone.
constexpr Duration kImageKept = std::chrono::seconds(30);
// How often the owner of a wanted cell is looked at.
constexpr Duration kOwnerPoll = milliseconds(500);
// How a claim without an outcome is followed: pauses between looks, and for how long a request may be under way.
constexpr Duration kFindOutFirst = std::chrono::seconds(1);
constexpr Duration kFindOutPause = std::chrono::seconds(30);
constexpr Duration kFindOutFor = std::chrono::minutes(5);

}  // namespace

Ownership::Ownership(World& world, Bucket& bucket, LeaseKeeper& lease, Journal& journal,
                     Recoverer& recoverer, AlarmKeeper& alarms, const CoreOptions& options,
                     std::function<void()> request_drain)
    : world_(world),
      bucket_(bucket),
      lease_(lease),
      journal_(journal),
      recoverer_(recoverer),
      alarms_(alarms),
      self_(options.node),
      peer_protocol_(options.peer_protocol),
      request_drain_(std::move(request_drain)),
      progress_(world),
      tasks_(world) {}

Error Ownership::lost_error(const CellId& cell) const {
  return Error::fenced(cell.value + ": this node has lost its lease");
}

OwnedCell* Ownership::find(const CellId& cell) {
  auto it = cells_.find(cell);
  return it == cells_.end() ? nullptr : it->second.get();
}

std::vector<CellId> Ownership::cells() const {
  std::vector<CellId> out;
  for (auto& [id, cell] : cells_) out.push_back(id);
  std::sort(out.begin(), out.end());
  return out;
}

void Ownership::committed(const Commit& commit) {
  OwnedCell* cell = find(commit.cell);
  CHECK(cell) << "commit " << commit.txid << " of " << commit.cell << ", which is not owned";
  CHECK(!cell->releasing) << "commit " << commit.txid << " of " << commit.cell << " in release";
  CHECK(commit.epoch == cell->epoch) << commit.cell << " epoch " << commit.epoch << ", owned in "
                                     << cell->epoch;
  CHECK(commit.txid == cell->last.next()) << commit.cell << " commit " << commit.txid << " after "
                                          << cell->last;
  cell->last = commit.txid;
  // A restored image that nobody fetched is out of date now.
  auto it = pending_.find(commit.cell);
  if (it != pending_.end() && it->second->result && !MUTANT("keep-a-stale-image")) {
    pending_.erase(it);
  }
}

Task<Result<Activation>> Ownership::activate(CellId cell, Deadline deadline,
                                             std::optional<OwnedElsewhere>* elsewhere, MonoTime patience) {
  for (;;) {
    std::shared_ptr<Pending> pending;
    if (auto it = pending_.find(cell); it != pending_.end()) {
      pending = it->second;
      if (pending->result) {
        pending_.erase(cell);
        OwnedCell* owned = find(cell);
        if (owned && !being_released(cell) && *pending->result && (*pending->result)->epoch == owned->epoch) {
          COVERAGE_MARK("image-found-by-the-next-caller");
          co_return std::move(*pending->result);
        }
        pending = nullptr;
      }
    }
    if (!pending) {
      pending = std::make_shared<Pending>(world_);
      pending->until = deadline;
      if (elsewhere) pending->patience = patience;
      pending_[cell] = pending;
      tasks_.spawn(run_activation(cell, pending));
    }
    pending->until.at = std::max(pending->until.at, deadline.at);
    ++pending->waiters;
    while (!pending->result) {
      bool notified = co_await pending->done.wait_until(deadline);
      if (!notified && !pending->result) {
        --pending->waiters;
        Error e = Error::deadline(cell.value + ": activation goes on");
        co_return fail(std::move(e));
      }
    }
    --pending->waiters;
    // A release that was asked for meanwhile has waited for this activation, and takes the cell now.
    bool given_up = *pending->result && being_released(cell) && !lease_.lost();
    if (elsewhere) *elsewhere = pending->elsewhere;
    if (!given_up) co_return *pending->result;
    COVERAGE_MARK("activation-overtaken-by-a-release");
  }
}

Task<void> Ownership::run_activation(CellId cell, std::shared_ptr<Pending> pending) {
  std::optional<Result<LtxFile>> fetched;
  std::optional<Result<Activation>> result;
  // A release under way ends first, whichever way.
  pending->after_release = true;
  while (!lease_.lost() && being_released(cell)) {
    COVERAGE_MARK("activation-waits-for-a-release");
    bool notified = co_await progress_.wait_until(pending->until);
    if (!notified && world_.now() >= pending->until.at) break;
  }
  pending->after_release = false;
  OwnedCell* owned = find(cell);
  if (being_released(cell)) {
    result = fail(Error::unavailable(cell.value + ": its release is not settled yet"));
  } else if (owned) {
    result = co_await restore(cell, std::move(fetched));
  } else {
    Result<void> claimed = co_await claim(cell, pending, &fetched);
    if (claimed) {
      result = co_await restore(cell, std::move(fetched));
    } else {
      result = fail(std::move(claimed).error());
    }
  }
  pending->result = std::move(*result);
  if (pending->waiters == 0 && *pending->result && !lease_.lost()) {
    COVERAGE_MARK("activation-outlives-its-callers");
    tasks_.spawn(forget_later(cell, pending));  // the next caller finds it
  } else {
    pending_.erase(cell);
  }
  pending->done.notify_all();
}

Task<void> Ownership::forget_later(CellId cell, std::shared_ptr<Pending> pending) {
  MonoTime until = world_.now() + kImageKept;
  while (world_.now() < until && !lease_.lost()) {
    co_await progress_.wait_until(Deadline{until});
    auto it = pending_.find(cell);
    if (it == pending_.end() || it->second != pending) co_return;
  }
  auto it = pending_.find(cell);
  if (it != pending_.end() && it->second == pending) pending_.erase(it);
}

Task<Result<Ownership::Claimed>> Ownership::claim_as(CellId cell, Origin origin, OwnerRecord current,
                                                     Condition condition, Chain chain,
                                                     Deadline deadline) {
  if (claims_stopped_) {
    Error e = Error::fenced(cell.value + ": this node is leaving");
    co_return fail(std::move(e));
  }
  OwnerRecord next;
  next.node = self_;
  next.epoch = MUTANT("reuse-an-epoch") && current.epoch.value > 0 ? current.epoch : current.epoch.next();
  next.manifest = current.manifest;
  std::string key = owner_key(cell);
  Blob body(encode_owner(next));
  if (MUTANT("claim-without-a-condition")) CO_TRY(co_await bucket_.put(key, body, deadline));
  ++claims_unsettled_;
  std::optional<Version> before = condition.version;
  Settled settled = co_await bucket_.settle(key, std::move(body), std::move(condition), deadline);
  if (settled.kind == Settled::kUnsettled) {
    // It may still be applied later, and then the record names us. The next activation meets that with a
    // swap to yet another epoch, so nothing is ever served under this one.
    COVERAGE_MARK("claim-unsettled");
    tasks_.spawn(find_out_later(cell, std::move(before)));
    co_return fail(std::move(settled.error));
  }
  --claims_unsettled_;
  if (settled.kind == Settled::kRejected) COVERAGE_MARK("claim-lost-to-another");
  if (settled.kind == Settled::kRejected) co_return Claimed{false};
  if (lease_.lost()) {
    Error e = lost_error(cell);
    co_return fail(std::move(e));
  }
  auto owned = std::make_unique<OwnedCell>();
  owned->id = cell;
  owned->epoch = next.epoch;
  owned->version = std::move(settled.version);
  owned->manifest = std::move(next.manifest);
  owned->last = owned->proven = chain.plan.max;
  owned->first = chain.plan.max.next();
  // What a takeover found above the manifest tells its size only when it is restored.
  owned->page_count = chain.plan.max == owned->manifest.txid ? owned->manifest.page_count : 0;
  owned->chain = std::move(chain.plan.objects);
  owned->garbage = std::move(chain.unused);
  CHECK(!cells_.contains(cell)) << cell;
  cells_[cell] = std::move(owned);
  switch (origin) {
    case Origin::kNew: alarms_.own_new(cell); break;
    case Origin::kReleased: {
      std::string entry;
      if (current.alarm) entry = unowned_entry_key(cell, *current.alarm, current.epoch);
      alarms_.own_released(cell, current.alarm, std::move(entry));
      break;
    }
    case Origin::kTakenOver: alarms_.own_taken_over(cell); break;
  }
  co_return Claimed{true};
}

// Others take a cell that the record gives to a live node for one whose alarm is kept, so that one which is
// ours by a claim that we do not know of must not stay so although nobody asks for it.
Task<void> Ownership::find_out_later(CellId cell, std::optional<Version> before) {
  Backoff backoff(world_, kFindOutFirst, kFindOutPause);
  MonoTime last = world_.now() + kFindOutFor;
  for (;;) {
    MonoTime again = world_.now() + backoff.next();
    while (world_.now() < again && !lease_.lost() && !claims_stopped_) co_await progress_.wait_until(Deadline{again});
    if (lease_.lost() || claims_stopped_) co_return;
    if (find(cell)) break;
    if (pending_.contains(cell)) continue;
    std::string key = owner_key(cell);
    Deadline deadline = world_.deadline_in(kStepTime);
    Result<StoredObject> got = co_await bucket_.get(key, deadline);
    if (!got && got.error().code != ErrorCode::kNotFound) continue;
    if (got) {
      Result<OwnerRecord> record = decode_owner(got->body.view(), key);
      if (record && record->node == self_ && !find(cell)) {
        COVERAGE_MARK("unsettled-claim-was-applied");
        Deadline patience = world_.deadline_in(kStepTime);
        Result<Activation> activated = co_await activate(cell, patience, nullptr, MonoTime{});
        if (!activated) continue;
        break;
      }
      if (got->version != before) break;  // somebody else was faster: ours is refused for ever
    }
    if (world_.now() >= last) co_return;  // nothing is under way for so long
  }
  --claims_unsettled_;
}

Task<Result<void>> Ownership::claim(CellId cell, std::shared_ptr<Pending> pending,
                                    std::optional<Result<LtxFile>>* fetched) {
  std::string key = owner_key(cell);
  unsigned rejections = 0;
  for (;;) {
    if (!lease_.has_authority()) {
      Error e = lost_error(cell);
      co_return fail(std::move(e));
    }
    if (rejections > kRejectionsMax) {
      Error e = Error::unavailable(key + ": claimed by others " + std::to_string(rejections) + " times");
      co_return fail(std::move(e));
    }
    Deadline deadline{std::max(pending->until.at, world_.now() + kStepTime)};
    Result<StoredObject> got = co_await bucket_.get(key, deadline);
    if (!got) {
      if (got.error().code != ErrorCode::kNotFound) co_return fail(std::move(got).error());
      Condition create = Condition::create();
      Chain nothing;
      OwnerRecord never_owned;
      CO_TRY_ASSIGN(Claimed claimed,
                    co_await claim_as(cell, Origin::kNew, std::move(never_owned), std::move(create),
                                      std::move(nothing), deadline));
      if (claimed.applied) co_return Result<void>{};
      ++rejections;
      continue;
    }
    CO_TRY_ASSIGN(OwnerRecord current, decode_owner(got->body.view(), key));
    Condition swap = Condition::swap(got->version);

    if (current.released()) {
      // Cleanly released: the manifest alone tells what to fetch, so that goes in parallel.
      Chain chain;
      Result<RestorePlan> plan = plan_restore(current.manifest.objects);
      if (!plan) co_return fail(plan.error().at(key));
      chain.plan = std::move(*plan);
      if (MUTANT("restore-an-older-manifest") && chain.plan.objects.size() > 1) {
        chain.plan.objects.pop_back();
        chain.plan.max = current.manifest.txid = chain.plan.objects.back().max;
      }
      if (chain.plan.max != current.manifest.txid) {
        Error e = Error::corrupt(key + ": the manifest's objects end at TXID " +
                                 std::to_string(chain.plan.max.value) + ", not " +
                                 std::to_string(current.manifest.txid.value));
        co_return fail(std::move(e));
      }
      struct Fetch {
        explicit Fetch(World& world) : done(world) {}
        Signal done;
        std::optional<Result<LtxFile>> file;
      };
      std::shared_ptr<Fetch> fetch;
      if (!chain.plan.objects.empty()) {
        fetch = std::make_shared<Fetch>(world_);
        auto run = [](Bucket& bucket, CellId id, std::vector<RestoreObject> objects, Deadline until,
                      std::shared_ptr<Fetch> out) -> Task<void> {
          out->file = co_await fetch_merged(bucket, id, std::move(objects), Urgency::kForeground, until);
          out->done.notify_all();
        };
        Deadline restore_deadline = world_.deadline_in(kRestoreTime);
        tasks_.spawn(run(bucket_, cell, chain.plan.objects, restore_deadline, fetch));
      }
      CO_TRY_ASSIGN(Claimed claimed, co_await claim_as(cell, Origin::kReleased, current, std::move(swap),
                                                       std::move(chain), deadline));
      if (claimed.applied) {
        while (fetch && !fetch->file) co_await fetch->done.wait();
        if (fetch) *fetched = std::move(*fetch->file);
        co_return Result<void>{};
      }
      ++rejections;
      continue;
    }

    if (current.node != self_) {
      CO_TRY_ASSIGN(PeerState owner, co_await recoverer_.look_before_claim(current.node, deadline));
      if (owner.kind == PeerState::kLive) {
        // Wait for its lease to end or for the release, whichever comes first.
        Duration left = milliseconds(owner.record.expires.value - world_.wall_now().value + 1);
        Duration pause = std::clamp<Duration>(left, milliseconds(10), kOwnerPoll);
        pause = std::chrono::duration_cast<Duration>(pause * (0.8 + 0.2 * world_.random_unit()));
        pause = std::max<Duration>(pause, milliseconds(5));
        bool reachable = !owner.record.addr.empty() && owner.record.peer_protocol == peer_protocol_;
        if (reachable && world_.now() >= pending->patience) {
          pending->elsewhere = OwnedElsewhere{current.node, owner.record.addr, world_.now() + left};
        }
        if (pending->elsewhere || world_.now() + pause >= pending->until.at) {
          Error e = Error::make(ErrorCode::kNotOwner, cell.value + ": owned by node " + current.node.value +
                                                          (owner.record.addr.empty()
                                                               ? std::string()
                                                               : " at " + owner.record.addr));
          co_return fail(std::move(e));
        }
        co_await sleep_for(world_, pause);
        continue;
      }
      if (owner.kind != PeerState::kRecovered && !MUTANT("claim-before-recovery")) {
        CO_TRY(co_await recoverer_.recover(current.node, deadline));
      }
    }
    if (current.node == self_) COVERAGE_MARK("record-names-us-unknown-to-us");
    // Recovered, or ours by a claim whose outcome we never learned. Only now the LIST. The swap is
    // on the version read in the beginning.
    Result<Chain> chain = co_await list_chain(bucket_, cell, current.manifest, deadline);
    if (!chain && chain.error().code == ErrorCode::kCorrupt) {
      // Or somebody was faster, and has merged and deleted what we listed.
      CO_TRY_ASSIGN(StoredObject again, co_await bucket_.get(key, deadline));
      if (again.version != got->version) {
        ++rejections;
        continue;
      }
    }
    if (!chain) co_return fail(std::move(chain).error());
    CO_TRY_ASSIGN(Claimed claimed, co_await claim_as(cell, Origin::kTakenOver, current, std::move(swap),
                                                     std::move(*chain), deadline));
    if (claimed.applied) co_return Result<void>{};
    ++rejections;
  }
}

Task<Result<Activation>> Ownership::restore(CellId cell, std::optional<Result<LtxFile>> fetched) {
  Deadline deadline = world_.deadline_in(kRestoreTime);
  for (unsigned round = 0;; ++round) {
    OwnedCell* owned = find(cell);
    if (!owned || lease_.lost()) {
      Error e = lost_error(cell);
      co_return fail(std::move(e));
    }
    Activation activation;
    activation.epoch = owned->epoch;
    activation.txid = owned->last;
    // Chain and journal as they are at this instant: what a drain moves meanwhile is in the copy.
    std::vector<Commit> overlay;
    for (const Commit* commit : journal_.commits_of(cell)) overlay.push_back(*commit);
    if (!overlay.empty()) COVERAGE_MARK("wake-overlays-the-own-journal");
    if (MUTANT("wake-without-the-own-journal")) overlay.clear();
    std::vector<RestoreObject> objects;
    if (!owned->chain.empty()) {
      Result<RestorePlan> plan = plan_restore(owned->chain);
      if (!plan) co_return fail(plan.error().at("cell " + cell.value));
      objects = std::move(plan->objects);
    }
    std::optional<LtxFile> base;
    uint32_t base_pages = 0;
    if (!objects.empty()) {
      bool with_the_claim = fetched.has_value();
      if (!fetched) {
        fetched = co_await fetch_merged(bucket_, cell, objects, Urgency::kForeground, deadline);
      }
      Result<LtxFile> file = std::move(*fetched);
      fetched.reset();
      if (!file) {
        // An object may have been replaced by a compaction meanwhile: look again.
        owned = find(cell);
        bool moved = with_the_claim || (owned && owned->chain != objects);
        if (file.error().code == ErrorCode::kCorrupt && moved && round < 3) {
          COVERAGE_MARK("restore-looks-again-after-a-compaction");
          continue;
        }
        if (file.error().code != ErrorCode::kCorrupt) co_return fail(std::move(file).error());
        // Or by a successor of ours, of whom we do not know yet: only the owner may cry.
        std::string key = owner_key(cell);
        Result<StoredObject> record = co_await bucket_.get(key, deadline);
        if (!record) co_return fail(std::move(record).error());
        owned = find(cell);
        if (!owned || record->version != owned->version) {
          COVERAGE_MARK("restore-finds-a-successor");
          Error e = Error::make(ErrorCode::kNotOwner, key + ": changed by somebody else");
          co_return fail(std::move(e));
        }
        co_return fail(std::move(file).error());
      }
      base = std::move(*file);
      base_pages = base->info.page_count;
    }
    std::optional<Result<LtxFile>> whole;
    if (base || !overlay.empty()) {
      whole = co_await apply_commits(world_, std::move(base), std::move(overlay));
    }
    owned = find(cell);
    if (!owned || lease_.lost()) {
      Error e = lost_error(cell);
      co_return fail(std::move(e));
    }
    // A takeover learns the size only here. A drain meanwhile knows better.
    if (base_pages > 0 && owned->page_count == 0) owned->page_count = base_pages;
    if (owned->last != activation.txid || owned->epoch != activation.epoch) {
      // The cell was resident all the while and went on committing.
      if (round < 8) continue;
      Error e = Error::unavailable("cell " + cell.value + ": commits while it is being activated");
      co_return fail(std::move(e));
    }
    if (!whole) {
      CHECK(activation.txid.value == 0) << cell << " has no data at TXID " << activation.txid;
      co_return activation;
    }
    if (!*whole) co_return fail(whole->error().at("cell " + cell.value));
    LtxFile file = std::move(**whole);
    if (file.info.min != Txid(1) || file.info.max != activation.txid) {
      Error e = Error::corrupt("cell " + cell.value + ": restored TXIDs " +
                               std::to_string(file.info.min.value) + " to " +
                               std::to_string(file.info.max.value) + ", expected 1 to " +
                               std::to_string(activation.txid.value));
      co_return fail(std::move(e));
    }
    activation.image = to_image(std::move(file));
    co_return activation;
  }
}

Task<Result<void>> Ownership::checkpoint(OwnedCell* cell, std::vector<RestoreObject>* deletable) {
  CellId id = cell->id;
  OwnerRecord record;
  record.node = self_;
  record.epoch = cell->epoch;
  std::vector<RestoreObject> garbage = cell->garbage;
  Result<RestorePlan> plan = plan_restore(cell->chain);
  if (!plan) co_return fail(plan.error().at("cell " + id.value));
  record.manifest.epoch = cell->epoch;
  record.manifest.txid = plan->max;
  record.manifest.page_count = cell->page_count;
  record.manifest.objects = std::move(plan->objects);
  if (record.manifest.txid == Txid(0)) co_return Result<void>{};
  std::string key = owner_key(id);
  Blob body(encode_owner(record));
  Condition condition = Condition::swap(cell->version);
  Deadline never = Deadline::never();  // ends with the lease
  Settled settled = co_await bucket_.settle(key, std::move(body), std::move(condition), never);
  CHECK(lease_.lost() || find(id) == cell) << id << " went away during its checkpoint";
  if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
  if (settled.kind == Settled::kRejected) {
    Error e = Error::make(ErrorCode::kNotOwner, key + ": changed by somebody else");
    co_return fail(std::move(e));
  }
  COVERAGE_MARK("checkpoint-written");
  cell->version = std::move(settled.version);
  cell->manifest = std::move(record.manifest);
  // What the durable manifest does not name and covers is of no use to anybody any more.
  for (const RestoreObject& object : garbage) {
    if (object.max > cell->manifest.txid) continue;
    if (std::find(cell->chain.begin(), cell->chain.end(), object) != cell->chain.end()) continue;
    if (std::find(cell->manifest.objects.begin(), cell->manifest.objects.end(), object) !=
        cell->manifest.objects.end()) {
      continue;
    }
    deletable->push_back(object);
    std::erase(cell->garbage, object);
  }
  co_return Result<void>{};
}

Task<Result<void>> Ownership::release(CellId cell) {
  ++releases_[cell];
  Result<void> released = co_await give_up(cell);
  auto it = releases_.find(cell);
  if (--it->second == 0) releases_.erase(it);
  progress_.notify_all();
  co_return released;
}

Task<Result<void>> Ownership::give_up(CellId cell) {
  // An activation under way makes it ours first.
  while (!lease_.lost()) {
    auto it = pending_.find(cell);
    if (it == pending_.end() || it->second->after_release) break;
    if (it->second->result) {
      pending_.erase(it);
      break;
    }
    std::shared_ptr<Pending> pending = it->second;
    co_await pending->done.wait();
  }
  OwnedCell* owned = find(cell);
  if (owned && owned->releasing) {
    while (find(cell) == owned && !lease_.lost()) co_await progress_.wait();
    owned = find(cell);
    if (owned && owned->releasing) {
      Error e = lost_error(cell);
      co_return fail(std::move(e));
    }
    co_return Result<void>{};
  }
  if (!owned) co_return Result<void>{};
  if (!alarms_.known(cell)) {
    // Taken over and never looked into: its alarm stands in the index of the node before us, which
    // a release would make obsolete.
    Error e = Error::invalid(cell.value + ": released before its alarm was known");
    co_return fail(std::move(e));
  }
  owned->releasing = true;
  while (!lease_.lost() && (journal_.has_commits_of(cell) || owned->compacting)) {
    if (journal_.drainable() > lease_.drained()) request_drain_();
    co_await progress_.wait();
  }
  if (lease_.lost()) {
    Error e = lost_error(cell);
    co_return fail(std::move(e));
  }
  OwnerRecord record;
  record.epoch = owned->epoch;
  record.manifest = owned->manifest;
  if (!owned->chain.empty()) {
    Result<RestorePlan> plan = plan_restore(owned->chain);
    CHECK(plan) << cell << ": " << plan.error().message;
    CHECK(plan->max == owned->last && owned->last == owned->proven)
        << cell << " drained to " << plan->max << ", committed " << owned->last << ", proven "
        << owned->proven;
    if (!MUTANT("release-with-an-older-manifest"))
      record.manifest = Manifest{owned->epoch, plan->max, owned->page_count, std::move(plan->objects)};
  }
  record.alarm = alarms_.alarm_of(cell);
  Deadline never = Deadline::never();
  if (record.alarm && !MUTANT("release-without-the-alarm-entry")) {
    std::string entry_key = unowned_entry_key(cell, *record.alarm, record.epoch);
    Blob entry(encode_unowned_alarm({cell, *record.alarm}));
    Result<void> written = co_await bucket_.put(std::move(entry_key), std::move(entry), never);
    if (!written) {
      owned->releasing = false;
      progress_.notify_all();
      co_return fail(std::move(written).error());
    }
  }
  // From here on the cell serves nothing. The same request until it is definite.
  std::string key = owner_key(cell);
  Blob body(encode_owner(record));
  for (;;) {
    Condition condition = Condition::swap(owned->version);
    if (MUTANT("serve-while-the-release-is-ambiguous")) {
      SwapResult once = co_await bucket_.put_if(key, body, condition, never);
      owned->releasing = once.outcome != SwapOutcome::kAmbiguous;
      if (!owned->releasing) progress_.notify_all();
      if (!owned->releasing) co_return fail(std::move(once.error));
    }
    Settled settled = co_await bucket_.settle(key, body, std::move(condition), never);
    if (settled.kind == Settled::kRejected) COVERAGE_MARK("release-rejected");
    if (settled.kind == Settled::kUnsettled) COVERAGE_MARK("release-unsettled");
    if (settled.kind != Settled::kUnsettled) break;  // rejected: somebody else has it, as well
    if (lease_.lost()) {
      Error e = lost_error(cell);
      co_return fail(std::move(e));
    }
    Duration pause = std::chrono::seconds(1);
    co_await sleep_for(world_, pause);
  }
  alarms_.disown(cell);
  if (record.alarm) alarms_.released(unowned_entry_key(cell, *record.alarm, record.epoch), *record.alarm);
  cells_.erase(cell);
  progress_.notify_all();
  co_return Result<void>{};
}

}  // namespace celld
