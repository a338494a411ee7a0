// Making an isolate, and the turn: how JavaScript is entered and left.
#include "js/isolate_host.h"

#include <js_prelude/prelude.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/check.h"
#include "js/isolate_internal.h"
#include "js/platform.h"
#include "js/v8_compat.h"

namespace celld::js {

namespace {

// V8 aborts the process at this heap size, so it stands far above any soft limit.
constexpr size_t kHardHeapBytes = 6ull << 30;
constexpr size_t kYoungGenerationBytes = 16ull << 20;

// The runtime's own frames tell the user nothing.
void drop_own_frames(std::string& stack) {
  size_t at = 0;
  while ((at = stack.find("\n    at ", at)) != std::string::npos) {
    size_t end = std::min(stack.find('\n', at + 1), stack.size());
    std::string_view line = std::string_view(stack).substr(at, end - at);
    if (line.find("celld:prelude:") == std::string_view::npos) {
      at = end;
    } else {
      stack.erase(at, end - at);
    }
  }
}

// The prelude as V8 reads it in place: esbuild writes ASCII.
class PreludeText final : public v8::String::ExternalOneByteStringResource {
 public:
  const char* data() const override { return celld_prelude_js; }
  size_t length() const override { return celld_prelude_js_size; }
  void Dispose() override {}
};

PreludeText& prelude_text() {
  static PreludeText text;
  return text;
}

// The compiled prelude of the first isolate, for the others.
class CodeCache {
 public:
  explicit CodeCache(std::unique_ptr<v8::ScriptCompiler::CachedData> made) : made_(std::move(made)) {}
  // For one compilation, which owns the result but not the bytes.
  v8::ScriptCompiler::CachedData* data() const {
    return new v8::ScriptCompiler::CachedData(made_->data, made_->length);
  }

