// What the protocol asks of the bucket: sequential round trips and requests, counted in virtual
// time on a store that delays every request by 20 ms. No clock is read, so the numbers are exact
// and equal on every machine.
//
//   build/<preset>/bench/round_trips             a line each; exit status 1 when a promise is
//   broken build/<preset>/bench/round_trips --careless  the same on a node that looks at own.json
//   again after each
//                                                conditional write and packs small slots: every
//                                                promise must then be seen to break
//   build/<preset>/bench/round_trips --cost      requests by class of fixed scenarios, and what
//   they cost on
//                                                Amazon S3: docs/cost.md
// links: world store ltx core
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/commit.h"
#include "core/core.h"
#include "core/slot.h"
#include "store/fault_store.h"
#include "store/memory_store.h"
#include "store/metered_store.h"
#include "world/test_world.h"

namespace celld {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kDelay = milliseconds(20);

bool careless = false;
int broken_promises = 0;

// Reads after each conditional write whether it is still the owner, as a protocol without fenced
// slots has to.
class CarelessStore final : public ObjectStore {
 public:
  explicit CarelessStore(std::shared_ptr<ObjectStore> inner) : inner_(std::move(inner)) {}
  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override {
    return inner_->get(std::move(key), deadline);
  }
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override {
    return inner_->get_range(std::move(key), range, deadline);
  }
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override {
    SwapResult result =
        co_await inner_->put_if(key, std::move(body), std::move(condition), deadline);
    Result<StoredObject> look = co_await inner_->get(std::move(key), deadline);
    co_return result;
  }
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override {
    return inner_->put(std::move(key), std::move(body), deadline);
  }
  Task<Result<void>> remove(std::string key, Deadline deadline) override {
    return inner_->remove(std::move(key), deadline);
  }
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override {
    return inner_->list(std::move(request), deadline);
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::shared_ptr<ObjectStore> inner_;
};

// The virtual machine room: one bucket, one scheduler.
struct Room {
  TestWorld world{1};
  std::shared_ptr<MemoryStore> bucket = std::make_shared<MemoryStore>(world);

  template <class T>
  T run(Task<T> task) {
    auto value = std::make_shared<std::optional<T>>();
    auto wrap = [](std::shared_ptr<std::optional<T>> out, Task<T> t) -> Task<void> {
      out->emplace(co_await std::move(t));
    };
    start(wrap(value, std::move(task)));
    CHECK(world.run_until([&] { return value->has_value(); }, minutes(10))) << "a task without end";
    return std::move(**value);
  }
};

// One node: the real core, and a host that keeps the number of the last commit of each cell.
class BenchNode final : public CoreHost {
 public:
  BenchNode(Room& room, const std::string& id, std::optional<NodeId> predecessor = std::nullopt)
      : room_(room), world_(room.world) {
    data = metered();
    lease = metered();
    CoreOptions options;
    options.node = NodeId(id);
    options.name = id;
    options.predecessor = std::move(predecessor);
    // The scan belongs to the idle scenario; elsewhere it would only blur the counts.
    options.wake_scan_interval = hours(10);
    if (careless) options.slot_bytes_max = kSlotBytesMin;
    adjust(options);
  }
  void adjust(CoreOptions options) {
    options_ = std::move(options);
    core = std::make_unique<Core>(world_, *data_entry_, *lease_entry_, *this, options_);
  }
  CoreOptions options() const { return options_; }

  void start() {
    Result<void> up = room_.run(core->start());
    CHECK(up) << up.error().message;
    room_.world.run_for(seconds(3));  // its first look around
  }
  void stop() {
    Deadline deadline = world_.deadline_in(minutes(2));
    Result<void> down = room_.run(core->shutdown(deadline));
    CHECK(down) << down.error().message;
    core.reset();
  }
  void kill() { world_.kill(); }

