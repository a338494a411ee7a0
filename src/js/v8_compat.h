// What differs between V8 10.2 and 14, hidden from the rest.
#pragma once

#include <v8-version.h>
#include <v8.h>

namespace celld::js {

inline v8::ScriptOrigin module_origin(v8::Isolate* isolate, v8::Local<v8::Value> name,
                                      bool is_module) {
#if V8_MAJOR_VERSION >= 12
  (void)isolate;
  return v8::ScriptOrigin(name, 0, 0, false, -1, v8::Local<v8::Value>(), false, false, is_module);
#else
  return v8::ScriptOrigin(isolate, name, 0, 0, false, -1, v8::Local<v8::Value>(), false, false,
                          is_module);
#endif
}

// The slot that travels with every promise reaction.
inline void set_frame(v8::Isolate* isolate, v8::Local<v8::Context> context,
                      v8::Local<v8::Value> frame) {
#if V8_MAJOR_VERSION >= 14
  (void)context;
  isolate->SetContinuationPreservedEmbedderDataV2(frame);
#elif V8_MAJOR_VERSION >= 12
  (void)context;
  isolate->SetContinuationPreservedEmbedderData(frame);
#else
  (void)isolate;
  context->SetContinuationPreservedEmbedderData(frame);
#endif
}

inline v8::Local<v8::Value> get_frame(v8::Isolate* isolate, v8::Local<v8::Context> context) {
#if V8_MAJOR_VERSION >= 14
  (void)context;
  return isolate->GetContinuationPreservedEmbedderDataV2().As<v8::Value>();
#elif V8_MAJOR_VERSION >= 12
  (void)context;
  return isolate->GetContinuationPreservedEmbedderData();
#else
  (void)isolate;
  return context->GetContinuationPreservedEmbedderData();
#endif
}

}  // namespace celld::js
