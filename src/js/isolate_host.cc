// Making an isolate, and the turn: how JavaScript is entered and left.
#include "js/isolate_host.h"

#include <js_prelude/prelude.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/check.h"
#include "js/isolate_internal.h"
#include "js/platform.h"
#include "js/tenure.h"
#include "js/v8_compat.h"
#include "js/v8_failure.h"

namespace celld::js {

namespace {

constexpr size_t kYoungGenerationBytes = 16ull << 20;
// What a heap may grow beyond its hard limit while its turn is being ended.
constexpr size_t kRoomToUnwind = 256ull << 20;

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
  if (Tenure* tenure = Tenure::current()) tenure->stop_if_lost();
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

size_t IsolateHost::near_heap_limit(void* self, size_t current, size_t initial) {
  Tenure* tenure = Tenure::current();
  if (tenure) tenure->stop_if_lost();
  if (tenure && current > initial) tenure->give_up(Tenure::Loss::kMemory, "the heap grows within one call");
  auto* host = static_cast<IsolateHost*>(self);
  host->heap_exceeded_.store(true, std::memory_order_relaxed);
  host->isolate_->TerminateExecution();
  return current + kRoomToUnwind;
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
  params.constraints.set_max_old_generation_size_in_bytes(limits_.heap_bytes_hard);
  params.constraints.set_max_young_generation_size_in_bytes(kYoungGenerationBytes);
  isolate_ = v8::Isolate::New(params);
  watch_failures(isolate_);
  watch_tasks();
  isolate_->SetData(0, this);
  isolate_->SetMicrotasksPolicy(v8::MicrotasksPolicy::kExplicit);
  isolate_->SetPromiseRejectCallback(on_promise_reject);
  isolate_->SetHostImportModuleDynamicallyCallback(import_dynamically);
  isolate_->AddGCEpilogueCallback(after_gc, this, v8::kGCTypeMarkSweepCompact);
  isolate_->AddNearHeapLimitCallback(near_heap_limit, this);
  isolate_->SetAllowAtomicsWait(false);
  // Like Workers: WebAssembly comes as a module of the deployment, not from bytes.
  isolate_->SetAllowWasmCodeGenerationCallback(
      [](v8::Local<v8::Context>, v8::Local<v8::String>) { return false; });
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
  Result<void> result = run_prelude();
  seat_->begin(limits_.cpu_per_event);  // the Worker pays for its own start-up only
  if (result) result = load_modules();
  run_microtasks();
  seat_->end();
  if (terminated()) {
    isolate_->CancelTerminateExecution();
    result = fail(Error::invalid(heap_exceeded_.load(std::memory_order_relaxed)
                                     ? "the start-up of the Worker exceeded its memory limit"
                                     : "the start-up of the Worker exceeded its CPU limit"));
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
    watched_.clear();
    unhandled_.clear();
    for (auto& hook : hooks_) hook.Reset();
    builtin_modules_.Reset();
    modules_.reset();
    frame_template_.Reset();
    context_.Reset();
  }
  isolate_->Dispose();
  ForegroundTasks::forget(isolate_);
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
      if (!v8::Function::New(context, guarded(f.callback)).ToLocal(&function)) {
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

// The frame is lost inside the then() of a foreign thenable. What runs in a turn and does not say
// whose it is belongs to whom the turn belongs to: an effect must never pass by the gate.
IsolateHost::Frame IsolateHost::present_frame() {
  v8::Local<v8::Value> value = get_frame(isolate_, context_.Get(isolate_));
  return value.IsEmpty() || !value->IsObject() ? turn_frame_ : read_frame(value);
}

v8::Local<v8::Object> IsolateHost::frame_for_later() {
  v8::Local<v8::Value> value = get_frame(isolate_, context_.Get(isolate_));
  if (!value.IsEmpty() && value->IsObject()) return value.As<v8::Object>();
  return new_frame(turn_frame_, v8::Undefined(isolate_));
}

IsolateHost::Who IsolateHost::who() {
  Frame frame = present_frame();
  return Who{frame.io, cell(frame.cell), frame.section, frame.cell};
}

bool IsolateHost::may_begin(size_t bytes) {
  Who caller = who();
  if (caller.index >= 0 && !caller.cell) {
    throw_error(isolate_, "Error",
                "The Durable Object that this code belongs to has been reset.");
    return false;
  }
  if (caller.index < 0 && caller.io != 0 && !event(caller.io)) {
    throw_error(isolate_, "Error",
                "Cannot perform I/O on behalf of a request that has ended.");
    return false;
  }
  if (calls_.size() >= kCallsMax || (call_bytes_ > 0 && call_bytes_ + bytes > kCallBytesMax)) {
    throw_error(isolate_, "Error", "Too many calls, or too much data in calls, wait for an answer.");
    return false;
  }
  return true;
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
  Frame frame = present_frame();
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

// --- NativeHost ---

CellStorage* IsolateHost::storage(int32_t index) {
  Cell* owner = cell(index);
  if (!owner || !owner->storage) {
    throw_error(isolate_, "Error", "The Durable Object's storage is no longer accessible: it was reset.");
    return nullptr;
  }
  // What other code learns from it would not wait for its commits.
  if (present_frame().cell != index) {
    throw_error(isolate_, "Error", "Cannot perform I/O on behalf of a different Durable Object.");
    return nullptr;
  }
  touch(*owner);
  return owner->storage.get();
}

void IsolateHost::touch(Cell& cell) {
  if (std::find(touched_.begin(), touched_.end(), &cell) == touched_.end()) touched_.push_back(&cell);
}

void IsolateHost::sync_storage(int32_t index, uint32_t call) {
  Cell* owner = cell(index);
  if (!owner) {
    throw_error(isolate_, "Error", "The Durable Object's storage is no longer accessible: it was reset.");
    return;
  }
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

// --- what the collector finds ---

uint64_t IsolateHost::when_forgotten(v8::Local<v8::Object> object, size_t bytes,
                                     std::move_only_function<void()> then) {
  uint64_t id = ++last_watched_;
  auto watched = std::make_unique<Watched>(this, id, bytes, std::move(then),
                                           v8::Global<v8::Object>(isolate_, object));
  // Nothing may be done inside the collection, and a second callback would come only from a task
  // that nobody runs.
  watched->object.SetWeak(
      watched.get(),
      [](const v8::WeakCallbackInfo<Watched>& info) {
        HostScope host;
        Watched* found = info.GetParameter();
        found->object.Reset();
        found->host->forgotten_.push_back(found->id);
      },
      v8::WeakCallbackType::kParameter);
  watched_.emplace(id, std::move(watched));
  isolate_->AdjustAmountOfExternalAllocatedMemory(static_cast<int64_t>(bytes));
  return id;
}

void IsolateHost::stop_watching(uint64_t id) {
  auto it = watched_.find(id);
  if (it == watched_.end()) return;
  external_bytes_freed_ += static_cast<int64_t>(it->second->bytes);
  watched_.erase(it);
}

void IsolateHost::run_forgotten() {
  for (uint64_t id : std::exchange(forgotten_, {})) {
    auto it = watched_.find(id);
    if (it == watched_.end()) continue;
    auto then = std::move(it->second->then);
    stop_watching(id);
    then();
  }
  if (external_bytes_freed_ != 0) {
    isolate_->AdjustAmountOfExternalAllocatedMemory(-std::exchange(external_bytes_freed_, 0));
  }
}

// A query that runs for ever holds the thread as a loop does, and ends by the same limit.
void IsolateHost::watch_sql(CellStorage& storage) {
  storage.set_stop_check([](void* seat) { return static_cast<Watchdog::Seat*>(seat)->must_stop(); },
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
