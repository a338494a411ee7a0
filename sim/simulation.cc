#include "sim/simulation.h"

#include <algorithm>

#include "sqlite/cell_vfs.h"

namespace celld::sim {

namespace {

constexpr Duration kTick = std::chrono::milliseconds(10);
constexpr double kTickSeconds = 0.01;
constexpr uint64_t kEventsMax = 4'000'000;  // a run that takes more goes round in circles
constexpr double kVerifyPatienceS = 40;     // for one cell, once everything has settled
constexpr double kShutDownS = 60;

// SQLite has one host for the process.
Rng* g_sqlite_random = nullptr;
Scheduler* g_sqlite_world = nullptr;

void connect_sqlite(Rng* random, Scheduler* world) {
  g_sqlite_random = random;
  g_sqlite_world = world;
  SqliteHost host;
  host.random = [](std::span<uint8_t> out) { g_sqlite_random->fill(out); };
  host.wall_now = [] { return g_sqlite_world->wall_now(); };
  init_sqlite(host);
}

// A machine with a disk, on which one node runs after the other.
struct Place {
  SimNode* node = nullptr;
  std::optional<NodeId> disk;  // whose data directory it is
  MonoTime down_until;
  MonoTime exit_at = MonoTime::max();  // of a fenced node
  int64_t drift_ppm = 0;
};

class Simulation {
 public:
  Simulation(uint64_t seed, const Settings& settings, bool recording)
      : stage_(std::make_unique<Stage>(seed, settings, recording)),
        set_(stage_->settings),
        world_(stage_->world),
        chance_(seed, "chance"),
        work_(seed, "work"),
        sqlite_random_(seed, "sqlite") {
    connect_sqlite(&sqlite_random_, &world_);
    for (int i = 0; i < static_cast<int>(set_.world_cells); ++i)
      cells_.push_back(CellId("Cell:" + std::to_string(i)));
    places_.resize(static_cast<size_t>(set_.world_nodes));
    for (Place& place : places_) {
      place.drift_ppm = static_cast<int64_t>(chance_.between(-set_.clocks_drift_ppm, set_.clocks_drift_ppm));
    }
    clients_ = static_cast<size_t>(set_.world_clients);
  }

  RunResult run() {
    for (Place& place : places_) boot(place);
    for (size_t i = 0; i < clients_; ++i) think();
    MonoTime end = world_.now() + s(set_.world_length_s);
    while (sound() && world_.now() < end) {
      run_for(kTick);
      disturb();
      meddle();
      for (Place& place : places_) act(place);
    }
    if (sound()) settle();
    if (sound()) close();
    return result();
  }

  const Verdict& verdict() const { return stage_->verdict; }

 private:
  bool sound() const { return !stage_->verdict.violation(); }

  void run_for(Duration d) {
    MonoTime end = world_.now() + d;
    while (sound() && world_.next_at() <= end) {
      world_.step();
      if (world_.events() > kEventsMax) stage_->verdict.broken("livelock", {}, "four million events");
    }
    world_.advance_to(end);
  }
  template <class Condition>
  bool run_until(Condition condition, Duration limit) {
    MonoTime end = world_.now() + limit;
    while (sound() && !condition()) {
      if (world_.now() >= end) return false;
      run_for(kTick);
      for (Place& place : places_) act(place);
    }
    return sound();
  }

  // --- places ---

  CoreOptions options() {
    CoreOptions o;
    // Ids in any order: the election must not depend on who came first.
    o.node = NodeId("n" + std::to_string(chance_.below(90) + 10) + "-" + std::to_string(++nodes_started_));
    o.name = o.node.value;
    o.lease_ttl = ms(set_.knobs_ttl_ms);
    o.request_timeout = ms(set_.knobs_request_timeout_ms);
    o.slot_bytes_max = static_cast<size_t>(set_.knobs_slot_kb) << 10;
    o.slots_in_flight_max = static_cast<unsigned>(set_.knobs_slots_in_flight);
    o.drain_interval = ms(set_.knobs_drain_ms);
    o.undrained_bytes_max = static_cast<size_t>(set_.knobs_undrained_kb) << 10;
    o.chain_objects_max = static_cast<size_t>(set_.knobs_chain_objects);
    o.retention = ms(set_.knobs_retention_ms);
    o.wake_scan_interval = ms(set_.knobs_wake_scan_ms);
    o.wake_entries_max = static_cast<size_t>(set_.knobs_wake_entries);
    return o;
  }

