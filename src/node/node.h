// A running node: the control thread with the protocol on it, the loops, the listener.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/core.h"
#include "core/trouble.h"
#include "net/acceptor.h"
#include "node/control.h"
#include "node/crons.h"
#include "node/data_dir.h"
#include "node/loop.h"
#include "store/object_store.h"
#include "world/asio_world.h"

namespace celld {

// Where peers reach a node.
struct InternalListener {
  std::string address = "127.0.0.1";
  uint16_t port = 0;      // 0 = any free one
  std::string advertise;  // host:port, as peers call it; empty: the address and port that are listened on
};

struct NodeConfig {
  std::string listen_address = "127.0.0.1";
  uint16_t listen_port = 8787;
  // Without it the node neither forwards to others nor answers them.
  std::optional<InternalListener> internal;
  // Threads that hold connections and run the Worker, and threads that hold objects. They are apart
  // so that an object that never comes back holds up only the objects of its own thread.
  size_t front_loops = 2;
  size_t cell_loops = 4;
  LoopOptions loop;
  // CPU time of a turn after it was told to end; then its thread is given up and another takes its place.
  Duration turn_grace{std::chrono::seconds(2)};
  // So many lost threads, or one and half of the memory in use, and the node is worn out.
  size_t lost_threads_max = 4;
  CoreOptions core;  // node, predecessor, addr and peer_protocol are filled in
  Duration shutdown_deadline{std::chrono::milliseconds(9'500)};
};

// Opens the bucket on the control thread's world.
using OpenStore = std::function<Result<std::unique_ptr<ObjectStore>>(boost::asio::io_context&, World&)>;
using LogSink = std::function<void(js::LogLevel, const std::string&)>;

// Runs on the thread that calls run(), which becomes the control thread.
class Node final : public CoreHost, public Control {
 public:
  Node(boost::asio::io_context& io, AsioWorld& world, NodeConfig config, DataDir data_dir,
       LogSink log);
  ~Node() override;

  // Joins the fleet: core, then loops. Errors name what failed. Control thread.
  Task<Result<void>> join(ObjectStore& data, ObjectStore& lease);
  // Makes `code` current on every loop; on an error the old code stays everywhere.
  Task<Result<void>> adopt(std::shared_ptr<const js::WorkerCode> code,
                           std::vector<std::string> crons);
  // As peers reach this node; empty when they do not. After join().
  const std::string& advertised() const { return config_.core.addr; }
  // From now on requests are accepted. Returns the port.
  Result<uint16_t> listen();
  // Refuses new connections, finishes what runs, makes everything durable, releases all cells.
  Task<Result<void>> leave();
  // Ends the loops; after leave(), or instead of it. Not when a thread is stuck.
  void stop_loops();
  // leave() found a thread that does not come back from JavaScript: only the end of the process
  // ends it.
  bool stuck() const { return stuck_; }
  // Threads that were given up since the start. With any, the process must end by _exit().
  size_t lost_threads() const { return lost_threads_; }
  // Called once, when too much has been lost: the caller lets the node leave and the process end with
  // code 4.
  void on_worn_out(std::function<void(const std::string& why)> callback) { on_worn_out_ = std::move(callback); }

  // Instances in memory and events under way, half a second ago.
  size_t work() const;

  // When the node has fenced itself: "expired: ...". The caller ends the process with code 3.
  const std::optional<std::string>& fenced() const { return fenced_; }
  void on_fence(Callback callback) { on_fence_ = std::move(callback); }

  // CoreHost
  void on_proven(std::span<const Proven> proven) override;
  void on_fenced(FenceReason reason, std::string detail) override;
  void on_alarm_due(CellId cell, WallMs scheduled) override;
  void on_trouble(const TroubleReport& report) override;
  Task<Result<DatabaseImage>> snapshot(CellId cell, Txid* at) override;

  // Control
  void activate(CellId cell, Claim claim, std::move_only_function<void(Activated)> done) override;
  void commit(Commit commit) override;
  void set_alarm(CellId cell, std::optional<WallMs> at) override;
  void release(CellId cell, std::move_only_function<void(Result<void>)> done) override;
  const std::atomic<int64_t>& authority_until_ns() const override;
  const std::atomic<bool>& journal_full() const override { return journal_full_; }
  bool journal_overfull() const override;
  const std::atomic<int64_t>& journal_progress_ns() const override { return journal_progress_ns_; }
  void thread_lost(Loop& loop, js::Tenure::Loss loss, const std::string& detail) override;
  void log(js::LogLevel level, std::string text) override;

 private:
  void make_loops();
  std::vector<Acceptor::Sink> sinks(Side side);
  Result<void> listen_to_peers();
  Task<Result<void>> meet_peers(ObjectStore& data);
  Loop& loop_of(const CellId& cell) const;
  void look_at_pressure();
  void replace_thread(Loop& loop, js::Tenure::Loss loss, const std::string& detail);
  void look_at_memory();
  void wear_out(const std::string& why);

  boost::asio::io_context& io_;
  AsioWorld& world_;
  NodeConfig config_;
  DataDir data_dir_;
  LogSink log_;
  std::unique_ptr<Core> core_;
  std::vector<std::unique_ptr<Loop>> loops_;  // the front ones, then those of cells
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Acceptor> internal_acceptor_;
  // Bytes of pages: in commits on their way to this thread, and in the journal.
  std::atomic<size_t> posted_bytes_{0};
  std::atomic<size_t> undrained_bytes_{0};
  std::atomic<bool> journal_full_{false};
  std::atomic<int64_t> journal_progress_ns_{INT64_MIN};
  TimerId pressure_timer_ = 0;
  TroubleWatch pressure_;
  bool stuck_ = false;
  std::optional<std::string> fenced_;
  Callback on_fence_;
  size_t lost_threads_ = 0;
  bool worn_out_ = false;
  TimerId memory_timer_ = 0;
  std::function<void(const std::string&)> on_worn_out_;
  Crons crons_;
  bool leaving_ = false;
};

// "ip:port", with brackets around IPv6.
std::string host_and_port(const std::string& ip, uint16_t port);

// A fresh node id: 32 hex digits.
NodeId draw_node_id(World& world);

}  // namespace celld