  Task<Result<void>> own(CellId cell) {
    Deadline deadline = world_.deadline_in(minutes(1));
    Result<Activation> a = co_await core->activate(cell, deadline);
    if (!a) co_return fail(std::move(a).error());
    Resident resident{a->epoch, a->txid, a->txid, a->image.page_count};
    residents_[cell] = resident;
    core->set_alarm(cell, std::nullopt);
    co_return Result<void>{};
  }
  void forget(const CellId& cell) { residents_.erase(cell); }

  // One commit of `pages` pages of random bytes from page `first` on.
  Txid write(const CellId& cell, uint32_t first, uint32_t pages) {
    Resident& r = residents_.at(cell);
    r.txid = r.txid.next();
    r.page_count = std::max(r.page_count, first + pages - 1);
    Commit commit;
    commit.cell = cell;
    commit.epoch = r.epoch;
    commit.txid = r.txid;
    commit.page_count = r.page_count;
    for (uint32_t i = 0; i < pages; ++i) {
      PageRef page = PageRef::allocate();
      for (size_t at = 0; at < kPageSize; at += 8) {
        uint64_t random = room_.world.random_u64();
        std::memcpy(page.mutable_data() + at, &random, 8);
      }
      commit.pages.push_back({first + i, std::move(page)});
    }
    core->commit(std::move(commit));
    return r.txid;
  }
  Task<bool> proven(CellId cell, Txid txid) {
    while (residents_.at(cell).proven < txid) co_await acknowledged_.wait();
    co_return true;
  }
  uint32_t page_count(const CellId& cell) const { return residents_.at(cell).page_count; }
  // Nothing waits for the bucket any more.
  void settle() {
    bool quiet = room_.world.run_until(
        [&] {
          return core->journal_bytes_waiting() == 0 && core->undrained_bytes() == 0 &&
                 data->counts().outstanding == 0;
        },
        minutes(5));
    CHECK(quiet) << "the node does not come to rest";
    room_.world.run_for(seconds(5));  // deletions and compactions that follow a drain
  }

  // CoreHost
  void on_proven(std::span<const Proven> proven) override {
    for (const Proven& p : proven) {
      auto it = residents_.find(p.cell);
      if (it != residents_.end()) it->second.proven = p.txid;
    }
    acknowledged_.notify_all();
  }
  void on_fenced(FenceReason reason, std::string detail) override {
    CHECK(false) << "fenced: " << to_string(reason) << ": " << detail;
  }
  void on_alarm_due(CellId, WallMs) override {}
  Task<Result<DatabaseImage>> snapshot(CellId cell, Txid*) override {
    Error e = Error::not_found(cell.value);
    co_return fail(std::move(e));
  }

  std::shared_ptr<MeteredStore> data;
  std::shared_ptr<MeteredStore> lease;
  std::unique_ptr<Core> core;

 private:
  struct Resident {
    Epoch epoch;
    Txid txid;
    Txid proven;
    uint32_t page_count = 0;
  };
  std::shared_ptr<MeteredStore> metered() {
    auto delayed = std::make_shared<FaultStore>(world_, room_.bucket, kDelay);
    auto meter = std::make_shared<MeteredStore>(std::move(delayed));
    std::shared_ptr<ObjectStore>& entry = data_entry_ ? lease_entry_ : data_entry_;
    entry = meter;
    if (careless) entry = std::make_shared<CarelessStore>(meter);
    return meter;
  }

