// The turn: how JavaScript is entered and left, and what follows from it. Errors on their way out.
#include <algorithm>

#include "base/check.h"
#include "js/isolate_internal.h"
#include "js/platform.h"
#include "js/tenure.h"

namespace celld::js {

namespace {

// One entry of the log; what is longer is cut.
constexpr size_t kLogBytesMax = 256 << 10;

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

}  // namespace

// --- turns ---

bool IsolateHost::call_hook(Hook hook, std::span<v8::Local<v8::Value>> arguments,
                            v8::Local<v8::Value>* result) {
  v8::TryCatch caught(isolate_);
  v8::Local<v8::Value> value;
  v8::Local<v8::Function> function = hooks_[hook].Get(isolate_);
  v8::Local<v8::Context> context = context_.Get(isolate_);
  bool ok = false;
  {
    JavaScriptScope javascript;
    ok = function
             ->Call(context, v8::Undefined(isolate_), static_cast<int>(arguments.size()), arguments.data())
             .ToLocal(&value);
  }
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

void IsolateHost::run_microtasks() {
  JavaScriptScope javascript;
  isolate_->PerformMicrotaskCheckpoint();
}

void IsolateHost::add_effect(Cell* cell, Effect effect) {
  effects_.emplace_back(cell, std::move(effect));
}

void IsolateHost::add_abort(Cell& cell, JsError why) {
  for (auto& [aborted, reason] : aborts_) {
    if (aborted == &cell) return;  // the first reason counts
  }
  aborts_.emplace_back(&cell, std::move(why));
}

void IsolateHost::begin_turn() {
  CHECK(!in_turn_) << "a turn inside a turn";
  in_turn_ = true;
  advance_javascript_clock();
  seat_->begin(limits_.cpu_per_event);
}

bool IsolateHost::terminated() const {
  return isolate_->IsExecutionTerminating() || seat_->expired() ||
         heap_exceeded_.load(std::memory_order_relaxed);
}

// After the hook, still inside the isolate: microtasks, then the end of everything that ended. All
// of it may run code of the user, so it is on the turn's budget.
void IsolateHost::drain_turn() {
  run_microtasks();
  while ((!ended_.empty() || !unhandled_.empty()) && !terminated()) {
    // An event that has ended is told to JavaScript, which may let go of more events.
    for (uint32_t io : std::exchange(ended_, {})) {
      v8::Local<v8::Value> arguments[] = {v8::Integer::NewFromUnsigned(isolate_, io)};
      call_hook(kEnded, arguments);
    }
    report_unhandled();
    run_microtasks();
  }
  run_forgotten();
  set_frame(isolate_, context_.Get(isolate_), v8::Undefined(isolate_));
  seat_->end();
}

// Outside the isolate: commit, then let the effects out, then resets, which run JavaScript: should that
// not come back, nothing of this turn is left undone.
void IsolateHost::finish_turn(uint32_t io) {
  in_turn_ = false;
  bool condemned_now = terminated() && handle_termination(io);
  turn_frame_ = Frame{};
  auto touched = std::exchange(touched_, {});
  auto effects = std::exchange(effects_, {});
  auto aborts = std::exchange(aborts_, {});
  auto why_aborted = [&](const Cell* cell) -> const JsError* {
    for (auto& [aborted, reason] : aborts) {
      if (aborted == cell) return &reason;
    }
    return nullptr;
  };
  for (Cell* cell : touched) {
    if (!cell->storage || why_aborted(cell)) continue;  // its reset undoes what the turn wrote
    if (auto committed = cell->storage->end_turn(); !committed) {
      // The turn's writes are gone; whoever saw them must not go on.
      uint32_t flags = kObjectReset;
      if (committed.error().kind == SqlErrorKind::kFenced) flags |= kRetryable;
      aborts.emplace_back(cell, JsError{"Error", committed.error().message, {}, flags});
    }
  }
  for (auto& [owner, effect] : effects) {
    const JsError* why = owner ? why_aborted(owner) : nullptr;
    if (!why) continue;
    // What the failed turn wanted to tell is not told. The reason may tell of earlier commits.
    owner->gate([effect = std::exchange(effect, nullptr), why = *why](const JsError* failed) mutable {
      effect(failed ? failed : &why);
    });
  }
  for (auto& [cell, effect] : effects) {
    if (!effect) continue;
    if (cell) {
      cell->gate(std::move(effect));
    } else {
      effect(nullptr);
    }
  }
  for (auto& [cell, why] : aborts) {
    if (cell->isolate == this) reset(*cell, why);
  }
  if (condemned_now) services_.isolate_condemned(*this);
  if (calls_.empty() && timers_.empty()) end_hung_events();
}

// Nothing is under way that could run JavaScript again, except a new event; and on Workers one event
// does not wait for another. What a stateless event waits for will never come.
void IsolateHost::end_hung_events() {
  if (condemned_ || in_turn_) return;
  std::vector<uint32_t> hung;
  for (auto& [io, e] : events_) {
    if (!e->cell) hung.push_back(io);
  }
  for (uint32_t io : hung) {
    fail_event_now(io, JsError{"Error",
                               "The Workers runtime canceled this request because it detected that "
                               "your Worker's code had hung and would never generate a response.",
                               {}, 0});
  }
}

// True when that was the end of the isolate.
bool IsolateHost::handle_termination(uint32_t io) {
  isolate_->CancelTerminateExecution();
  if (heap_exceeded_.load(std::memory_order_relaxed)) {
    if (condemned_) return false;
    condemn();
    return true;
  }
  // Whatever cell the turn was in, it was left in the middle.
  const JsError error{"Error", "Durable Object exceeded its CPU time limit and was reset.", {},
                      kObjectReset};
  size_t before = aborts_.size();
  for (Cell* cell : touched_) add_abort(*cell, error);
  if (turn_frame_.cell >= 0) {
    if (Cell* owner = cell(turn_frame_.cell)) add_abort(*owner, error);
    for (size_t i = before; i < aborts_.size(); ++i) log_reset(*aborts_[i].first, "cpu_limit");
  } else {
    fail_event_now(io, JsError{"Error", "Worker exceeded CPU time limit.", {}, 0});
  }
  return false;
}

void IsolateHost::log_reset(const Cell& cell, std::string_view reason) {
  services_.log(LogLevel::kError, "object_reset class=" + cell.class_name + " id=" + cell.hex +
                                      " reason=" + std::string(reason));
}

void IsolateHost::condemn() {
  condemned_ = true;
  for (auto& [index, cell] : cells_) {
    log_reset(*cell, "memory_limit");
    add_abort(*cell, JsError{"Error", "Durable Object's isolate exceeded its memory limit and was reset.",
                             {}, kObjectReset});
  }
  std::vector<uint32_t> stateless;
  for (auto& [io, e] : events_) {
    if (!e->cell) stateless.push_back(io);
  }
  for (uint32_t io : stateless) {
    fail_event_now(io, JsError{"Error", "Worker exceeded memory limit.", {}, 0});
  }
}

// --- errors ---

std::string IsolateHost::describe_exception(v8::TryCatch& caught) {
  if (!caught.HasCaught()) return "unknown error";
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::Local<v8::Value> stack;
  std::string text;
  bool has_stack = false;
  {
    JavaScriptScope javascript;
    has_stack = caught.StackTrace(context).ToLocal(&stack);
  }
  if (has_stack && stack->IsString()) {
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
    JavaScriptScope javascript;  // a getter may be code of the user
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
  flag("unconfirmed", kUnconfirmed);
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
  HostScope scope;
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

// In a turn. A message or a stack may be code of the user.
void IsolateHost::report_unhandled() {
  for (auto& [promise, value] : std::exchange(unhandled_, {})) {
    services_.log(LogLevel::kError, "Uncaught (in promise) " + describe_thrown(value.Get(isolate_)));
  }
}

std::string IsolateHost::describe_thrown(v8::Local<v8::Value> thrown) {
  v8::Local<v8::Value> arguments[] = {thrown};
  v8::Local<v8::Value> text;
  if (!call_hook(kDescribe, arguments, &text) || !text->IsString()) return "an error that cannot be shown";
  return log_text(to_utf8(isolate_, text));
}

std::string IsolateHost::log_text(std::string text) {
  if (text.size() > kLogBytesMax) {
    size_t end = kLogBytesMax;
    while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // no half characters
    text = text.substr(0, end) + "... " + std::to_string(text.size() - end) + " more bytes";
  }
  if (text.find("\n    at ") == std::string::npos) return text;
  if (code_->remap_stack) text = code_->remap_stack(text);
  drop_own_frames(text);
  return text;
}

}  // namespace celld::js
