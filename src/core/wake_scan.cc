#include "core/wake_scan.h"

#include <algorithm>

#include "base/marks.h"

namespace celld {

namespace {

using std::chrono::milliseconds;

constexpr size_t kNodesMax = 10'000;
constexpr size_t kNodesInFlight = 8;        // looked at or recovered
constexpr size_t kShardsInFlight = 16;
constexpr size_t kEntriesInFlight = 64;
constexpr size_t kJudgedMax = 100'000;      // remembered
constexpr Duration kJudgedAgain = std::chrono::minutes(10);  // when a live owner keeps the timer
constexpr Duration kScanTime = std::chrono::seconds(60);
// An alarm is looked up this long before it is due, so that the hint comes in time.
constexpr int64_t kAheadMs = 5'000;
// Between rounds, and before what one scan could not judge.
constexpr Duration kPause = std::chrono::seconds(1);
constexpr Duration kPauseAfterError = std::chrono::seconds(5);
// A recovered node's record is of no use a day later.
constexpr int64_t kForgetNodeMs = 24 * 3'600'000;
constexpr Duration kForgetAgain = std::chrono::hours(1);

}  // namespace

WakeScanner::WakeScanner(World& world, Bucket& bucket, Recoverer& recoverer, AlarmKeeper& alarms,
                         const CoreOptions& options)
    : world_(world),
      bucket_(bucket),
      recoverer_(recoverer),
      alarms_(alarms),
      self_(options.node),
      ttl_(options.lease_ttl),
      interval_(options.wake_scan_interval),
      entries_max_(options.wake_entries_max),
      wake_(world),
      tasks_(world) {
  // Its alarms are nobody's now, whoever wanted its cells.
  recoverer_.on_recovered([this](const NodeId&) { scan_all(); });
  alarms_.on_released([this](const std::string& entry_key, WallMs due) {
    not_before_.erase(entry_key);
    unowned_due_ = std::min(unowned_due_.value_or(due), due);
    wake_.notify_all();
  });
}

Task<Result<void>> WakeScanner::announce(Deadline deadline) {
  std::string key(kJoinedKey);
  JoinedRecord record;
  record.seq = 1;
  record.node = self_;
  Condition condition = Condition::create();
  Result<StoredObject> got = co_await bucket_.get(key, deadline);
  if (got) {
    CO_TRY_ASSIGN(JoinedRecord current, decode_joined(got->body.view()));
    record.seq = current.seq + 1;
    condition = Condition::swap(got->version);
  } else if (got.error().code != ErrorCode::kNotFound) {
    co_return fail(std::move(got).error());
  }
  Blob body(encode_joined(record));
  Settled settled = co_await bucket_.settle(key, std::move(body), std::move(condition), deadline);
  if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
  // Refused: somebody else has changed it since we read it. Our lease was there already, so whoever
  // sees that change and lists the nodes finds us as well.
  co_return Result<void>{};
}

void WakeScanner::start() { tasks_.spawn(run()); }

void WakeScanner::stop() {
  stopped_ = true;
  wake_.notify_all();
}

void WakeScanner::scan_all() {
  not_before_.clear();  // it may have been the owner that kept a timer
  whole_ = true;
  wake_.notify_all();
}

Task<void> WakeScanner::run() {
  while (!stopped_) {
    Result<void> done = co_await round();
    last_trouble_ = done ? std::string() : done.error().message;
    MonoTime soonest = world_.now() + (done ? kPause : std::min(kPauseAfterError, interval_));
    while (!stopped_) {
      MonoTime next = std::max(next_round(), soonest);
      if (world_.now() >= next) break;
      co_await wake_.wait_until(Deadline{next});
    }
  }
}

MonoTime WakeScanner::ahead_of(WallMs due) const {
  int64_t left_ms = due.value - kAheadMs - world_.wall_now().value;
  // Far away: the watching looks at the clock often enough.
  constexpr int64_t kDayMs = 24 * 3'600'000;
  return world_.now() + milliseconds(std::clamp<int64_t>(left_ms, 0, kDayMs));
}

WallMs WakeScanner::horizon() const {
  return WallMs{world_.wall_now().value + kAheadMs + interval_ / milliseconds(1)};
}

MonoTime WakeScanner::next_round() const {
  if (whole_ || first_) return world_.now();
  MonoTime next = std::min({next_join_look_, next_node_look_, due_again_});
  if (successor_) next = std::min(next, next_successor_look_);
  if (unowned_due_) next = std::min(next, ahead_of(*unowned_due_));
  if (index_due_) next = std::min(next, ahead_of(*index_due_));
  return next;
}

Task<Result<void>> WakeScanner::round() {
  Deadline deadline = world_.deadline_in(kScanTime);
  MonoTime now = world_.now();
  bool watching = first_ || now >= next_join_look_ || now >= next_node_look_ ||
                  (successor_ && now >= next_successor_look_);
  if (watching) CO_TRY(co_await watch(deadline));
  now = world_.now();
  bool again = now >= due_again_;
  bool unowned = whole_ || again || (unowned_due_ && now >= ahead_of(*unowned_due_));
  if (!unowned && !(index_due_ && now >= ahead_of(*index_due_))) co_return Result<void>{};
  bool whole = std::exchange(whole_, false);
  due_again_ = MonoTime::max();
  Result<void> done = co_await scan(whole, unowned, deadline);
  if (!done) {
    whole_ = whole_ || whole;
    look_again(world_.now());
  }
  co_return done;
}

Task<Result<void>> WakeScanner::scan(bool whole, bool unowned, Deadline deadline) {
  if (not_before_.size() > kJudgedMax) not_before_.clear();
  if (whole) CO_TRY(co_await load_indexes(deadline));
  std::vector<Entry> due;
  if (unowned) CO_TRY(co_await scan_unowned(due, deadline));
  due_in_indexes(due);
  std::sort(due.begin(), due.end(), [](const Entry& a, const Entry& b) { return a.due < b.due; });
  if (due.size() > entries_max_) {
    due.resize(entries_max_);
    look_again(world_.now());
    COVERAGE_MARK("scan-found-too-much");
  }
  co_return co_await settle_entries(std::move(due), deadline);
}

bool WakeScanner::put_off(const std::string& judged) {
  auto it = not_before_.find(judged);
  if (it == not_before_.end() || it->second <= world_.now()) return false;
  look_again(it->second);
  return true;
}

void WakeScanner::put_off_for(const Entry& entry, Duration time) {
  MonoTime until = world_.now() + time;
  not_before_[entry.unowned_key.empty() ? entry.cell.value : entry.unowned_key] = until;
  look_again(until);
}

// --- the others ---

Task<Result<void>> WakeScanner::watch(Deadline deadline) {
  MonoTime now = world_.now();
  bool look = first_ || now >= next_node_look_;
  std::optional<NodeId> suspect;
  if (!look && successor_ && now >= next_successor_look_) {
    NodeId node = *successor_;
    CO_TRY_ASSIGN(PeerState state, co_await recoverer_.look(node, deadline));
    if (state.kind == PeerState::kLive) {
      // A death shows when the lease that we saw last ends, and not a moment later.
      Duration left = milliseconds(state.record.expires.value - world_.wall_now().value);
      left += std::chrono::duration_cast<Duration>(ttl_ * (0.02 + 0.08 * world_.random_unit()));
      next_successor_look_ = world_.now() + std::clamp<Duration>(left, ttl_ / 20, ttl_ * 3 / 2);
    } else {
      look = true;
      suspect = std::move(node);
    }
  }
  if (!look && now < next_join_look_) co_return Result<void>{};
  // Before the LIST: who comes after this look changes it once more.
  std::string key(kJoinedKey);
  Result<StoredObject> got = co_await bucket_.get(key, deadline);
  std::optional<Version> joined;
  if (got) {
    joined = std::move(got->version);
  } else if (got.error().code != ErrorCode::kNotFound) {
    co_return fail(std::move(got).error());
  }
  if (look || !joined || joined != joined_) CO_TRY(co_await look_at_nodes(suspect, deadline));
  joined_ = std::move(joined);
  // Spread, so that a fleet started at once does not look at once.
  next_join_look_ =
      world_.now() + std::chrono::duration_cast<Duration>(interval_ * (0.9 + 0.2 * world_.random_unit()));
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::look_at_nodes(std::optional<NodeId> suspect, Deadline deadline) {
  std::string prefix = "nodes/";
  std::string from_start;
  CO_TRY_ASSIGN(std::vector<ListedObject> listed,
                co_await bucket_.list_all(prefix, from_start, kNodesMax, deadline));
  // By the store's own clock, of which the newest record is the best reading.
  int64_t store_now = 0;
  for (const ListedObject& object : listed) store_now = std::max(store_now, object.modified.value);
  int64_t ttl_ms = ttl_ / milliseconds(1);
  std::set<NodeId> present;
  std::set<NodeId> ring{self_};  // those that renew
  std::vector<Listed> silent;
  for (const ListedObject& object : listed) {
    std::optional<NodeId> node = parse_node_key(object.key);
    if (!node || *node == self_) continue;
    present.insert(*node);
    // A live node renews every third of its TTL.
    bool renews = store_now - object.modified.value < ttl_ms && node != suspect;
    if (renews && !recovered_.contains(*node)) {
      ring.insert(*node);
    } else {
      silent.push_back({*node, object.modified});
    }
  }
  std::erase_if(recovered_, [&](auto& entry) { return !present.contains(entry.first); });
  // Of what has gone, each node cares for those between itself and the next that renews. Two that think
  // themselves in charge do no harm. What was before this node began has perhaps nobody else.
  auto in_charge = [&](const NodeId& node) {
    auto next = ring.lower_bound(node);
    return first_ || (next == ring.begin() ? *ring.rbegin() : *std::prev(next)) == self_;
  };
  std::set<NodeId> vanished;
  for (const NodeId& node : members_) {
    if (!present.contains(node) && in_charge(node)) vanished.insert(node);
  }
  std::erase_if(silent, [&](const Listed& node) { return !in_charge(node.node); });
  next_node_look_ = MonoTime::max();
  for (const NodeId& node : vanished) CO_TRY(co_await recover_vanished(node, deadline));
  CO_TRY(co_await look_at_silent(std::move(silent), store_now, deadline));

  members_ = std::move(present);
  std::erase_if(members_, [&](const NodeId& node) { return recovered_.contains(node); });
  auto next = ring.upper_bound(self_);
  if (next == ring.end()) next = ring.begin();
  successor_ = *next == self_ ? std::nullopt : std::optional<NodeId>(*next);
  next_successor_look_ = world_.now() + ttl_ / 2;
  first_ = false;
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::look_at_silent(std::vector<Listed> silent, int64_t store_now,
                                               Deadline deadline) {
  for (size_t begin = 0; begin < silent.size() && !stopped_; begin += kNodesInFlight) {
    std::vector<Task<Result<void>>> looks;
    for (size_t i = begin; i < std::min(silent.size(), begin + kNodesInFlight); ++i) {
      looks.push_back(look_at(silent[i], store_now, deadline));
    }
    std::vector<Result<void>> looked = co_await join_all(world_, std::move(looks));
    for (Result<void>& r : looked) {
      if (!r) co_return fail(std::move(r).error());
    }
  }
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::look_at(Listed listed, int64_t store_now, Deadline deadline) {
  const NodeId node = listed.node;
  bool left = false;
  if (!recovered_.contains(node)) {
    CO_TRY_ASSIGN(PeerState state, co_await recoverer_.look(node, deadline));
    if (state.kind == PeerState::kLive) {
      // Its clock is ahead of ours, or it will renew in a moment.
      next_node_look_ = std::min(next_node_look_, world_.now() + std::min(interval_, ttl_));
      co_return Result<void>{};
    }
    if (state.kind == PeerState::kRecovered) {
      scan_all();
    } else {
      CO_TRY(co_await recoverer_.recover(node, deadline));
    }
    recovered_[node] = listed.modified;
    left = state.record.journal.state == JournalState::kLeft;
  }
  int64_t age_ms = store_now - listed.modified.value;
  if (left || age_ms >= kForgetNodeMs) {
    CO_TRY_ASSIGN(bool gone, co_await recoverer_.forget(node, deadline));
    if (gone) {
      recovered_.erase(node);
      co_return Result<void>{};
    }
  }
  Duration left_until = std::max<Duration>(milliseconds(kForgetNodeMs - age_ms), kForgetAgain);
  next_node_look_ = std::min(next_node_look_, world_.now() + left_until);
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::recover_vanished(NodeId node, Deadline deadline) {
  // It left and was forgotten, or its record is lost. Then its journal is still there.
  ListRequest request;
  request.prefix = journal_prefix(node);
  request.keys_max = 1;
  CO_TRY_ASSIGN(ListPage page, co_await bucket_.list(std::move(request), deadline));
  scan_all();
  if (page.objects.empty()) co_return Result<void>{};
  CO_TRY_ASSIGN(bool dead, co_await is_dead(node, deadline));
  if (!dead) co_return Result<void>{};
  co_return co_await recoverer_.recover(node, deadline);
}

Task<Result<bool>> WakeScanner::is_dead(NodeId node, Deadline deadline) {
  CO_TRY_ASSIGN(PeerState state, co_await recoverer_.look_before_claim(node, deadline));
  if (state.kind == PeerState::kLive && state.record.journal.lost) {
    next_node_look_ = std::min(next_node_look_, world_.now() + ttl_ * 11 / 10);
  }
  co_return state.kind == PeerState::kMissing || state.kind == PeerState::kDead;
}

// --- the alarms ---

Task<Result<void>> WakeScanner::scan_unowned(std::vector<Entry>& due, Deadline deadline) {
  // Keys are in the order of their minutes: stop at the first that is due later.
  int64_t until = horizon().value;
  // What is released from now on is added by itself.
  unowned_due_.reset();
  std::optional<WallMs> next;
  std::string after;
  for (bool more = true; more && !next && due.size() <= entries_max_;) {
    ListRequest request;
    request.prefix = std::string(kUnownedAlarmPrefix);
    request.start_after = after;
    Result<ListPage> page = co_await bucket_.list(std::move(request), deadline);
    if (!page) {
      unowned_due_ = WallMs{0};
      co_return fail(std::move(page).error());
    }
    for (const ListedObject& object : page->objects) {
      std::optional<UnownedEntryName> name = parse_unowned_entry_key(object.key);
      if (!name) continue;
      if (name->minute.value > until) {
        next = name->minute;
        break;
      }
      if (put_off(object.key)) continue;
      Entry entry;
      entry.cell = name->cell;
      entry.due = name->minute;  // the object says it exactly
      entry.unowned_key = object.key;
      entry.epoch = name->epoch;
      due.push_back(std::move(entry));
    }
    more = page->more;
    after = std::move(page->next_start_after);
  }
  if (next) unowned_due_ = std::min(unowned_due_.value_or(*next), *next);
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::load_indexes(Deadline deadline) {
  std::set<NodeId> nodes;
  ListRequest request;
  request.prefix = "wake/";
  request.delimiter = "/";
  for (;;) {
    ListRequest page_request = request;
    CO_TRY_ASSIGN(ListPage page, co_await bucket_.list(std::move(page_request), deadline));
    for (const std::string& prefix : page.common_prefixes) {
      std::string id = prefix.substr(5, prefix.size() - 6);
      std::optional<NodeId> node = parse_node_id(id);
      if (node && id != "unowned" && *node != self_) nodes.insert(*node);
    }
    if (!page.more || nodes.size() > kNodesMax) break;
    request.start_after = std::move(page.next_start_after);
  }
  std::erase_if(indexes_, [&](auto& entry) { return !nodes.contains(entry.first); });
  for (const NodeId& node : nodes) {
    if (indexes_.contains(node)) continue;
    CO_TRY_ASSIGN(PeerState state, co_await recoverer_.look(node, deadline));
    if (state.kind == PeerState::kMissing) {
      CO_TRY_ASSIGN(bool dead, co_await is_dead(node, deadline));
      if (!dead) continue;
      CO_TRY(co_await recoverer_.recover(node, deadline));
    } else if (state.kind != PeerState::kRecovered) {
      continue;  // alive, or recovered soon by whoever watches it
    }
    CO_TRY(co_await load_index(node, deadline));
  }
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::load_index(NodeId node, Deadline deadline) {
  std::string prefix = alarm_index_prefix(node);
  std::string from_start;
  CO_TRY_ASSIGN(std::vector<ListedObject> listed,
                co_await bucket_.list_all(prefix, from_start, 0x10000, deadline));
  Index index;
  std::map<CellId, std::pair<Slot, WallMs>> newest;  // what the latest slot says of a cell
  for (size_t begin = 0; begin < listed.size(); begin += kShardsInFlight) {
    size_t end = std::min(listed.size(), begin + kShardsInFlight);
    std::vector<Task<Result<StoredObject>>> reads;
    for (size_t i = begin; i < end; ++i) reads.push_back(bucket_.get(listed[i].key, deadline));
    std::vector<Result<StoredObject>> shards = co_await join_all(world_, std::move(reads));
    for (size_t i = begin; i < end; ++i) {
      Result<StoredObject>& shard = shards[i - begin];
      if (!shard) co_return fail(std::move(shard).error());
      CO_TRY_ASSIGN(AlarmIndexRecord record, decode_alarm_index(shard->body.view(), listed[i].key));
      for (const AlarmEntry& entry : record.entries) {
        auto [it, fresh] = newest.try_emplace(entry.cell, record.through, entry.due);
        if (!fresh && it->second.first <= record.through) it->second = {record.through, entry.due};
      }
      index.keys.push_back(listed[i].key);
    }
  }
  for (auto& [cell, alarm] : newest) index.entries.push_back({cell, alarm.second});
  indexes_[node] = std::move(index);
  co_return Result<void>{};
}

void WakeScanner::due_in_indexes(std::vector<Entry>& due) {
  WallMs until = horizon();
  index_due_.reset();
  for (auto& [node, index] : indexes_) {
    for (const AlarmEntry& alarm : index.entries) {
      if (index.settled.contains(alarm.cell)) continue;
      if (alarm.due > until) {
        index_due_ = std::min(index_due_.value_or(alarm.due), alarm.due);
        continue;
      }
      if (put_off(alarm.cell.value)) continue;
      Entry entry;
      entry.cell = alarm.cell;
      entry.due = alarm.due;
      entry.node = node;
      due.push_back(std::move(entry));
    }
  }
}

Task<Result<WakeScanner::Verdict>> WakeScanner::judge(Entry entry, Deadline deadline) {
  std::string key = owner_key(entry.cell);
  Result<StoredObject> got = co_await bucket_.get(key, deadline);
  if (!got) {
    if (got.error().code == ErrorCode::kNotFound) co_return Verdict::kLater;
    co_return fail(std::move(got).error());
  }
  CO_TRY_ASSIGN(OwnerRecord record, decode_owner(got->body.view(), key));
  bool unowned_entry = !entry.unowned_key.empty();
  if (record.released()) {
    if (!unowned_entry) co_return Verdict::kSettled;  // the release left an entry of its own
    if (record.epoch > entry.epoch) co_return Verdict::kSettled;
    co_return Verdict::kHint;
  }
  // A release that is under way: the entry is written before it. If its owner does not live to finish it, the
  // entry tells of an alarm that nobody keeps.
  bool being_released = unowned_entry && record.epoch <= entry.epoch;
  if (record.node == self_) {
    if (being_released) co_return Verdict::kSoon;
    if (alarms_.indexed(entry.cell)) co_return Verdict::kSettled;
    co_return alarms_.known(entry.cell) ? Verdict::kLater : Verdict::kHint;
  }
  if (record.node == entry.node) co_return Verdict::kHint;
  CO_TRY_ASSIGN(PeerState owner, co_await recoverer_.look_before_claim(record.node, deadline));
  if (owner.kind != PeerState::kLive) co_return Verdict::kHint;
  co_return being_released ? Verdict::kSoon : Verdict::kLater;
}

Task<Result<void>> WakeScanner::hint(Entry entry, Deadline deadline) {
  WallMs at = entry.due;
  constexpr int64_t kMinuteMs = 60'000;
  bool within_the_minute = world_.wall_now().value < entry.due.value + kMinuteMs;
  if (!entry.unowned_key.empty() && within_the_minute) {
    Result<StoredObject> got = co_await bucket_.get(entry.unowned_key, deadline);
    if (!got) {
      if (got.error().code == ErrorCode::kNotFound) co_return Result<void>{};
      co_return fail(std::move(got).error());
    }
    std::optional<UnownedEntryName> name = parse_unowned_entry_key(entry.unowned_key);
    CO_TRY_ASSIGN(AlarmEntry exact, decode_unowned_alarm(got->body.view(), name->record_key));
    at = exact.due;
  }
  // Hinted again later, if it has come to nothing; those that a scan found no room for come first.
  bool taken = alarms_.hint_later(entry.cell, at);
  if (taken) {
    put_off_for(entry, interval_);
  } else {
    look_again(world_.now() + kPause);
  }
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::settle_one(Entry entry, Deadline deadline) {
  CO_TRY_ASSIGN(Verdict verdict, co_await judge(entry, deadline));
  switch (verdict) {
    case Verdict::kHint: co_return co_await hint(std::move(entry), deadline);
    case Verdict::kSoon:
      COVERAGE_MARK("alarm-of-a-release-under-way");
      put_off_for(entry, interval_ / 2);
      co_return Result<void>{};
    case Verdict::kLater:
      // By its key: the entry of a later release is judged anew. Asked for more often, entries that only
      // wait for their owner to delete them would take the turns of others.
      COVERAGE_MARK("alarm-left-to-its-owner");
      put_off_for(entry, kJudgedAgain);
      co_return Result<void>{};
    case Verdict::kSettled: break;
  }
  if (!entry.unowned_key.empty()) co_return co_await bucket_.remove(entry.unowned_key, deadline);
  auto index = indexes_.find(entry.node);
  if (index != indexes_.end()) index->second.settled.insert(entry.cell);
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::settle_entries(std::vector<Entry> due, Deadline deadline) {
  for (size_t begin = 0; begin < due.size() && !stopped_; begin += kEntriesInFlight) {
    std::vector<Task<Result<void>>> settling;
    for (size_t i = begin; i < std::min(due.size(), begin + kEntriesInFlight); ++i) {
      settling.push_back(settle_one(due[i], deadline));
    }
    std::vector<Result<void>> settled = co_await join_all(world_, std::move(settling));
    for (Result<void>& r : settled) {
      if (!r) co_return fail(std::move(r).error());
    }
  }
  // An index of which nothing is left.
  for (auto it = indexes_.begin(); it != indexes_.end();) {
    if (it->second.settled.size() < it->second.entries.size()) {
      ++it;
      continue;
    }
    std::vector<std::string> keys = it->second.keys;
    for (const std::string& key : keys) CO_TRY(co_await bucket_.remove(key, deadline));
    it = indexes_.erase(it);
  }
  co_return Result<void>{};
}

}  // namespace celld
