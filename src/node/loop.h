// One thread with its HTTP connections, its isolates and its cells.
//
// A cell belongs to one loop, chosen by its id; what other loops want of it arrives as a posted
// message. All members but the constructor, start(), join() and those marked "any thread" run on
// the loop's thread.
//
// A thread that does not come back from JavaScript is given up (js/tenure.h), and another becomes the
// loop's thread: it finds everything as it was but the isolates, which are lost with what ran in them.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "js/cell.h"
#include "js/isolate_host.h"
#include "js/tenure.h"
#include "js/worker_code.h"
#include "net/fetch_client.h"
#include "net/http_server.h"
#include "node/control.h"
#include "node/peer_calls.h"
#include "world/asio_world.h"

namespace celld {

// What a client is told when the Worker throws.
enum class ErrorDetail : uint8_t { kGeneric, kFull };

struct LoopOptions {
  js::IsolateLimits isolate;
  HttpLimits http;
  CellStorageOptions storage;
  Duration idle_evict{std::chrono::seconds(10)};     // an idle instance is dropped
  // What waits for the proof of a write fails when neither it nor the journal has moved for so long.
  Duration confirm_timeout{std::chrono::seconds(30)};
  Duration idle_release{std::chrono::minutes(5)};    // an idle cell is handed back
  Duration code_update_force{std::chrono::seconds(30)};  // a busy cell is moved to new code
  size_t internal_connections_max = 10'000;  // from other nodes; then 503
  size_t peer_connections_max = 4'096;       // to one other node; further calls wait
  ErrorDetail error_detail = ErrorDetail::kGeneric;
  std::string scratch_dir;  // for databases that outgrow memory; empty: they stay in memory
};

// Which listener a connection came from.
enum class Side : uint8_t { kPublic, kInternal };

class Loop final : public js::IsolateServices {
 public:
  Loop(std::string name, Control& control, LoopOptions options);
  ~Loop() override;

  // The loops that cells live on, in the same order for every loop. Before start().
  void set_homes(std::vector<Loop*> homes) { homes_ = std::move(homes); }
  // From now on events of cells that other nodes own go there, and what they send is answered. Before
  // start().
  void set_peers(PeerIdentity identity, std::shared_ptr<PeerChecker> checker);
  // Where a cell lives. Any thread.
  Loop& loop_of(const CellId& cell) const;
  void start();
  // A new thread becomes the loop's, in place of one that was lost. Control thread.
  void succeed(js::Tenure::Loss loss);
  // Waits for the end of the thread, but not for one that was lost. Control thread.
  void join();
  const std::string& name() const { return name_; }
  // Any thread.
  void post(Callback callback) { world_.post_from_any_thread(std::move(callback)); }
  void stop_thread();

  // Any thread: a connected socket.
  void adopt_socket(int fd, Side side);

  // Makes new code current, then calls `done`. The old isolate serves until its work is done. On an error
  // nothing changes.
  using Loaded = std::move_only_function<void(Result<void>)>;
  void load(std::shared_ptr<const js::WorkerCode> code, Loaded done);
  // Runs scheduled() of the current code.
  void run_scheduled(std::string cron, WallMs time);

  // From the control thread's point of view, posted here.
  void on_proven(const std::vector<Proven>& proven);
  void on_fenced(const std::string& reason);
  void on_alarm_due(CellId cell, WallMs scheduled);
  Result<DatabaseImage> snapshot(const CellId& cell, Txid* at);

  // Closes connections of clients after what runs, and refuses new events of peers; `done` when neither is
  // left. Peers are told until the thread ends that its cells are not here.
  void stop_serving(Callback done);
  // Ends all instances; events fail with a retryable error. Before the core releases the cells.
  void stop_cells(Callback done);

  // Instances in memory and events under way, a tick ago. Any thread.
  size_t work() const { return work_count_.load(std::memory_order_relaxed); }

  // IsolateServices
  void call_cell(js::CellAddress to, js::CellEvent event) override;
  uint64_t fetch(js::HttpRequestMessage request, js::Reply<js::HttpResponseMessage> reply) override;
  void cancel_fetch(uint64_t handle) override;
  void log(js::LogLevel level, std::string text) override;
  void isolate_condemned(js::IsolateHost& isolate) override;

 private:
  struct Resident;
  class OutgoingFetch;
  class PeerAnswer;

