#include "node/node.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "js/tenure.h"
#include "js/watchdog.h"
#include "node/memory.h"
#include "node/peer_wire.h"

namespace celld {

namespace {

// How long an activation may take before its callers are told; it goes on meanwhile.
constexpr Duration kActivationDeadline = std::chrono::seconds(30);
// How long a live owner is waited for that cannot be reached; then another attempt is made.
constexpr Duration kOwnerPatience = std::chrono::seconds(2);
// CPU time of a turn once the node is stopping, what it gets after that, and how long all loops have to
// end their cells.
constexpr Duration kTurnWhileStopping = std::chrono::milliseconds(100);
constexpr Duration kGraceWhileStopping = std::chrono::milliseconds(300);
constexpr Duration kStopCellsTime = std::chrono::seconds(3);
// A copy of a database is not waited for longer: the thread of the cell is busy.
constexpr Duration kSnapshotTime = std::chrono::seconds(5);
// For the secret of the fleet, at the start.
constexpr Duration kSecretDeadline = std::chrono::seconds(30);
// How often a full journal is looked at: drains make room without telling.
constexpr Duration kPressurePoll = std::chrono::milliseconds(20);
// How often memory is looked at once a thread has been lost.
constexpr Duration kMemoryPoll = std::chrono::seconds(1);

// Of one message: an error's text or a console line can be as large as the heap.
constexpr size_t kLogTextMax = 64 << 10;

}  // namespace

std::string host_and_port(const std::string& ip, uint16_t port) {
  bool v6 = ip.find(':') != std::string::npos;
  return (v6 ? "[" + ip + "]" : ip) + ":" + std::to_string(port);
}

NodeId draw_node_id(World& world) {
  uint8_t raw[16];
  world.random(raw);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t b : raw) {
    hex += kDigits[b >> 4];
    hex += kDigits[b & 15];
  }
  return NodeId(hex);
}

Node::Node(boost::asio::io_context& io, AsioWorld& world, NodeConfig config, DataDir data_dir,
           LogSink log)
    : io_(io),
      world_(world),
      config_(std::move(config)),
      data_dir_(std::move(data_dir)),
      log_(std::move(log)),
      pressure_(world, *this, Trouble::kPressure),
      crons_(world, [this](const std::string& expression, WallMs scheduled) {
        Loop* loop = loops_.front().get();
        loop->post([loop, expression, scheduled] { loop->run_scheduled(expression, scheduled); });
      }) {}

Node::~Node() {
  js::Tenure::on_failure_elsewhere(nullptr);
  stop_loops();
  world_.cancel(pressure_timer_);
  world_.cancel(memory_timer_);
}

Task<Result<void>> Node::join(ObjectStore& data, ObjectStore& lease) {
  config_.core.node = draw_node_id(world_);
  config_.core.predecessor = data_dir_.predecessor();
  config_.loop.scratch_dir = data_dir_.scratch();
  make_loops();
  if (config_.internal) CO_TRY(listen_to_peers());
  core_ = std::make_unique<Core>(world_, data, lease, *this, config_.core);
  CO_TRY(co_await core_->start());
  CO_TRY(data_dir_.remember(config_.core.node));
  if (config_.internal) CO_TRY(co_await meet_peers(data));
  js::Watchdog::set_grace(config_.turn_grace);
  js::Tenure::on_failure_elsewhere([this](const std::string& detail) {
    world_.post_from_any_thread([this, detail] {
      log(js::LogLevel::kError, "a thread of V8's own has failed: " + detail);
      wear_out("a thread of V8's own has failed");
    });
  });
  for (auto& loop : loops_) loop->start();
  co_return Result<void>();
}

void Node::make_loops() {
  std::vector<Loop*> homes;
  for (size_t i = 0; i < config_.front_loops + config_.cell_loops; ++i) {
    bool front = i < config_.front_loops;
    std::string name = front ? "front-" + std::to_string(i)
                             : "cells-" + std::to_string(i - config_.front_loops);
    loops_.push_back(std::make_unique<Loop>(std::move(name), *this, config_.loop));
    if (!front) homes.push_back(loops_.back().get());
  }
  for (auto& loop : loops_) loop->set_homes(homes);
}

std::vector<Acceptor::Sink> Node::sinks(Side side) {
  std::vector<Acceptor::Sink> out;
  for (size_t i = 0; i < config_.front_loops; ++i) {
    out.push_back([target = loops_[i].get(), side](int fd) { target->adopt_socket(fd, side); });
  }
  return out;
}