  void boot(Place& place) {
    CoreOptions o = options();
    if (place.disk && chance_.chance(set_.life_keep_disk)) o.predecessor = place.disk;
    place.disk = o.node;
    place.exit_at = MonoTime::max();
    int64_t skew = calm_ ? 0 : static_cast<int64_t>(chance_.between(-set_.clocks_skew_ms, set_.clocks_skew_ms));
    nodes_.push_back(std::make_unique<SimNode>(*stage_, nodes_started_, std::move(o), skew, place.drift_ppm));
    place.node = nodes_.back().get();
    SimNode* node = place.node;
    node->data().crash = node->lease().crash = [this, node] { crash(node, "crash at a request"); };
    node->boot();
  }

  void crash(SimNode* node, const std::string& why) {
    if (node->world().killed()) return;
    node->die(why);
    for (Place& place : places_) {
      if (place.node != node) continue;
      place.down_until = world_.now() + chance_.between(Duration(0), s(set_.life_down_s));
      if (!calm_ && chance_.chance(set_.life_never_back)) place.down_until = MonoTime::max();
    }
  }

  bool happens(double rate) { return chance_.unit() < rate * kTickSeconds && !calm_; }

  // The store and the way to it.
  void disturb() {
    if (happens(set_.faults_burst) && !stage_->weather.burst) {
      stage_->weather.burst = true;
      stage_->verdict.note("", "", "the store fails for all");
      world_.call_in(chance_.between(ms(50), s(set_.faults_burst_s)), [this] { stage_->weather.burst = false; });
    }
  }

  // Somebody who deletes what must not be deleted: of a node that lives or of one that is long dead.
  void meddle() {
    if (!happens(set_.life_lose_record)) return;
    size_t among = std::min(nodes_.size(), 2 * places_.size());
    NodeId node = nodes_[nodes_.size() - 1 - chance_.below(among)]->id();
    records_lost_ += stage_->bucket.lose_record(node);
  }

  void act(Place& place) {
    SimNode& node = *place.node;
    if (node.world().killed()) {
      if (world_.now() >= place.down_until) boot(place);
      return;
    }
    node.look();
    if (node.fenced() && place.exit_at == MonoTime::max()) {
      place.exit_at = world_.now() + chance_.between(Duration(0), ms(300));
    }
    if (world_.now() >= place.exit_at) return crash(&node, "exit after the fence");
    if (node.failed()) return crash(&node, "exit");
    if (happens(set_.life_crash)) {
      // Between any two of its events, not only where the clock of this loop ticks.
      SimNode* victim = &node;
      node.world().crash_after(1 + chance_.below(40), [this, victim] { crash(victim, "crash"); });
    }
    if (happens(set_.life_freeze)) {
      Duration d = chance_.between(ms(10), s(set_.life_freeze_s));
      stage_->verdict.note(node.id().value, "",
                           "frozen for " + std::to_string(d / std::chrono::milliseconds(1)) + " ms");
      node.world().freeze_until(world_.now() + d);
    }
    if (happens(set_.faults_cut)) {
      bool lease = chance_.chance(set_.faults_cut_lease), data = !lease || chance_.chance(set_.faults_cut_data);
      SimNode* cut = &node;
      node.data().cut_off = data;
      node.lease().cut_off = lease;
      stage_->verdict.note(node.id().value, "",
                           std::string(lease && data ? "" : lease ? "lease " : "data ") + "cut off from the store");
      world_.call_in(chance_.between(ms(10), s(set_.faults_cut_s)),
                     [cut] { cut->data().cut_off = cut->lease().cut_off = false; });
    }
    if (happens(set_.clocks_jump)) {
      node.world().set_skew(static_cast<int64_t>(chance_.between(-set_.clocks_skew_ms, set_.clocks_skew_ms)));
      stage_->verdict.note(node.id().value, "",
                           "wall clock off by " + std::to_string(node.world().skew_ms()) + " ms");
    }
    if (!node.up()) return;
    if (happens(set_.life_shutdown)) return node.shut_down(chance_.between(s(1), s(15)));
    for (const CellId& cell : cells_) {
      if (happens(set_.life_release_asleep) && node.core().owns(cell)) node.release_asleep(cell);
    }
    for (const CellId& cell : node.residents()) {
      if (happens(set_.life_hibernate)) {
        node.hibernate(cell);
      } else if (happens(set_.life_release)) {
        node.release(cell);
      }
    }
  }

