// What V8 does when it cannot go on.
//
// V8 10.2 asks nobody: most of its checks end in V8_Fatal, which ends the process. The library calls
// its own functions through the linkage table, so the definitions here, in the program, take their
// place. Newer V8 has a hook for the same.
#include "js/v8_failure.h"

#include <v8.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "js/tenure.h"

namespace celld::js {

namespace {

[[noreturn]] void end_process(const char* what) {
  std::fprintf(stderr, "V8 failed: %s\n", what);
  std::fflush(stderr);
  std::abort();
}

void on_failure(const char* location, const char* message) {
  char text[256];
  std::snprintf(text, sizeof text, "%s: %s", location ? location : "", message ? message : "");
  on_v8_failure(text);
  end_process(text);
}

#if V8_MAJOR_VERSION < 11
void on_out_of_memory(const char* location, bool) { on_failure(location, "out of memory"); }
#else
void on_out_of_memory(const char* location, const v8::OOMDetails&) { on_failure(location, "out of memory"); }
#endif

void on_check(const char*, int, const char* message) { on_failure("check", message); }

template <class Engine>
void watch_checks() {
  if constexpr (requires { Engine::SetFatalErrorHandler(on_check); }) Engine::SetFatalErrorHandler(on_check);
}

}  // namespace

void watch_failures() { watch_checks<v8::V8>(); }

void watch_failures(v8::Isolate* isolate) {
  isolate->SetFatalErrorHandler(on_failure);
  isolate->SetOOMErrorHandler(on_out_of_memory);
}

}  // namespace celld::js

#if V8_MAJOR_VERSION < 11

[[noreturn]] __attribute__((visibility("default"))) void V8_Fatal(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  celld::js::on_v8_failure(text);
  celld::js::end_process(text);
}

namespace v8::base {

struct OS {
  [[noreturn]] static void Abort();
};

__attribute__((visibility("default"))) void OS::Abort() {
  celld::js::on_v8_failure("V8 aborts");
  celld::js::end_process("V8 aborts");
}

}  // namespace v8::base

#endif