// What arrives before the loops run waits for them.
Result<void> Node::listen_to_peers() {
  const InternalListener& internal = *config_.internal;
  TRY_ASSIGN(internal_acceptor_, Acceptor::listen(io_, internal.address, internal.port, sinks(Side::kInternal)));
  std::string& addr = config_.core.addr;
  addr = internal.advertise;
  if (addr.empty()) addr = host_and_port(internal.address, internal_acceptor_->port());
  config_.core.peer_protocol = kPeerProtocol;
  return {};
}

Task<Result<void>> Node::meet_peers(ObjectStore& data) {
  Bucket bucket(world_, data, config_.core.request_timeout, [this] { return fenced_.has_value(); });
  Deadline deadline = world_.deadline_in(kSecretDeadline);
  CO_TRY_ASSIGN(PeerSecret secret, co_await obtain_peer_secret(bucket, deadline));
  auto checker = std::make_shared<PeerChecker>(secret, config_.core.node);
  for (auto& loop : loops_) loop->set_peers(PeerIdentity{secret, config_.core.node}, checker);
  co_return Result<void>();
}

Task<Result<void>> Node::adopt(std::shared_ptr<const js::WorkerCode> code,
                               std::vector<std::string> crons) {
  // One loop finds out whether the code loads; the others follow.
  auto load = [](Node* self, Loop* loop, std::shared_ptr<const js::WorkerCode> c) -> Task<Result<void>> {
    OneShot<Result<void>> loaded(self->world_);
    loop->post([self, loop, c, &loaded] {
      loop->load(c, [self, &loaded](Result<void> result) {
        self->world_.post_from_any_thread([&loaded, result = std::move(result)] { loaded.set(result); });
      });
    });
    co_return co_await loaded.take();
  };
  Loop* home = loops_.back().get();
  Task<Result<void>> first = load(this, home, code);
  CO_TRY(co_await std::move(first));
  // Those that take requests come last, when every object finds its code.
  for (bool front : {false, true}) {
    std::vector<Task<Result<void>>> rest;
    for (size_t i = 0; i < loops_.size(); ++i) {
      Loop* loop = loops_[i].get();
      if (loop != home && front == (i < config_.front_loops)) rest.push_back(load(this, loop, code));
    }
    std::vector<Result<void>> results = co_await join_all(world_, std::move(rest));
    for (Result<void>& result : results) {
      if (!result) co_return fail(std::move(result).error());
    }
  }
  for (const std::string& refused : crons_.set(crons)) {
    log(js::LogLevel::kError, "the cron expression \"" + refused + "\" of the deployment is not valid");
  }
  co_return Result<void>();
}

Result<uint16_t> Node::listen() {
  TRY_ASSIGN(acceptor_, Acceptor::listen(io_, config_.listen_address, config_.listen_port, sinks(Side::kPublic)));
  return acceptor_->port();
}

namespace {

// Something that every loop has to do. Callbacks may come after nobody waits any more.
struct Stage {
  Stage(World& world, size_t loops) : left(loops), done(world) {}
  size_t left;
  Signal done;
};

Task<bool> wait_for(World& world, std::shared_ptr<Stage> stage, Deadline deadline) {
  while (stage->left > 0 && world.now() < deadline.at) co_await stage->done.wait_until(deadline);
  co_return stage->left == 0;
}

}  // namespace

Task<Result<void>> Node::leave() {
  leaving_ = true;
  Deadline deadline = world_.deadline_in(config_.shutdown_deadline);
  // Half of the time for what runs, the rest for the bucket.
  Deadline serving = world_.deadline_in(config_.shutdown_deadline / 2);
  if (acceptor_) acceptor_->close();
  auto ended = [this](std::shared_ptr<Stage> stage) {
    world_.post_from_any_thread([stage = std::move(stage)] {
      if (--stage->left == 0) stage->done.notify_all();
    });
  };
  auto emptied = std::make_shared<Stage>(world_, loops_.size());
  for (auto& loop : loops_) {
    loop->post([target = loop.get(), emptied, ended] {
      target->stop_serving([emptied, ended] { ended(emptied); });
    });
  }
  (void)co_await wait_for(world_, emptied, serving);
  // What still runs ends now: a cell is not given up while its code may go on.
  js::Watchdog::limit_all(kTurnWhileStopping, kGraceWhileStopping);
  auto stopped = std::make_shared<Stage>(world_, loops_.size());
  for (auto& loop : loops_) {
    loop->post([target = loop.get(), stopped, ended] {
      target->stop_cells([stopped, ended] { ended(stopped); });
    });
  }
  Deadline stopping = world_.deadline_in(kStopCellsTime);
  if (!co_await wait_for(world_, stopped, stopping)) {
    stuck_ = true;
    Error e = Error::deadline("a thread does not come back from JavaScript; its objects are not released");
    co_return fail(std::move(e));
  }
  CO_TRY(co_await core_->shutdown(deadline));
  if (internal_acceptor_) internal_acceptor_->close();
  Result<void> forgotten = data_dir_.forget();
  // The next node here would only look at a journal that is closed.
  if (!forgotten) log(js::LogLevel::kWarn, forgotten.error().message);
  co_return Result<void>();
}

