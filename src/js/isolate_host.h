// One V8 isolate with one context: a deployment's code and the cells that live in it.
//
// Everything runs on the loop thread. JavaScript runs in *turns*: the host enters the isolate with
// the frame of an event, calls one hook, drains the microtasks, leaves, commits what the turn
// wrote (one commit a cell), and only then lets the effects of the turn out, each behind the gate
// of its cell. Services are never called while JavaScript is on the stack, and a turn never starts
// inside another.
#pragma once

#include <v8.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "js/caller_link.h"
#include "js/cell.h"
#include "js/foreground.h"
#include "js/messages.h"
#include "js/native.h"
#include "js/pipe.h"
#include "js/tenure.h"
#include "js/watchdog.h"
#include "js/worker_code.h"
#include "world/world.h"

namespace celld::js {

enum class LogLevel : uint8_t { kDebug, kInfo, kLog, kWarn, kError };

// What an isolate asks of the node. Loop thread; replies come later, from posted callbacks.
class IsolateServices {
 public:
  virtual ~IsolateServices() = default;

  virtual void call_cell(CellAddress to, CellEvent event) = 0;
  // Returns a handle for cancel_fetch; 0 when the reply was already given.
  virtual uint64_t fetch(HttpRequestMessage request, Reply<HttpResponseMessage> reply) = 0;
  virtual void cancel_fetch(uint64_t handle) = 0;
  virtual void log(LogLevel level, std::string text) = 0;
  // The isolate is beyond use (memory limit); its cells have been detached. Replace it.
  virtual void isolate_condemned(IsolateHost& isolate) = 0;
};

struct IsolateLimits {
  Duration cpu_per_event{std::chrono::seconds(30)};
  size_t heap_bytes = 128ull << 20;          // soft: the isolate ends when the turn can be ended
  size_t heap_bytes_hard = 4ull << 30;       // far above it: within one call that cannot be, the thread is lost
  size_t array_buffer_bytes = 256ull << 20;  // beyond it, allocation throws RangeError
  Duration critical_section{std::chrono::seconds(30)};
};

class IsolateHost final : public NativeHost {
 public:
  // Loads the code: compiles, links and evaluates its modules. Errors name the module and line.
  static Result<std::unique_ptr<IsolateHost>> create(World& world, IsolateServices& services,
                                                     std::shared_ptr<const WorkerCode> code,
                                                     IsolateLimits limits);
  ~IsolateHost() override;

  const WorkerCode& code() const { return *code_; }
  std::shared_ptr<const WorkerCode> shared_code() const { return code_; }
  // Index of a class in code().namespaces, or nullopt.
  std::optional<uint32_t> namespace_of(std::string_view class_name) const;

  // --- stateless events; return the io of the event for disconnect() ---
  uint32_t fetch(HttpRequestMessage request, Reply<HttpResponseMessage> reply);
  uint32_t scheduled(std::string cron, WallMs time, Reply<bool> reply);
  // The client has closed its sending side and may still read: request.signal tells.
  void disconnect(uint32_t io);
  // Nobody waits for the answer of the event any more: request.signal tells, and the event ends
  // when nothing holds it. Also for events of cells.
  void caller_gone(uint32_t io);
  // To be called now and then: ends events that were answered long ago.
  void sweep();

  // --- cells ---
  // The instance will live here. The cell is kCold, or keeps waiting events.
  void attach(Cell& cell);
  // Ends the instance, at once: active events fail with `why`, streams break off, timers and calls
  // are dropped, what was not committed is undone. The cell is kCold afterwards. Waiting events
  // stay, unless they wait for the instance to get ready.
  void detach(Cell& cell, const JsError& why);
  // The same because the instance is broken: waiting events fail too, a new instance will live
  // here. What callers are told goes through the gate of the cell: `why` may tell of its commits.
  void reset(Cell& cell, const JsError& why);
  // Puts the event in the cell's queue and runs what may run.
  void deliver(Cell& cell, CellEvent event);
  // Runs what may run: to be called when the cell became kCold, or its gates changed.
  void pump(Cell& cell);
  size_t cells() const { return cells_.size(); }
  size_t active_events() const { return events_.size(); }
  bool condemned() const { return condemned_; }
  // The thread that ran this has lost its tenure, for `loss`; called on the one that goes on. Events fail,
  // cells become kCold and are nobody's, as after reset(). Cells that the lost turn was in are told by
  // `culprit`; their storage may be in the middle of something and must not be used again. Nothing of V8 is
  // touched: afterwards this may be neither used nor destroyed.
  void abandon(Tenure::Loss loss, const std::function<void(Cell&)>& culprit);

