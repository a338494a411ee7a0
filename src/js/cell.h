// A cell that this node owns, as its loop sees it: storage, gates, queue.
//
// Lives on one loop thread from activation to release, with or without a JavaScript instance. The
// instance belongs to one isolate at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "js/messages.h"
#include "sqlite/cell_storage.h"
#include "world/world.h"

namespace celld::js {

class IsolateHost;

// Something that may only happen once the commits it could reveal are proven. Runs once: with
// nullptr when they are, with the error when they never will be.
using Effect = std::move_only_function<void(const JsError* failed)>;

class Cell {
 public:
  enum class State : uint8_t {
    kLoading,   // claim and restore are under way
    kCold,      // owned, no instance
    kStarting,  // the constructor runs
    kReady,
    kReleasing,  // being handed back; events wait and start it anew afterwards
  };
  // Events that may wait for one cell or run in it; more are refused as overload.
  static constexpr size_t kEventsMax = 10'000;
  // What the events that wait may bring along.
  static constexpr size_t kWaitingBytesMax = 64 << 20;

  explicit Cell(CellId cell_id);
  ~Cell();
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  const CellId id;
  const std::string class_name;
  const std::string hex;  // the 64 digits after the colon
  std::optional<std::string> name;

  State state = State::kLoading;
  // Set while too much of the node waits for the bucket. Then a cell that wrote something which is not
  // proven yet goes on only when it is: its continuations and events wait. Null: never.
  const std::atomic<bool>* journal_full = nullptr;
  bool patience_over = false;  // it has waited too long for that, so it goes on, and its writes are refused
  // Authority of the node lasts while the monotonic clock is below this; null: for ever.
  const std::atomic<int64_t>* authority_until_ns = nullptr;
  Epoch epoch;
  Txid committed;  // newest commit handed to the journal
  Txid proven;     // newest commit that survives the loss of this node
  std::unique_ptr<CellStorage> storage;

  // The instance. index is the number JavaScript knows it by.
  IsolateHost* isolate = nullptr;
  int32_t index = -1;
  std::deque<CellEvent> waiting;  // by enqueue() and take_waiting()
  std::unordered_set<uint32_t> active;  // io of events that have started and not ended
  uint32_t timers = 0;                  // armed timers of the instance
  MonoTime last_used;
  bool alarm_running = false;
  bool alarm_hidden = false;  // the handler runs and has not set a new alarm
  uint32_t alarm_retries = 0;

  bool idle() const { return waiting.empty() && active.empty() && timers == 0 && !alarm_running; }

  // Puts the event behind those that wait, or fails it as overload.
  bool enqueue(CellEvent event);
  // The first that waits; there is one.
  CellEvent dequeue();
  std::deque<CellEvent> take_waiting();

  // --- the input gate ---
  // A critical section closes it to all but the section's own continuations. Sections nest.
  void open_section(uint32_t section, TimerId limit);
  // The limit of the section, when it was open.
  std::optional<TimerId> close_section(uint32_t section);
  bool must_wait() const {
    return journal_full && !patience_over && proven < committed &&
           journal_full->load(std::memory_order_relaxed);
  }
  bool holds_any() const { return !held_.empty(); }
  bool in_section() const { return !sections_.empty(); }
  bool section_open(uint32_t section) const;
  // Whether a continuation that belongs to `section` (0: none) may run now: gate and journal permitting.
  bool admits(uint32_t section) const;
  // Keeps a continuation until the gate admits it.
  void hold(uint32_t section, std::move_only_function<void()> run);
  bool holds_back(uint32_t section) const;
  // The next that was held and is admitted now; null when there is none.
  std::move_only_function<void()> next_held();
  // Opens the gate and forgets what it held; the limits of the sections.
  std::vector<TimerId> reset_gate();

  // Runs the effect now if everything committed is proven, else when it is. In order. Without
  // authority it fails.
  void gate(Effect effect);
  // Everything up to `txid` is proven.
  void on_proven(Txid txid);
  // Fails with `error` what has waited for a proof since the first call at or before `before`, in order.
  // What it would have told of may become durable all the same: nothing is taken back, the cell goes
  // on, and what it says later still waits. Called every now and then; `now` is any clock that only grows.
  size_t expire_gate(MonoTime now, MonoTime before, const JsError& error);
  // No unproven commit will ever be: all gated effects fail.
  void fail_gate(const JsError& error);
  bool gated() const { return !gated_.empty(); }

 private:
  struct Gated {
    Txid position;
    Effect effect;
    MonoTime since = MonoTime::max();  // of the first expire_gate() that saw it
  };
  struct Section {
    uint32_t id;
    TimerId limit;
  };
  struct Held {
    uint32_t section;
    std::move_only_function<void()> run;
  };
  bool has_authority() const;
  void let_out(Effect effect);
  uint32_t open_ancestor(uint32_t section) const;

  std::deque<Gated> gated_;
  size_t waiting_bytes_ = 0;
  std::vector<Section> sections_;  // open ones, innermost last
  // Sections that ended inside an open one: what still belongs to them belongs to that.
  std::unordered_map<uint32_t, uint32_t> ended_inside_;
  std::deque<Held> held_;
};

}  // namespace celld::js