  Room& room_;
  TestNodeWorld world_;
  std::shared_ptr<ObjectStore> data_entry_;
  std::shared_ptr<ObjectStore> lease_entry_;
  CoreOptions options_;
  std::unordered_map<CellId, Resident> residents_;
  Signal acknowledged_{world_};
};

// --- measuring and promising ---

struct Cost {
  uint64_t round_trips = 0;  // elapsed virtual time over the delay
  uint64_t requests = 0;
  uint64_t puts = 0;
  StoreCounts counts;
};

Cost measure(Room& room, BenchNode& node, const std::function<void()>& work) {
  node.data->reset();
  MonoTime begin = room.world.now();
  work();
  Duration elapsed = room.world.now() - begin;
  Cost cost;
  cost.counts = node.data->counts();
  cost.round_trips = static_cast<uint64_t>((elapsed + kDelay - Duration(1)) / kDelay);
  cost.requests = cost.counts.total().requests;
  cost.puts = cost.counts[StoreOp::kPutIf].requests + cost.counts[StoreOp::kPut].requests;
  return cost;
}

std::string plural(uint64_t n, const char* one, const char* many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}
std::string trips(const Cost& cost) {
  return plural(cost.round_trips, "round trip", "round trips") + ", " +
         plural(cost.requests, "request", "requests");
}

void report(const std::string& what, const std::string& numbers) {
  std::printf("%s: %s\n", what.c_str(), numbers.c_str());
}
void promise(const std::string& what, bool kept) {
  if (kept) return;
  ++broken_promises;
  std::printf("BROKEN PROMISE: %s\n", what.c_str());
}

CellId cell_named(const std::string& name) { return CellId("Bench:" + name); }

void own_all(Room& room, BenchNode& node, const std::vector<CellId>& cells) {
  auto all = [](Room* r, BenchNode* n, std::vector<CellId> ids) -> Task<bool> {
    std::vector<Task<Result<void>>> tasks;
    for (const CellId& id : ids) tasks.push_back(n->own(id));
    std::vector<Result<void>> done = co_await join_all(r->world, std::move(tasks));
    for (auto& d : done) CHECK(d) << d.error().message;
    co_return true;
  };
  room.run(all(&room, &node, cells));
}
void own(Room& room, BenchNode& node, const CellId& cell) {
  own_all(room, node, std::vector<CellId>{cell});
}
void write_and_wait(Room& room, BenchNode& node, const CellId& cell, uint32_t first,
                    uint32_t pages) {
  Txid txid = node.write(cell, first, pages);
  room.run(node.proven(cell, txid));
}
void release(Room& room, BenchNode& node, const CellId& cell) {
  node.forget(cell);
  Result<void> released = room.run(node.core->release(cell));
  CHECK(released) << released.error().message;
}

// --- scenarios ---

void fill(Room& room, BenchNode& node, const CellId& cell, uint32_t pages) {
  constexpr uint32_t kPagesPerCommit = 64;
  for (uint32_t first = 1; first <= pages; first += kPagesPerCommit) {
    write_and_wait(room, node, cell, first, std::min(kPagesPerCommit, pages - first + 1));
  }
}

void activations() {
  struct Size {
    const char* name;
    uint32_t pages;
  };
  for (Size size : {Size{"0 B", 0}, Size{"10 KB", 3}, Size{"1 MB", 250}, Size{"10 MB", 2500}}) {
    Room room;
    BenchNode first(room, "first");
    BenchNode second(room, "second");
    first.start();
    second.start();
    CellId cell = cell_named("x");
    if (size.pages > 0) {
      own(room, first, cell);
      fill(room, first, cell, size.pages);
      first.settle();
      release(room, first, cell);
    }
    Cost cost = measure(room, second, [&] { own(room, second, cell); });
    CHECK(second.page_count(cell) == size.pages)
        << "restored " << second.page_count(cell) << " pages";
    std::string what = std::string("activation ") + size.name;
    report(what, trips(cost));
    promise(what + " takes 2 round trips", cost.round_trips == 2);

    if (size.pages == 3 || size.pages == 2500) {
      second.settle();
      second.forget(cell);
      cost = measure(room, second, [&] { own(room, second, cell); });
      report(std::string("wake of an owned cell, ") + size.name, trips(cost));
      promise("a wake of an owned cell takes 1 round trip and no write",
              cost.round_trips <= 1 && cost.puts == 0);
    }
    first.stop();
    second.stop();
  }
}

void one_write() {
  Room room;
  BenchNode node(room, "node");
  node.start();
  CellId cell = cell_named("x");
  own(room, node, cell);
  write_and_wait(room, node, cell, 1, 3);
  node.settle();
  Cost cost = measure(room, node, [&] { write_and_wait(room, node, cell, 1, 1); });
  report("acknowledged write", trips(cost));
  promise("a write is acknowledged after 1 round trip", cost.round_trips == 1);
  promise("a write costs 1 PUT", cost.requests == 1 && cost.puts == 1);

  // While its commit is not drained, a cell that is woken needs what only the journal has.
  node.forget(cell);
  cost = measure(room, node, [&] { own(room, node, cell); });
  report("wake of an owned cell with undrained commits", trips(cost));
  promise("a wake with undrained commits takes 1 round trip",
          cost.round_trips <= 1 && cost.puts == 0);

  write_and_wait(room, node, cell, 1, 1);
  cost = measure(room, node, [&] { release(room, node, cell); });
  report("release with undrained commits (and the lease once)", trips(cost));
  promise("a release with undrained commits takes 3 round trips", cost.round_trips <= 3);
  own(room, node, cell);
  write_and_wait(room, node, cell, 1, 1);
  node.settle();
  cost = measure(room, node, [&] { release(room, node, cell); });
  report("release of a drained cell", trips(cost));
  promise("a release of a drained cell takes 1 round trip",
          cost.round_trips == 1 && cost.requests == 1);
  node.stop();
}

constexpr unsigned kWriters = 100;
constexpr unsigned kWritesEach = 20;

// `cells` cells shared by all writers; each waits for its acknowledgement, and then up to `pause`.
void writers(const std::string& what, unsigned cells, Duration pause) {
  Room room;
  BenchNode node(room, "node");
  node.start();
  std::vector<CellId> ids;
  for (unsigned i = 0; i < cells; ++i) ids.push_back(cell_named("w" + std::to_string(i)));
  own_all(room, node, ids);
  for (const CellId& id : ids) write_and_wait(room, node, id, 1, 2);
  node.settle();
  unsigned left = kWriters;
  auto writer = [](Room* r, BenchNode* n, CellId cell, Duration idle,
                   unsigned* running) -> Task<void> {
    for (unsigned i = 0; i < kWritesEach; ++i) {
      if (idle > Duration(0)) co_await sleep_for(r->world, r->world.between(Duration(0), idle));
      Txid txid = n->write(cell, 1, 1);
      co_await n->proven(cell, txid);
    }
    --*running;
  };
  Cost cost = measure(room, node, [&] {
    for (unsigned i = 0; i < kWriters; ++i)
      start(writer(&room, &node, ids[i % cells], pause, &left));
    CHECK(room.world.run_until([&] { return left == 0; }, minutes(5))) << "writers do not end";
  });
  uint64_t slots = 0;
  auto journal = cost.counts.by_area.find("journal");
  if (journal != cost.counts.by_area.end()) {
    slots = journal->second[static_cast<size_t>(StoreOp::kPutIf)].requests;
  }
  double per_write = static_cast<double>(slots) / (kWriters * kWritesEach);
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "%llu conditional PUTs for %u writes, %.3f per write; %.1f round trips a write",
                static_cast<unsigned long long>(slots), kWriters * kWritesEach, per_write,
                static_cast<double>(cost.round_trips) / kWritesEach);
  report(what, numbers);
  promise(what + ": at most 0.1 conditional PUTs per write", slots > 0 && per_write <= 0.1);
  node.settle();
  node.stop();
}

// A node with acknowledged commits that are not drained, 50 cells, dies.
void lose_a_node() {
  constexpr unsigned kCells = 50;
  std::vector<CellId> cells;
  for (unsigned i = 0; i < kCells; ++i) cells.push_back(cell_named("t" + std::to_string(i)));
  auto prepare = [&](Room& room, BenchNode& victim) {
    victim.start();
    own_all(room, victim, cells);
    auto write_all = [&](uint32_t pages) {
      std::vector<Txid> written;
      for (const CellId& id : cells) written.push_back(victim.write(id, 1, pages));
      for (size_t i = 0; i < cells.size(); ++i) room.run(victim.proven(cells[i], written[i]));
    };
    write_all(3);
    victim.settle();
    for (int round = 0; round < 5; ++round) write_all(1);
    victim.kill();
  };
  {
    Room room;
    BenchNode victim(room, "victim");
    BenchNode heir(room, "heir");
    prepare(room, victim);
    room.world.run_for(seconds(11));  // its lease ends
    Result<void> up = room.run(heir.core->start());
    CHECK(up) << up.error().message;
    Cost cost = measure(room, heir, [&] { own_all(room, heir, cells); });
    report("takeover of a dead node with 5 undrained slots, all its 50 cells at once", trips(cost));
    promise("a takeover costs at most 8 requests a cell", cost.requests <= 8 * kCells);
    heir.stop();
  }
  {
    Room room;
    BenchNode victim(room, "victim");
    prepare(room, victim);
    BenchNode heir(room, "heir", NodeId("victim"));
    Cost start = measure(room, heir, [&] {
      Result<void> up = room.run(heir.core->start());
      CHECK(up) << up.error().message;
    });
    report("restart on the same data directory, until it serves",
           trips(start) + ", and 1 for the lease");
    room.world.run_for(seconds(3));
    Cost cost = measure(room, heir, [&] { own_all(room, heir, cells); });
    report("after the restart, its 50 cells at once", trips(cost));
    promise("a claim from a recovered node takes at most 5 round trips", cost.round_trips <= 5);
    heir.stop();
  }
}

std::map<std::string, uint64_t> by_class(const StoreCounts& counts) {
  std::map<std::string, uint64_t> out;
  for (auto& [area, ops] : counts.by_area) {
    for (size_t i = 0; i < kStoreOps; ++i) {
      if (ops[i].requests > 0)
        out[std::string(to_string(static_cast<StoreOp>(i))) + " " + area] += ops[i].requests;
    }
  }
  return out;
}

uint64_t idle_minute(unsigned cells, bool print) {
  Room room;
  BenchNode node(room, "node");
  CoreOptions options = node.options();
  options.wake_scan_interval = CoreOptions().wake_scan_interval;
  node.adjust(std::move(options));
  node.start();
  std::vector<CellId> ids;
  for (unsigned i = 0; i < cells; ++i) ids.push_back(cell_named("i" + std::to_string(i)));
  own_all(room, node, ids);
  for (const CellId& id : ids) write_and_wait(room, node, id, 1, 2);
  node.settle();
  node.data->reset();
  node.lease->reset();
  room.world.run_for(minutes(1));
  std::map<std::string, uint64_t> lease = by_class(node.lease->counts());
  std::map<std::string, uint64_t> data = by_class(node.data->counts());
  uint64_t requests = node.data->counts().total().requests;
  uint64_t renewals = node.lease->counts().total().requests;
  if (print) {
    std::string numbers;
    for (auto* side : {&lease, &data}) {
      for (auto& [name, n] : *side)
        numbers += (numbers.empty() ? "" : ", ") + name + " " + std::to_string(n);
    }
    report("idle node with " + std::to_string(cells) + " cells, one minute", numbers);
    // TTL/3 apart, one more for the phase.
    promise("an idle node writes its lease once per TTL/3", renewals <= 19);
    promise("an idle node lists nothing", node.data->counts()[StoreOp::kList].requests == 0);
    promise("an idle node asks for newcomers once a minute", requests <= 2);
  }
  node.stop();
  return requests + renewals;
}

void idle() {
  uint64_t with = idle_minute(1000, true);
  uint64_t without = idle_minute(0, false);
  promise("an idle node costs nothing per cell", with == without);
}

// --- what it costs ---

// Amazon S3 Standard, us-east-1, in dollars; docs/cost.md says where they are from and when.
constexpr double kDollarsPerWrite = 0.005 / 1000;  // PUT, POST, LIST
constexpr double kDollarsPerRead = 0.0004 / 1000;  // GET, HEAD
constexpr double kMinutesPerMonth = 30 * 24 * 60;

// Of both connection pools: those of the lease and of the data.
struct Bill {
  uint64_t writes = 0, reads = 0, deletes = 0, bytes_up = 0;
  std::map<std::string, uint64_t> by_class;