  // --- clients ---

  void think() {
    world_.call_in(work_.between(ms(1), ms(2 * set_.work_think_ms)), [this] {
      if (!calm_) ask();
    });
  }

  OpKind choose() {
    const std::pair<OpKind, double> weights[] = {
        {OpKind::kAppend, set_.work_append}, {OpKind::kRead, set_.work_read},
        {OpKind::kSet, set_.work_set},       {OpKind::kBig, set_.work_big},
        {OpKind::kClear, set_.work_clear},   {OpKind::kAlarm, set_.work_alarm},
        {OpKind::kThrows, set_.work_throws}, {OpKind::kAlarmOff, set_.work_alarm_off},
        {OpKind::kHang, set_.work_hang}};
    double total = 0;
    for (auto& [kind, weight] : weights) total += weight;
    double at = work_.unit() * total;
    for (auto& [kind, weight] : weights) {
      if ((at -= weight) < 0) return kind;
    }
    return OpKind::kRead;
  }

  void ask() {
    // A few cells are asked for more than the others.
    size_t which = std::min(work_.below(cells_.size()), work_.below(cells_.size()));
    OpKind kind = choose();
    uint64_t argument = work_.next() >> 8;
    if (kind == OpKind::kBig) argument = 1 + argument % static_cast<uint64_t>(std::max(1.0, set_.work_big_pages));
    if (kind == OpKind::kAlarm) argument %= static_cast<uint64_t>(std::max(1.0, set_.work_alarm_ahead_s * 1e3));
    auto known = owner_.find(cells_[which]);
    size_t place = work_.below(places_.size());
    if (known != owner_.end() && work_.chance(set_.work_sticky)) place = known->second;
    Duration patience = work_.between(ms(200), s(set_.work_deadline_s));
    send(cells_[which], kind, argument, place, patience, [this](const Reply&) { think(); });
  }

  // Sends a request; `then` is called once, with the reply or without (nothing done, nothing refused).
  void send(const CellId& cell, OpKind kind, uint64_t argument, size_t place, Duration patience,
            std::function<void(const Reply&)> then) {
    uint64_t op = ++stage_->last_op;
    stage_->history.begin(cell, op, kind, argument, world_.now());
    bool lost = work_.chance(calm_ ? 0 : set_.faults_client_lost);
    bool reply_lost = work_.chance(calm_ ? 0 : set_.faults_client_lost);
    Duration there = work_.between(ms(1), ms(5)), back = work_.between(ms(1), ms(5));
    SimNode* node = places_[place].node;
    auto ended = std::make_shared<bool>(false);
    auto finish = [this, ended, op, cell, place, then](const Reply& reply) {
      if (std::exchange(*ended, true)) return;
      HistoryOp& record = stage_->history.find(op);
      record.refused = reply.refused;
      if (reply.done) {
        record.returned = world_.now();
        record.output = reply.seen;
        record.stale = reply.stale && set_.clocks_lie();
        stage_->stale_reads += record.stale;
        ++stage_->answered;
        owner_[cell] = place;
      } else if (reply.refused) {
        owner_.erase(cell);
      }
      if (stage_->verdict.recording()) {
        stage_->verdict.note("", cell.value,
                             std::string("client: ") + to_string(record.kind) + " " + std::to_string(op) +
                                 (reply.done ? " done, list of " + std::to_string(reply.seen.n)
                                             : (reply.refused ? " refused: " : " unknown: ") + reply.error));
      }
      then(reply);
    };
    Request request;
    request.cell = cell;
    request.op = op;
    request.kind = kind;
    request.argument = argument;
    request.patience = patience;
    request.reply = [this, finish, back, reply_lost](Reply reply) {
      if (reply_lost) return;
      world_.call_in(back, [finish, reply = std::move(reply)] { finish(reply); });
    };
    bool healthy = !lost && !reply_lost;
    world_.call_in(there, [this, node, lost, request = std::move(request), finish]() mutable {
      if (lost) return;
      if (node->world().killed()) {
        Reply refused;
        refused.refused = true;
        refused.error = "connection refused";
        return finish(refused);
      }
      node->arrive(std::move(request));
    });
    // An answer or an error within the deadline, from a node that runs.
    MonoTime sent = world_.now();
    // By the clock of the node, which may be slow.
    Duration limit = std::chrono::duration_cast<Duration>(patience / (1 - set_.clocks_drift_ppm / 1e6)) + ms(200);
    world_.call_in(limit, [this, healthy, sent, node, ended, finish, cell, op] {
      if (*ended) return;
      if (healthy && !node->world().killed() && !node->world().was_frozen_since(sent)) {
        stage_->verdict.broken("unanswered", cell,
                               "operation " + std::to_string(op) + " at node " + node->id().value);
      }
      Reply nothing;
      nothing.error = "no answer";
      finish(nothing);
    });
  }

