#include "core/alarms.h"

#include <algorithm>

#include "base/marks.h"

namespace celld {

namespace {

using std::chrono::milliseconds;

// While an alarm stays where it is, the hint is repeated: the first may have met a store that was
// away or a node without room.
constexpr int64_t kHintAgainMs = 5'000;
// A cell that was taken over for somebody who went away is looked into after this time.
constexpr int64_t kLookAfterMs = 10'000;
// The wall clock may be set; timers look at it at least this often.
constexpr Duration kClockCheck = std::chrono::seconds(30);
// One shard is one PUT per drain however many alarms change; past this many entries that PUT
// becomes large, and the index is spread.
constexpr size_t kEntriesOfOneShard = 4'096;
constexpr unsigned kShardsMany = 64;

// FNV-1a: equal on every node and in every build, which std::hash is not.
uint64_t hash_of(const CellId& cell) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : cell.value) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h ^ h >> 29;
}

}  // namespace

std::string unowned_entry_key(const CellId& cell, WallMs due, Epoch epoch) {
  return unowned_alarm_key(cell, due) + "@" + std::to_string(epoch.value);
}

std::optional<UnownedEntryName> parse_unowned_entry_key(std::string_view key) {
  size_t at = key.rfind('@');
  if (at == key.npos) return std::nullopt;
  std::optional<UnownedAlarmName> name = parse_unowned_alarm_key(key.substr(0, at));
  std::string_view digits = key.substr(at + 1);
  uint64_t epoch = 0;
  if (!name || digits.empty() || digits.size() > 19 || digits[0] == '0') return std::nullopt;
  for (char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    epoch = epoch * 10 + static_cast<uint64_t>(c - '0');
  }
  return UnownedEntryName{name->cell, Epoch(epoch), name->minute, std::string(key.substr(0, at))};
}

AlarmKeeper::AlarmKeeper(World& world, Bucket& bucket, CoreHost& host, NodeId self)
    : world_(world),
      bucket_(bucket),
      host_(host),
      self_(std::move(self)),
      durable_(1),
      changed_(world),
      tasks_(world) {}

unsigned AlarmKeeper::shard_of(const CellId& cell) const {
  return shards_ == 1 ? 0 : static_cast<unsigned>(hash_of(cell) % shards_);
}

void AlarmKeeper::own_new(const CellId& cell) { own_released(cell, std::nullopt, std::string()); }

void AlarmKeeper::own_released(const CellId& cell, std::optional<WallMs> at, std::string entry_key) {
  own_taken_over(cell);
  Alarm& alarm = alarms_.at(cell);
  set_latest(cell, alarm, at);
  set_durable(cell, alarm, at);
  if (!entry_key.empty()) obsolete_.push_back(std::move(entry_key));
}

void AlarmKeeper::own_taken_over(const CellId& cell) {
  auto [it, fresh] = alarms_.try_emplace(cell);
  CHECK(fresh) << cell << " is owned already";
  it->second.next_hint = WallMs{world_.wall_now().value + kLookAfterMs};
  queue_.insert({it->second.next_hint, cell});
  changed_.notify_all();
}

bool AlarmKeeper::known(const CellId& cell) const {
  auto it = alarms_.find(cell);
  return it != alarms_.end() && it->second.known;
}

bool AlarmKeeper::indexed(const CellId& cell) const {
  auto it = alarms_.find(cell);
  return it != alarms_.end() && it->second.known && it->second.latest == it->second.durable &&
         !writing_ && !dirty_.contains(shard_of(cell)) && !unconfirmed_.contains(shard_of(cell));
}

void AlarmKeeper::restored(const CellId& cell, std::optional<WallMs> at) {
  auto it = alarms_.find(cell);
  if (it == alarms_.end() || it->second.confirmed) return;
  it->second.confirmed = true;
  set_latest(cell, it->second, at);
  set_durable(cell, it->second, at);
}

void AlarmKeeper::committed(const Commit& commit) {
  if (!commit.alarm) return;
  auto it = alarms_.find(commit.cell);
  if (it == alarms_.end()) return;
  it->second.confirmed = true;
  set_latest(commit.cell, it->second, commit.alarm->at);
}

void AlarmKeeper::proven(const Commit& commit) {
  if (!commit.alarm) return;
  auto it = alarms_.find(commit.cell);
  if (it != alarms_.end()) set_durable(commit.cell, it->second, commit.alarm->at);
}

std::optional<WallMs> AlarmKeeper::alarm_of(const CellId& cell) const {
  auto it = alarms_.find(cell);
  return it == alarms_.end() ? std::nullopt : it->second.latest;
}

void AlarmKeeper::disown(const CellId& cell) {
  auto it = alarms_.find(cell);
  if (it == alarms_.end()) return;
  set_latest(cell, it->second, std::nullopt);
  set_durable(cell, it->second, std::nullopt);
  alarms_.erase(it);
}

void AlarmKeeper::set_latest(const CellId& cell, Alarm& alarm, std::optional<WallMs> at) {
  if (alarm.latest || !alarm.known) queue_.erase({alarm.next_hint, cell});
  alarm.known = true;
  alarm.latest = at;
  if (!at) return;
  alarm.next_hint = MUTANT("alarm-early") ? WallMs{at->value - 500} : *at;
  queue_.insert({alarm.next_hint, cell});
  changed_.notify_all();
}