  // --- NativeHost ---
  CellStorage* storage(int32_t cell) override;
  void sync_storage(int32_t cell, uint32_t call) override;
  uint64_t when_forgotten(v8::Local<v8::Object> object, size_t bytes,
                          std::move_only_function<void()> then) override;
  void run_forgotten() override;
  std::unique_ptr<v8::BackingStore> new_buffer(size_t bytes) override;
  bool hides_alarm(int32_t cell) override;
  void alarm_was_set(int32_t cell) override;
  v8::Local<v8::Value> make_error(std::string_view name, std::string_view message,
                                  uint32_t flags) override;

  // --- for the natives in api/ (JavaScript is on the stack) ---
  using AnyReply =
      std::variant<std::monostate, Reply<HttpResponseMessage>, Reply<Blob>, Reply<bool>>;
  struct Event {
    uint32_t io = 0;
    Cell* cell = nullptr;  // null: stateless
    AnyReply reply;
    bool answered = false;
    bool constructing = false;
    bool is_alarm = false;
    bool has_readers = false;  // or had, of streams that end with it
    uint32_t holds = 0;
    std::optional<MonoTime> held_since;  // answered, but something holds it
    std::optional<MonoTime> deadline;    // of its answer
    std::vector<uint32_t> calls;         // of a stateless event
    std::vector<uint32_t> timers;
    v8::Global<v8::Object> frame;
  };
  // Who runs: read from the frame.
  struct Who {
    uint32_t io = 0;
    Cell* cell = nullptr;
    uint32_t section = 0;
    int32_t index = -1;  // not negative without a cell: code of an instance that has ended
  };
  Who who();
  // Whether who runs may start something that ends later, with so many bytes to send. False: an
  // exception is pending. Code outlives its event and its instance where it waits for others.
  bool may_begin(size_t bytes);
  Event* event(uint32_t io);
  Cell* cell(int32_t index);

  // An effect of the cell (null: stateless), released after the turn behind the cell's gate.
  void add_effect(Cell* cell, Effect effect);
  // A call that ends in complete_*; `cancel` runs when nobody waits for it any more. `bytes` count
  // against the quota until it ends.
  void begin_call(uint32_t call, std::move_only_function<void()> cancel = {}, size_t bytes = 0);
  bool waits_for(uint32_t call) const { return calls_.contains(call); }
  void end_cancelled_call(uint32_t call);
  // From a posted callback, never from inside a turn.
  void complete_head(uint32_t call, Outcome<HttpResponseMessage> outcome);
  void complete_bytes(uint32_t call, Outcome<Blob> outcome);
  using MakeValue = std::move_only_function<v8::Local<v8::Value>(v8::Isolate*)>;
  void complete_value(uint32_t call, MakeValue value);
  void complete_error(uint32_t call, const JsError& error);
  void complete_when_room(std::shared_ptr<Pipe> pipe, uint32_t call);
  void complete_when_readable(uint32_t reader, std::shared_ptr<Pipe> pipe, uint32_t call);
  // The same from wherever the answer is known; the completion is posted.
  void post_error(uint32_t call, JsError error);
  Reply<HttpResponseMessage> head_reply(uint32_t call);
  Reply<Blob> bytes_reply(uint32_t call);

  void answer(uint32_t io, Outcome<HttpResponseMessage> outcome);
  void answer(uint32_t io, Outcome<Blob> outcome);
  void answer_done(uint32_t io, Outcome<bool> outcome);
  // `packed`: JsError::packed.
  void answer_error(uint32_t io, v8::Local<v8::Value> exception, std::string packed);
  void release(uint32_t io);

  // The ends of pipes that JavaScript holds, by number.
  uint32_t add_reader(PipeReader pipe, uint32_t io);
  std::shared_ptr<Pipe> reader(uint32_t id) const;
  PipeReader take_reader(uint32_t id);
  // The stream is cancelled when `holder` (none: nobody) is forgotten.
  void own_reader(uint32_t id, v8::MaybeLocal<v8::Object> holder);
  // A new pipe that JavaScript writes; its event stays alive until the writer is done.
  uint32_t create_pipe(std::optional<uint64_t> length);
  struct Writer {
    PipeWriter pipe;
    uint32_t io;   // event held; 0: none
    int32_t cell;  // whose it is; -1: stateless
  };
  Writer* writer(uint32_t id);
  // JavaScript is done with it: its event is no longer held by it.
  PipeWriter take_writer(uint32_t id);

  uint32_t set_timer(double ms, bool repeat);
  void clear_timer(uint32_t id);

