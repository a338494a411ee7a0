#include "core/wake_scan.h"

#include <algorithm>

#include "base/marks.h"

namespace celld {

namespace {

using std::chrono::milliseconds;

constexpr size_t kNodesMax = 10'000;
constexpr size_t kLooksPerScan = 256;       // at node records
constexpr size_t kJudgedInFlight = 16;
constexpr size_t kJudgedMax = 100'000;      // remembered
constexpr Duration kJudgedAgain = std::chrono::minutes(10);  // when a live owner keeps the timer
constexpr Duration kScanTime = std::chrono::seconds(60);
// Between the scans of what one scan could not judge.
constexpr Duration kPauseWhenCutOff = std::chrono::seconds(1);
// A recovered node's record is of no use a day later.
constexpr int64_t kForgetNodeMs = 24 * 3'600'000;

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
      tasks_(world) {}

void WakeScanner::start() { tasks_.spawn(run()); }

void WakeScanner::stop() {
  stopped_ = true;
  wake_.notify_all();
}

Task<void> WakeScanner::run() {
  for (bool first = true; !stopped_; first = false) {
    // What this node began it ends: a node just recovered would look elected for one TTL.
    bool whoever = first || cut_off_;
    Result<void> done = co_await scan(whoever);
    last_trouble_ = done ? std::string() : done.error().message;
    // Spread over the interval, so that a fleet started at once does not scan at once.
    Duration pause = std::chrono::duration_cast<Duration>(interval_ * (0.9 + 0.2 * world_.random_unit()));
    // A restart after a crash on another disk finds its predecessor's lease still valid: look again
    // when it has ended. By the store's clock, which the newest renewal shows a third of a TTL late.
    if (first) pause = std::min(pause, ttl_ * 3 / 2);
    if (cut_off_) pause = std::min(pause, kPauseWhenCutOff);
    MonoTime next = world_.now() + pause;
    while (!stopped_ && world_.now() < next) co_await wake_.wait_until(Deadline{next});
  }
}

Task<Result<void>> WakeScanner::scan(bool whoever) {
  cut_off_ = false;
  if (not_before_.size() > kJudgedMax) not_before_.clear();
  Deadline deadline = world_.deadline_in(kScanTime);
  CO_TRY_ASSIGN(NodeId elected, co_await sweep_nodes(deadline));
  if (elected != self_ && !whoever) co_return Result<void>{};
  std::vector<Entry> due;
  CO_TRY(co_await scan_unowned(due, deadline));
  CO_TRY(co_await scan_indexes(due, deadline));
  std::sort(due.begin(), due.end(), [](const Entry& a, const Entry& b) { return a.due < b.due; });
  if (due.size() > entries_max_) {
    due.resize(entries_max_);
    cut_off_ = true;
    COVERAGE_MARK("scan-found-too-much");
  }
  co_return co_await settle_entries(std::move(due), deadline);
}

bool WakeScanner::put_off(const std::string& entry) const {
  auto it = not_before_.find(entry);
  return it != not_before_.end() && it->second > world_.now();
}

Task<Result<NodeId>> WakeScanner::sweep_nodes(Deadline deadline) {
  std::string prefix = "nodes/";
  std::string from_start;
  CO_TRY_ASSIGN(std::vector<ListedObject> listed,
                co_await bucket_.list_all(prefix, from_start, kNodesMax, deadline));
  // By the store's own clock, of which the newest record is the best reading.
  int64_t now = 0;
  for (const ListedObject& object : listed) now = std::max(now, object.modified.value);
  int64_t ttl_ms = ttl_ / milliseconds(1);
  // A live node renews every third of its TTL. Two that think themselves elected do no harm.
  int64_t recent_ms = ttl_ms;
  NodeId elected = self_;
  std::vector<std::pair<NodeId, WallMs>> silent;
  for (const ListedObject& object : listed) {
    std::optional<NodeId> node = parse_node_key(object.key);
    if (!node) continue;
    if (now - object.modified.value < recent_ms && *node < elected) elected = *node;
    if (*node != self_ && now - object.modified.value >= ttl_ms) {
      silent.emplace_back(*node, object.modified);
    }
  }
  if (elected != self_) co_return elected;

  size_t looks = 0;
  for (auto& [node, modified] : silent) {
    if (stopped_ || bucket_.stopped()) break;
    auto known = recovered_.find(node);
    if (known == recovered_.end() || known->second != modified) {
      if (++looks > kLooksPerScan) break;
      CO_TRY_ASSIGN(PeerState state, co_await recoverer_.look(node, deadline));
      if (state.kind == PeerState::kLive) continue;
      if (state.kind == PeerState::kDead) {
        CO_TRY(co_await recoverer_.recover(node, deadline));
        not_before_.clear();  // it may have been the owner that kept a timer
        continue;             // its record is new now
      }
      not_before_.clear();
      recovered_[node] = modified;
      if (state.record.journal.state == JournalState::kLeft) {
        CO_TRY_ASSIGN(bool gone, co_await recoverer_.forget(node, deadline));
        if (gone) recovered_.erase(node);
        continue;
      }
    }
    if (now - modified.value >= kForgetNodeMs) {
      CO_TRY_ASSIGN(bool gone, co_await recoverer_.forget(node, deadline));
      if (gone) recovered_.erase(node);
    }
  }
  co_return elected;
}

Task<Result<void>> WakeScanner::scan_unowned(std::vector<Entry>& due, Deadline deadline) {
  // Keys are in the order of their minutes: stop at the first that is due after the next scan.
  int64_t horizon = world_.wall_now().value + interval_ / milliseconds(1) * 12 / 10 + 1'000;
  std::string after;
  for (;;) {
    ListRequest request;
    request.prefix = std::string(kUnownedAlarmPrefix);
    request.start_after = after;
    CO_TRY_ASSIGN(ListPage page, co_await bucket_.list(std::move(request), deadline));
    for (const ListedObject& object : page.objects) {
      std::optional<UnownedEntryName> name = parse_unowned_entry_key(object.key);
      if (!name) continue;
      if (name->minute.value > horizon) co_return Result<void>{};
      if (put_off(object.key)) continue;
      Entry entry;
      entry.cell = name->cell;
      entry.due = name->minute;  // the object says it exactly
      entry.unowned_key = object.key;
      entry.epoch = name->epoch;
      due.push_back(std::move(entry));
    }
    if (!page.more || due.size() > entries_max_) break;
    after = std::move(page.next_start_after);
  }
  co_return Result<void>{};
}

Task<Result<void>> WakeScanner::scan_indexes(std::vector<Entry>& due, Deadline deadline) {
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
  int64_t horizon = world_.wall_now().value + interval_ / milliseconds(1) * 12 / 10 + 1'000;
  for (const NodeId& node : nodes) {
    if (!indexes_.contains(node)) {
      CO_TRY_ASSIGN(PeerState state, co_await recoverer_.look(node, deadline));
      if (state.kind == PeerState::kMissing) {
        CO_TRY(co_await recoverer_.recover(node, deadline));
      } else if (state.kind != PeerState::kRecovered) {
        continue;  // alive, or recovered by the sweep soon
      }
      CO_TRY(co_await load_index(node, deadline));
    }
    Index& index = indexes_[node];
    for (const AlarmEntry& alarm : index.entries) {
      if (alarm.due.value > horizon || index.settled.contains(alarm.cell) ||
          put_off(alarm.cell.value)) {
        continue;
      }
      Entry entry;
      entry.cell = alarm.cell;
      entry.due = alarm.due;
      entry.node = node;
      due.push_back(std::move(entry));
    }
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
  for (const ListedObject& object : listed) {
    std::string key = object.key;
    CO_TRY_ASSIGN(StoredObject got, co_await bucket_.get(key, deadline));
    CO_TRY_ASSIGN(AlarmIndexRecord record, decode_alarm_index(got.body.view(), key));
    for (const AlarmEntry& entry : record.entries) {
      auto [it, fresh] = newest.try_emplace(entry.cell, record.through, entry.due);
      if (!fresh && it->second.first <= record.through) it->second = {record.through, entry.due};
    }
    index.keys.push_back(std::move(key));
  }
  for (auto& [cell, alarm] : newest) index.entries.push_back({cell, alarm.second});
  indexes_[node] = std::move(index);
  co_return Result<void>{};
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
  // A release that is under way: the entry is written before it.
  if (unowned_entry && record.epoch <= entry.epoch) co_return Verdict::kLater;
  if (record.node == self_) {
    if (alarms_.indexed(entry.cell)) co_return Verdict::kSettled;
    co_return alarms_.known(entry.cell) ? Verdict::kLater : Verdict::kHint;
  }
  if (record.node == entry.node) co_return Verdict::kHint;
  CO_TRY_ASSIGN(PeerState owner, co_await recoverer_.look(record.node, deadline));
  co_return owner.kind == PeerState::kLive ? Verdict::kLater : Verdict::kHint;
}

Task<Result<void>> WakeScanner::settle_entries(std::vector<Entry> due, Deadline deadline) {
  for (size_t begin = 0; begin < due.size() && !stopped_; begin += kJudgedInFlight) {
    size_t end = std::min(due.size(), begin + kJudgedInFlight);
    std::vector<Task<Result<Verdict>>> judging;
    for (size_t i = begin; i < end; ++i) judging.push_back(judge(due[i], deadline));
    std::vector<Result<Verdict>> verdicts = co_await join_all(world_, std::move(judging));
    for (size_t i = begin; i < end; ++i) {
      Result<Verdict>& verdict = verdicts[i - begin];
      if (!verdict) co_return fail(std::move(verdict).error());
      const Entry& entry = due[i];
      bool unowned = !entry.unowned_key.empty();
      const std::string& judged = unowned ? entry.unowned_key : entry.cell.value;
      if (*verdict == Verdict::kLater) {
        COVERAGE_MARK("alarm-left-to-its-owner");
        // A release may be under way, or its cell owned again: that changes soon.
        not_before_[judged] = world_.now() + (unowned ? interval_ / 2 : kJudgedAgain);
      } else if (*verdict == Verdict::kHint) {
        WallMs at = entry.due;
        if (unowned) {
          Result<StoredObject> got = co_await bucket_.get(entry.unowned_key, deadline);
          if (!got) continue;
          std::optional<UnownedEntryName> name = parse_unowned_entry_key(entry.unowned_key);
          CO_TRY_ASSIGN(AlarmEntry exact, decode_unowned_alarm(got->body.view(), name->record_key));
          at = exact.due;
        }
        // Hinted again by the next regular scan, if it has come to nothing; those that a scan found
        // no room for come first.
        if (alarms_.hint_later(entry.cell, at)) not_before_[judged] = world_.now() + interval_ / 2;
      } else if (unowned) {
        CO_TRY(co_await bucket_.remove(entry.unowned_key, deadline));
      } else {
        indexes_[entry.node].settled.insert(entry.cell);
      }
    }
  }
  // An index of which nothing is left.
  for (auto it = indexes_.begin(); it != indexes_.end();) {
    if (it->second.settled.size() < it->second.entries.size()) {
      ++it;
      continue;
    }
    for (const std::string& key : it->second.keys) CO_TRY(co_await bucket_.remove(key, deadline));
    it = indexes_.erase(it);
  }
  co_return Result<void>{};
}

}  // namespace celld