void Node::stop_loops() {
  for (auto& loop : loops_) loop->stop_thread();
  for (auto& loop : loops_) loop->join();
}

size_t Node::work() const {
  size_t sum = 0;
  for (auto& loop : loops_) sum += loop->work();
  return sum;
}

Loop& Node::loop_of(const CellId& cell) const { return loops_.front()->loop_of(cell); }

// --- CoreHost ---

// While the loops refuse events there are no commits that would bring news of the journal.
void Node::look_at_pressure() {
  bool pressed = core_->under_pressure();
  undrained_bytes_.store(core_->undrained_bytes(), std::memory_order_relaxed);
  journal_full_.store(pressed, std::memory_order_relaxed);
  if (pressed) {
    pressure_.failed(world_.now(), std::to_string(core_->undrained_bytes() >> 20) + " MiB wait for the bucket");
  } else {
    pressure_.succeeded();
  }
  if (!pressed || pressure_timer_ != 0) return;
  pressure_timer_ = world_.call_at(world_.now() + kPressurePoll, [this] {
    pressure_timer_ = 0;
    look_at_pressure();
  });
}

bool Node::journal_overfull() const {
  return posted_bytes_.load(std::memory_order_relaxed) + undrained_bytes_.load(std::memory_order_relaxed) >=
         2 * config_.core.undrained_bytes_max;
}

void Node::on_trouble(const TroubleReport& report) {
  std::string what(to_string(report.kind));
  std::string after = std::to_string(report.since / std::chrono::milliseconds(1)) + " ms";
  if (report.ended) {
    log(js::LogLevel::kWarn, "STORE-RECOVERED: " + what + ": after " + after);
  } else {
    log(js::LogLevel::kError, "STORE-TROUBLE: " + what + ": for " + after + ": " + report.detail);
  }
}

void Node::on_proven(std::span<const Proven> proven) {
  journal_progress_ns_.store(world_.now().since_start.count(), std::memory_order_relaxed);
  look_at_pressure();
  std::unordered_map<Loop*, std::vector<Proven>> by_loop;
  for (const Proven& p : proven) by_loop[&loop_of(p.cell)].push_back(p);
  for (auto& [loop, list] : by_loop) {
    loop->post([loop, list = std::move(list)] { loop->on_proven(list); });
  }
}

void Node::on_fenced(FenceReason reason, std::string detail) {
  if (fenced_) return;
  fenced_ = std::string(to_string(reason)) + ": " + detail;
  for (auto& loop : loops_) {
    loop->post([target = loop.get(), text = std::string(to_string(reason))] { target->on_fenced(text); });
  }
  if (on_fence_) world_.post([this] { on_fence_(); });
}

void Node::on_alarm_due(CellId cell, WallMs scheduled) {
  if (loops_.empty()) return;
  Loop* loop = &loop_of(cell);
  loop->post([loop, cell, scheduled] { loop->on_alarm_due(cell, scheduled); });
}

Task<Result<DatabaseImage>> Node::snapshot(CellId cell, Txid* at) {
  struct Taken {
    explicit Taken(World& world) : done(world) {}
    Result<DatabaseImage> image = fail(Error::overloaded("the thread of the cell is busy"));
    Txid at;
    bool here = false;
    Signal done;
  };
  auto taken = std::make_shared<Taken>(world_);
  Loop* loop = &loop_of(cell);
  loop->post([this, loop, cell, taken] {
    Txid newest;
    Result<DatabaseImage> image = loop->snapshot(cell, &newest);
    world_.post_from_any_thread([taken, newest, image = std::move(image)]() mutable {
      taken->image = std::move(image);
      taken->at = newest;
      taken->here = true;
      taken->done.notify_all();
    });
  });
  Deadline deadline = world_.deadline_in(kSnapshotTime);
  while (!taken->here && world_.now() < deadline.at) co_await taken->done.wait_until(deadline);
  *at = taken->at;
  co_return std::move(taken->image);
}