  // Code that belongs to an open section may open one inside; other code has to wait.
  uint32_t open_section(Cell& cell);
  void close_section(Cell& cell, uint32_t section);
  void abort_cell(Cell& cell, v8::Local<v8::Value> reason, std::string packed);
  // The frame of the present turn with another section or async-context map.
  v8::Local<v8::Object> derive_frame(std::optional<uint32_t> section,
                                     v8::MaybeLocal<v8::Value> context_map);
  v8::Local<v8::Value> context_map();

  // The present event when it is stateless: what it opens ends with it. 0 for cells.
  uint32_t stateless_io();
  JsError to_js_error(v8::Local<v8::Value> exception);
  // What was thrown and nobody handled, for the log: as console shows it, with the frames of the source.
  std::string describe_thrown(v8::Local<v8::Value> thrown);
  // Text of user code for the log: frames lead to the source, and its length is bounded.
  std::string log_text(std::string text);
  Body body_from_v8(v8::Local<v8::Value> value);
  // `io`: the event that the stream ends with; 0: it may outlive its event.
  v8::Local<v8::Value> body_to_v8(Body body, uint32_t io);
  // False once this host is destroyed; for callbacks that may come later.
  std::shared_ptr<const bool> alive() const { return alive_; }
  IsolateServices& services() { return services_; }
  World& world() { return world_; }
  v8::Isolate* isolate() { return isolate_; }
  v8::Local<v8::Context> context() { return context_.Get(isolate_); }
  void set_hooks(v8::Local<v8::Object> hooks);
  v8::Local<v8::Object> synthetic_exports(v8::Local<v8::Module> module);

 private:
  enum Hook : uint8_t {
    kSetWorker, kFetch, kScheduled, kConstruct, kCellFetch, kCellRpc, kCellAlarm, kDropCell,
    kCallHead, kCallValue, kCallError, kTimer, kDisconnected, kEnded, kMakeError, kDescribe, kHookCount,
  };
  // Calls that wait for an answer, and what they may have sent along, per isolate.
  static constexpr size_t kCallsMax = 100'000;
  static constexpr size_t kCallBytesMax = 128 << 20;
  struct Call {
    uint32_t io;
    int32_t cell;
    uint32_t section;
    size_t bytes;
    v8::Global<v8::Object> frame;
    std::move_only_function<void()> cancel;
  };
  using Calls = std::unordered_map<uint32_t, Call>;
  struct Timer {
    uint32_t io;
    int32_t cell;
    uint32_t section;
    Duration period{0};
    bool repeat = false;
    TimerId armed = 0;
    v8::Global<v8::Object> frame;
  };
  struct Frame {
    uint32_t io = 0;
    int32_t cell = -1;
    uint32_t section = 0;
  };

  IsolateHost(World& world, IsolateServices& services, std::shared_ptr<const WorkerCode> code,
              IsolateLimits limits);
  Result<void> load();
  Result<void> run_prelude();
  Result<void> load_modules();
  Result<void> install_worker(v8::Local<v8::Value> module_namespace);
  v8::MaybeLocal<v8::Module> find_module(const std::string& name, const std::string& referrer);
  v8::MaybeLocal<v8::Module> compile_module(const CodeModule& module);
  v8::MaybeLocal<v8::Module> add_synthetic(const std::string& name, v8::Local<v8::Object> exports);

  // Runs f(isolate, context) as a turn of the frame. `io` pays for the CPU.
  template <class F>
  void turn(const v8::Global<v8::Object>& frame, uint32_t io, F&& f);
  void begin_turn();
  void run_microtasks();
  void drain_turn();
  void finish_turn(uint32_t io);
  // Tasks of V8 run in turns of their own, of no event.
  void watch_tasks();
  void run_tasks();
  void end_hung_events();
  bool terminated() const;
  bool handle_termination(uint32_t io);
  void condemn();
  void add_abort(Cell& cell, JsError why);
  // The line that operators search for: object_reset class=... id=... reason=...
  void log_reset(const Cell& cell, std::string_view reason);
  // The turn uses the storage of the cell: it commits at its end.
  void touch(Cell& cell);
  bool call_hook(Hook hook, std::span<v8::Local<v8::Value>> arguments,
                 v8::Local<v8::Value>* result = nullptr);
  template <class... Args>
  bool call(Hook hook, Args... arguments);