  double dollars() const {
    return static_cast<double>(writes) * kDollarsPerWrite +
           static_cast<double>(reads) * kDollarsPerRead;
  }
};

Bill bill(BenchNode& node) {
  Bill out;
  for (const MeteredStore* side : {node.lease.get(), node.data.get()}) {
    StoreCounts counts = side->counts();
    out.writes += counts.requests_of(CostClass::kWrite);
    out.reads += counts.requests_of(CostClass::kRead);
    out.deletes += counts.requests_of(CostClass::kFree);
    out.bytes_up += counts.total().bytes_up;
    for (auto& [name, n] : by_class(counts)) out.by_class[name] += n;
  }
  return out;
}

void reset(BenchNode& node) {
  node.data->reset();
  node.lease->reset();
}

void print(const std::string& what, const Bill& b) {
  std::string classes;
  for (auto& [name, n] : b.by_class)
    classes += (classes.empty() ? "" : ", ") + name + " " + std::to_string(n);
  std::printf("%s: %llu write, %llu read, %llu delete; %.6f dollars (%s)\n", what.c_str(),
              static_cast<unsigned long long>(b.writes), static_cast<unsigned long long>(b.reads),
              static_cast<unsigned long long>(b.deletes), b.dollars(), classes.c_str());
}

void use_all_intervals(BenchNode& node) {
  CoreOptions options = node.options();
  options.wake_scan_interval = CoreOptions().wake_scan_interval;
  node.adjust(std::move(options));
}

// A thousand commits of one page, with all that follows from them: drains, deletions, compaction.
void thousand_writes(const std::string& what, unsigned cells, unsigned at_once) {
  constexpr unsigned kWrites = 1000;
  Room room;
  BenchNode node(room, "node");
  node.start();
  std::vector<CellId> ids;
  for (unsigned i = 0; i < cells; ++i) ids.push_back(cell_named("k" + std::to_string(i)));
  own_all(room, node, ids);
  for (const CellId& id : ids) write_and_wait(room, node, id, 1, 2);
  node.settle();
  reset(node);
  for (unsigned written = 0; written < kWrites; written += at_once) {
    std::vector<Txid> last;
    for (unsigned i = 0; i < at_once; ++i)
      last.push_back(node.write(ids[(written + i) % cells], 1, 1));
    for (unsigned i = 0; i < at_once; ++i)
      room.run(node.proven(ids[(written + i) % cells], last[i]));
  }
  node.settle();
  print("1000 writes, " + what, bill(node));
  node.stop();
}

void activation_and_release() {
  constexpr uint32_t kPages = 250;
  Room room;
  BenchNode first(room, "first");
  BenchNode second(room, "second");
  first.start();
  second.start();
  const CellId cell = cell_named("x");
  own(room, first, cell);
  fill(room, first, cell, kPages);
  first.settle();
  release(room, first, cell);
  second.data->reset();
  second.lease->reset();
  own(room, second, cell);
  print("activation of a cell of 1 MB that another node released", bill(second));
  write_and_wait(room, second, cell, 1, 1);
  second.settle();
  reset(second);
  release(room, second, cell);
  print("release of a drained cell", bill(second));
  first.stop();
  second.stop();
}

void takeover() {
  constexpr unsigned kCells = 50;
  std::vector<CellId> cells;
  for (unsigned i = 0; i < kCells; ++i) cells.push_back(cell_named("t" + std::to_string(i)));
  Room room;
  BenchNode victim(room, "victim");
  BenchNode heir(room, "heir");
  victim.start();
  own_all(room, victim, cells);
  for (int round = 0; round < 6; ++round) {
    for (const CellId& id : cells) write_and_wait(room, victim, id, 1, round == 0 ? 3 : 1);
    if (round == 0) victim.settle();
  }
  victim.kill();
  room.world.run_for(seconds(11));  // the victim's lease ends
  Result<void> up = room.run(heir.core->start());
  CHECK(up) << up.error().message;
  reset(heir);
  own_all(room, heir, cells);
  print("takeover of 50 cells with 250 writes that are not drained", bill(heir));
  heir.stop();
}

// A node under a steady load, some minutes of it, as a month.
void month(const std::string& what, unsigned cells, Duration pause, int measured_minutes = 10) {
  Room room;
  BenchNode node(room, "node");
  use_all_intervals(node);
  node.start();
  std::vector<CellId> ids;
  for (unsigned i = 0; i < cells; ++i) ids.push_back(cell_named("m" + std::to_string(i)));
  own_all(room, node, ids);
  for (const CellId& id : ids) write_and_wait(room, node, id, 1, 2);
  node.settle();
  bool running = pause > Duration(0);
  unsigned left = running ? cells : 0;
  auto writer = [](Room* r, BenchNode* n, CellId cell, Duration idle, const bool* go,
                   unsigned* alive) -> Task<void> {
    // Not in step with the others.
    co_await sleep_for(r->world, r->world.between(Duration(0), idle));
    while (*go) {
      Txid txid = n->write(cell, 1, 1);
      co_await n->proven(cell, txid);
      co_await sleep_for(r->world, idle);
    }
    --*alive;
  };
  for (unsigned i = 0; i < left; ++i) start(writer(&room, &node, ids[i], pause, &running, &left));
  room.world.run_for(minutes(2));
  reset(node);
  room.world.run_for(minutes(measured_minutes));
  const Bill b = bill(node);
  running = false;
  CHECK(room.world.run_until([&] { return left == 0; }, minutes(5))) << "writers do not end";
  node.settle();
  node.stop();
  const double scale = kMinutesPerMonth / measured_minutes;
  std::printf(
      "a month of %s: %.2f million writes, %.2f million reads, %.2f million deletes, %.1f GB sent: "
      "%.2f dollars\n",
      what.c_str(), static_cast<double>(b.writes) * scale / 1e6,
      static_cast<double>(b.reads) * scale / 1e6, static_cast<double>(b.deletes) * scale / 1e6,
      static_cast<double>(b.bytes_up) * scale / 1e9, b.dollars() * scale);
}

int cost() {
  {
    Room room;
    BenchNode node(room, "node");
    use_all_intervals(node);
    node.start();
    reset(node);
    room.world.run_for(minutes(1));
    print("idle node, one minute", bill(node));
    node.stop();
  }
  thousand_writes("one after the other, one cell", 1, 1);
  thousand_writes("100 at once, 100 cells", 100, 100);
  activation_and_release();
  takeover();
  month("an idle node", 1000, Duration(0));
  month("one write a second, 1 cell", 1, seconds(1));
  month("10 writes a second, 100 cells", 100, seconds(10));
  month("100 writes a second, 100 cells", 100, seconds(1));
  month("1,000 writes a second, 1,000 cells", 1000, seconds(1), 2);
  return 0;
}

int run() {
  activations();
  one_write();
  writers("100 writers of 100 cells, in step", 100, Duration(0));
  writers("100 writers of 100 cells, pauses up to 20 ms", 100, milliseconds(20));
  writers("100 writers of 1 cell, pauses up to 20 ms", 1, milliseconds(20));
  lose_a_node();
  idle();
  if (broken_promises > 0) std::printf("%d promises are broken\n", broken_promises);
  return broken_promises > 0 ? 1 : 0;
}

}  // namespace
}  // namespace celld

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--careless") {
      celld::careless = true;
    } else if (std::string_view(argv[i]) == "--cost") {
      return celld::cost();
    } else {
      std::fprintf(stderr, "usage: round_trips [--careless | --cost]\n");
      return 2;
    }
  }
  return celld::run();
}