  // --- the end ---

  void settle() {
    calm_ = stage_->weather.calm = true;
    stage_->weather.burst = false;
    stage_->verdict.note("", "", "the faults end");
    for (Place& place : places_) {
      place.node->data().cut_off = place.node->lease().cut_off = false;
      place.node->world().thaw();
      place.node->world().set_skew(0);
      place.down_until = std::min(place.down_until, world_.now() + ms(500));
    }
    run_until([] { return false; }, s(set_.world_settle_s));
    if (!sound()) return;
    for (Place& place : places_) {
      if (!place.node->up()) {
        stage_->verdict.broken("unsettled", {},
                               "node " + place.node->id().value + " is not up: " + place.node->trouble());
      }
    }
    for (const CellId& cell : cells_) {
      size_t owners = 0;
      for (Place& place : places_) owners += place.node->core().owns(cell);
      if (owners > 1) stage_->verdict.broken("unsettled", cell, std::to_string(owners) + " nodes own it");
    }
    stage_->model.begin_inquest();
    WallMs settled = world_.wall_now();
    // Every cell answers, wherever it is asked for first.
    for (size_t i = 0; i < cells_.size() && sound(); ++i) {
      bool answered = false;
      std::string error;
      size_t place = chance_.below(places_.size());
      MonoTime end = world_.now() + s(kVerifyPatienceS);
      while (sound() && !answered) {
        auto ended = std::make_shared<std::optional<Reply>>();
        send(cells_[i], i % 2 == 0 ? OpKind::kAppend : OpKind::kRead, 0, place, s(5),
             [ended](const Reply& reply) { *ended = reply; });
        run_until([&] { return ended->has_value(); }, s(30));
        if (!sound()) break;
        answered = *ended && (*ended)->done;
        if (*ended) error = (*ended)->error;
        place = (place + 1) % places_.size();
        if (!answered && world_.now() >= end) {
          stage_->verdict.broken("unsettled", cells_[i], "no node answers: " + error);
        }
      }
      StateRef found = stage_->model.found(cells_[i]);
      // With the record goes what tells of a node that was never drained: docs/guarantees.md.
      bool told = found && !stage_->audit->was_lost(found->alarm_by);
      if (told && found->alarm && *found->alarm <= settled) {
        stage_->verdict.broken("alarm-lost", cells_[i],
                               "due for " + std::to_string(settled.value - found->alarm->value) + " ms, never fired");
      }
    }
  }

  void close() {
    for (Place& place : places_) place.node->shut_down(s(kShutDownS));
    MonoTime end = world_.now() + s(kShutDownS + 5);
    auto all_down = [&] {
      return std::all_of(places_.begin(), places_.end(), [](Place& p) { return p.node->failed(); });
    };
    while (sound() && !all_down() && world_.now() < end) run_for(kTick);
    if (!sound()) return;
    for (Place& place : places_) {
      if (!place.node->stopped_well()) {
        stage_->verdict.broken("unsettled", {},
                               "node " + place.node->id().value + " does not shut down: " + place.node->trouble());
      }
      stage_->deaths -= 1;  // die() counts, but nothing was lost
      place.node->die("is down");
    }
    run_for(s(2));
    check_leftovers();
    // One new node, on a new machine, must find everything.
    Place& last = places_[0];
    last.disk.reset();
    boot(last);
    places_.resize(1);
    if (!run_until([&] { return last.node->up(); }, s(60))) {
      if (sound()) stage_->verdict.broken("unsettled", {}, "the last node does not start: " + last.node->trouble());
      return;
    }
    for (const CellId& cell : cells_) {
      auto ended = std::make_shared<std::optional<Reply>>();
      send(cell, OpKind::kRead, 0, 0, s(kVerifyPatienceS), [ended](const Reply& reply) { *ended = reply; });
      run_until([&] { return ended->has_value(); }, s(kVerifyPatienceS + 15));
      if (!sound()) return;
      if (!*ended || !(*ended)->done) {
        return stage_->verdict.broken("unsettled", cell,
                                      "the last node does not answer: " + (*ended ? (*ended)->error : std::string()));
      }
      stage_->history.judge(cell, stage_->model.last_restored(cell), stage_->verdict);
      if (!sound()) return;
    }
  }

