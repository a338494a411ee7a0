// The protocol of one node: lease, ownership, journal, recovery, drain, alarms.
//
// What it promises, and why, is in docs/protocol.md. Everything here runs on the world's one
// thread (the control thread) unless a member says otherwise; nothing blocks or throws.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/page.h"
#include "base/result.h"
#include "store/object_store.h"
#include "world/task.h"
#include "world/world.h"

namespace celld {

struct Commit;         // core/commit.h
struct EncodedCommit;  // core/commit.h

struct CoreOptions {
  NodeId node;       // drawn anew by the caller for every run, never reused
  std::string name;  // for people
  std::string addr;  // where peers reach this node
  std::string probe_public_key;  // Ed25519, 64 hex digits; empty = does not answer probes
  uint32_t peer_protocol = 0;  // cells of live nodes with another one are waited for
  std::string generation;        // the deployment it runs
  Duration lease_ttl = std::chrono::seconds(10);
  // A request to the bucket that has not answered by then counts as ambiguous or failed.
  Duration request_timeout = std::chrono::seconds(10);
  size_t slot_bytes_max = 8u << 20;    // a larger commit is split over slots
  unsigned slots_in_flight_max = 4;
  // At most this long between commit and drain. A drain costs one PUT for each cell written since.
  Duration drain_interval = std::chrono::seconds(30);
  // Pages kept in memory until they are drained. Above half of it a drain starts at once; above
  // all of it no further slot is sent until a drain made room.
  size_t undrained_bytes_max = 256u << 20;
  // A slot of at least so many bytes is encoded aside (World::run_aside) rather than in place.
  size_t aside_bytes_min = 128u << 10;
  // A new full snapshot or merge of a cell when its chain of objects is longer than this, or
  // larger than twice the database.
  size_t chain_objects_max = 16;
  // How long an object that a checkpoint replaced is kept.
  Duration retention{0};
  Duration wake_scan_interval = std::chrono::seconds(60);
  // Alarms that one scan judges, one GET each; what is left over is scanned for soon after.
  size_t wake_entries_max = 2'000;
  // The node that ran last on the same data directory, whose exclusive lock we hold: it is gone
  // for certain and is recovered at start without waiting for its lease.
  std::optional<NodeId> predecessor;
};

// A whole database, as restored. Pages sorted by number; one that is absent is all zeros.
struct DatabaseImage {
  uint32_t page_count = 0;
  std::vector<NumberedPage> pages;
};

// A cell that this node owns from now on.
struct Activation {
  Epoch epoch;
  Txid txid;  // of the last commit in `image`; the next commit is txid + 1
  DatabaseImage image;
};

// A cell that another node keeps, which is alive and says where peers reach it.
struct OwnedElsewhere {
  NodeId node;
  std::string addr;  // host:port
  MonoTime until;    // its lease ends then at the earliest, unless a clock is wrong
};

enum class FenceReason : uint8_t {
  kExpired,        // no renewal was applied within the TTL
  kMissing,        // the lease record is gone
  kReplaced,       // somebody else wrote the lease record (a takeover)
  kJournalFenced,  // a fence record stands where our next slot should be
};
std::string_view to_string(FenceReason reason);  // "expired", "missing", "replaced", "fenced-journal"

// All commits of `cell` up to `txid` are acknowledgeable (while the node has authority).
struct Proven {
  CellId cell;
  Epoch epoch;
  Txid txid;
};

// What does not get done since the bucket fails: nothing is lost by it, but it waits.
enum class Trouble : uint8_t {
  kJournal,     // slots are not confirmed: writes are not acknowledged
  kDrain,       // the journal is not drained: memory fills, takeovers take longer
  kCompaction,  // chains of objects grow
  kPressure,    // the journal is full: events of cells that write wait or are refused
};
std::string_view to_string(Trouble kind);  // "journal", "drain", "compaction", "pressure"

struct TroubleReport {
  Trouble kind;
  bool ended;          // it is over
  Duration since;      // how long it has lasted
  std::string detail;  // the last error
};

// What the node does for the core. Called on the control thread, never from inside a call into
// Core, except `on_fenced`, which may come from any of them.
class CoreHost {
 public:
  virtual ~CoreHost() = default;

  // In the order of the journal; a cell may appear more than once.
  virtual void on_proven(std::span<const Proven> proven) = 0;