  Event& new_event(Cell* cell, AnyReply reply);
  void start_cell_event(Cell& cell, CellEvent event);
  void construct(Cell& cell);
  void post_pump(Cell& cell);
  void watch_sql(CellStorage& storage);
  enum class Telling : uint8_t { kAtOnce, kGated };
  void end_instance(Cell& cell, const JsError& why, Telling telling);
  void listen_to_caller(const std::shared_ptr<CallerLink>& caller, uint32_t io);
  template <class F>
  void start(Event& event, F&& f);
  void end_event_if_done(Event& event);
  void end_event(uint32_t io);
  void end_alarm(Cell& cell, bool succeeded);
  // The event ends now, with an error of the host's unless it has been answered.
  void fail_event_now(uint32_t io, const JsError& error);
  void complete(uint32_t call, std::move_only_function<void(v8::Isolate*)> run);
  void complete_now(uint32_t call, std::move_only_function<void(v8::Isolate*)> run);
  Call take_call(Calls::iterator it);
  void timer_due(uint32_t id);
  void fire_timer(uint32_t id);
  void arm_timer(uint32_t id);
  void drop_calls_of(Cell* cell, uint32_t io);
  v8::Local<v8::Object> new_frame(const Frame& frame, v8::Local<v8::Value> map);
  Frame present_frame();
  // The present frame, for what runs later.
  v8::Local<v8::Object> frame_for_later();
  Frame read_frame(v8::Local<v8::Value> value);
  std::string describe_exception(v8::TryCatch& caught);
  void report_unhandled();
  void drop_readers_of(uint32_t io, int32_t cell);
  v8::Local<v8::Value> number(uint32_t n);
  v8::Local<v8::Value> latin1(std::string_view text);

  static void on_promise_reject(v8::PromiseRejectMessage message);
  static v8::MaybeLocal<v8::Promise> import_dynamically(v8::Local<v8::Context> context,
                                                        v8::Local<v8::Data> options,
                                                        v8::Local<v8::Value> referrer,
                                                        v8::Local<v8::String> specifier,
                                                        v8::Local<v8::FixedArray> assertions);
  static v8::MaybeLocal<v8::Module> resolve_module(v8::Local<v8::Context> context,
                                                   v8::Local<v8::String> specifier,
                                                   v8::Local<v8::FixedArray> assertions,
                                                   v8::Local<v8::Module> referrer);
  void stop_watching(uint64_t id);
  static void after_gc(v8::Isolate* isolate, v8::GCType type, v8::GCCallbackFlags flags,
                       void* self);
  static size_t near_heap_limit(void* self, size_t current, size_t initial);

  World& world_;
  IsolateServices& services_;
  const std::shared_ptr<const WorkerCode> code_;
  const IsolateLimits limits_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once destroyed

  class Allocator;
  std::shared_ptr<Allocator> allocator_;
  v8::Isolate* isolate_ = nullptr;
  v8::Global<v8::Context> context_;
  v8::Global<v8::ObjectTemplate> frame_template_;
  std::array<v8::Global<v8::Function>, kHookCount> hooks_;
  v8::Global<v8::Object> builtin_modules_;
  class Modules;
  std::unique_ptr<Modules> modules_;
  std::unique_ptr<Watchdog::Seat> seat_;
  std::shared_ptr<ForegroundTasks> tasks_;
  bool tasks_posted_ = false;

  std::unordered_map<int32_t, Cell*> cells_;  // by index; an index is never used twice
  int32_t last_cell_ = 0;
  std::unordered_map<uint32_t, std::unique_ptr<Event>> events_;
  uint32_t last_io_ = 0;
  Calls calls_;
  size_t call_bytes_ = 0;
  std::unordered_map<uint32_t, Timer> timers_;
  uint32_t last_timer_ = 0;
  struct Reader {
    PipeReader pipe;
    uint32_t io;    // ends with this event; 0: with the cell
    int32_t cell;
    uint64_t holder = 0;  // its watch
  };
  std::unordered_map<uint32_t, Reader> readers_;
  std::unordered_map<uint32_t, Writer> writers_;
  uint32_t last_pipe_ = 0;
  uint32_t last_section_ = 0;

  // Objects that are watched for the collector. It only marks what it has found.
  struct Watched {
    IsolateHost* host;
    uint64_t id;
    size_t bytes;
    std::move_only_function<void()> then;
    v8::Global<v8::Object> object;
  };
  std::unordered_map<uint64_t, std::unique_ptr<Watched>> watched_;
  uint64_t last_watched_ = 0;
  std::vector<uint64_t> forgotten_;
  int64_t external_bytes_freed_ = 0;

  // The present turn.
  bool in_turn_ = false;
  Frame turn_frame_;
  std::vector<Cell*> touched_;  // cells whose storage was used
  std::vector<std::pair<Cell*, Effect>> effects_;
  std::vector<std::pair<Cell*, JsError>> aborts_;
  std::vector<std::pair<v8::Global<v8::Promise>, v8::Global<v8::Value>>> unhandled_;
  std::vector<uint32_t> ended_;

  std::atomic<bool> heap_exceeded_{false};
  bool condemned_ = false;
};

// The host of an isolate, for the natives of api/.
IsolateHost& isolate_host(v8::Isolate* isolate);

}  // namespace celld::js