// --- Control ---

void Node::activate(CellId cell, Claim claim, std::move_only_function<void(Activated)> done) {
  world_.post_from_any_thread([this, cell = std::move(cell), claim, done = std::move(done)]() mutable {
    if (claim == Claim::kOwnedOnly && !core_->owns(cell)) {
      return done(Activated{fail(Error::make(ErrorCode::kNotOwner, cell.value + ": not of this node")), {}, {}});
    }
    auto run = [](Node* self, CellId id, Claim how, std::move_only_function<void(Activated)> reply) -> Task<void> {
      Deadline deadline = self->world_.deadline_in(kActivationDeadline);
      std::optional<OwnedElsewhere> elsewhere;
      std::optional<OwnedElsewhere>* told = self->config_.internal ? &elsewhere : nullptr;
      MonoTime patience;
      if (how == Claim::kOrWait) patience = self->world_.now() + kOwnerPatience;
      Result<Activation> result =
          co_await self->core_->activate(id, deadline, told, patience);
      reply(Activated{std::move(result), self->core_->proven(id), std::move(elsewhere)});
    };
    world_.spawn(run(this, std::move(cell), claim, std::move(done)));
  });
}

void Node::commit(Commit commit) {
  // Encoded on the loop that wrote it: the control thread is one for all loops.
  EncodedCommit encoded = encode_commit(commit);
  size_t bytes = commit.pages.size() * kPageSize;
  posted_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  world_.post_from_any_thread([this, bytes, commit = std::move(commit), encoded = std::move(encoded)]() mutable {
    posted_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    core_->commit(std::move(commit), std::move(encoded));
    look_at_pressure();
  });
}

void Node::set_alarm(CellId cell, std::optional<WallMs> at) {
  world_.post_from_any_thread([this, cell = std::move(cell), at] { core_->set_alarm(cell, at); });
}

void Node::release(CellId cell, std::move_only_function<void(Result<void>)> done) {
  world_.post_from_any_thread([this, cell = std::move(cell), done = std::move(done)]() mutable {
    auto run = [](Node* self, CellId id,
                  std::move_only_function<void(Result<void>)> reply) -> Task<void> {
      Result<void> result = co_await self->core_->release(std::move(id));
      reply(std::move(result));
    };
    world_.spawn(run(this, std::move(cell), std::move(done)));
  });
}

const std::atomic<int64_t>& Node::authority_until_ns() const { return core_->authority_until_ns(); }

// --- lost threads ---

void Node::thread_lost(Loop& loop, js::Tenure::Loss loss, const std::string& detail) {
  world_.post_from_any_thread([this, &loop, loss, detail] { replace_thread(loop, loss, detail); });
}

void Node::replace_thread(Loop& loop, js::Tenure::Loss loss, const std::string& detail) {
  ++lost_threads_;
  const char* why = loss == js::Tenure::Loss::kCpu       ? "JavaScript did not end after its CPU time limit"
                    : loss == js::Tenure::Loss::kBlocked ? "it waits for something that does not come"
                                                         : "V8 could not go on";
  log(js::LogLevel::kError, "the thread " + loop.name() + " is given up: " + why +
                                (detail.empty() ? "" : " (" + detail + ")") + "; its objects start again");
  loop.succeed(loss);
  if (lost_threads_ >= config_.lost_threads_max) {
    wear_out(std::to_string(lost_threads_) + " threads have been given up");
  } else if (memory_timer_ == 0) {
    look_at_memory();
  }
}

// A lost thread may still run, and its heap grow up to the hard limit.
void Node::look_at_memory() {
  memory_timer_ = world_.call_at(world_.now() + kMemoryPoll, [this] { look_at_memory(); });
  uint64_t used = resident_bytes();
  if (used <= memory_bytes() / 2) return;
  wear_out(std::to_string(used >> 20) + " MiB of memory are in use after the loss of a thread");
}

void Node::wear_out(const std::string& why) {
  if (std::exchange(worn_out_, true)) return;
  if (on_worn_out_) world_.post([this, why] { on_worn_out_(why); });
}

void Node::log(js::LogLevel level, std::string text) {
  if (text.size() > kLogTextMax) {
    std::string left_out = " ... (" + std::to_string(text.size() - kLogTextMax) + " bytes more)";
    size_t end = kLogTextMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole characters
    text.resize(end);
    text += left_out;
  }
  log_(level, text);
}

}  // namespace celld