  // Once. The node has lost its authority for good: fail what is not acknowledged, stop every
  // cell, exit with code 3 after printing "SELF-FENCE: <reason>: <detail>".
  virtual void on_fenced(FenceReason reason, std::string detail) = 0;

  // A hint that the alarm of `cell` is due: activate the cell and look into its database. Never
  // early. Repeated every few seconds until a commit (or set_alarm) moves or clears the alarm, so
  // a hint for a cell whose handler runs already is to be ignored.
  virtual void on_alarm_due(CellId cell, WallMs scheduled) = 0;

  // Once when a kind of trouble has lasted a second, once when it is over.
  virtual void on_trouble(const TroubleReport&) {}

  // The image of an owned, resident cell at its last commit, whose TXID goes to `*at`. Any error
  // (kNotFound: not resident) makes the core do without it.
  virtual Task<Result<DatabaseImage>> snapshot(CellId cell, Txid* at) = 0;
};

class Core {
 public:
  // `data` carries everything but the lease; `lease` is the same bucket over connections of its
  // own, so that a renewal never queues behind data. All of the references outlive this.
  Core(World& world, ObjectStore& data, ObjectStore& lease, CoreHost& host, CoreOptions options);
  // Before start(), or after shutdown() returned. If tasks still wait for a store that hangs, their
  // state is left to the end of the process, and the world must not run any more.
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Checks or creates fleet/format.json, recovers the predecessor, creates the lease and starts
  // renewing it. To be called once, before everything else. On error nothing runs.
  Task<Result<void>> start();

  // Whether this node may dispatch and acknowledge right now.
  bool has_authority() const;
  // The same for other threads: authority lasts while the monotonic clock (MonoTime, ns since its
  // start) is below this value. INT64_MIN before start and for ever after a fence.
  const std::atomic<int64_t>& authority_until_ns() const;

  // Makes this node the owner of `cell` and restores its database.
  //
  // A cell that this node owns already (hibernated) is restored without a bucket write under the
  // same epoch; a released one costs two sequential round trips. A cell of a live node is waited
  // for until the deadline, then kNotOwner, which names the node; one of a dead node is taken
  // over. kFenced, kUnavailable, kDeadline, kCorrupt (names the object) otherwise.
  //
  // With `elsewhere`, a cell of a live node that speaks our peer protocol is waited for only until
  // `patience` (a point of the past: not at all): then kNotOwner, and who has it goes there.
  //
  // Concurrent calls for a cell share one activation, and what the first asked for. When a deadline passes
  // only the wait ends: the activation goes on and the next call finds what it reached.
  Task<Result<Activation>> activate(CellId cell, Deadline deadline,
                                    std::optional<OwnedElsewhere>* elsewhere = nullptr, MonoTime patience = {});

  // Takes the next commit of an owned cell: `epoch` as activated, TXIDs dense. Ignored after a
  // fence. Its pages are shared, not copied. `encoded` is encode_commit(commit), which costs about
  // 6 us a page and may be made on any thread; without it that is done here.
  void commit(Commit commit, EncodedCommit encoded);
  void commit(Commit commit);

  // Bytes of pages that wait to be put into a slot, and that wait to be drained. Admit no new
  // writes while `under_pressure`.
  size_t journal_bytes_waiting() const;
  size_t undrained_bytes() const;
  bool under_pressure() const;

  // The newest acknowledgeable TXID of an owned cell; 0 for others.
  Txid proven(const CellId& cell) const;
  bool owns(const CellId& cell) const;

  // What the restored database says about the alarm; to be called after each activation, before
  // the first commit and the release. Later changes travel in the commits.
  void set_alarm(const CellId& cell, std::optional<WallMs> at);

  // Gives up a cell whose runtime has stopped: waits until its commits are proven and drained,
  // then releases it in the bucket. Success also when the cell turns out to be owned by somebody
  // else or by nobody. Repeats an ambiguous release until it is definite; only a fence ends that.
  Task<Result<void>> release(CellId cell);

  // Drains, releases all cells, closes the journal, withdraws the lease and stops every task.
  // What the deadline cuts off is left to a takeover, which loses nothing. kDeadline then.
  Task<Result<void>> shutdown(Deadline deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace celld
