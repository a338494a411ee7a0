#include "core/journal.h"

#include <algorithm>
#include <utility>

#include "base/marks.h"

namespace celld {

namespace {

// From one slot to the next when the store begins to throttle, and at most. While fewer than
// kGathered commits wait, so many times longer: a slot must save more requests than its repetitions cost.
constexpr Duration kPaceMin = std::chrono::milliseconds(200);
constexpr Duration kPaceMax = std::chrono::milliseconds(500);
constexpr int64_t kGathered = 4;

size_t bytes_of(const Commit& commit) {
  return commit.pages.size() * kPageSize + sizeof(Commit) + commit.cell.value.size();
}

}  // namespace

Journal::Journal(World& world, ObjectStore& store, LeaseKeeper& lease, CoreHost& host,
                 const CoreOptions& options, OnDurable on_durable)
    : world_(world),
      lease_(lease),
      bucket_(world, store, options.request_timeout, [&lease] { return lease.lost(); }),
      node_(options.node),
      in_flight_max_(options.slots_in_flight_max),
      undrained_bytes_max_(options.undrained_bytes_max),
      aside_bytes_min_(options.aside_bytes_min),
      on_durable_(std::move(on_durable)),
      trouble_(world, host, Trouble::kJournal),
      writer_(options.node, Slot(1), options.slot_bytes_max),
      tasks_(world) {
  CHECK(in_flight_max_ >= 1);
}

void Journal::append(Commit commit, EncodedCommit encoded) {
  if (lease_.lost()) return;
  CHECK(encoded.txid == commit.txid && encoded.cell == commit.cell) << commit.cell;
  std::string what = commit.cell.value + " commit " + std::to_string(commit.txid.value);
  if (auto taken = writer_.add(std::move(encoded)); !taken) {
    // The VFS refuses commits of this size before they come here.
    CHECK(false) << what << ": " << taken.error().message;
  }
  Held held;
  held.bytes = bytes_of(commit);
  ++per_cell_[commit.cell];
  held.commit = std::move(commit);
  bytes_waiting_ += held.bytes;
  bytes_held_ += held.bytes;
  held_.push_back(std::move(held));
  pump_soon();
}

void Journal::pump_soon() {
  // Posted, so that all that arrives together goes into one slot.
  if (pump_posted_) return;
  pump_posted_ = true;
  auto run = [](Journal* self) -> Task<void> {
    co_await yield_to(self->world_);
    self->pump_posted_ = false;
    self->pump();
  };
  tasks_.spawn(run(this));
}

void Journal::pump() {
  while (!writer_.empty() && in_flight_ < in_flight_max_ && lease_.has_authority()) {
    if (throttled_in_flight_ > 0) {
      // A slot is no proof without those before it, so that nothing is won by more requests.
      COVERAGE_MARK("journal-waits-for-a-throttled-slot");
      return;
    }
    const bool enough = held_.size() - packed_ >= size_t(kGathered);
    const MonoTime due = paced_since_ + (enough ? pace_ : pace_ * kGathered);
    if (world_.now() < due) {
      COVERAGE_MARK("journal-paced-by-throttling");
      if (due < pump_due_) {
        pump_due_ = due;
        tasks_.spawn(pump_at(due));
      }
      return;
    }
    // Bounded memory: nothing is sent while too much waits for a drain, which drop_drained() ends.
    // What is packed can always be drained: a commit that is still open is not counted as packed.
    if (bytes_sent_ >= undrained_bytes_max_ && packed_ > 0) {
      COVERAGE_MARK("journal-waits-for-a-drain");
      return;
    }
    paced_since_ = world_.now();
    Slot drained = lease_.drained();
    SlotWriter::Sealed sealed = writer_.seal(drained);
    Sent sent;
    sent.commits = sealed.ended.size();
    sent.drained = drained;
    sent.open_since = sealed.open_since;
    for (size_t i = 0; i < sealed.ended.size(); ++i) {
      Held& held = held_[packed_ + i];
      CHECK(held.commit.txid == sealed.ended[i].txid && held.commit.cell == sealed.ended[i].cell)
          << sealed.ended[i].cell << " " << sealed.ended[i].txid << " out of turn";
      held.last = sealed.slot;
      bytes_waiting_ -= held.bytes;
      bytes_sent_ += held.bytes;
    }
    packed_ += sealed.ended.size();
    if (sent.open_since) COVERAGE_MARK("commit-split-over-slots");
    if (MUTANT("acknowledge-before-durable")) sent.created = true;
    sent_.emplace(sealed.slot, sent);
    if (MUTANT("acknowledge-before-durable")) advance();
    if (MUTANT("drain-past-the-durable-slot") && !sent.open_since) drainable_ = sealed.slot;
    ++in_flight_;
    tasks_.spawn(create_slot(std::move(sealed.draft)));
  }
}

Task<void> Journal::pump_at(MonoTime due) {
  co_await sleep_for(world_, due - world_.now());
  if (pump_due_ != due) co_return;  // another, that is earlier
  pump_due_ = MonoTime::max();
  pump();
}

// A store that throttles gets fewer and fuller slots, one that does not what is there at once.
void Journal::slot_done(bool throttled) {
  if (throttled) {
    pace_ = std::clamp(pace_ * 2, kPaceMin, kPaceMax);
  } else {
    pace_ = pace_ * 3 / 4 < kPaceMin ? Duration(0) : pace_ * 3 / 4;
  }
}

Task<void> Journal::create_slot(SlotWriter::Draft draft) {
  Slot slot = draft.slot;
  size_t size = draft.bytes;
  std::move_only_function<Blob()> encode = [draft = std::move(draft)] { return draft.encode(); };
  Blob bytes;
  if (size < aside_bytes_min_) {
    bytes = encode();
  } else {
    bytes = co_await compute<Blob>(world_, Urgency::kForeground, std::move(encode));
  }
  CHECK(bytes.size() == size) << "slot " << slot << " has " << bytes.size() << " bytes, not " << size;
  encode = nullptr;
  std::string key = journal_key(node_, slot);
  Condition condition = Condition::create();
  Deadline never = Deadline::never();  // ends with the lease
  Settled settled;
  bool throttled = false;
  AttemptFailed failed = [this, &throttled, began = world_.now()](const Error& e) {
    if (!throttled && asks_for_pause(e)) {
      throttled = true;
      ++throttled_in_flight_;
    }
    trouble_.failed(began, e.message);
  };
  for (;;) {
    settled = co_await bucket_.settle(key, bytes, condition, never, &failed);
    if (settled.kind == Settled::kUnsettled) failed(settled.error);
    if (settled.kind != Settled::kUnsettled || lease_.lost()) break;
    // A lasting error of the store (credentials, quota): nothing is acknowledged meanwhile.
    Duration pause = std::chrono::seconds(1);
    co_await sleep_for(world_, pause);
  }
  --in_flight_;
  if (throttled) --throttled_in_flight_;
  slot_done(throttled);
  if (lease_.lost()) co_return;
  if (settled.kind == Settled::kRejected && !MUTANT("ignore-a-fence-in-the-way")) {
    COVERAGE_MARK("slot-lost-to-a-fence");
    std::string what = key + ": ";
    std::string_view found = settled.current ? settled.current->body.view() : std::string_view();
    Result<SlotContent> content = decode_slot(found);
    if (content && content->kind == SlotKind::kFence) {
      what += "fenced by node " + content->fencer.value;
    } else {
      what += "holds something that this node did not write";
    }
    lease_.lose(FenceReason::kJournalFenced, std::move(what));
    co_return;
  }
  // The reply counts only if the authority outlived it: a slot that a taker never saw could
  // otherwise be taken for durable.
  if (!lease_.has_authority() && !MUTANT("durable-without-authority")) {
    COVERAGE_MARK("slot-reply-after-the-lease");
    lease_.lose(FenceReason::kExpired, key + ": the reply came after the end of the lease");
    co_return;
  }
  auto it = sent_.find(slot);
  if (it == sent_.end() && (MUTANT("acknowledge-before-durable") || MUTANT("accept-a-slot-above-a-hole"))) co_return;
  CHECK(it != sent_.end()) << "slot " << slot;
  it->second.created = true;
  trouble_.succeeded();
  advance();
  pump();
}

void Journal::advance() {
  size_t proven = 0;
  while (!sent_.empty() && (sent_.begin()->second.created ||
                            (MUTANT("accept-a-slot-above-a-hole") && sent_.rbegin()->second.created))) {
    const auto& [slot, sent] = *sent_.begin();
    CHECK(slot == durable_.next()) << "slot " << slot << " after " << durable_;
    durable_ = slot;
    marked_ = sent.drained;
    if (!sent.open_since || MUTANT("drain-into-a-split-commit")) drainable_ = std::max(drainable_, slot);
    CHECK(!sent.open_since || MUTANT("drain-into-a-split-commit") ||
          MUTANT("drain-past-the-durable-slot") || *sent.open_since == drainable_.next())
        << "commit open since " << *sent.open_since << ", drainable " << drainable_;
    proven += sent.commits;
    sent_.erase(sent_.begin());
  }
  if (proven > 0) {
    std::vector<const Commit*> commits;
    commits.reserve(proven);
    for (size_t i = 0; i < proven; ++i) commits.push_back(&held_[durable_count_ + i].commit);
    durable_count_ += proven;
    CHECK(durable_count_ <= packed_);
    on_durable_(commits);
  }
  // Only what the next drain takes as a whole: then each object it writes has all pages of its
  // range.
  while (folded_ < durable_count_ && held_[folded_].last <= drainable_) fold(held_[folded_++]);
}

void Journal::fold(Held& held) {
  Newest& newest = newest_[held.commit.cell];
  if (newest.epoch != held.commit.epoch) newest = Newest{held.commit.epoch, {}};
  for (const NumberedPage& page : held.commit.pages) {
    auto [it, fresh] = newest.pages.try_emplace(page.pgno, &held);
    if (fresh) continue;
    Held& older = *std::exchange(it->second, &held);
    if (older.last <= frozen_) {
      COVERAGE_MARK("page-rewritten-during-a-drain");
      continue;
    }
    auto& pages = older.commit.pages;
    auto found = std::lower_bound(pages.begin(), pages.end(), page.pgno,
                                  [](const NumberedPage& p, Pgno pgno) { return p.pgno < pgno; });
    CHECK(found != pages.end() && found->pgno == page.pgno && found->page)
        << older.commit.cell << " commit " << older.commit.txid << " has no page " << page.pgno;
    found->page = PageRef();
    older.bytes -= kPageSize;
    bytes_held_ -= kPageSize;
    bytes_sent_ -= kPageSize;
    if (++older.dropped * 2 >= pages.size()) compact(older);
  }
}

void Journal::compact(Held& held) {
  if (held.dropped == 0) return;
  std::erase_if(held.commit.pages, [](const NumberedPage& p) { return !p.page; });
  held.commit.pages.shrink_to_fit();
  held.dropped = 0;
}

// Before it goes.
void Journal::forget(const Held& held) {
  auto newest = newest_.find(held.commit.cell);
  if (newest == newest_.end()) return;
  for (const NumberedPage& page : held.commit.pages) {
    auto it = newest->second.pages.find(page.pgno);
    if (it != newest->second.pages.end() && it->second == &held) newest->second.pages.erase(it);
  }
  if (newest->second.pages.empty()) newest_.erase(newest);
}

std::vector<const Commit*> Journal::commits_through(Slot through) {
  CHECK(through <= drainable_) << through << " is above the drainable slot " << drainable_;
  frozen_ = through;
  std::vector<const Commit*> out;
  for (size_t i = 0; i < durable_count_ && held_[i].last <= through; ++i) {
    compact(held_[i]);
    out.push_back(&held_[i].commit);
  }
  return out;
}

std::vector<const Commit*> Journal::commits_of(const CellId& cell) {
  std::vector<const Commit*> out;
  if (!per_cell_.contains(cell)) return out;
  for (Held& held : held_) {
    if (held.commit.cell != cell) continue;
    compact(held);
    out.push_back(&held.commit);
  }
  return out;
}

bool Journal::drop_drained(Slot through, size_t pages_max) {
  CHECK(through <= drainable_) << through << " is above the drainable slot " << drainable_;
  size_t pages = 0;
  while (durable_count_ > 0 && held_.front().last <= through && pages < pages_max) {
    const Held& held = held_.front();
    pages += held.commit.pages.size() + 1;
    forget(held);
    bytes_held_ -= held.bytes;
    bytes_sent_ -= held.bytes;
    auto it = per_cell_.find(held.commit.cell);
    if (--it->second == 0) per_cell_.erase(it);
    held_.pop_front();
    --durable_count_;
    --packed_;
    --folded_;
  }
  pump();
  return durable_count_ == 0 || held_.front().last > through;
}

void Journal::delete_through(Slot through) {
  CHECK(through <= lease_.drained()) << "slot " << through << " is not known to be drained";
  start_deleting(MUTANT("delete-by-an-unproven-mark") ? through : std::min(through, marked_));
}

void Journal::delete_all() {
  CHECK(idle()) << "commits that are not drained";
  start_deleting(durable_);
}

void Journal::start_deleting(Slot through) {
  delete_wanted_ = std::max(delete_wanted_, MUTANT("delete-an-undrained-slot") ? lease_.drained().next() : through);
  if (deleting_ || deleted_ >= delete_wanted_) return;
  deleting_ = true;
  tasks_.spawn(delete_slots());
}

Task<void> Journal::delete_slots() {
  // Every slot up to `drained` is durable, so it holds data of ours and never a fence.
  while (deleted_ < delete_wanted_ && !lease_.lost()) {
    std::vector<std::string> keys;
    Slot last = deleted_;
    Deadline deadline = world_.deadline_in(std::chrono::seconds(30));
    while (last < delete_wanted_ && keys.size() < Bucket::kDeletesTogether) {
      last = last.next();
      keys.push_back(journal_key(node_, last));
    }
    Result<void> gone = co_await bucket_.remove_many(std::move(keys), deadline);
    if (!gone) break;  // the next drain tries again
    deleted_ = last;
  }
  deleting_ = false;
}

Task<bool> Journal::join(Deadline deadline) { return tasks_.join(deadline); }

}  // namespace celld