  bool has_authority();
  void deliver(js::CellAddress to, js::CellEvent event);
  Resident& resident(const CellId& cell);
  void begin_activation(Resident& resident);
  void activated(const CellId& cell, Activated activated);
  void not_ours(Resident& resident, const std::optional<OwnedElsewhere>& elsewhere, const Error& error);
  Result<void> open_storage(Resident& resident, Activation activation, Txid proven);
  void settle_isolate(js::Cell& cell);
  void post_pump(const CellId& cell);
  void tick();
  void count_work();
  void sweep_cells();
  void end_long_waits();
  void begin_release(Resident& resident);
  void retire_old_isolates();
  void retry_broken_code();
  void look_at_alarm(Resident& resident);
  void alarm_done(const CellId& cell, js::Outcome<bool> outcome, WallMs scheduled);

  void serve(std::shared_ptr<HttpExchange> exchange);
  void dispatch(std::shared_ptr<HttpExchange> exchange, js::Body body);
  void answer(std::shared_ptr<HttpExchange> exchange,
              js::Outcome<js::HttpResponseMessage> outcome);
  void answer_error(HttpExchange& exchange, const js::JsError& error);

  void begin_peers();
  std::chrono::milliseconds authority_left();
  void serve_peer(std::shared_ptr<HttpExchange> exchange);
  void serve_peer_fetch(std::shared_ptr<HttpExchange> exchange);
  void serve_peer_rpc(std::shared_ptr<HttpExchange> exchange);
  std::shared_ptr<HttpExchange> counted(std::shared_ptr<HttpExchange> exchange);
  void look_at_peers_served();
  void answer_peer(std::shared_ptr<HttpExchange> exchange,
                   js::Outcome<std::variant<js::HttpResponseMessage, Blob>> answer);

  void run(std::optional<js::Tenure::Loss> after);
  void take_over(js::Tenure::Loss loss);
  void abandon_isolates(js::Tenure::Loss loss);
  Result<std::unique_ptr<js::IsolateHost>> make_isolate(std::shared_ptr<const js::WorkerCode> code);
  void make_current();
  void make_stand_in(const std::string& why);

  const std::string name_;  // of the thread
  Control& control_;
  const LoopOptions options_;
  boost::asio::io_context io_;
  AsioWorld world_;
  std::vector<Loop*> homes_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
  std::shared_ptr<js::Tenure> tenure_;  // of the thread that runs, or was lost; under its mutex
  bool ended_ = false;                  // likewise: the thread has
  std::mutex thread_mutex_;
  std::condition_variable thread_ended_;

  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<FetchClient> fetch_client_;
  std::optional<PeerIdentity> identity_;  // of this node; nothing: it has no peers
  std::shared_ptr<PeerChecker> peer_checker_;
  std::unique_ptr<HttpServer> internal_server_;
  std::unique_ptr<PeerCalls> peers_;
  std::unordered_map<uint64_t, std::shared_ptr<OutgoingFetch>> fetches_;
  uint64_t last_fetch_ = 0;

  std::shared_ptr<const js::WorkerCode> code_;  // what is to be current
  std::unique_ptr<js::IsolateHost> current_;
  std::vector<std::pair<std::unique_ptr<js::IsolateHost>, MonoTime>> old_;  // since when
  // Set while current_ only stands in for it, because it does not load.
  std::shared_ptr<const js::WorkerCode> broken_code_;
  MonoTime retry_load_at_;
  Duration retry_load_delay_{0};
  // What is under way while JavaScript may run, so that a thread that takes over can end it.
  std::shared_ptr<const js::WorkerCode> making_;  // an isolate of this code
  Loaded loaded_;
  std::optional<std::pair<CellId, js::CellEvent>> in_hand_;
  Callback cells_stopped_;
  TimerId next_tick_ = 0;
  std::unordered_map<CellId, std::unique_ptr<Resident>> cells_;
  std::atomic<size_t> work_count_{0};
  size_t evicted_untrimmed_ = 0;  // since the allocator last gave memory back
  MonoTime trimmed_at_;
  bool unconfirmed_logged_ = false;
  size_t peers_served_ = 0;  // requests under way
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Callback peers_served_done_;
  bool draining_ = false;
  bool stopping_ = false;
  bool fenced_ = false;
};

}  // namespace celld
