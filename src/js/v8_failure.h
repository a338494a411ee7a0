// Failures after which V8 would end the process: they end the thread instead (js/tenure.h).
#pragma once

namespace v8 {
class Isolate;
}

namespace celld::js {

// Once, before V8 starts.
void watch_failures();
// For each new isolate, on its thread.
void watch_failures(v8::Isolate* isolate);

}  // namespace celld::js
