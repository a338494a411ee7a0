#include "core/drain.h"

#include <algorithm>
#include <map>

#include "base/marks.h"
#include "core/restore.h"
#include "ltx/ltx.h"

namespace celld {

namespace {

constexpr size_t kPutsInFlight = 16;
// A takeover reads every slot that is not drained; this many take it about a second.
constexpr uint64_t kSlotsUndrainedMax = 1024;
// Each holds a database or a good part of one in memory.
constexpr size_t kCompactionsInFlight = 2;
constexpr unsigned kMergedLevel = 1;
constexpr unsigned kSnapshotLevel = 9;
// A chain is merged where an older object is at most this many times what is newer: then every byte
// is rewritten a logarithmic number of times.
constexpr uint64_t kMergeRatio = 2;
// A cell whose image the host cannot give is compacted from the bucket up to this size.
constexpr uint64_t kFetchedSnapshotBytesMax = 64u << 20;
// So small that its chain is bounded by count alone.
constexpr uint64_t kSmallChainBytes = 256u << 10;
// A cycle that cannot write its objects ends, says so and begins anew.
constexpr Duration kPutTime = std::chrono::seconds(15);
constexpr Duration kRetryPause = std::chrono::milliseconds(500);
// A fraction of a millisecond.
constexpr size_t kPagesDroppedAtOnce = 1000;

Task<Blob> encode_aside(World& world, LtxFile file) {
  std::move_only_function<Blob()> work = [file = std::move(file)] {
    return encode_ltx(file.info, file.pages);
  };
  co_return co_await compute<Blob>(world, Urgency::kBackground, std::move(work));
}

}  // namespace

Drainer::Drainer(World& world, Bucket& bucket, LeaseKeeper& lease, Journal& journal,
                 Ownership& ownership, AlarmKeeper& alarms, CoreHost& host, const CoreOptions& options)
    : world_(world),
      bucket_(bucket),
      lease_(lease),
      journal_(journal),
      ownership_(ownership),
      alarms_(alarms),
      host_(host),
      interval_(options.drain_interval),
      undrained_bytes_max_(options.undrained_bytes_max),
      chain_objects_max_(options.chain_objects_max),
      retention_(options.retention),
      trouble_(world, host, Trouble::kDrain),
      compaction_trouble_(world, host, Trouble::kCompaction),
      wake_(world),
      puts_(world, kPutsInFlight),
      compactions_(world, kCompactionsInFlight),
      tasks_(world) {}

void Drainer::start() { tasks_.spawn(run()); }

void Drainer::stop() {
  stopped_ = true;
  wake_.notify_all();
}

void Drainer::request() {
  requested_ = true;
  wake_.notify_all();
}

void Drainer::something_to_do() {
  bool drainable = journal_.drainable() > lease_.drained();
  if (!drainable && !alarms_.dirty()) return;
  bool much = journal_.bytes_undrained() > undrained_bytes_max_ / 2 ||
              journal_.drainable().value - lease_.drained().value >= kSlotsUndrainedMax;
  if (drainable && much) return request();
  if (next_cycle_ != MonoTime::max()) return;
  next_cycle_ = world_.now() + interval_;
  wake_.notify_all();
}

Task<void> Drainer::run() {
  while (!stopped_ && !lease_.lost()) {
    if (!requested_ && world_.now() < next_cycle_) {
      co_await wake_.wait_until(Deadline{next_cycle_});
      continue;
    }
    requested_ = false;
    next_cycle_ = MonoTime::max();
    MonoTime began = world_.now();
    Result<void> done = co_await cycle();
    if (done) {
      trouble_.succeeded();
    } else if (!lease_.lost()) {
      trouble_.failed(began, done.error().message);
    }
    ownership_.progress().notify_all();
    if (stopped_ || lease_.lost()) co_return;
    if (!done) {
      MonoTime again = world_.now() + kRetryPause;
      while (!stopped_ && world_.now() < again) co_await wake_.wait_until(Deadline{again});
    }
    something_to_do();
  }
}

Task<Result<void>> Drainer::cycle() {
  // Only durable slots, and never past the first slot of a commit that is not complete in them.
  Slot through = journal_.drainable();
  CO_TRY(co_await write_objects(journal_.commits_through(through)));
  Deadline never = Deadline::never();  // ends with the lease
  // Before the mark passes the slots that tell of the alarms.
  if (alarms_.dirty() && !MUTANT("forget-the-alarm-index")) CO_TRY(co_await alarms_.checkpoint(through, never));
  if (through > lease_.drained()) {
    CO_TRY(co_await lease_.advance_drained(through));
  } else if (alarms_.awaits_confirmation() && !MUTANT("index-counts-at-once")) {
    CO_TRY(co_await lease_.confirm());
  }
  if (alarms_.awaits_confirmation()) co_await alarms_.confirm(never);
  while (!journal_.drop_drained(through, kPagesDroppedAtOnce)) co_await yield_to(world_);
  journal_.delete_through(lease_.drained());
  compact_where_needed();
  co_return Result<void>{};
}

Task<Result<void>> Drainer::write_objects(std::vector<const Commit*> commits) {
  std::map<std::pair<CellId, Epoch>, std::vector<const Commit*>> by_cell;
  for (const Commit* commit : commits) by_cell[{commit->cell, commit->epoch}].push_back(commit);
  std::vector<Task<Result<void>>> writes;
  for (auto& [key, of_cell] : by_cell) {
    writes.push_back(write_object(key.first, key.second, std::move(of_cell)));
  }
  std::vector<Result<void>> results = co_await join_all(world_, std::move(writes));
  for (Result<void>& r : results) {
    if (!r) co_return fail(std::move(r).error());
  }
  co_return Result<void>{};
}

Task<Result<void>> Drainer::write_object(CellId cell, Epoch epoch, std::vector<const Commit*> commits) {
  co_await puts_.acquire();
  Result<EncodedFile> merged =
      co_await merge_and_encode(world_, Urgency::kBackground, cell, std::move(commits));
  CHECK(merged) << merged.error().message;
  EncodedFile file = std::move(*merged);
  RestoreObject object{epoch, 0, file.info.min, file.info.max, file.body.size()};
  std::string key = ltx_key(cell, epoch, object.level, object.min, object.max);
  Deadline deadline = world_.deadline_in(kPutTime + bucket_.transfer_time(object.bytes));
  Result<void> written = co_await bucket_.put(std::move(key), std::move(file.body), deadline);
  puts_.release();
  if (!written) co_return written;
  OwnedCell* owned = ownership_.find(cell);
  CHECK(owned && epoch <= owned->epoch) << cell << " was drained in epoch " << epoch;
  // A snapshot may have overtaken this drain (it reaches to what is proven), or an earlier cycle that
  // failed later on wrote the same: then the chain has it already, and the sources of a snapshot,
  // which are about to be deleted, must not come back into the chain.
  Txid reached;
  for (const RestoreObject& o : owned->chain) {
    if (o == object) COVERAGE_MARK("drained-again-after-a-failed-cycle");
    if (o == object) co_return Result<void>{};
    reached = std::max(reached, o.max);
  }
  if (object.max <= reached && !MUTANT("chain-takes-back-a-source")) {
    COVERAGE_MARK("drain-overtaken-by-a-snapshot");
    owned->garbage.push_back(object);
    co_return Result<void>{};
  }
  owned->chain.push_back(object);
  owned->page_count = file.info.page_count;
  co_return Result<void>{};
}

void Drainer::compact_where_needed() {
  if (stopped_) return;
  for (const CellId& id : ownership_.cells()) {
    OwnedCell* cell = ownership_.find(id);
    if (cell->compacting || cell->releasing || cell->chain.size() < 2) continue;
    uint64_t bytes = 0;
    for (const RestoreObject& object : cell->chain) bytes += object.bytes;
    uint64_t database_bytes = uint64_t{cell->page_count} * kPageSize;
    bool long_chain = cell->chain.size() > chain_objects_max_;
    bool large_chain = bytes > kSmallChainBytes && bytes > 2 * database_bytes;
    if (!long_chain && !large_chain) continue;
    cell->compacting = true;
    tasks_.spawn(compact(id));
  }
}

Task<void> Drainer::compact(CellId id) {
  co_await compactions_.acquire();
  OwnedCell* cell = ownership_.find(id);  // stays while `compacting`
  CHECK(cell) << id;
  MonoTime began = world_.now();
  Result<void> done;
  Result<RestorePlan> plan = plan_restore(cell->chain);
  if (!plan) {
    done = fail(std::move(plan).error());
  } else if (!lease_.lost()) {
    for (const RestoreObject& object : cell->chain) {
      if (std::find(plan->objects.begin(), plan->objects.end(), object) == plan->objects.end()) {
        cell->garbage.push_back(object);
      }
    }
    cell->chain = plan->objects;
    // The newest objects of this epoch, as far down as merging them pays. (A merged object must not
    // begin below its epoch.)
    size_t from = cell->chain.size();
    uint64_t merged_bytes = 0;
    while (from > 0) {
      const RestoreObject& older = cell->chain[from - 1];
      bool ours = older.epoch == cell->epoch && older.min >= cell->first;
      bool enough = cell->chain.size() - from >= chain_objects_max_ / 2;
      if (!ours || (enough && older.bytes > kMergeRatio * merged_bytes)) break;
      merged_bytes += older.bytes;
      --from;
    }
    std::vector<RestoreObject> run(cell->chain.begin() + static_cast<ptrdiff_t>(from), cell->chain.end());
    uint64_t below = plan->bytes - merged_bytes;
    uint64_t database_bytes = uint64_t{cell->page_count} * kPageSize;
    bool tail_is_small = merged_bytes * kMergeRatio < below && plan->bytes <= 2 * database_bytes;
    if (from > 0 && run.size() > 1 && from + 1 <= chain_objects_max_ && tail_is_small) {
      COVERAGE_MARK("tail-merged");
      done = co_await merge_tail(cell, std::move(run));
    } else {
      done = co_await write_snapshot(cell, cell->chain);
    }
  }
  std::vector<RestoreObject> deletable;
  if (done && MUTANT("delete-before-the-manifest")) deletable = cell->garbage;
  if (done && cell->releasing) COVERAGE_MARK("compaction-ends-in-a-release");
  bool durable = done && !lease_.lost() && !cell->releasing && !MUTANT("delete-before-the-manifest");
  if (durable) done = co_await ownership_.checkpoint(cell, &deletable);
  if (done) {
    compaction_trouble_.succeeded();
  } else if (!lease_.lost()) {
    compaction_trouble_.failed(began, id.value + ": " + done.error().message);
  }
  cell->compacting = false;
  compactions_.release();
  ownership_.progress().notify_all();
  if (!deletable.empty()) tasks_.spawn(delete_later(id, std::move(deletable)));
}

Task<Result<void>> Drainer::merge_tail(OwnedCell* cell, std::vector<RestoreObject> run) {
  Deadline deadline = world_.deadline_in(std::chrono::minutes(5));
  std::vector<RestoreObject> inputs = run;
  if (MUTANT("drop-an-input-of-a-compaction")) inputs.pop_back();
  CO_TRY_ASSIGN(LtxFile file,
                co_await fetch_merged(bucket_, cell->id, std::move(inputs), Urgency::kBackground, deadline));
  if (MUTANT("drop-an-input-of-a-compaction")) file.info.max = run.back().max;
  RestoreObject merged{cell->epoch, kMergedLevel, file.info.min, file.info.max, 0};
  std::string key = ltx_key(cell->id, merged.epoch, merged.level, merged.min, merged.max);
  if (MUTANT("drop-a-page-of-a-compaction") && file.pages.size() > 1) file.pages.pop_back();
  // The same range may have been merged before, from other cuts: the content is the same.
  Blob body = co_await encode_aside(world_, std::move(file));
  CO_TRY_ASSIGN(merged.bytes, co_await put_and_read_back(std::move(key), std::move(body)));
  for (const RestoreObject& source : run) {
    std::erase(cell->chain, source);
    if (source != merged) cell->garbage.push_back(source);
  }
  cell->chain.push_back(merged);
  co_return Result<void>{};
}

Task<Result<void>> Drainer::write_snapshot(OwnedCell* cell, std::vector<RestoreObject> all) {
  LtxFile file;
  file.info.min = Txid(1);
  Txid at;
  CellId id = cell->id;
  Result<DatabaseImage> image = co_await host_.snapshot(id, &at);
  if (image && at.value >= 1) {
    CHECK(at <= cell->last) << "snapshot of " << id << " at " << at << ", last is " << cell->last;
    file.info.max = at;
    file.info.page_count = image->page_count;
    file.pages = std::move(image->pages);
    if (cell->proven < at) COVERAGE_MARK("snapshot-waits-for-its-proof");
    // A prefix never holds a page that was not durable.
    while (cell->proven < at && !lease_.lost()) co_await ownership_.progress().wait();
    if (lease_.lost()) {
      Error e = Error::fenced(id.value + ": snapshot of what never became durable");
      co_return fail(std::move(e));
    }
  } else {
    COVERAGE_MARK("snapshot-from-the-bucket");
    uint64_t bytes = 0;
    for (const RestoreObject& object : all) bytes += object.bytes;
    if (bytes > kFetchedSnapshotBytesMax) {
      Error e = Error::unavailable(id.value + ": not resident and too large to be compacted");
      co_return fail(std::move(e));
    }
    Deadline deadline = world_.deadline_in(std::chrono::minutes(5));
    CO_TRY_ASSIGN(file,
                  co_await fetch_merged(bucket_, id, std::move(all), Urgency::kBackground, deadline));
    if (file.info.min != Txid(1)) {
      Error e = Error::corrupt(id.value + ": chain begins at TXID " + std::to_string(file.info.min.value));
      co_return fail(std::move(e));
    }
  }
  file.info.timestamp = WallMs{0};
  RestoreObject snapshot{cell->epoch, kSnapshotLevel, file.info.min, file.info.max, 0};
  std::string key = ltx_key(id, snapshot.epoch, snapshot.level, snapshot.min, snapshot.max);
  uint32_t page_count = file.info.page_count;
  Blob body = co_await encode_aside(world_, std::move(file));
  CO_TRY_ASSIGN(snapshot.bytes, co_await put_and_read_back(std::move(key), std::move(body)));
  std::vector<RestoreObject> left;
  for (const RestoreObject& object : cell->chain) {
    if (object == snapshot) continue;
    (object.max <= snapshot.max ? cell->garbage : left).push_back(object);
  }
  left.insert(left.begin(), snapshot);
  bool newest = left.size() == 1;
  cell->chain = std::move(left);
  if (newest) cell->page_count = page_count;
  co_return Result<void>{};
}

Task<Result<uint64_t>> Drainer::put_and_read_back(std::string key, Blob body) {
  Deadline deadline = world_.deadline_in(std::chrono::minutes(5));
  CO_TRY(co_await bucket_.put(key, body, deadline));
  CO_TRY_ASSIGN(StoredObject got, co_await bucket_.get(key, deadline));
  if (got.body != body) {
    Error e = Error::corrupt(key + ": reads back with other bytes than were written");
    co_return fail(std::move(e));
  }
  co_return body.size();
}

Task<void> Drainer::delete_later(CellId cell, std::vector<RestoreObject> objects) {
  MonoTime due = world_.now() + (MUTANT("delete-too-early") ? Duration(0) : retention_);
  while (world_.now() < due) {
    if (stopped_ || lease_.lost()) co_return;  // garbage that no manifest names stays behind
    co_await wake_.wait_until(Deadline{due});
  }
  Deadline deadline = world_.deadline_in(std::chrono::minutes(1));
  std::vector<std::string> keys;
  for (const RestoreObject& o : objects) keys.push_back(ltx_key(cell, o.epoch, o.level, o.min, o.max));
  Result<void> done = co_await bucket_.remove_many(std::move(keys), deadline);
}

}  // namespace celld