 private:
  std::unique_ptr<v8::ScriptCompiler::CachedData> made_;
};

std::mutex prelude_cache_mutex;
std::shared_ptr<const CodeCache> prelude_cache_made;

std::shared_ptr<const CodeCache> prelude_cache() {
  std::lock_guard lock(prelude_cache_mutex);
  return prelude_cache_made;
}

void keep_prelude_cache(v8::ScriptCompiler::CachedData* made) {
  std::unique_ptr<v8::ScriptCompiler::CachedData> owned(made);
  if (!owned) return;
  std::lock_guard lock(prelude_cache_mutex);
  if (!prelude_cache_made) prelude_cache_made = std::make_shared<const CodeCache>(std::move(owned));
}

constexpr const char* kHookNames[] = {
    "setWorker", "handlers",        "fetch",    "scheduled", "construct", "cellFetch",
    "cellRpc",   "cellAlarm",       "hasAlarmHandler", "dropCell",  "callHead",  "callValue",
    "callError", "timer",           "disconnected",    "ended",     "makeError"};

}  // namespace

// --- memory ---

IsolateHost::Allocator::Allocator(size_t bytes_max) : bytes_max_(bytes_max) {}

bool IsolateHost::Allocator::admit(size_t bytes) {
  size_t now = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now <= bytes_max_) return true;
  used_.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void* IsolateHost::Allocator::Allocate(size_t bytes) {
  if (!admit(bytes)) return nullptr;
  void* p = std::calloc(1, bytes);
  if (!p) used_.fetch_sub(bytes, std::memory_order_relaxed);
  return p;
}

void* IsolateHost::Allocator::AllocateUninitialized(size_t bytes) {
  if (!admit(bytes)) return nullptr;
  void* p = std::malloc(bytes);
  if (!p) used_.fetch_sub(bytes, std::memory_order_relaxed);
  return p;
}

void IsolateHost::Allocator::Free(void* data, size_t bytes) {
  std::free(data);
  used_.fetch_sub(bytes, std::memory_order_relaxed);
}

bool IsolateHost::Allocator::charge(size_t bytes) {
  return used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= bytes_max_;
}

std::unique_ptr<v8::BackingStore> IsolateHost::new_buffer(size_t bytes) {
  struct Owned {
    std::shared_ptr<Allocator> allocator;
    size_t bytes;
  };
  if (!allocator_->charge(bytes)) {
    heap_exceeded_.store(true, std::memory_order_relaxed);
    isolate_->TerminateExecution();
  }
  void* data = std::malloc(std::max<size_t>(bytes, 1));
  CHECK(data) << "out of memory";
  return v8::ArrayBuffer::NewBackingStore(
      data, bytes,
      [](void* memory, size_t, void* owned) {
        auto* o = static_cast<Owned*>(owned);
        std::free(memory);
        o->allocator->discharge(o->bytes);
        delete o;
      },
      new Owned{allocator_, bytes});
}

void IsolateHost::after_gc(v8::Isolate* isolate, v8::GCType, v8::GCCallbackFlags, void* self) {
  auto* host = static_cast<IsolateHost*>(self);
  v8::HeapStatistics heap;
  isolate->GetHeapStatistics(&heap);
  // The memories of WebAssembly do not come from the allocator; they count as external.
  const IsolateLimits& limits = host->limits_;
  if (heap.used_heap_size() > limits.heap_bytes ||
      heap.external_memory() > limits.array_buffer_bytes + limits.heap_bytes) {
    host->heap_exceeded_.store(true, std::memory_order_relaxed);
    isolate->TerminateExecution();
  }
}

size_t IsolateHost::near_heap_limit(void* self, size_t current, size_t) {
  auto* host = static_cast<IsolateHost*>(self);
  host->heap_exceeded_.store(true, std::memory_order_relaxed);
  host->isolate_->TerminateExecution();
  return current + (1ull << 30);  // room to unwind
}

// --- making and ending ---

IsolateHost::IsolateHost(World& world, IsolateServices& services,
                         std::shared_ptr<const WorkerCode> code, IsolateLimits limits)
    : world_(world), services_(services), code_(std::move(code)), limits_(limits) {}

Result<std::unique_ptr<IsolateHost>> IsolateHost::create(World& world, IsolateServices& services,
                                                         std::shared_ptr<const WorkerCode> code,
                                                         IsolateLimits limits) {
  start_v8();
  std::unique_ptr<IsolateHost> host(new IsolateHost(world, services, std::move(code), limits));
  TRY(host->load());
  return host;
}

Result<void> IsolateHost::load() {
  allocator_ = std::make_shared<Allocator>(limits_.array_buffer_bytes);
  v8::Isolate::CreateParams params;
  params.array_buffer_allocator_shared = allocator_;
  params.constraints.set_max_old_generation_size_in_bytes(kHardHeapBytes);
  params.constraints.set_max_young_generation_size_in_bytes(kYoungGenerationBytes);
  isolate_ = v8::Isolate::New(params);
  isolate_->SetData(0, this);
  isolate_->SetMicrotasksPolicy(v8::MicrotasksPolicy::kExplicit);
  isolate_->SetPromiseRejectCallback(on_promise_reject);
  isolate_->AddGCEpilogueCallback(after_gc, this, v8::kGCTypeMarkSweepCompact);
  isolate_->AddNearHeapLimitCallback(near_heap_limit, this);
  isolate_->SetAllowAtomicsWait(false);
  seat_ = std::make_unique<Watchdog::Seat>(isolate_);

  v8::Isolate::Scope isolate_scope(isolate_);
  v8::HandleScope handles(isolate_);
  v8::Local<v8::Context> context = v8::Context::New(isolate_);
  context_.Reset(isolate_, context);
  v8::Context::Scope context_scope(context);
  v8::Local<v8::ObjectTemplate> frame = v8::ObjectTemplate::New(isolate_);
  frame->SetInternalFieldCount(kFrameFields);
  frame_template_.Reset(isolate_, frame);

  advance_javascript_clock();
  seat_->begin(limits_.cpu_per_event);
  Result<void> result = run_prelude();
  if (result) result = load_modules();
  isolate_->PerformMicrotaskCheckpoint();
  seat_->end();
  if (isolate_->IsExecutionTerminating() || seat_->expired()) {
    isolate_->CancelTerminateExecution();
    result = fail(Error::invalid("the start-up of the Worker exceeded its CPU limit"));
  }
  unhandled_.clear();
  effects_.clear();
  return result;
}

IsolateHost::~IsolateHost() {
  *alive_ = false;
  for (auto& [id, timer] : timers_) world_.cancel(timer.armed);
  for (auto& [id, call] : calls_) {
    if (call.cancel) call.cancel();
  }
  readers_.clear();
  writers_.clear();
  if (!isolate_) return;
  seat_.reset();
  {
    v8::Isolate::Scope isolate_scope(isolate_);
    timers_.clear();
    calls_.clear();
    events_.clear();
    unhandled_.clear();
    for (auto& hook : hooks_) hook.Reset();
    builtin_modules_.Reset();
    modules_.reset();
    frame_template_.Reset();
    context_.Reset();
  }
  isolate_->Dispose();
}

std::optional<uint32_t> IsolateHost::namespace_of(std::string_view class_name) const {
  for (size_t i = 0; i < code_->namespaces.size(); ++i) {
    if (code_->namespaces[i].class_name == class_name) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

Result<void> IsolateHost::run_prelude() {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::Local<v8::Object> natives = v8::Object::New(isolate_);
  for (auto table : {storage_natives(), value_natives(), encoding_natives(), crypto_natives(),
                     console_natives(), event_natives(), pipe_natives()}) {
    for (const NativeFunction& f : table) {
      v8::Local<v8::Function> function;
      if (!v8::Function::New(context, f.callback).ToLocal(&function)) {
        return fail(Error::internal("cannot make a native function"));
      }
      natives->Set(context, to_v8(isolate_, f.name), function).Check();
    }
  }
  context->Global()->Set(context, to_v8(isolate_, "native"), natives).Check();

  v8::TryCatch caught(isolate_);
  v8::Local<v8::String> source;
  if (!v8::String::NewExternalOneByte(isolate_, &prelude_text()).ToLocal(&source)) {
    return fail(Error::internal("the prelude is too large"));
  }
  v8::ScriptOrigin origin = module_origin(isolate_, to_v8(isolate_, "celld:prelude"), false);
  std::shared_ptr<const CodeCache> cache = prelude_cache();
  v8::ScriptCompiler::Source script_source(source, origin, cache ? cache->data() : nullptr);
  v8::Local<v8::Script> script;
  v8::Local<v8::Value> ignored;
  if (!v8::ScriptCompiler::Compile(context, &script_source,
                                   cache ? v8::ScriptCompiler::kConsumeCodeCache
                                         : v8::ScriptCompiler::kNoCompileOptions)
           .ToLocal(&script) ||
      !script->Run(context).ToLocal(&ignored)) {
    return fail(Error::internal("the prelude failed: " + describe_exception(caught)));
  }
  if (!cache) keep_prelude_cache(v8::ScriptCompiler::CreateCodeCache(script->GetUnboundScript()));
  context->Global()->Delete(context, to_v8(isolate_, "native")).Check();
  // Like Workers: no code from strings.
  context->AllowCodeGenerationFromStrings(false);
  if (hooks_[kFetch].IsEmpty()) return fail(Error::internal("the prelude installed no hooks"));
  return {};
}

void IsolateHost::set_hooks(v8::Local<v8::Object> hooks) {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  for (size_t i = 0; i < kHookCount; ++i) {
    v8::Local<v8::Value> hook;
    CHECK(hooks->Get(context, to_v8(isolate_, kHookNames[i])).ToLocal(&hook) && hook->IsFunction())
        << "hook missing: " << kHookNames[i];
    hooks_[i].Reset(isolate_, hook.As<v8::Function>());
  }
  v8::Local<v8::Value> modules;
  CHECK(hooks->Get(context, to_v8(isolate_, "modules")).ToLocal(&modules) && modules->IsObject());
  builtin_modules_.Reset(isolate_, modules.As<v8::Object>());
}

// --- frames ---

v8::Local<v8::Object> IsolateHost::new_frame(const Frame& frame, v8::Local<v8::Value> map) {
  v8::Local<v8::Object> object =
      frame_template_.Get(isolate_)->NewInstance(context_.Get(isolate_)).ToLocalChecked();
  object->SetInternalField(kFrameIo, v8::Integer::NewFromUnsigned(isolate_, frame.io));
  object->SetInternalField(kFrameCell, v8::Integer::New(isolate_, frame.cell));
  object->SetInternalField(kFrameSection, v8::Integer::NewFromUnsigned(isolate_, frame.section));
  object->SetInternalField(kFrameMap, map);
  return object;
}

IsolateHost::Frame IsolateHost::read_frame(v8::Local<v8::Value> value) {
  if (value.IsEmpty() || !value->IsObject()) return {};
  v8::Local<v8::Object> object = value.As<v8::Object>();
  if (object->InternalFieldCount() != kFrameFields) return {};
  auto field = [&](int i) { return object->GetInternalField(i).As<v8::Integer>()->Value(); };
  return Frame{static_cast<uint32_t>(field(kFrameIo)), static_cast<int32_t>(field(kFrameCell)),
               static_cast<uint32_t>(field(kFrameSection))};
}

IsolateHost::Who IsolateHost::who() {
  Frame frame = read_frame(get_frame(isolate_, context_.Get(isolate_)));
  return Who{frame.io, cell(frame.cell), frame.section};
}

v8::Local<v8::Value> IsolateHost::context_map() {
  v8::Local<v8::Value> value = get_frame(isolate_, context_.Get(isolate_));
  if (value.IsEmpty() || !value->IsObject()) return v8::Undefined(isolate_);
  v8::Local<v8::Object> object = value.As<v8::Object>();
  if (object->InternalFieldCount() != kFrameFields) return v8::Undefined(isolate_);
  return object->GetInternalField(kFrameMap).As<v8::Value>();
}

v8::Local<v8::Object> IsolateHost::derive_frame(std::optional<uint32_t> section,
                                                v8::MaybeLocal<v8::Value> map) {
  Frame frame = read_frame(get_frame(isolate_, context_.Get(isolate_)));
  if (section) frame.section = *section;
  v8::Local<v8::Value> new_map;
  if (!map.ToLocal(&new_map)) new_map = context_map();
  return new_frame(frame, new_map);
}

IsolateHost::Event* IsolateHost::event(uint32_t io) {
  auto it = events_.find(io);
  return it == events_.end() ? nullptr : it->second.get();
}

Cell* IsolateHost::cell(int32_t index) {
  auto it = cells_.find(index);
  return it == cells_.end() ? nullptr : it->second;
}

// --- turns ---

bool IsolateHost::call_hook(Hook hook, std::span<v8::Local<v8::Value>> arguments,
                            v8::Local<v8::Value>* result) {
  v8::TryCatch caught(isolate_);
  v8::Local<v8::Value> value;
  bool ok = hooks_[hook]
                .Get(isolate_)
                ->Call(context_.Get(isolate_), v8::Undefined(isolate_),
                       static_cast<int>(arguments.size()), arguments.data())
                .ToLocal(&value);
  if (ok) {
    if (result) *result = value;
    return true;
  }
  if (!caught.HasTerminated()) {
    services_.log(LogLevel::kError, std::string("the runtime's own code threw in ") +
                                        kHookNames[hook] + ": " + describe_exception(caught));
  }
  return false;
}

void IsolateHost::add_effect(Cell* cell, Effect effect) {
  effects_.emplace_back(cell, std::move(effect));
}

void IsolateHost::begin_turn() {
  CHECK(!in_turn_) << "a turn inside a turn";
  in_turn_ = true;
  advance_javascript_clock();
  seat_->begin(limits_.cpu_per_event);
}

// After the hook, still inside the isolate: microtasks, then the end of everything that ended.
void IsolateHost::drain_turn() {
  isolate_->PerformMicrotaskCheckpoint();
  // An event that has ended is told to JavaScript, which may let go of more events.
  while (!ended_.empty() && !isolate_->IsExecutionTerminating()) {
    auto ended = std::exchange(ended_, {});
    for (uint32_t io : ended) {
      v8::Local<v8::Value> arguments[] = {v8::Integer::NewFromUnsigned(isolate_, io)};
      call_hook(kEnded, arguments);
    }
    isolate_->PerformMicrotaskCheckpoint();
  }
  ended_.clear();
  // Describing what was thrown runs getters of the user's, so it is part of the turn and its limit.
  report_unhandled();
  set_frame(isolate_, context_.Get(isolate_), v8::Undefined(isolate_));
  seat_->end();
}

// Outside the isolate: commit, then let the effects out, then resets.
void IsolateHost::finish_turn(uint32_t io) {
  in_turn_ = false;
  if (isolate_->IsExecutionTerminating() || seat_->expired() || heap_exceeded_.load(std::memory_order_relaxed)) {
    handle_termination(io);
  }
  auto touched = std::exchange(touched_, {});
  auto aborts = std::exchange(aborts_, {});
  for (Cell* cell : touched) {
    bool aborted = std::any_of(aborts.begin(), aborts.end(), [&](auto& a) { return a.first == cell; });
    if (!cell->storage) continue;
    if (aborted) {
      cell->storage->abandon();
      continue;
    }
    if (auto committed = cell->storage->end_turn(); !committed) {
      // The turn's writes are gone; whoever saw them must not go on.
      aborts.emplace_back(cell, JsError{"Error", committed.error().message, {}, kObjectReset});
    }
  }
  auto effects = std::exchange(effects_, {});
  for (auto& [cell, error] : aborts) {
    // What the failed turn wanted to tell is not told.
    for (auto& [owner, effect] : effects) {
      if (owner == cell && effect) std::exchange(effect, nullptr)(&error);
    }
    if (cell->isolate == this) reset(*cell, error);
  }
  for (auto& [cell, effect] : effects) {
    if (!effect) continue;
    if (cell) {
      cell->gate(std::move(effect));
    } else {
      effect(nullptr);
    }
  }
  if (condemned_) services_.isolate_condemned(*this);
}

void IsolateHost::handle_termination(uint32_t io) {
  isolate_->CancelTerminateExecution();
  if (heap_exceeded_.load(std::memory_order_relaxed)) {
    condemn();
    return;
  }
  if (Cell* owner = cell(turn_cell_)) {
    aborts_.emplace_back(
        owner,
        JsError{"Error", "Durable Object exceeded its CPU time limit and was reset.", {}, kObjectReset});
    return;
  }
  Event* running = event(io);
  if (!running) return;
  reply_outcome(*running, JsError{"Error", "Worker exceeded CPU time limit.", {}, 0});
  running->holds = 0;
  end_event(io);
}

void IsolateHost::condemn() {
  if (condemned_) return;
  condemned_ = true;
  auto resident = cells_;
  for (auto& [index, cell] : resident) {
    detach(*cell, JsError{"Error", "Durable Object's isolate exceeded its memory limit and was reset.",
                         {}, kObjectReset});
  }
  std::vector<uint32_t> left;
  for (auto& [io, e] : events_) left.push_back(io);
  for (uint32_t io : left) {
    if (Event* e = event(io)) {
      reply_outcome(*e, JsError{"Error", "Worker exceeded memory limit.", {}, 0});
      e->holds = 0;
      end_event(io);
    }
  }
}

// --- errors ---

std::string IsolateHost::describe_exception(v8::TryCatch& caught) {
  if (!caught.HasCaught()) return "unknown error";
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::Local<v8::Value> stack;
  std::string text;
  if (caught.StackTrace(context).ToLocal(&stack) && stack->IsString()) {
    text = to_utf8(isolate_, stack);
  } else {
    text = to_utf8(isolate_, caught.Exception());
  }
  v8::Local<v8::Message> message = caught.Message();
  if (!message.IsEmpty() && text.find("\n    at ") == std::string::npos) {
    text += "\n    at " + to_utf8(isolate_, message->GetScriptResourceName()) + ":" +
            std::to_string(message->GetLineNumber(context).FromMaybe(0)) + ":" +
            std::to_string(message->GetStartColumn(context).FromMaybe(0) + 1);
  }
  return code_->remap_stack ? code_->remap_stack(text) : text;
}

JsError IsolateHost::to_js_error(v8::Local<v8::Value> exception) {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::TryCatch ignore(isolate_);
  JsError error;
  if (!exception->IsObject()) {
    error.message = to_utf8(isolate_, exception);
    return error;
  }
  v8::Local<v8::Object> object = exception.As<v8::Object>();
  auto get = [&](const char* name) {
    v8::Local<v8::Value> v;
    if (!object->Get(context, to_v8(isolate_, name)).ToLocal(&v)) return v8::Local<v8::Value>();
    return v;
  };
  auto text = [&](const char* name) {
    v8::Local<v8::Value> v = get(name);
    return !v.IsEmpty() && v->IsString() ? to_utf8(isolate_, v) : std::string();
  };
  error.name = text("name");
  if (error.name.empty()) error.name = "Error";
  error.message = text("message");
  error.stack = text("stack");
  if (error.message.empty() && error.stack.empty()) error.message = to_utf8(isolate_, exception);
  if (code_->remap_stack && !error.stack.empty()) error.stack = code_->remap_stack(error.stack);
  drop_own_frames(error.stack);
  auto flag = [&](const char* name, uint32_t bit) {
    v8::Local<v8::Value> v = get(name);
    if (!v.IsEmpty() && v->IsTrue()) error.flags |= bit;
  };
  flag("retryable", kRetryable);
  flag("overloaded", kOverloaded);
  flag("remote", kRemote);
  flag("durableObjectReset", kObjectReset);
  return error;
}

v8::Local<v8::Value> IsolateHost::make_error(std::string_view name, std::string_view message,
                                             uint32_t flags) {
  v8::Local<v8::Value> arguments[] = {to_v8(isolate_, name), to_v8(isolate_, message),
                                      v8::Integer::NewFromUnsigned(isolate_, flags)};
  v8::Local<v8::Value> error;
  if (!hooks_[kMakeError].IsEmpty() && call_hook(kMakeError, arguments, &error)) return error;
  return v8::Exception::Error(to_v8(isolate_, message));
}

void IsolateHost::on_promise_reject(v8::PromiseRejectMessage message) {
  IsolateHost& host = isolate_host(v8::Isolate::GetCurrent());
  v8::Isolate* isolate = host.isolate_;
  v8::HandleScope handles(isolate);
  switch (message.GetEvent()) {
    case v8::kPromiseRejectWithNoHandler:
      if (host.unhandled_.size() < 1000) {
        host.unhandled_.emplace_back(v8::Global<v8::Promise>(isolate, message.GetPromise()),
                                     v8::Global<v8::Value>(isolate, message.GetValue()));
      }
      return;
    case v8::kPromiseHandlerAddedAfterReject:
      std::erase_if(host.unhandled_,
                    [&](auto& u) { return u.first.Get(isolate) == message.GetPromise(); });
      return;
    default: return;
  }
}

void IsolateHost::report_unhandled() {
  if (unhandled_.empty()) return;
  for (auto& [promise, value] : std::exchange(unhandled_, {})) {
    if (isolate_->IsExecutionTerminating() || seat_->expired()) return;
    JsError error = to_js_error(value.Get(isolate_));
    services_.log(LogLevel::kError,
                  "Uncaught (in promise) " + (error.stack.empty() ? error.name + ": " + error.message
                                                                  : error.stack));
  }
  isolate_->PerformMicrotaskCheckpoint();
}

// --- NativeHost ---

CellStorage* IsolateHost::storage(int32_t index) {
  Cell* owner = cell(index);
  if (!owner || !owner->storage) {
    throw_error(isolate_, "Error", "The Durable Object's storage is no longer accessible: it was reset.");
    return nullptr;
  }
  if (std::find(touched_.begin(), touched_.end(), owner) == touched_.end()) {
    touched_.push_back(owner);
  }
  return owner->storage.get();
}

void IsolateHost::sync_storage(int32_t index, uint32_t call) {
  Cell* owner = cell(index);
  begin_call(call);
  add_effect(owner, [this, call, alive = alive_](const JsError* failed) {
    world_.post([this, call, alive, error = failed ? std::optional(*failed) : std::nullopt] {
      if (!*alive) return;
      if (error) {
        complete_error(call, *error);
      } else {
        complete_value(call, [](v8::Isolate* i) { return v8::Undefined(i).As<v8::Value>(); });
      }
    });
  });
}

// A query that runs for ever holds the thread as a loop does, and ends by the same limit.
void IsolateHost::watch_sql(CellStorage& storage) {
  storage.set_stop_check([](void* seat) { return static_cast<Watchdog::Seat*>(seat)->expired(); },
                         seat_.get());
}

bool IsolateHost::hides_alarm(int32_t index) {
  Cell* owner = cell(index);
  return owner && owner->alarm_hidden;
}

void IsolateHost::alarm_was_set(int32_t index) {
  if (Cell* owner = cell(index)) owner->alarm_hidden = false;
}

IsolateHost& isolate_host(v8::Isolate* isolate) {
  return *static_cast<IsolateHost*>(isolate->GetData(0));
}

NativeHost& native_host(v8::Isolate* isolate) { return isolate_host(isolate); }

}  // namespace celld::js