  // What is left behind is bounded by what went wrong.
  void check_leftovers() {
    BucketAudit::Leftovers left = stage_->audit->leftovers();
    const auto& f = stage_->weather.injected;
    // Requests that came after the fact, and what every node makes of a record that is gone.
    uint64_t strays = f[5] + f[6] + f[7] + static_cast<uint64_t>(set_.world_nodes) * records_lost_;
    // Deletions that wait for the end of the retention window end with their node, also in good order.
    uint64_t mishaps = nodes_started_ + strays;
    auto bound = [&](const char* what, uint64_t found, uint64_t most) {
      if (found <= most) return;
      stage_->verdict.broken("garbage", {},
                             std::to_string(found) + " " + what + " are left behind by " +
                                 std::to_string(nodes_started_) + " nodes and " + std::to_string(strays) +
                                 " stray requests, at most " + std::to_string(most) + ":" + left.example);
    };
    bound("journal slots", left.slots, 24 * mishaps);
    // Who recovers a journal that a colleague has just finished may meet a hole below the fence, and close it.
    bound("fences", left.fences, nodes_started_ * static_cast<uint64_t>(set_.world_nodes) + strays);
    bound("node records", left.node_records, nodes_started_);
    // Some of each cell that a node owned when it ended.
    bound("LTX objects", left.ltx, 24 * mishaps + 4 * nodes_started_ * cells_.size());
    bound("alarm index shards", left.index_shards, 2 * mishaps);
    bound("entries of alarms", left.unowned_alarms, 8 * mishaps + 8);
  }

  RunResult result() {
    RunResult r;
    r.violation = stage_->verdict.violation();
    r.trace = world_.trace().value();
    r.virtual_seconds = static_cast<double>(world_.now().since_start.count()) / 1e9;
    r.events = world_.events();
    r.commits = stage_->model.commits;
    r.acknowledgements = stage_->model.acknowledgements;
    r.restores = stage_->model.restores;
    r.alarms = stage_->alarms_fired;
    r.answered = stage_->answered;
    r.deaths = stage_->deaths;
    r.stale_reads = stage_->stale_reads;
    r.undecided = stage_->history.undecided;
    r.faults = stage_->weather.injected;
    r.timeline = stage_->verdict.timeline();
    return r;
  }

  std::unique_ptr<Stage> stage_;
  const Settings& set_;
  Scheduler& world_;
  Rng chance_;
  Rng work_;
  Rng sqlite_random_;
  std::vector<CellId> cells_;
  std::vector<Place> places_;
  size_t clients_ = 0;
  std::map<CellId, size_t> owner_;  // where a request was answered last
  std::vector<std::unique_ptr<SimNode>> nodes_;
  uint64_t nodes_started_ = 0;
  uint64_t records_lost_ = 0;
  bool calm_ = false;
};

}  // namespace

namespace {
const Verdict* g_running = nullptr;
}

const Verdict* running_verdict() { return g_running; }

RunResult run_simulation(uint64_t seed, const Settings& settings, bool recording) {
  // Frames of tasks that never ended refer to it: it stays.
  static auto* grave = new std::vector<Simulation*>();
  grave->push_back(new Simulation(seed, settings, recording));
  StoreLink::requests = 0;
  g_running = &grave->back()->verdict();
  RunResult r = grave->back()->run();
  g_running = nullptr;
  r.requests = StoreLink::requests;
  return r;
}

}  // namespace celld::sim
