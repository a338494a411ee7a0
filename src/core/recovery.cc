#include "core/recovery.h"

#include <algorithm>
#include <map>

#include "base/marks.h"
#include "core/restore.h"
#include "ltx/ltx.h"

namespace celld {

namespace {

constexpr size_t kReadsInFlight = 64;
constexpr size_t kWritesInFlight = 32;
// Enough for a fence record and for the head of a data slot.
constexpr uint64_t kHeadBytes = 512;
constexpr size_t kSlotsMax = 1'000'000;
constexpr unsigned kMarkRoundsMax = 100;
constexpr size_t kRecoveredMax = 10'000;  // remembered
constexpr unsigned kLooksMax = 4;         // at a record that is written and is not there
constexpr size_t kGlanceSlotsMax = 32;    // more than stays of a journal that was recovered

}  // namespace

Recoverer::Recoverer(World& world, Bucket& bucket, NodeId self, Duration ttl)
    : world_(world), bucket_(bucket), self_(std::move(self)), ttl_(ttl), tasks_(world) {}

void Recoverer::remember(const NodeId& node) {
  if (recovered_.size() >= kRecoveredMax) recovered_.clear();
  recovered_.insert(node);
}

Task<Result<PeerState>> Recoverer::look_before_claim(NodeId node, Deadline deadline) {
  if (recovered_.contains(node)) {
    PeerState known;
    known.kind = PeerState::kRecovered;
    co_return known;
  }
  for (unsigned tries = 0; tries < kLooksMax; ++tries) {
    CO_TRY_ASSIGN(PeerState state, co_await look(node, deadline));
    if (state.kind != PeerState::kMissing || MUTANT("no-wait-without-a-record")) co_return state;
    CO_TRY_ASSIGN(bool fenced, co_await is_fenced(node, deadline));
    if (fenced) {
      COVERAGE_MARK("record-missing-but-fenced");
      co_return state;
    }
    // The node renews by a swap, so from here on it cannot; what it has lasts no longer than this.
    COVERAGE_MARK("record-missing-waited-for");
    WallMs expires{world_.wall_now().value + ttl_ / std::chrono::milliseconds(1)};
    co_await write_lost(node, JournalState::kOpen, expires, deadline);
  }
  Error e = Error::unavailable(node_key(node) + ": its record does not stay");
  co_return fail(std::move(e));
}

Task<void> Recoverer::write_lost(NodeId node, JournalState journal, WallMs expires, Deadline deadline) {
  NodeRecord lost;
  lost.node = node;
  lost.seq = 1;
  lost.expires = expires;
  lost.journal.state = journal;
  lost.journal.lost = true;
  std::string key = node_key(node);
  Blob body(encode_node(lost));
  Condition condition = Condition::create();
  SwapResult ignored = co_await bucket_.put_if(std::move(key), std::move(body), std::move(condition), deadline);
  (void)ignored.outcome;
}

Task<Result<bool>> Recoverer::is_fenced(NodeId node, Deadline deadline) {
  ListRequest request;
  request.prefix = journal_prefix(node);
  request.keys_max = kGlanceSlotsMax;
  CO_TRY_ASSIGN(ListPage page, co_await bucket_.list(std::move(request), deadline));
  if (page.more) co_return false;
  std::vector<Task<Result<Occupant>>> looks;
  for (const ListedObject& object : page.objects) {
    std::optional<JournalName> name = parse_journal_key(object.key);
    if (name) looks.push_back(occupant(node, name->slot, deadline));
  }
  std::vector<Result<Occupant>> found = co_await join_all(world_, std::move(looks));
  for (Result<Occupant>& occupant : found) {
    if (!occupant) co_return fail(std::move(occupant).error());
    if (*occupant == Occupant::kFence) co_return true;
  }
  co_return false;
}

Task<Result<PeerState>> Recoverer::look(NodeId node, Deadline deadline) {
  std::string key = node_key(node);
  Result<StoredObject> got = co_await bucket_.get(key, deadline);
  PeerState state;
  if (!got) {
    if (got.error().code == ErrorCode::kNotFound) co_return state;
    co_return fail(std::move(got).error());
  }
  CO_TRY_ASSIGN(state.record, decode_node(got->body.view(), key));
  state.version = std::move(got->version);
  if (state.record.journal.state == JournalState::kRecovered ||
      state.record.journal.state == JournalState::kLeft) {
    state.kind = PeerState::kRecovered;
    remember(node);
  } else if (state.record.journal.state == JournalState::kFencing ||
             state.record.expires <= world_.wall_now()) {
    state.kind = PeerState::kDead;
  } else {
    state.kind = PeerState::kLive;
  }
  co_return state;
}

Task<Result<void>> Recoverer::recover(NodeId node, Deadline deadline) {
  for (;;) {
    std::shared_ptr<Shared> shared;
    bool ours = !running_.contains(node);
    if (!ours) COVERAGE_MARK("recovery-shared-by-two-callers");
    if (ours) {
      shared = std::make_shared<Shared>(world_);
      running_[node] = shared;
      tasks_.spawn(run(node, deadline, shared));
    } else {
      shared = running_[node];
    }
    while (!shared->result) {
      bool notified = co_await shared->done.wait_until(deadline);
      if (!notified && !shared->result) {
        Error e = Error::unavailable("recovery of node " + node.value + " goes on");
        co_return fail(std::move(e));
      }
    }
    // Somebody else's may have failed for want of time that we have.
    bool again = !ours && !*shared->result && shared->result->error().code == ErrorCode::kUnavailable &&
                 !bucket_.stopped();
    if (!again) co_return *shared->result;
  }
}

Task<void> Recoverer::run(NodeId node, Deadline deadline, std::shared_ptr<Shared> shared) {
  Result<void> result = co_await recover_alone(node, deadline);
  if (!result) result = fail(result.error().at("recovery of node " + node.value));
  shared->result = std::move(result);
  running_.erase(node);
  shared->done.notify_all();
}

Task<Result<void>> Recoverer::recover_alone(NodeId node, Deadline deadline) {
  CHECK(node != self_) << "a node does not recover itself";
  Backoff backoff(world_, std::chrono::milliseconds(10), std::chrono::seconds(1));
  for (unsigned round = 0;; ++round) {
    if (round > 0) {
      Duration pause = backoff.next();
      if (world_.now() + pause >= deadline.at) {
        Error e = Error::unavailable("not finished in time");
        co_return fail(std::move(e));
      }
      if (round > 2) co_await sleep_for(world_, pause);
    }
    CO_TRY_ASSIGN(PeerState state, co_await look(node, deadline));
    if (state.kind == PeerState::kRecovered) co_return Result<void>{};

    if (state.kind == PeerState::kMissing && MUTANT("take-a-missing-record-for-recovered")) co_return Result<void>{};
    if (state.kind == PeerState::kMissing) {
      // Step 1 without a record. The node renews by a swap, so from here on it cannot, and can never
      // again publish a higher mark. Whatever the outcome: look again.
      WallMs now = world_.wall_now();
      co_await write_lost(node, JournalState::kFencing, now, deadline);
      continue;
    }
    if (state.record.journal.state == JournalState::kOpen && !MUTANT("fence-without-the-lease-swap")) {
      // Step 1. From here on no renewal of the node can succeed. `drained` comes from the version that
      // says fencing; if that may not be ours: look again.
      NodeRecord fencing = state.record;
      fencing.seq += 1;
      fencing.journal.state = JournalState::kFencing;
      std::string key = node_key(node);
      Blob body(encode_node(fencing));
      Condition condition = Condition::swap(state.version);
      SwapResult swap = co_await bucket_.put_if(std::move(key), std::move(body), std::move(condition),
                                                deadline);
      if (swap.outcome != SwapOutcome::kApplied) continue;
      state.record = std::move(fencing);
      state.version = std::move(swap.version);
    }
    CO_TRY_ASSIGN(bool finished, co_await recover_fenced(std::move(state), deadline));
    if (finished) co_return Result<void>{};
  }
}

Task<Result<bool>> Recoverer::recover_fenced(PeerState state, Deadline deadline) {
  const NodeId node = state.record.node;
  const bool lost = state.record.journal.lost;
  Slot drained = MUTANT("recover-from-a-stale-mark") ? Slot() : state.record.journal.drained;
  if (lost) {
    CO_TRY_ASSIGN(Slot mark, co_await newest_mark(node, deadline));
    drained = std::max(drained, mark);
  }
  // Step 2.
  CO_TRY_ASSIGN(Fence found, co_await fence_journal(node, drained, deadline));
  // A hole may also be a slot that the node has drained and deleted, if `drained` is not its last mark.
  // Then a slot with a mark at or above the hole was there before that deletion, and one is there now.
  while ((lost || found.more) && !MUTANT("take-any-hole-for-the-end") && !MUTANT("recover-from-a-stale-mark")) {
    CO_TRY_ASSIGN(Slot mark, co_await newest_mark(node, deadline));
    if (mark < found.slot) break;
    drained = mark;
    CO_TRY_ASSIGN(found, co_await fence_journal(node, drained, deadline));
  }
  const Slot fence = found.slot;
  // Step 3. What lies below the fence is the node's, for ever.
  CO_TRY_ASSIGN(std::optional<std::vector<Commit>> commits,
                co_await read_slots(node, drained, fence, deadline));
  if (!commits) COVERAGE_MARK("recovery-slot-missing");
  if (!commits) co_return false;
  CO_TRY_ASSIGN(PeerState again, co_await look(node, deadline));
  if (again.version != state.version) COVERAGE_MARK("recovery-record-changed");
  if (MUTANT("fence-without-the-lease-swap")) state = again;
  if (again.version != state.version && !MUTANT("write-without-rereading-the-record")) co_return false;
  CO_TRY(co_await write_tails(*commits, deadline));
  if (MUTANT("forget-the-alarms-of-the-journal")) commits->clear();
  CO_TRY(co_await write_alarms(node, std::move(*commits), fence.prev(), deadline));
  // Step 4.
  NodeRecord recovered = state.record;
  recovered.seq += 1;
  recovered.journal.state = JournalState::kRecovered;
  recovered.journal.drained = fence.prev();
  std::string key = node_key(node);
  Blob body(encode_node(recovered));
  Condition condition = Condition::swap(state.version);
  Settled settled =
      co_await bucket_.settle(std::move(key), std::move(body), std::move(condition), deadline);
  if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
  if (settled.kind == Settled::kRejected) COVERAGE_MARK("recovered-by-a-colleague");
  if (settled.kind == Settled::kRejected) co_return false;
  tasks_.spawn(delete_slots_later(node, fence));
  remember(node);
  if (on_recovered_) on_recovered_(node);
  co_return true;
}

Task<Result<Recoverer::Occupant>> Recoverer::occupant(NodeId node, Slot slot, Deadline deadline) {
  std::string key = journal_key(node, slot);
  ByteRange head{0, kHeadBytes};
  Result<StoredObject> got = co_await bucket_.get_range(key, head, deadline);
  if (!got) {
    if (got.error().code == ErrorCode::kNotFound) co_return Occupant::kNothing;
    co_return fail(std::move(got).error());
  }
  // A fence is shorter than the head, so it decodes; the head of a data slot that is longer does not.
  if (got->object_bytes > kHeadBytes) co_return Occupant::kData;
  Result<SlotContent> content = decode_slot(got->body.view());
  if (!content) co_return fail(content.error().at(key));
  if (content->node != node || content->slot != slot) {
    Error e = Error::corrupt(key + ": holds slot " + std::to_string(content->slot.value) +
                             " of node " + content->node.value);
    co_return fail(std::move(e));
  }
  co_return content->kind == SlotKind::kFence ? Occupant::kFence : Occupant::kData;
}

Task<Result<Slot>> Recoverer::newest_mark(NodeId node, Deadline deadline) {
  std::string prefix = journal_prefix(node);
  std::string from_start;
  for (unsigned round = 0; round < kMarkRoundsMax; ++round) {
    CO_TRY_ASSIGN(std::vector<ListedObject> listed,
                  co_await bucket_.list_all(prefix, from_start, kSlotsMax, deadline));
    bool changed = false;
    // Marks only grow from slot to slot. A fence has none.
    for (size_t i = listed.size(); i > 0 && !changed; --i) {
      const std::string key = listed[i - 1].key;
      if (!parse_journal_key(key)) continue;
      Result<StoredObject> got = co_await bucket_.get(key, deadline);
      if (!got) {
        // Deleted since: by the node, which has written a newer one, or by a colleague who is done.
        if (got.error().code != ErrorCode::kNotFound) co_return fail(std::move(got).error());
        changed = true;
        continue;
      }
      Result<SlotContent> content = decode_slot(got->body.view());
      if (!content) co_return fail(content.error().at(key));
      if (content->kind == SlotKind::kData) co_return content->drained;
    }
    if (!changed) co_return Slot();
  }
  Error e = Error::unavailable(prefix + ": its newest slot changes all the time");
  co_return fail(std::move(e));
}

Task<Result<Recoverer::Fence>> Recoverer::fence_journal(NodeId node, Slot drained, Deadline deadline) {
  // The walk goes up from drained + 1: a create of the fence, and one further where data is found.
  // On a slot that is known to hold something the create would do nothing, so the run of slots that
  // a LIST shows is looked at instead, in parallel.
  Slot at = drained.next();
  std::string prefix = journal_prefix(node);
  std::string after = drained.value == 0 ? std::string() : journal_key(node, drained);
  CO_TRY_ASSIGN(std::vector<ListedObject> listed,
                co_await bucket_.list_all(prefix, after, kSlotsMax, deadline));
  auto fenced_at = [&](Slot slot) {
    return Fence{slot, !listed.empty() && listed.back().key >= journal_key(node, slot)};
  };
  size_t run = 0;
  while (run < listed.size() && listed[run].key == journal_key(node, Slot(at.value + run))) ++run;
  for (size_t done = 0; done < run;) {
    std::vector<Task<Result<Occupant>>> looks;
    while (looks.size() < kReadsInFlight && done + looks.size() < run) {
      looks.push_back(occupant(node, Slot(at.value + looks.size()), deadline));
    }
    std::vector<Result<Occupant>> found = co_await join_all(world_, std::move(looks));
    for (Result<Occupant>& occupant : found) {
      if (!occupant) co_return fail(std::move(occupant).error());
      if (*occupant == Occupant::kFence) COVERAGE_MARK("fence-of-a-colleague-listed");
      if (*occupant == Occupant::kFence) co_return fenced_at(at);
      if (MUTANT("stop-fencing-after-two-slots") && done == 2) co_return fenced_at(at);
      if (*occupant == Occupant::kNothing) {
        run = 0;
        break;
      }
      at = at.next();
      ++done;
    }
  }
  for (;;) {
    if (MUTANT("skip-the-fence")) co_return fenced_at(at);
    std::string key = journal_key(node, at);
    Blob fence = encode_fence(node, at, self_);
    Condition condition = Condition::create();
    Settled settled =
        co_await bucket_.settle(std::move(key), std::move(fence), std::move(condition), deadline);
    if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
    if (settled.kind == Settled::kApplied) co_return fenced_at(at);
    CO_TRY_ASSIGN(Occupant there, co_await occupant(node, at, deadline));
    if (there == Occupant::kFence) COVERAGE_MARK("fence-of-a-colleague-met");
    if (there == Occupant::kFence) co_return fenced_at(at);
    if (there == Occupant::kData) COVERAGE_MARK("fence-met-data");
    if (there == Occupant::kData) at = at.next();
    // Nothing there: deleted since, by a colleague who is done. The record will tell; try the slot
    // again meanwhile, which does no harm.
  }
}

Task<Result<std::optional<std::vector<Commit>>>> Recoverer::read_slots(NodeId node, Slot drained,
                                                                       Slot fence, Deadline deadline) {
  std::vector<Commit> commits;
  CommitAssembler assembler(node);
  Slot next = drained.next();
  while (next < fence) {
    std::vector<Task<Result<StoredObject>>> reads;
    Slot first = next;
    for (; next < fence && reads.size() < kReadsInFlight; next = next.next()) {
      reads.push_back(bucket_.get(journal_key(node, next), deadline));
    }
    std::vector<Result<StoredObject>> slots = co_await join_all(world_, std::move(reads));
    for (size_t i = 0; i < slots.size(); ++i) {
      std::string key = journal_key(node, Slot(first.value + i));
      if (!slots[i]) {
        // Missing means start over, never empty.
        if (slots[i].error().code == ErrorCode::kNotFound) {
          co_return std::optional<std::vector<Commit>>();
        }
        co_return fail(std::move(slots[i]).error());
      }
      // Aside, one after the other: nobody else touches the assembler meanwhile.
      using Decoded = Result<std::optional<std::vector<Commit>>>;
      std::move_only_function<Decoded()> work = [&assembler, key,
                                                 body = std::move(slots[i]->body)]() -> Decoded {
        Result<SlotContent> content = decode_slot(body.view());
        if (!content) return fail(content.error().at(key));
        if (content->kind == SlotKind::kFence) return std::optional<std::vector<Commit>>();
        TRY_ASSIGN(std::vector<Commit> whole, assembler.feed(*content));
        return std::optional(std::move(whole));
      };
      CO_TRY_ASSIGN(std::optional<std::vector<Commit>> whole,
                    co_await compute<Decoded>(world_, Urgency::kForeground, std::move(work)));
      if (!whole) co_return std::optional<std::vector<Commit>>();
      std::move(whole->begin(), whole->end(), std::back_inserter(commits));
    }
  }
  if (assembler.incomplete()) COVERAGE_MARK("recovery-drops-an-incomplete-commit");
  // What is incomplete at the end was never acknowledged.
  std::optional<std::vector<Commit>> result(std::move(commits));
  co_return result;
}

Task<Result<void>> Recoverer::write_tail(CellId cell, Epoch epoch, std::vector<const Commit*> commits,
                                         Deadline deadline) {
  CO_TRY_ASSIGN(EncodedFile file, co_await merge_and_encode(world_, Urgency::kForeground, cell,
                                                            std::move(commits)));
  std::string key = ltx_key(cell, epoch, 0, file.info.min, file.info.max);
  co_return co_await bucket_.put(std::move(key), std::move(file.body), deadline);
}

Task<Result<void>> Recoverer::write_tails(std::vector<Commit> commits, Deadline deadline) {
  std::map<std::pair<CellId, Epoch>, std::vector<const Commit*>> tails;
  for (const Commit& commit : commits) tails[{commit.cell, commit.epoch}].push_back(&commit);
  std::vector<Task<Result<void>>> writes;
  auto next = tails.begin();
  while (next != tails.end()) {
    for (; next != tails.end() && writes.size() < kWritesInFlight; ++next) {
      writes.push_back(write_tail(next->first.first, next->first.second, std::move(next->second), deadline));
    }
    std::vector<Result<void>> results = co_await join_all(world_, std::move(writes));
    writes.clear();
    for (Result<void>& r : results) {
      if (!r) co_return fail(std::move(r).error());
    }
  }
  co_return Result<void>{};
}

Task<Result<void>> Recoverer::write_alarms(NodeId node, std::vector<Commit> commits, Slot through,
                                           Deadline deadline) {
  // The node's own shards say what held when its index was last written. What its journal set
  // since is added. An entry that no longer holds stays: it only makes somebody look once.
  std::map<CellId, std::optional<WallMs>> changed;
  for (const Commit& commit : commits) {
    if (commit.alarm) changed[commit.cell] = commit.alarm->at;
  }
  AlarmIndexRecord record;
  record.node = node;
  record.seq = 1;
  record.through = through;
  unsigned shard = kRecoveredAlarmShard;
  auto next = changed.begin();
  while (next != changed.end()) {
    record.entries.clear();
    for (; next != changed.end() && record.entries.size() < kAlarmIndexEntriesMax; ++next) {
      if (next->second) record.entries.push_back({next->first, *next->second});
    }
    if (record.entries.empty()) break;
    std::string key = alarm_index_key(node, shard++);
    Blob body(encode_alarm_index(record));
    Condition condition = Condition::create();
    Settled settled = co_await bucket_.settle(key, std::move(body), std::move(condition), deadline);
    if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
    // Rejected: a colleague's, made of the same slots.
  }
  co_return Result<void>{};
}

Task<Result<void>> Recoverer::delete_slots(NodeId node, Slot fence, Deadline deadline) {
  // Never the fence, nor anything above it that could be one.
  std::string prefix = journal_prefix(node);
  std::string from_start;
  CO_TRY_ASSIGN(std::vector<ListedObject> listed,
                co_await bucket_.list_all(prefix, from_start, kSlotsMax, deadline));
  std::erase_if(listed, [&](const ListedObject& object) {
    std::optional<JournalName> name = parse_journal_key(object.key);
    return !name || name->slot >= (MUTANT("collect-the-fence") ? fence.next() : fence);
  });
  std::vector<std::string> keys;
  for (ListedObject& object : listed) keys.push_back(std::move(object.key));
  co_return co_await bucket_.remove_many(std::move(keys), deadline);
}

Task<void> Recoverer::delete_slots_later(NodeId node, Slot fence) {
  // Garbage: on any error the rest stays until the node is forgotten.
  Deadline deadline = world_.deadline_in(std::chrono::seconds(60));
  Result<void> ignored = co_await delete_slots(node, fence, deadline);
}

Task<Result<bool>> Recoverer::forget(NodeId node, Deadline deadline) {
  CO_TRY_ASSIGN(PeerState state, co_await look(node, deadline));
  if (state.kind == PeerState::kMissing) co_return true;
  if (state.kind != PeerState::kRecovered) co_return false;
  // The record goes last: as long as anything is there that could be taken for more than garbage, it
  // says that it is not. An alarm index goes when its alarms are settled.
  Slot end = state.record.journal.drained.next();
  CO_TRY(co_await delete_slots(node, end, deadline));
  ListRequest index;
  index.prefix = alarm_index_prefix(node);
  index.keys_max = 1;
  CO_TRY_ASSIGN(ListPage page, co_await bucket_.list(std::move(index), deadline));
  if (!page.objects.empty()) co_return false;
  std::string key = node_key(node);
  CO_TRY(co_await bucket_.remove(std::move(key), deadline));
  co_return true;
}

}  // namespace celld
