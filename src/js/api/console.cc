// Natives that let console show what JavaScript itself cannot see.
#include "js/isolate_internal.h"

namespace celld::js {

namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

void promise_state(Args args) {
  if (!args[0]->IsPromise()) return;
  v8::Isolate* isolate = args.GetIsolate();
  v8::Local<v8::Promise> promise = args[0].As<v8::Promise>();
  const char* state = promise->State() == v8::Promise::kPending     ? "pending"
                      : promise->State() == v8::Promise::kFulfilled ? "fulfilled"
                                                                    : "rejected";
  v8::Local<v8::Value> value = v8::Undefined(isolate);
  if (promise->State() != v8::Promise::kPending) value = promise->Result();
  v8::Local<v8::Value> pair[] = {to_v8(isolate, state), value};
  args.GetReturnValue().Set(v8::Array::New(isolate, pair, 2));
}

void proxy_target(Args args) {
  if (args[0]->IsProxy()) args.GetReturnValue().Set(args[0].As<v8::Proxy>()->GetTarget());
}

constexpr NativeFunction kTable[] = {
    {"promiseState", promise_state},
    {"proxyTarget", proxy_target},
};

}  // namespace

std::span<const NativeFunction> console_natives() { return kTable; }

}  // namespace celld::js