void AlarmKeeper::set_durable(const CellId& cell, Alarm& alarm, std::optional<WallMs> at) {
  if (alarm.durable == at) return;
  alarm.durable = at;
  unsigned shard = shard_of(cell);
  if (at) {
    durable_[shard][cell] = *at;
  } else {
    durable_[shard].erase(cell);
  }
  dirty_.insert(shard);
  if (shards_ > 1 || durable_[0].size() <= kEntriesOfOneShard) return;
  shards_ = kShardsMany;
  std::vector<std::map<CellId, WallMs>> spread(kShardsMany);
  for (auto& [id, due] : durable_[0]) spread[shard_of(id)].emplace(id, due);
  durable_ = std::move(spread);
  for (unsigned i = 0; i < kShardsMany; ++i) dirty_.insert(i);
}

bool AlarmKeeper::hint_later(const CellId& cell, WallMs at) {
  if (foreign_.size() >= kForeignHintsMax) return false;
  foreign_.insert({at, cell});
  changed_.notify_all();
  return true;
}

void AlarmKeeper::start() { tasks_.spawn(run_timers()); }

void AlarmKeeper::stop() {
  stopped_ = true;
  changed_.notify_all();
}

Task<void> AlarmKeeper::run_timers() {
  while (!stopped_) {
    WallMs now = world_.wall_now();
    std::optional<WallMs> next;
    if (!queue_.empty()) next = queue_.begin()->first;
    if (!foreign_.empty() && (!next || foreign_.begin()->first < *next)) {
      next = foreign_.begin()->first;
    }
    if (next && *next <= now) {
      fire_due();
      // Posted: whatever the host did comes first.
      co_await sleep_for(world_, Duration(0));
      continue;
    }
    Duration wait = kClockCheck;
    if (next && next->value - now.value < kClockCheck / milliseconds(1)) {
      wait = milliseconds(next->value - now.value);
    }
    Deadline deadline{world_.now() + wait};
    if (!next) deadline = Deadline::never();
    co_await changed_.wait_until(deadline);
  }
}

void AlarmKeeper::fire_due() {
  WallMs now = world_.wall_now();
  if (!foreign_.empty() && foreign_.begin()->first <= now) {
    auto [at, cell] = *foreign_.begin();
    foreign_.erase(foreign_.begin());
    if (!known(cell)) COVERAGE_MARK("hint-for-a-cell-of-nobody");
    if (!known(cell)) host_.on_alarm_due(cell, at);
    return;
  }
  if (queue_.empty() || queue_.begin()->first > now) return;
  CellId cell = queue_.begin()->second;
  queue_.erase(queue_.begin());
  Alarm& alarm = alarms_.at(cell);
  CHECK(!alarm.known || MUTANT("alarm-early") || (alarm.latest && *alarm.latest <= now)) << cell << " would wake early";
  if (!alarm.known) COVERAGE_MARK("taken-over-cell-nobody-looked-into");
  WallMs scheduled = alarm.latest.value_or(now);
  alarm.next_hint = WallMs{now.value + (alarm.known ? kHintAgainMs : kLookAfterMs)};
  queue_.insert({alarm.next_hint, cell});
  host_.on_alarm_due(std::move(cell), scheduled);
}

Task<Result<void>> AlarmKeeper::checkpoint(Slot through, Deadline deadline) {
  std::vector<std::string> obsolete = std::exchange(obsolete_, {});
  std::set<unsigned> dirty = std::exchange(dirty_, {});
  writing_ = true;
  // New shards first, then the one that they were taken out of: never a moment without an entry.
  for (auto it = dirty.rbegin(); it != dirty.rend(); ++it) {
    unsigned shard = *it;
    AlarmIndexRecord record;
    record.node = self_;
    record.seq = ++seq_;
    record.through = through;
    for (auto& [cell, due] : durable_[shard]) {
      if (record.entries.size() == kAlarmIndexEntriesMax) break;  // four million alarms on one node
      record.entries.push_back({cell, due});
    }
    std::string key = alarm_index_key(self_, shard);
    Blob body(encode_alarm_index(record));
    auto known = versions_.find(shard);
    Condition condition =
        known == versions_.end() ? Condition::create() : Condition::swap(known->second);
    Settled settled =
        co_await bucket_.settle(key, std::move(body), std::move(condition), deadline);
    if (settled.kind == Settled::kApplied) {
      versions_[shard] = std::move(settled.version);
      continue;
    }
    COVERAGE_MARK("alarm-index-not-definite");
    // Not definite: the next attempt has other bytes on the same version, so look at what is there.
    dirty_.insert(dirty.begin(), dirty.end());
    obsolete_.insert(obsolete_.end(), obsolete.begin(), obsolete.end());
    Result<StoredObject> current = co_await bucket_.get(key, deadline);
    if (current) {
      Result<AlarmIndexRecord> theirs = decode_alarm_index(current->body.view(), key);
      if (theirs && theirs->node == self_) versions_[shard] = std::move(current->version);
    }
    writing_ = false;
    Error e = Error::unavailable(key + ": alarm index not written: " + settled.error.message);
    co_return fail(std::move(e));
  }
  writing_ = false;
  unconfirmed_.insert(dirty.begin(), dirty.end());
  replaced_.insert(replaced_.end(), obsolete.begin(), obsolete.end());
  co_return Result<void>{};
}

Task<void> AlarmKeeper::confirm(Deadline deadline) {
  unconfirmed_.clear();
  std::vector<std::string> replaced = std::exchange(replaced_, {});
  for (std::string& key : replaced) {
    Result<void> gone = co_await bucket_.remove(key, deadline);
    if (!gone) obsolete_.push_back(std::move(key));
  }
}

Task<Result<void>> AlarmKeeper::remove_index(Deadline deadline) {
  for (auto& [shard, version] : versions_) {
    std::string key = alarm_index_key(self_, shard);
    CO_TRY(co_await bucket_.remove(std::move(key), deadline));
  }
  versions_.clear();
  dirty_.clear();
  co_return Result<void>{};
}

}  // namespace celld
