// One node: the core as in production, and cells that are scripts on real SQLite databases.
//
// Stands where src/node and src/js stand: activation, turns, output gates, alarms, release.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/commit.h"
#include "core/core.h"
#include "sim/stage.h"
#include "sqlite/cell_storage.h"

namespace celld::sim {

struct Reply {
  bool done = false;     // the operation took effect, or was a read; what it saw is in `seen`
  bool refused = false;  // it did not and never will; neither: nobody knows
  bool stale = false;    // of a read: the cell was taken over before it was answered
  Content seen;
  std::string error;
};

struct Request {
  CellId cell;
  uint64_t op = 0;
  OpKind kind = OpKind::kRead;
  uint64_t argument = 0;
  Duration patience{0};  // an answer, or an error, comes within it
  std::function<void(Reply)> reply;
};

// All members are called by events of the node, except where noted.
class SimNode final : public CoreHost {
 public:
  SimNode(Stage& stage, uint64_t number, CoreOptions options, int64_t skew_ms, int64_t drift_ppm);
  // Only after die() or shut_down(): the frames of tasks stay for ever.
  ~SimNode() override;

  // From the outside: Core::start().
  void boot();
  // From the outside: the process ends now.
  void die(const std::string& why);
  // From the outside: a request arrives.
  void arrive(Request request);
  // From the outside: the life of the cells.
  void hibernate(const CellId& cell);
  void release(const CellId& cell);
  // From the outside: of a cell that sleeps, if the node owns it.
  void release_asleep(const CellId& cell);
  void shut_down(Duration patience);
  // Checks what must hold of a node at any time; from the outside, often.
  void look();

  bool up() const { return up_ && !stopping_; }
  bool failed() const { return failed_; }  // start() failed, or shutdown() ended
  bool stopping() const { return stopping_; }
  bool stopped_well() const { return stopped_well_; }
  const std::string& trouble() const { return trouble_; }
  bool fenced() const { return fenced_; }
  const NodeId& id() const { return options_.node; }
  NodeWorld& world() { return world_; }
  Core& core() { return *core_; }
  StoreLink& data() { return data_; }
  StoreLink& lease() { return lease_; }
  std::vector<CellId> residents() const;
  bool gates_open() const;  // nothing waits for the journal

  // CoreHost
  void on_proven(std::span<const Proven> proven) override;
  void on_fenced(FenceReason reason, std::string detail) override;
  void on_alarm_due(CellId cell, WallMs scheduled) override;
  Task<Result<DatabaseImage>> snapshot(CellId cell, Txid* at) override;

 private:
  struct Call {
    Request request;
    bool answered = false;
    bool executed = false;
    TimerId timer = 0;
  };
  using CallRef = std::shared_ptr<Call>;
  // What waits until a commit is proven.
  struct Gate {
    Epoch epoch;
    std::map<Txid, StateRef> unproven;
    std::multimap<Txid, std::function<void()>> effects;
  };
  struct Resident;

  void serve(CallRef call);
  void answer(const CallRef& call, Reply reply);
  void refuse(const CallRef& call, std::string error);
  void begin_activation(const CellId& cell);
  Task<void> activate(CellId cell);
  void activated(const CellId& cell, Result<Activation> result);
  bool open(Resident& r, Activation activation);
  void execute(Resident& r, const CallRef& call);
  // One turn: an operation on the database and its commit. False: refused by the storage.
  bool turn(Resident& r, OpKind kind, uint64_t op, uint64_t argument, std::optional<std::optional<int64_t>> alarm);
  bool append(Resident& r, OpKind kind, uint64_t op, uint64_t argument);
  Content read(Resident& r, bool registers);
  // Runs `effect` once all that is committed now is proven.
  void behind_gate(Resident& r, std::function<void()> effect);
  void look_at_alarm(Resident& r);
  void alarm_failed(const CellId& cell);
  bool authority();
  void check_pages(Resident& r);
  Task<void> run_release(CellId cell);
  Task<void> run_release_asleep(CellId cell);
  Task<void> run_shut_down(Duration patience);
  Task<void> run_boot();

  Stage& stage_;
  CoreOptions options_;
  Rng rng_;
  NodeWorld world_;
  StoreLink data_;
  StoreLink lease_;
  std::map<CellId, std::unique_ptr<Resident>> cells_;
  std::map<CellId, Gate> gates_;
  std::unique_ptr<Core> core_;
  bool up_ = false;
  bool stopping_ = false;
  bool stopped_well_ = false;
  bool failed_ = false;
  bool fenced_ = false;
  bool ended_ = false;    // authority was there and is no more
  MonoTime lease_bound_;  // no clock of ours may say that the lease goes on
  std::string trouble_;
};

}  // namespace celld::sim
