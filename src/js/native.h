// How C++ functions become members of the `native` object of js/native.d.ts.
//
// Each file in js/api/ offers one table of functions; the isolate installs them all. A callback
// runs on the loop thread of its isolate, inside a HandleScope, and reports failure by throwing
// through `throw_error`; no C++ exception leaves it.
#pragma once

#include <v8.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace celld {
class CellStorage;
}

namespace celld::js {

struct NativeFunction {
  const char* name;
  v8::FunctionCallback callback;
};

std::span<const NativeFunction> storage_natives();   // api/storage.cc
std::span<const NativeFunction> value_natives();     // api/values.cc: serialize, structuredClone
std::span<const NativeFunction> encoding_natives();  // api/encoding.cc
std::span<const NativeFunction> crypto_natives();    // api/crypto.cc
std::span<const NativeFunction> console_natives();   // api/console.cc: promiseState, proxyTarget
std::span<const NativeFunction> event_natives();     // api/events.cc: answers, calls, gates, timers
std::span<const NativeFunction> pipe_natives();      // api/pipes.cc

// What natives may ask of the isolate that they run in.
class NativeHost {
 public:
  virtual ~NativeHost() = default;
  // The storage of a resident cell of this isolate. Throws a JavaScript error and returns nullptr
  // when the cell has been reset or the index is unknown.
  virtual CellStorage* storage(int32_t cell) = 0;
  // Completes a call: hooks.callValue(call, undefined) once all commits of the cell up to now
  // are proven, callError otherwise.
  virtual void sync_storage(int32_t cell, uint32_t call) = 0;
  // While an alarm handler runs, the alarm it serves reads as absent (alarmGet returns null) until
  // it is set again; alarmSet, with a time or null, ends that.
  virtual bool hides_alarm(int32_t cell) = 0;
  virtual void alarm_was_set(int32_t cell) = 0;
  // Calls `then` once the collector has found `object`, at the end of a turn; counts `bytes` as
  // held by it. `then` must not run JavaScript.
  virtual uint64_t when_forgotten(v8::Local<v8::Object> object, size_t bytes,
                                  std::move_only_function<void()> then) = 0;
  // Runs what is due now.
  virtual void run_forgotten() = 0;
  // The backing store of a buffer that the host makes, filled by the caller.
  virtual std::unique_ptr<v8::BackingStore> new_buffer(size_t bytes) = 0;
  // The JavaScript error object: hooks.makeError(name, message, flags).
  virtual v8::Local<v8::Value> make_error(std::string_view name, std::string_view message,
                                          uint32_t flags = 0) = 0;
};

// The same function as V8 is to call it: in code of the host (js/tenure.h). For every native.
v8::FunctionCallback guarded(v8::FunctionCallback native);

// The host of the isolate that runs on this thread.
NativeHost& native_host(v8::Isolate* isolate);

// Throws hooks.makeError(name, message) in the isolate.
void throw_error(v8::Isolate* isolate, std::string_view name, std::string_view message);

// Conversions that never throw.
v8::Local<v8::String> to_v8(v8::Isolate* isolate, std::string_view utf8);
std::string to_utf8(v8::Isolate* isolate, v8::Local<v8::Value> value);
// The bytes of an ArrayBuffer or view; empty span for anything else. Valid until JavaScript runs.
std::span<uint8_t> bytes_of(v8::Local<v8::Value> value);
// An ArrayBuffer, a Uint8Array with a copy of the bytes. Never fails; what goes over the quota of the
// isolate ends it after the turn.
v8::Local<v8::ArrayBuffer> to_array_buffer(v8::Isolate* isolate, std::string_view bytes);
v8::Local<v8::Uint8Array> to_uint8array(v8::Isolate* isolate, std::string_view bytes);

// V8's serialization format, as used for stored values and RPC. nullopt: a JavaScript exception
// is pending.
bool serialize_value(v8::Isolate* isolate, v8::Local<v8::Context> context,
                     v8::Local<v8::Value> value, std::string* out);
v8::MaybeLocal<v8::Value> deserialize_value(v8::Isolate* isolate, v8::Local<v8::Context> context,
                                            std::string_view bytes);

}  // namespace celld::js
