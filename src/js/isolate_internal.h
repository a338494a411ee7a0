// Parts of IsolateHost that only its own source files share.
#pragma once

#include <atomic>
#include <string>
#include <unordered_map>

#include "js/isolate_host.h"
#include "js/v8_compat.h"

namespace celld::js {

// Internal fields of a frame: the object that travels with every promise reaction.
inline constexpr int kFrameIo = 0;
inline constexpr int kFrameCell = 1;
inline constexpr int kFrameSection = 2;
inline constexpr int kFrameMap = 3;
inline constexpr int kFrameFields = 4;

// ArrayBuffers of one isolate, within a quota: beyond it JavaScript gets a RangeError.
class IsolateHost::Allocator final : public v8::ArrayBuffer::Allocator {
 public:
  explicit Allocator(size_t bytes_max);
  void* Allocate(size_t bytes) override;
  void* AllocateUninitialized(size_t bytes) override;
  void Free(void* data, size_t bytes) override;
  // For buffers that the host makes: counted, not refused. False when the quota is exceeded.
  bool charge(size_t bytes);
  void discharge(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  bool admit(size_t bytes);
  const size_t bytes_max_;
  std::atomic<size_t> used_{0};
};

// In the order of IsolateHost::Hook.
inline constexpr const char* kHookNames[] = {
    "setWorker", "fetch",    "scheduled", "construct", "cellFetch", "cellRpc",      "cellAlarm",
    "dropCell",  "callHead", "callValue", "callError", "timer",     "disconnected", "ended",
    "makeError", "describe"};

// The modules of one isolate by name. Built-in ones are made when first imported.
class IsolateHost::Modules {
 public:
  std::unordered_map<std::string, v8::Global<v8::Module>> by_name;
  std::unordered_multimap<int, std::string> names;  // by identity hash, which is not unique
  std::unordered_map<std::string, v8::Global<v8::Object>> synthetic_exports;

  void add(v8::Isolate* isolate, const std::string& name, v8::Local<v8::Module> module) {
    by_name[name].Reset(isolate, module);
    names.emplace(module->GetIdentityHash(), name);
  }
  std::string name_of(v8::Isolate* isolate, v8::Local<v8::Module> module) const {
    auto [from, to] = names.equal_range(module->GetIdentityHash());
    for (auto it = from; it != to; ++it) {
      if (by_name.at(it->second).Get(isolate) == module) return it->second;
    }
    return {};
  }
};

template <class F>
void IsolateHost::turn(const v8::Global<v8::Object>& frame, uint32_t io, F&& f) {
  begin_turn();
  {
    v8::Isolate::Scope isolate_scope(isolate_);
    v8::HandleScope handles(isolate_);
    v8::Local<v8::Context> context = context_.Get(isolate_);
    v8::Context::Scope context_scope(context);
    v8::Local<v8::Value> frame_value = v8::Undefined(isolate_);
    if (!frame.IsEmpty()) frame_value = frame.Get(isolate_);
    set_frame(isolate_, context, frame_value);
    turn_frame_ = read_frame(frame_value);
    f(isolate_, context);
    drain_turn();
  }
  finish_turn(io);
}

template <class... Args>
bool IsolateHost::call(Hook hook, Args... arguments) {
  v8::Local<v8::Value> list[] = {arguments...};
  return call_hook(hook, list);
}

}  // namespace celld::js
