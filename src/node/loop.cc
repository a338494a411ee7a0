// The cells of a loop: activation, delivery, eviction, alarms, new code.
#include "node/loop.h"

#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "base/check.h"
#include "node/code.h"
#include "node/resident.h"

namespace celld {

namespace {

constexpr Duration kTick = std::chrono::milliseconds(500);
// Idle cells evicted in one tick: a few milliseconds of the loop.
constexpr size_t kEvictionsMax = 500;
// The allocator gives free memory back after this many evictions (some 20 MB), and not more often than
// this, since it walks through all of it.
constexpr size_t kTrimAfter = 500;
constexpr Duration kTrimPause = std::chrono::seconds(10);
// An alarm handler that throws is tried this many times more, 2 s apart and doubling.
constexpr uint32_t kAlarmRetriesMax = 6;
constexpr Duration kAlarmRetryFirst = std::chrono::seconds(2);
// Code that loaded once and then did not is tried again.
constexpr Duration kLoadRetryFirst = std::chrono::seconds(1);
constexpr Duration kLoadRetryMax = std::chrono::seconds(60);
// For a node that has the cell and cannot be reached.
constexpr Duration kOwnerWait = std::chrono::seconds(30);
// Rather than copying more than this for a snapshot, the core merges what is in the bucket.
constexpr uint32_t kSnapshotPagesMax = (64u << 20) / kPageSize;

js::JsError unavailable(const Error& error) {
  uint32_t flags = js::kRemote;
  if (error.retry != Retry::kNever) flags |= js::kRetryable;
  if (error.code == ErrorCode::kOverloaded) flags |= js::kOverloaded;
  return js::JsError{"Error", "Durable Object is unavailable: " + error.message, {}, flags | js::kNotBegun};
}

// Begins as the message that programs know from Cloudflare.
js::JsError unconfirmed(Duration timeout) {
  return js::JsError{"Error",
                     "Durable Object storage operation exceeded timeout: the bucket has confirmed nothing for " +
                         std::to_string(timeout / std::chrono::milliseconds(1)) +
                         " ms; the write may or may not have been stored.",
                     {},
                     js::kRetryable | js::kUnconfirmed};
}

js::JsError releasing_for_long() {
  return js::JsError{"Error",
                     "Durable Object is unavailable: its hand-over to the bucket takes long.",
                     {},
                     js::kRetryable};
}

js::JsError no_authority() {
  return js::JsError{"Error",
                     "Durable Object is unavailable: this node has lost its lease.",
                     {},
                     js::kRetryable | js::kObjectReset | js::kNotBegun | js::kElsewhere};
}

js::JsError of_another_node() {
  return js::JsError{"Error",
                     "Durable Object is unavailable: it is not on this node.",
                     {},
                     js::kRetryable | js::kNotBegun | js::kElsewhere};
}

bool from_peer(js::CellEvent& event) {
  js::Journey* journey = js::journey_of(event);
  return journey && journey->from_peer;
}

}  // namespace

Loop::Loop(std::string name, Control& control, LoopOptions options)
    : name_(std::move(name)),
      control_(control),
      options_(std::move(options)),
      world_(io_),
      work_(boost::asio::make_work_guard(io_)) {}

Loop::~Loop() { *alive_ = false; }

void Loop::set_peers(PeerIdentity identity, std::shared_ptr<PeerChecker> checker) {
  identity_ = std::move(identity);
  peer_checker_ = std::move(checker);
}

void Loop::adopt_socket(int fd, Side side) {
  post([this, fd, side] { (side == Side::kPublic ? server_ : internal_server_)->adopt(fd); });
}

Loop& Loop::loop_of(const CellId& cell) const {
  return *homes_[std::hash<std::string>()(cell.value) % homes_.size()];
}

bool Loop::has_authority() {
  return world_.now().since_start.count() <
         control_.authority_until_ns().load(std::memory_order_acquire);
}

// --- delivery ---

void Loop::call_cell(js::CellAddress to, js::CellEvent event) {
  Loop& owner = loop_of(to.cell);
  auto deliver_there = [&owner, to = std::move(to), event = std::move(event)]() mutable {
    owner.deliver(std::move(to), std::move(event));
  };
  if (&owner == this) {
    world_.post(std::move(deliver_there));
  } else {
    owner.post(std::move(deliver_there));
  }
}

Loop::Resident& Loop::resident(const CellId& cell) {
  auto it = cells_.find(cell);
  if (it == cells_.end()) {
    it = cells_.emplace(cell, std::make_unique<Resident>(cell, control_)).first;
    it->second->cell.last_used = world_.now();
  }
  return *it->second;
}

void Loop::deliver(js::CellAddress to, js::CellEvent event) {
  if (fenced_ || stopping_) return fail_event(event, no_authority());
  if (draining_ && from_peer(event)) return fail_event(event, of_another_node());
  if (!current_) {
    return fail_event(event, js::JsError{"Error", "The node has not loaded its code yet.", {},
                                         js::kRetryable | js::kNotBegun});
  }
  if (peers_ && !cells_.contains(to.cell) && peers_->forward(to, event)) return;
  if (control_.under_pressure()) {
    return fail_event(event, js::JsError{"Error", "The node is overloaded: too many writes wait for the bucket.",
                                         {}, js::kOverloaded | js::kRetryable | js::kNotBegun});
  }
  Resident& r = resident(to.cell);
  js::Cell& cell = r.cell;
  if (to.name && !cell.name) cell.name = std::move(to.name);
  switch (cell.state) {
    case js::Cell::State::kLoading:
    case js::Cell::State::kReleasing:
      if (!cell.enqueue(std::move(event))) return;
      if (cell.state == js::Cell::State::kLoading) begin_activation(r);
      return;
    default: break;
  }
  if (!has_authority()) return fail_event(event, no_authority());
  if (cell.isolate == current_.get()) return cell.isolate->deliver(cell, std::move(event));
  in_hand_.emplace(cell.id, std::move(event));
  settle_isolate(cell);
  js::CellEvent settled = std::move(in_hand_->second);
  in_hand_.reset();
  cell.isolate->deliver(cell, std::move(settled));
}

// Not at once: what runs may condemn an isolate, and the caller may be in the middle of a list.
void Loop::post_pump(const CellId& id) {
  world_.post([this, id] {
    auto it = cells_.find(id);
    if (it == cells_.end() || stopping_ || fenced_ || !current_) return;
    js::Cell& cell = it->second->cell;
    if (cell.state == js::Cell::State::kLoading || cell.state == js::Cell::State::kReleasing) return;
    settle_isolate(cell);
    cell.isolate->pump(cell);
  });
}

// The cell's next event runs on current code, if nothing of it runs on old code.
void Loop::settle_isolate(js::Cell& cell) {
  if (cell.isolate && cell.isolate != current_.get() && cell.active.empty()) {
    cell.isolate->detach(cell, js::JsError{"Error",
                                           "Durable Object reset because its code was updated.",
                                           {},
                                           js::kRetryable | js::kObjectReset});
  }
  if (!cell.isolate) current_->attach(cell);
}

// --- activation ---

void Loop::begin_activation(Resident& r) {
  if (r.activating) return;
  r.activating = true;
  if (!peers_) {
    r.claim = Claim::kOrWait;
  } else if (!r.alarm_hinted && !r.cell.waiting.empty() && std::ranges::all_of(r.cell.waiting, from_peer)) {
    r.claim = Claim::kOwnedOnly;
  } else {
    r.claim = r.wait_for_owner ? Claim::kOrWait : Claim::kOrTell;
  }
  control_.activate(r.cell.id, r.claim, [this, id = r.cell.id](Activated result) mutable {
    post([this, id = std::move(id), result = std::move(result)]() mutable { activated(id, std::move(result)); });
  });
}

// The cell is not claimed: what waits for it goes on to where it is.
void Loop::not_ours(Resident& r, const std::optional<OwnedElsewhere>& elsewhere, const Error& error) {
  CellId id = r.cell.id;
  auto name = r.cell.name;
  std::deque<js::CellEvent> waiting = r.cell.take_waiting();
  const Claim claim = r.claim;
  const bool hinted = r.alarm_hinted;
  cells_.erase(id);
  if (elsewhere) peers_->learn(id, *elsewhere);
  // A hint that came while peers asked for what they thought to be ours.
  if (hinted && claim == Claim::kOwnedOnly) on_alarm_due(id, WallMs{});
  for (js::CellEvent& event : waiting) {
    js::Journey* journey = js::journey_of(event);
    if (journey && journey->from_peer) {
      fail_event(event, of_another_node());
      continue;
    }
    // Where it was refused it is not sent again at once.
    if (journey && claim == Claim::kOrWait) journey->refused_by = {};
    js::CellAddress to{id, name};
    if (elsewhere && journey && journey->refused_by != elsewhere->node && peers_->forward(to, event)) continue;
    if (journey && !journey->until) journey->until = world_.now() + kOwnerWait;
    bool asked = elsewhere || claim == Claim::kOwnedOnly;
    if (!asked || !journey || journey->sent >= PeerCalls::kSentMax || world_.now() >= *journey->until) {
      fail_event(event, unavailable(error));
      continue;
    }
    Resident& again = resident(id);
    again.cell.name = name;
    again.wait_for_owner = elsewhere.has_value();
    if (again.cell.enqueue(std::move(event))) begin_activation(again);
  }
}

void Loop::activated(const CellId& id, Activated activated) {
  auto it = cells_.find(id);
  if (it == cells_.end()) return;
  Resident& r = *it->second;
  r.activating = false;
  Result<void> opened;
  if (!activated.result) {
    if (peers_ && activated.result.error().code == ErrorCode::kNotOwner) {
      return not_ours(r, activated.elsewhere, activated.result.error());
    }
    opened = fail(activated.result.error());
  } else {
    opened = open_storage(r, std::move(*activated.result), activated.proven);
  }
  if (!opened) {
    log(js::LogLevel::kError, "cell " + id.value + " cannot be activated: " + opened.error().message);
    auto waiting = r.cell.take_waiting();
    js::JsError error = unavailable(opened.error());
    r.cell.fail_gate(error);  // of an object whose storage was given up with a thread
    cells_.erase(it);
    for (js::CellEvent& e : waiting) fail_event(e, error);
    return;
  }
  Txid proven = activated.proven;
  r.cell.state = js::Cell::State::kCold;
  r.cell.last_used = world_.now();
  r.cell.on_proven(proven);
  if (r.alarm_hinted) look_at_alarm(r);
  if (r.cell.waiting.empty()) return;
  settle_isolate(r.cell);
  r.cell.isolate->pump(r.cell);
}

Result<void> Loop::open_storage(Resident& r, Activation activation, Txid proven) {
  CellStorageOptions options = options_.storage;
  if (!options_.scratch_dir.empty()) {
    std::string path = options_.scratch_dir + "/" + r.cell.id.value + ".pages";
    options.pages.open_spill = [path] { return open_scratch_file(path); };
  }
  r.cell.epoch = activation.epoch;
  r.cell.committed = activation.txid;
  r.cell.proven = std::min(proven, activation.txid);
  r.cell.storage = std::make_unique<CellStorage>(&r, options);
  if (activation.image.page_count == 0) {
    control_.set_alarm(r.cell.id, std::nullopt);
    return {};
  }
  TRY(r.cell.storage->pages().load(std::move(activation.image.pages), activation.image.page_count));
  auto alarm = r.cell.storage->alarm();
  if (!alarm) return fail(Error::corrupt("the database of " + r.cell.id.value + ": " + alarm.error().message));
  std::optional<WallMs> at;
  if (*alarm) at = WallMs{**alarm};
  control_.set_alarm(r.cell.id, at);
  return {};
}

// --- what the core says ---

void Loop::on_proven(const std::vector<Proven>& proven) {
  if (fenced_) return;
  if (!has_authority()) return;  // the fence is on its way and fails what waits
  for (const Proven& p : proven) {
    auto it = cells_.find(p.cell);
    if (it == cells_.end() || it->second->cell.epoch != p.epoch) continue;
    js::Cell& cell = it->second->cell;
    cell.on_proven(p.txid);
    if (cell.isolate && cell.holds_any()) post_pump(p.cell);  // it waited for this
  }
}

void Loop::on_fenced(const std::string& reason) {
  fenced_ = true;
  js::JsError error{"Error", "Durable Object is unavailable: the node fenced itself (" + reason + ").",
                    {}, js::kRetryable | js::kObjectReset};
  for (auto& [id, r] : cells_) {
    if (r->cell.isolate) r->cell.isolate->detach(r->cell, error);
    for (js::CellEvent& e : r->cell.take_waiting()) fail_event(e, error);
    r->cell.fail_gate(error);
  }
}

Result<DatabaseImage> Loop::snapshot(const CellId& id, Txid* at) {
  auto it = cells_.find(id);
  if (it == cells_.end() || !it->second->cell.storage) {
    return fail(Error::not_found("cell " + id.value + " is not resident"));
  }
  js::Cell& cell = it->second->cell;
  PageSnapshot pages = cell.storage->pages().snapshot();
  if (pages.page_count() > kSnapshotPagesMax) {
    return fail(Error::overloaded("the database of " + id.value + " is too large to copy"));
  }
  DatabaseImage image;
  image.page_count = pages.page_count();
  image.pages.reserve(pages.page_count());
  for (Pgno pgno = 1; pgno <= pages.page_count(); ++pgno) {
    if (pgno == kLockPage) continue;
    TRY_ASSIGN(PageRef page, pages.page(pgno));
    if (page) image.pages.push_back(NumberedPage{pgno, std::move(page)});
  }
  *at = cell.committed;
  return image;
}

// --- alarms ---

void Loop::on_alarm_due(CellId id, WallMs) {
  if (fenced_ || stopping_) return;
  Resident& r = resident(id);
  switch (r.cell.state) {
    case js::Cell::State::kLoading:
      r.alarm_hinted = true;
      begin_activation(r);
      return;
    case js::Cell::State::kReleasing: r.alarm_hinted = true; return;
    default: look_at_alarm(r);
  }
}

// A hint came: the database knows whether an alarm is due.
void Loop::look_at_alarm(Resident& r) {
  r.alarm_hinted = !current_;  // then load() looks again
  if (r.alarm_hinted || r.cell.alarm_running || !r.cell.storage || fenced_ || stopping_) return;
  auto alarm = r.cell.storage->alarm();
  if (!alarm) {
    log(js::LogLevel::kError, "cell " + r.cell.id.value + ": its alarm cannot be read: " + alarm.error().message);
    return;
  }
  if (!*alarm || WallMs{**alarm} > world_.wall_now()) return;
  if (!has_authority()) return;
  WallMs scheduled{**alarm};
  settle_isolate(r.cell);
  r.cell.alarm_running = true;
  r.cell.isolate->deliver(
      r.cell, js::CellAlarm{r.cell.alarm_retries, scheduled,
                            [this, id = r.cell.id, scheduled](js::Outcome<bool> outcome) {
                              world_.post([this, id, scheduled, outcome = std::move(outcome)]() mutable {
                                alarm_done(id, std::move(outcome), scheduled);
                              });
                            }});
}

void Loop::alarm_done(const CellId& id, js::Outcome<bool> outcome, WallMs scheduled) {
  auto it = cells_.find(id);
  if (it == cells_.end()) return;
  Resident& r = *it->second;
  if (outcome) {
    r.cell.alarm_running = false;
    r.cell.alarm_retries = 0;
    look_at_alarm(r);  // the handler may have set one that is due by now
    return;
  }
  const js::JsError& error = outcome.error();
  if ((error.flags & js::kUnconfirmed) != 0) {
    // The handler ran; its writes count as soon as they are proven, and then there is no alarm. Until
    // then the core goes on giving hints.
    r.cell.alarm_running = false;
    return;
  }
  log(js::LogLevel::kError, "alarm of " + id.value + " failed: " +
                                (error.stack.empty() ? error.name + ": " + error.message : error.stack));
  if (fenced_ || stopping_) return;
  if (r.cell.alarm_retries >= kAlarmRetriesMax) {
    log(js::LogLevel::kError, "alarm of " + id.value + " is given up after " +
                                  std::to_string(kAlarmRetriesMax + 1) + " failures");
    r.cell.alarm_running = false;
    r.cell.alarm_retries = 0;
    if (!r.cell.storage) return;
    auto now_set = r.cell.storage->alarm();
    if (now_set && *now_set && **now_set == scheduled.value) {
      (void)r.cell.storage->set_alarm(std::nullopt);
      (void)r.cell.storage->end_turn();
    }
    return;
  }
  Duration delay = kAlarmRetryFirst * (1 << r.cell.alarm_retries);
  ++r.cell.alarm_retries;
  world_.call_at(world_.now() + delay, [this, id] {
    auto again = cells_.find(id);
    if (again == cells_.end()) return;
    again->second->cell.alarm_running = false;
    look_at_alarm(*again->second);
  });
}

// --- code ---

Result<std::unique_ptr<js::IsolateHost>> Loop::make_isolate(std::shared_ptr<const js::WorkerCode> code) {
  making_ = code;
  auto made = js::IsolateHost::create(world_, *this, std::move(code), options_.isolate);
  making_.reset();
  return made;
}

void Loop::load(std::shared_ptr<const js::WorkerCode> code, Loaded done) {
  loaded_ = std::move(done);
  auto host = make_isolate(code);
  done = std::exchange(loaded_, nullptr);
  if (!host) return done(fail(std::move(host).error()));
  if (current_) old_.emplace_back(std::move(current_), world_.now());
  current_ = std::move(*host);
  code_ = std::move(code);
  broken_code_.reset();
  for (auto& [id, r] : cells_) {
    if (r->alarm_hinted) post([this, id] { on_alarm_due(id, WallMs{}); });
  }
  done({});
  retire_old_isolates();
}

// It loaded before, but what runs at the top of a module need not be the same every time.
void Loop::make_stand_in(const std::string& why) {
  log(js::LogLevel::kError, "the code no longer loads: " + why);
  broken_code_ = code_;
  retry_load_at_ = world_.now() + kLoadRetryFirst;
  retry_load_delay_ = kLoadRetryFirst;
  auto stand_in = make_isolate(code_that_fails(*code_, "the code no longer loads: " + why));
  CHECK(stand_in) << "no isolate can be made: " << stand_in.error().message;
  current_ = std::move(*stand_in);
}

void Loop::make_current() {
  auto fresh = make_isolate(code_);
  if (!fresh) return make_stand_in(fresh.error().message);
  current_ = std::move(*fresh);
}

void Loop::isolate_condemned(js::IsolateHost& isolate) {
  log(js::LogLevel::kError, "an isolate exceeded its memory limit of " +
                                std::to_string(options_.isolate.heap_bytes >> 20) +
                                " MiB; its objects start again");
  if (current_.get() == &isolate) {
    old_.emplace_back(std::move(current_), world_.now());
    make_current();
  }
  for (auto& [id, r] : cells_) {
    if (r->cell.isolate || r->cell.state == js::Cell::State::kLoading || r->cell.waiting.empty()) continue;
    post_pump(id);
  }
  world_.post([this] { retire_old_isolates(); });
}

void Loop::retire_old_isolates() {
  MonoTime now = world_.now();
  for (auto& [host, since] : old_) {
    bool force = now - since >= options_.code_update_force;
    if (host->condemned() || host->cells() == 0) continue;
    for (auto& [id, r] : cells_) {
      js::Cell& cell = r->cell;
      if (cell.isolate != host.get() || (!cell.active.empty() && !force)) continue;
      host->detach(cell, js::JsError{"Error", "Durable Object reset because its code was updated.", {},
                                     js::kRetryable | js::kObjectReset});
      if (!cell.waiting.empty()) post_pump(id);
    }
  }
  std::vector<std::unique_ptr<js::IsolateHost>> retired;
  std::erase_if(old_, [&](auto& entry) {
    bool over = entry.first->cells() == 0 && entry.first->active_events() == 0;
    if (over) retired.push_back(std::move(entry.first));
    return over;
  });
}

void Loop::retry_broken_code() {
  if (!broken_code_ || world_.now() < retry_load_at_) return;
  load(broken_code_, [this](Result<void> loaded) {
    if (loaded) return;
    retry_load_delay_ = std::min(retry_load_delay_ * 2, kLoadRetryMax);
    retry_load_at_ = world_.now() + retry_load_delay_;
  });
}

void Loop::run_scheduled(std::string cron, WallMs time) {
  if (!current_) return;
  current_->scheduled(cron, time, [this, cron](js::Outcome<bool> outcome) {
    if (outcome) return;
    const js::JsError& e = outcome.error();
    log(js::LogLevel::kError, "scheduled(" + cron + ") failed: " +
                                  (e.stack.empty() ? e.name + ": " + e.message : e.stack));
  });
}

// --- time ---

void Loop::tick() {
  next_tick_ = world_.call_at(world_.now() + kTick, [this] {
    if (!stopping_) {
      sweep_cells();
      end_long_waits();
      if (current_) current_->sweep();
      for (auto& [host, since] : old_) host->sweep();
      retire_old_isolates();
      retry_broken_code();
      count_work();
    }
    if (peers_) peers_->look_after();
    tick();
  });
}

void Loop::count_work() {
  size_t work = current_ ? current_->cells() + current_->active_events() : 0;
  for (auto& [host, since] : old_) work += host->cells() + host->active_events();
  work_count_.store(work, std::memory_order_relaxed);
}

void Loop::sweep_cells() {
  MonoTime now = world_.now();
  size_t evicted = 0;
  for (auto& [id, r] : cells_) {
    if (evicted == kEvictionsMax) break;  // the others at the next tick
    js::Cell& cell = r->cell;
    if (cell.state != js::Cell::State::kReady && cell.state != js::Cell::State::kCold) continue;
    if (!cell.idle() || cell.gated() || r->activating) continue;
    Duration idle = now - cell.last_used;
    if (cell.isolate && idle >= options_.idle_evict) {
      cell.isolate->detach(cell, js::JsError{"Error", "Durable Object was evicted.", {}, js::kRetryable});
      cell.storage->close_idle();
      ++evicted;
    }
    if (!cell.isolate && idle >= options_.idle_release) begin_release(*r);
  }
  evicted_untrimmed_ += evicted;
  if (evicted_untrimmed_ >= kTrimAfter && now >= trimmed_at_ + kTrimPause) {
    // What evicted cells leave lies between what others use: without this the process keeps all of it.
    malloc_trim(0);
    evicted_untrimmed_ = 0;
    trimmed_at_ = now;
  }
}

// A bucket that confirms nothing must not make anybody wait for ever.
void Loop::end_long_waits() {
  MonoTime now = world_.now();
  MonoTime progress{Duration(control_.journal_progress_ns().load(std::memory_order_relaxed))};
  bool stuck = progress.since_start == Duration::min() || now - progress >= options_.confirm_timeout;
  MonoTime before = now - options_.confirm_timeout;
  std::vector<CellId> gated;  // what fails may change the list of cells
  std::vector<CellId> woken;
  for (auto& [id, r] : cells_) {
    js::Cell& cell = r->cell;
    if (cell.gated()) gated.push_back(id);
    bool held = cell.must_wait() || (cell.state == js::Cell::State::kReleasing && !cell.waiting.empty());
    if (!held) {
      r->held_since = MonoTime::max();
      if (!control_.under_pressure()) cell.patience_over = false;
      if (cell.holds_any() || !cell.waiting.empty()) woken.push_back(id);
      continue;
    }
    if (r->held_since == MonoTime::max()) r->held_since = now;
    if (r->held_since > before) continue;
    cell.patience_over = true;
    woken.push_back(id);
  }
  size_t failed = 0;
  js::JsError error = unconfirmed(options_.confirm_timeout);
  for (const CellId& id : gated) {
    auto it = cells_.find(id);
    if (it == cells_.end()) continue;
    failed += it->second->cell.expire_gate(now, stuck ? before : MonoTime{Duration::min()}, error);
  }
  for (const CellId& id : woken) {
    auto it = cells_.find(id);
    if (it == cells_.end()) continue;
    js::Cell& cell = it->second->cell;
    if (cell.state == js::Cell::State::kReleasing) {
      for (js::CellEvent& e : cell.take_waiting()) fail_event(e, releasing_for_long());
      it->second->held_since = MonoTime::max();
    } else if (cell.isolate) {
      post_pump(id);
    }
  }
  if (failed > 0 && !unconfirmed_logged_) {
    log(js::LogLevel::kError, "WRITES-UNCONFIRMED: " + std::to_string(failed) + " answers of " + name_ +
                                  " were given up: " + error.message);
  }
  unconfirmed_logged_ = failed > 0 || (unconfirmed_logged_ && stuck);
}

void Loop::begin_release(Resident& r) {
  r.cell.state = js::Cell::State::kReleasing;
  control_.release(r.cell.id, [this, id = r.cell.id](Result<void> released) {
    post([this, id, released = std::move(released)] {
      auto it = cells_.find(id);
      if (it == cells_.end()) return;
      if (!released) {
        log(js::LogLevel::kWarn, "cell " + id.value + " was not released: " + released.error().message);
      }
      auto waiting = it->second->cell.take_waiting();
      auto name = it->second->cell.name;
      bool hinted = it->second->alarm_hinted;
      cells_.erase(it);
      for (js::CellEvent& e : waiting) deliver(js::CellAddress{id, name}, std::move(e));
      if (hinted) on_alarm_due(id, WallMs{});
    });
  });
}

void Loop::stop_serving(Callback done) {
  draining_ = true;
  server_->stop([this, done = std::move(done)]() mutable {
    peers_served_done_ = std::move(done);
    look_at_peers_served();
  });
}

void Loop::stop_cells(Callback done) {
  cells_stopped_ = std::move(done);
  stopping_ = true;
  js::JsError error{"Error", "Durable Object is unavailable: the node is shutting down.", {},
                    js::kRetryable | js::kObjectReset};
  js::JsError not_begun = error;
  not_begun.flags |= js::kNotBegun | js::kElsewhere;
  for (auto& [id, r] : cells_) {
    for (js::CellEvent& e : r->cell.take_waiting()) fail_event(e, not_begun);
    if (r->cell.isolate) r->cell.isolate->detach(r->cell, error);
  }
  if (cells_stopped_) std::exchange(cells_stopped_, nullptr)();
}

void Loop::log(js::LogLevel level, std::string text) { control_.log(level, std::move(text)); }

// --- commits ---

Loop::Resident::Resident(CellId id, Control& c) : cell(std::move(id)), control(c) {
  cell.authority_until_ns = &control.authority_until_ns();
  cell.journal_full = &control.journal_full();
}

std::string Loop::Resident::refusal() const {
  return overfull ? "The node is overloaded: too many writes wait for the bucket; the write was not stored."
                  : "The Durable Object is no longer owned by this node; the write was not stored.";
}

bool Loop::Resident::may_commit() {
  overfull = control.journal_overfull();
  if (overfull) return false;
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() <
         control.authority_until_ns().load(std::memory_order_acquire);
}

void Loop::Resident::commit(std::vector<NumberedPage> pages, uint32_t page_count,
                            std::optional<std::optional<int64_t>> alarm_change_ms) {
  cell.committed = cell.committed.next();
  Commit c;
  c.cell = cell.id;
  c.epoch = cell.epoch;
  c.txid = cell.committed;
  c.pages = std::move(pages);
  c.page_count = page_count;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  c.time = WallMs{std::chrono::duration_cast<std::chrono::milliseconds>(now).count()};
  if (alarm_change_ms) {
    AlarmChange change;
    if (*alarm_change_ms) change.at = WallMs{**alarm_change_ms};
    c.alarm = change;
  }
  control.commit(std::move(c));
}

}  // namespace celld
