#include "sim/node.h"

#include <cstring>

#include "base/marks.h"

namespace celld::sim {

namespace {

constexpr size_t kWaitingMax = 32;
constexpr uint64_t kRowsKept = 40;
constexpr unsigned kAlarmRetriesMax = 6;

// A scratch file that is a string.
class MemoryScratch final : public ScratchFile {
 public:
  Result<void> read(uint64_t offset, std::span<uint8_t> out) override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = offset + i < bytes_.size() ? bytes_[offset + i] : 0;
    return {};
  }
  Result<void> write(uint64_t offset, std::span<const uint8_t> in) override {
    if (bytes_.size() < offset + in.size()) bytes_.resize(offset + in.size());
    std::copy(in.begin(), in.end(), bytes_.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }
  void truncate(uint64_t size) override {
    if (size < bytes_.size()) bytes_.resize(size);
  }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace

struct SimNode::Resident final : CellStorage::Sink {
  Resident(SimNode& owner, CellId cell) : node(owner), id(std::move(cell)) {}

  bool may_commit() override { return node.authority(); }
  void commit(std::vector<NumberedPage> pages, uint32_t page_count,
              std::optional<std::optional<int64_t>> alarm_change_ms) override {
    Commit c;
    c.cell = id;
    c.epoch = epoch;
    c.txid = committed = committed.next();
    c.page_count = page_count;
    c.time = node.world_.wall_now();
    if (alarm_change_ms) {
      AlarmChange change;
      if (*alarm_change_ms) change.at = WallMs{**alarm_change_ms};
      c.alarm = change;
    }
    state = node.stage_.model.committed(id, node.id(), epoch, state, pages, page_count, c.alarm, op, next_content);
    Gate& gate = node.gates_[id];
    gate.epoch = epoch;
    gate.unproven[committed] = state;
    c.pages = std::move(pages);
    node.core_->commit(std::move(c));
  }

  SimNode& node;
  CellId id;
  enum class Phase : uint8_t { kLoading, kReady, kReleasing } phase = Phase::kLoading;
  bool activating = false;
  Epoch epoch;
  Txid committed;
  StateRef state;
  std::unique_ptr<CellStorage> storage;
  std::deque<CallRef> waiting;
  bool has_table = false;
  bool alarm_hinted = false;
  bool alarm_running = false;
  unsigned alarm_retries = 0;
  uint64_t turns = 0;
  // Of the turn that runs.
  uint64_t op = 0;
  Content next_content;
};

SimNode::SimNode(Stage& stage, uint64_t number, CoreOptions options, int64_t skew_ms, int64_t drift_ppm)
    : stage_(stage),
      options_(std::move(options)),
      rng_(stage.seed, "host " + options_.node.value),
      world_(stage.world, number, stage.seed),
      data_(stage.world, world_, stage.bucket, stage.weather, stage.verdict, options_.node.value + " data",
            stage.seed),
      lease_(stage.world, world_, stage.bucket, stage.weather, stage.verdict, options_.node.value + " lease",
             stage.seed) {
  world_.set_skew(skew_ms);
  world_.set_drift(drift_ppm);
  world_.set_lateness(ms(stage.settings.clocks_late_ms));
  lease_.applied = [this, own = lease_key(options_.node)](const std::string& key, const Blob&, MonoTime sent) {
    if (key == own) lease_bound_ = std::max(lease_bound_, sent + options_.lease_ttl);
  };
  core_ = std::make_unique<Core>(world_, data_, lease_, *this, options_);
}

SimNode::~SimNode() {
  world_.kill();
  static auto* grave = new std::vector<std::unique_ptr<Core>>();
  grave->push_back(std::move(core_));
}

void SimNode::boot() {
  stage_.verdict.note(id().value, "",
                      "starts" + (options_.predecessor ? " after " + options_.predecessor->value : ""));
  world_.post([this] { start(run_boot()); });
}

Task<void> SimNode::run_boot() {
  Result<void> started = co_await core_->start();
  if (started) {
    up_ = true;
    stage_.verdict.note(id().value, "", "is up");
  } else {
    failed_ = true;
    trouble_ = started.error().message;
    stage_.verdict.note(id().value, "", "does not start: " + trouble_);
  }
}

void SimNode::die(const std::string& why) {
  if (world_.killed()) return;
  stage_.verdict.note(id().value, "", "ends: " + why);
  world_.kill();
  ++stage_.deaths;
  up_ = false;
  cells_.clear();
  gates_.clear();
}

// --- what must hold ---

bool SimNode::authority() {
  bool has = core_->has_authority();
  if (has && ended_) stage_.verdict.broken("lease-revived", {}, "node " + id().value + " has authority again");
  if (has && fenced_)
    stage_.verdict.broken("lease-revived", {}, "node " + id().value + " has authority after its fence");
  if (has && world_.now() >= lease_bound_) {
    stage_.verdict.broken("served-without-lease", {},
                          "node " + id().value + " has authority " +
                              std::to_string((world_.now() - lease_bound_) / std::chrono::milliseconds(1)) +
                              " ms after the end of the last lease that the bucket has seen");
  }
  if (!has && up_) ended_ = true;
  return has;
}

void SimNode::look() {
  if (!world_.killed() && !world_.frozen() && up_) authority();
}

std::vector<CellId> SimNode::residents() const {
  std::vector<CellId> out;
  for (const auto& [cell, r] : cells_) {
    if (r->phase == Resident::Phase::kReady) out.push_back(cell);
  }
  return out;
}

bool SimNode::gates_open() const {
  for (const auto& [cell, gate] : gates_) {
    if (!gate.unproven.empty()) return false;
  }
  return true;
}

// --- requests ---

void SimNode::arrive(Request request) {
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  world_.post([this, call] { serve(call); });
}

void SimNode::answer(const CallRef& call, Reply reply) {
  if (call->answered) return;
  call->answered = true;
  world_.cancel(call->timer);
  call->request.reply(std::move(reply));
}

void SimNode::refuse(const CallRef& call, std::string error) {
  Reply reply;
  reply.refused = !call->executed;
  reply.error = std::move(error);
  answer(call, std::move(reply));
}

void SimNode::serve(CallRef call) {
  if (!up_ || stopping_ || fenced_) return refuse(call, "not serving");
  if (core_->under_pressure()) {
    COVERAGE_MARK("refused-under-pressure");
    return refuse(call, "overloaded");
  }
  if (call->timer == 0) {
    call->timer = world_.call_at(world_.now() + call->request.patience, [this, call] { refuse(call, "deadline"); });
  }
  auto [it, fresh] = cells_.try_emplace(call->request.cell);
  if (fresh) it->second = std::make_unique<Resident>(*this, call->request.cell);
  Resident& r = *it->second;
  if (r.phase == Resident::Phase::kReady) return execute(r, call);
  if (r.waiting.size() >= kWaitingMax) return refuse(call, "too many wait");
  r.waiting.push_back(call);
  if (r.phase == Resident::Phase::kLoading) begin_activation(r.id);
}

void SimNode::begin_activation(const CellId& cell) {
  Resident& r = *cells_.at(cell);
  if (r.activating) return;
  r.activating = true;
  start(activate(cell));
}

Task<void> SimNode::activate(CellId cell) {
  Deadline deadline = world_.deadline_in(ms(stage_.settings.knobs_activation_ms));
  Result<Activation> result = co_await core_->activate(cell, deadline);
  activated(cell, std::move(result));
}

void SimNode::activated(const CellId& cell, Result<Activation> result) {
  auto it = cells_.find(cell);
  if (it == cells_.end() || it->second->phase != Resident::Phase::kLoading) return;
  Resident& r = *it->second;
  r.activating = false;
  if (!result && result.error().code == ErrorCode::kCorrupt && stage_.settings.faults_truncated == 0) {
    stage_.verdict.broken("damage-reported", cell, "node " + id().value + ": " + result.error().message);
  }
  if (!result || !authority() || !open(r, std::move(*result))) {
    std::string error = result ? "lost" : result.error().message;
    stage_.verdict.note(id().value, cell.value, "is not activated: " + error);
    auto waiting = std::move(r.waiting);
    cells_.erase(it);
    for (const CallRef& call : waiting) refuse(call, error);
    return;
  }
  if (r.alarm_hinted) look_at_alarm(r);
  auto waiting = std::exchange(r.waiting, {});
  for (const CallRef& call : waiting) {
    if (!call->answered) execute(r, call);
  }
}

bool SimNode::open(Resident& r, Activation activation) {
  CellStorageOptions options;
  options.pages.heap_bytes_max = static_cast<uint64_t>(stage_.settings.knobs_page_heap_kb) << 10;
  options.pages.open_spill = []() -> Result<std::unique_ptr<ScratchFile>> {
    return std::make_unique<MemoryScratch>();
  };
  r.epoch = activation.epoch;
  r.committed = activation.txid;
  r.state = stage_.model.restored(r.id, id(), activation);
  if (stage_.verdict.violation()) return false;
  Gate& gate = gates_[r.id];
  if (gate.epoch != r.epoch) gate = Gate{r.epoch, {}, {}};
  r.storage = std::make_unique<CellStorage>(&r, options);
  r.phase = Resident::Phase::kReady;
  if (activation.image.page_count > 0) {
    Result<void> loaded = r.storage->pages().load(std::move(activation.image.pages), activation.image.page_count);
    if (!loaded) {
      stage_.verdict.broken("bytes-differ", r.id, "the restored pages do not load: " + loaded.error().message);
      return false;
    }
    auto check = r.storage->exec("PRAGMA quick_check", {});
    std::string verdict = check ? "no answer" : check.error().message;
    if (check && (*check)->has_row()) {
      SqlValueView value = (*check)->value(0);
      if (auto* text = std::get_if<std::string_view>(&value)) verdict = *text;
    }
    if (verdict != "ok") stage_.verdict.broken("integrity", r.id, "PRAGMA quick_check: " + verdict);
    check = SqlResult<std::unique_ptr<SqlCursor>>();
  }
  Content content = read(r, true);
  Content expected = r.state ? r.state->content : Content{};
  if (content != expected) {
    stage_.verdict.broken(
        "bytes-differ", r.id,
        "restored to a list of " + std::to_string(content.n) + ", not of " + std::to_string(expected.n));
  }
  auto alarm = r.storage->alarm();
  std::optional<WallMs> at;
  if (alarm && *alarm) at = WallMs{**alarm};
  if (at != (r.state ? r.state->alarm : std::nullopt)) {
    stage_.verdict.broken("bytes-differ", r.id, "the alarm of the restored database is not the one that was set");
  }
  core_->set_alarm(r.id, at);
  return !stage_.verdict.violation();
}

// --- turns ---

Content SimNode::read(Resident& r, bool registers) {
  Content content;
  auto has = r.storage->exec("SELECT 1 FROM sqlite_schema WHERE name = 'log'", {});
  r.has_table = has && (*has)->has_row();
  has = SqlResult<std::unique_ptr<SqlCursor>>();
  if (r.has_table) {
    auto row = r.storage->exec("SELECT n, h FROM log ORDER BY n DESC LIMIT 1", {});
    if (row && (*row)->has_row()) {
      SqlValueView n = (*row)->value(0), h = (*row)->value(1);
      content.n = static_cast<uint64_t>(std::get<int64_t>(n));
      content.hash = static_cast<uint64_t>(std::get<int64_t>(h));
    }
  }
  for (size_t i = 0; registers && i < content.registers.size(); ++i) {
    auto value = r.storage->get("r" + std::to_string(i));
    if (value && *value) content.registers[i] = std::stoull(**value);
  }
  return content;
}

bool SimNode::append(Resident& r, OpKind kind, uint64_t op, uint64_t argument) {
  Content seen = read(r, false);
  Content expected = r.state ? r.state->content : Content{};
  if (seen.n != expected.n || seen.hash != expected.hash) {
    stage_.verdict.broken(
        "bytes-differ", r.id,
        "a running database has a list of " + std::to_string(seen.n) + ", not of " + std::to_string(expected.n));
    return false;
  }
  auto run = [&](std::string_view sql, std::vector<SqlValueView> bindings) {
    return r.storage->exec(sql, bindings).has_value();
  };
  if (!r.has_table && !run("CREATE TABLE log(n INTEGER PRIMARY KEY, op INTEGER, h INTEGER, body BLOB)", {})) {
    return false;
  }
  HistoryOp as_history;
  as_history.id = op;
  as_history.kind = kind;
  as_history.argument = argument;
  r.next_content = applied(as_history, expected);
  size_t bytes = kind == OpKind::kBig ? kPageSize * argument : 16 + op * 7 % 180;
  std::vector<uint8_t> body(bytes);
  Rng(op, "body").fill(body);
  if (!run("INSERT INTO log VALUES(?, ?, ?, ?)",
           {static_cast<int64_t>(r.next_content.n), static_cast<int64_t>(op),
            static_cast<int64_t>(r.next_content.hash), std::span<const uint8_t>(body)})) {
    return false;
  }
  if (r.next_content.n > kRowsKept &&
      !run("DELETE FROM log WHERE n <= ?", {static_cast<int64_t>(r.next_content.n - kRowsKept)})) {
    return false;
  }
  if (kind != OpKind::kSet) return true;
  return r.storage->put("r" + std::to_string(argument % 4), std::to_string(op)).has_value();
}

bool SimNode::turn(Resident& r, OpKind kind, uint64_t op, uint64_t argument,
                   std::optional<std::optional<int64_t>> alarm) {
  r.op = op;
  bool done = true;
  if (kind == OpKind::kClear) {
    r.next_content = Content{};
    done = r.storage->delete_all(argument % 2 == 0).has_value();
    r.has_table = false;
  } else {
    done = append(r, kind, op, argument);
  }
  if (done && alarm) done = r.storage->set_alarm(*alarm).has_value();
  if (!done) {
    r.storage->abandon();
    return false;
  }
  Txid before = r.committed;
  if (!r.storage->end_turn()) return false;
  // A cell that was empty already commits nothing; the operation has no trace then.
  if (r.committed == before && kind != OpKind::kClear) return false;
  if (++r.turns % 16 == 0) check_pages(r);
  return true;
}

// What the VFS handed over is all that changed.
void SimNode::check_pages(Resident& r) {
  PageSnapshot pages = r.storage->pages().snapshot();
  if (!r.state) return;
  bool equal = pages.page_count() == r.state->pages.size();
  for (Pgno pgno = 1; equal && pgno <= pages.page_count(); ++pgno) {
    Result<PageRef> page = pages.page(pgno);
    if (!page) return;
    const PageRef& known = r.state->pages[pgno - 1];
    if (*page == known) continue;
    static const uint8_t kZeros[kPageSize] = {};
    equal = std::memcmp(*page ? page->data() : kZeros, known ? known.data() : kZeros, kPageSize) == 0;
  }
  if (!equal) stage_.verdict.broken("bytes-differ", r.id, "the commits do not add up to the database");
}

void SimNode::behind_gate(Resident& r, std::function<void()> effect) {
  Gate& gate = gates_[r.id];
  bool open = gate.unproven.empty() || MUTANT("reveal-before-gate");
  if (open) {
    if (authority()) effect();
    return;
  }
  gate.effects.emplace(r.committed, std::move(effect));
}

void SimNode::execute(Resident& r, const CallRef& call) {
  if (!authority()) return refuse(call, "no authority");
  const Request& q = call->request;
  stage_.verdict.note(id().value, r.id.value, std::string("runs ") + to_string(q.kind) + " " + std::to_string(q.op));
  Reply reply;
  reply.done = true;
  if (q.kind == OpKind::kRead) {
    reply.seen = read(r, true);
    Content expected = r.state ? r.state->content : Content{};
    if (reply.seen != expected) {
      return stage_.verdict.broken("bytes-differ", r.id,
                                   "a read of a running database does not give what was written");
    }
    Epoch epoch = r.epoch;
    return behind_gate(r, [this, call, reply, epoch, cell = r.id]() mutable {
      reply.stale = stage_.model.overtaken(cell, epoch);
      answer(call, reply);
    });
  }
  call->executed = true;
  std::optional<std::optional<int64_t>> alarm;
  if (q.kind == OpKind::kAlarm) alarm.emplace(world_.wall_now().value + static_cast<int64_t>(q.argument));
  if (q.kind == OpKind::kAlarmOff) alarm.emplace(std::nullopt);
  Txid before = r.committed;
  if (!turn(r, q.kind, q.op, q.argument, alarm)) {
    if (stage_.verdict.violation()) return;
    if (authority())
      stage_.verdict.broken("refused-commit", r.id, "the storage refuses a turn of a node with authority");
    return refuse(call, "the commit was refused");
  }
  reply.seen = r.state ? r.state->content : Content{};
  if (r.committed == before) reply.refused = true, reply.done = false;
  if (q.kind == OpKind::kHang) {
    if (q.argument % 2 == 0) return;  // for ever: the deadline answers
    Txid at = r.committed;
    world_.call_at(world_.now() + ms(static_cast<double>(q.argument % 4000)), [this, call, reply, at, cell = r.id] {
      auto it = cells_.find(cell);
      if (it == cells_.end() || it->second->phase != Resident::Phase::kReady || it->second->committed < at) return;
      behind_gate(*it->second, [this, call, reply] { answer(call, reply); });
    });
    return;
  }
  // A handler that threw reveals its error no sooner than another its result.
  behind_gate(r, [this, call, reply] { answer(call, reply); });
}

// --- what the core says ---

void SimNode::on_proven(std::span<const Proven> proven) {
  for (const Proven& p : proven) {
    auto it = gates_.find(p.cell);
    if (it == gates_.end() || it->second.epoch != p.epoch) continue;
    if (!authority()) {
      return stage_.verdict.broken("proven-without-authority", p.cell,
                                   "node " + id().value + ": TXID " + std::to_string(p.txid.value));
    }
    Gate& gate = it->second;
    StateRef newest;
    while (!gate.unproven.empty() && gate.unproven.begin()->first <= p.txid) {
      newest = gate.unproven.begin()->second;
      gate.unproven.erase(gate.unproven.begin());
    }
    if (!newest || newest->txid != p.txid) {
      return stage_.verdict.broken("proven-without-commit", p.cell, "TXID " + std::to_string(p.txid.value));
    }
    stage_.model.acknowledged(p.cell, p.epoch, id(), newest);
    // Taken out first: an effect may use the cell.
    std::vector<std::function<void()>> open;
    while (!gate.effects.empty() && gate.effects.begin()->first <= p.txid) {
      open.push_back(std::move(gate.effects.begin()->second));
      gate.effects.erase(gate.effects.begin());
    }
    for (auto& effect : open) effect();
  }
}

void SimNode::on_fenced(FenceReason reason, std::string detail) {
  stage_.verdict.note(id().value, "", "SELF-FENCE: " + std::string(to_string(reason)) + ": " + detail);
  if (fenced_) stage_.verdict.broken("fenced-twice", {}, "node " + id().value);
  if (reason == FenceReason::kJournalFenced && !stage_.audit->fenced(id()) && stage_.settings.faults_truncated == 0) {
    stage_.verdict.broken("fenced-without-cause", {}, "node " + id().value + ": " + detail);
  }
  fenced_ = true;
  ended_ = true;
  gates_.clear();
}

Task<Result<DatabaseImage>> SimNode::snapshot(CellId cell, Txid* at) {
  auto it = cells_.find(cell);
  if (it == cells_.end() || !it->second->storage) {
    Error e = Error::not_found(cell.value + " is not resident");
    co_return fail(std::move(e));
  }
  Resident& r = *it->second;
  PageSnapshot pages = r.storage->pages().snapshot();
  DatabaseImage image;
  image.page_count = pages.page_count();
  for (Pgno pgno = 1; pgno <= pages.page_count(); ++pgno) {
    Result<PageRef> page = pages.page(pgno);
    if (!page) co_return fail(std::move(page).error());
    if (*page) image.pages.push_back({pgno, std::move(*page)});
  }
  *at = r.committed;
  co_return image;
}

// --- alarms ---

void SimNode::on_alarm_due(CellId cell, WallMs scheduled) {
  if (scheduled > world_.wall_now()) stage_.verdict.broken("alarm-early", cell, "node " + id().value);
  if (fenced_ || stopping_ || !up_) return;
  auto [it, fresh] = cells_.try_emplace(cell);
  if (fresh) it->second = std::make_unique<Resident>(*this, cell);
  Resident& r = *it->second;
  if (r.phase == Resident::Phase::kReady) {
    world_.post([this, cell] {
      auto there = cells_.find(cell);
      if (there != cells_.end() && there->second->phase == Resident::Phase::kReady) look_at_alarm(*there->second);
    });
    return;
  }
  r.alarm_hinted = true;
  if (r.phase == Resident::Phase::kLoading) begin_activation(cell);
}

void SimNode::look_at_alarm(Resident& r) {
  r.alarm_hinted = false;
  if (r.alarm_running || fenced_ || stopping_) return;
  auto alarm = r.storage->alarm();
  if (!alarm || !*alarm || WallMs{**alarm} > world_.wall_now() || !authority()) return;
  uint64_t op = ++stage_.last_op;
  HistoryOp& record = stage_.history.begin(r.id, op, OpKind::kAlarmFires, 0, stage_.world.now());
  bool throws =
      !stage_.weather.calm && rng_.chance(stage_.settings.work_alarm_throws) && r.alarm_retries < kAlarmRetriesMax;
  bool again = !stage_.weather.calm && rng_.chance(0.2);
  std::optional<std::optional<int64_t>> change;
  if (!throws) change.emplace(std::nullopt);
  if (!throws && again) change.emplace(world_.wall_now().value + static_cast<int64_t>(rng_.below(5000)));
  r.alarm_running = true;
  stage_.verdict.note(id().value, r.id.value,
                      "alarm handler runs as " + std::to_string(op) + (throws ? " and throws" : ""));
  if (!turn(r, OpKind::kAlarmFires, op, 0, change)) {
    r.alarm_running = false;
    return;
  }
  ++stage_.alarms_fired;
  Content seen = r.state->content;
  auto completed = [this, cell = r.id, throws, seen, op] {
    HistoryOp& done = stage_.history.find(op);
    done.returned = stage_.world.now();
    done.output = seen;
    auto it = cells_.find(cell);
    if (it == cells_.end() || it->second->phase != Resident::Phase::kReady) return;
    if (throws) return alarm_failed(cell);
    it->second->alarm_running = false;
    it->second->alarm_retries = 0;
    world_.post([this, cell] {
      auto there = cells_.find(cell);
      if (there != cells_.end() && there->second->phase == Resident::Phase::kReady) look_at_alarm(*there->second);
    });
  };
  (void)record;
  if (MUTANT("ungated-alarm")) {
    stage_.model.acknowledged(r.id, r.epoch, id(), r.state);
    return completed();
  }
  behind_gate(r, completed);
}

void SimNode::alarm_failed(const CellId& cell) {
  Resident& r = *cells_.at(cell);
  Duration pause = std::chrono::seconds(2) * (1 << r.alarm_retries);
  ++r.alarm_retries;
  world_.call_at(world_.now() + pause, [this, cell] {
    auto it = cells_.find(cell);
    if (it == cells_.end() || it->second->phase != Resident::Phase::kReady) return;
    it->second->alarm_running = false;
    look_at_alarm(*it->second);
  });
}

// --- the life of cells ---

void SimNode::hibernate(const CellId& cell) {
  world_.post([this, cell] {
    auto it = cells_.find(cell);
    if (it == cells_.end() || it->second->phase != Resident::Phase::kReady) return;
    stage_.verdict.note(id().value, cell.value, "hibernates");
    cells_.erase(it);
  });
}

void SimNode::release(const CellId& cell) {
  world_.post([this, cell] {
    auto it = cells_.find(cell);
    if (it == cells_.end() || it->second->phase != Resident::Phase::kReady || stopping_) return;
    stage_.verdict.note(id().value, cell.value, "is being released");
    it->second->phase = Resident::Phase::kReleasing;
    it->second->storage.reset();
    start(run_release(cell));
  });
}

void SimNode::release_asleep(const CellId& cell) {
  world_.post([this, cell] {
    if (!up_ || cells_.contains(cell) || stopping_ || !core_->owns(cell)) return;
    stage_.verdict.note(id().value, cell.value, "is being released in its sleep");
    start(run_release_asleep(cell));
  });
}

// The cell may be wanted again meanwhile: then the core makes the activation wait.
Task<void> SimNode::run_release_asleep(CellId cell) {
  Result<void> released = co_await core_->release(cell);
  stage_.verdict.note(id().value, cell.value,
                      released ? "is released" : "is not released: " + released.error().message);
}

Task<void> SimNode::run_release(CellId cell) {
  Result<void> released = co_await core_->release(cell);
  auto it = cells_.find(cell);
  if (it == cells_.end() || it->second->phase != Resident::Phase::kReleasing) co_return;
  stage_.verdict.note(id().value, cell.value,
                      released ? "is released" : "is not released: " + released.error().message);
  auto waiting = std::move(it->second->waiting);
  bool hinted = it->second->alarm_hinted;
  cells_.erase(it);
  for (CallRef& call : waiting) {
    if (!call->answered) serve(std::move(call));
  }
  if (hinted) on_alarm_due(cell, WallMs{});
}

void SimNode::shut_down(Duration patience) {
  if (stopping_) return;
  stopping_ = true;
  stage_.verdict.note(id().value, "", "shuts down");
  world_.post([this, patience] { start(run_shut_down(patience)); });
}

Task<void> SimNode::run_shut_down(Duration patience) {
  for (auto& [cell, r] : cells_) {
    for (const CallRef& call : r->waiting) refuse(call, "shutting down");
  }
  cells_.clear();
  Deadline deadline = world_.deadline_in(patience);
  Result<void> down = co_await core_->shutdown(deadline);
  stopped_well_ = down.has_value();
  if (!down) trouble_ = down.error().message;
  failed_ = true;
  stage_.verdict.note(id().value, "", down ? "has shut down" : "is shut down by force: " + trouble_);
}

}  // namespace celld::sim
