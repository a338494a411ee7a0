// Calls out and their completions, timers, pipes, and bodies on their way between the halves.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "js/isolate_internal.h"

namespace celld::js {

namespace {

constexpr size_t kTimersMax = 10'000;
constexpr double kTimerMsMax = 2147483647.0;

}  // namespace

v8::Local<v8::Value> IsolateHost::number(uint32_t n) {
  return v8::Integer::NewFromUnsigned(isolate_, n);
}

v8::Local<v8::Value> IsolateHost::latin1(std::string_view text) {
  v8::Local<v8::String> s;
  if (!v8::String::NewFromOneByte(isolate_, reinterpret_cast<const uint8_t*>(text.data()),
                                  v8::NewStringType::kNormal, static_cast<int>(text.size()))
           .ToLocal(&s)) {
    return v8::String::Empty(isolate_);
  }
  return s;
}

uint32_t IsolateHost::stateless_io() {
  Who owner = who();
  return owner.cell ? 0 : owner.io;
}

// --- calls ---

void IsolateHost::begin_call(uint32_t id, std::move_only_function<void()> cancel, size_t bytes) {
  Who caller = who();
  Call c{caller.io, caller.cell ? caller.cell->index : -1, caller.section, bytes, {}, std::move(cancel)};
  c.frame.Reset(isolate_, frame_for_later());
  calls_.emplace(id, std::move(c));
  call_bytes_ += bytes;
  if (Event* e = event(caller.io); e && !e->cell) e->calls.push_back(id);
}

// The lists of a stateless event: what is removed is mostly what was added last.
static void forget(std::vector<uint32_t>& ids, uint32_t id) {
  auto it = std::find(ids.rbegin(), ids.rend(), id);
  if (it == ids.rend()) return;
  *it = ids.back();
  ids.pop_back();
}

IsolateHost::Call IsolateHost::take_call(Calls::iterator it) {
  Call taken = std::move(it->second);
  if (taken.cell < 0) {
    if (Event* e = event(taken.io)) forget(e->calls, it->first);
  }
  calls_.erase(it);
  call_bytes_ -= taken.bytes;
  return taken;
}

void IsolateHost::end_cancelled_call(uint32_t id) {
  auto it = calls_.find(id);
  if (it == calls_.end()) return;
  Call taken = take_call(it);
  if (taken.cancel) taken.cancel();
}

void IsolateHost::complete(uint32_t id, std::move_only_function<void(v8::Isolate*)> run) {
  auto it = calls_.find(id);
  if (it == calls_.end() || condemned_) return;
  const Call& c = it->second;
  if (Cell* owner = cell(c.cell); owner && owner->holds_back(c.section)) {
    owner->hold(c.section, [this, id, run = std::move(run)]() mutable {
      complete_now(id, std::move(run));
    });
    return;
  }
  complete_now(id, std::move(run));
}

void IsolateHost::complete_now(uint32_t id, std::move_only_function<void(v8::Isolate*)> run) {
  auto it = calls_.find(id);
  if (it == calls_.end()) return;
  Call taken = take_call(it);
  if (Cell* owner = cell(taken.cell)) owner->last_used = world_.now();
  turn(taken.frame, taken.io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) { run(isolate); });
}

void IsolateHost::complete_head(uint32_t id, Outcome<HttpResponseMessage> outcome) {
  if (!outcome) {
    complete_error(id, outcome.error());
    return;
  }
  complete(id, [this, id, message = std::move(*outcome)](v8::Isolate*) mutable {
    call(kCallHead, number(id), number(static_cast<uint32_t>(message.status)),
         latin1(message.status_text), latin1(message.headers),
         body_to_v8(std::move(message.body), stateless_io()));
  });
}

void IsolateHost::complete_bytes(uint32_t id, Outcome<Blob> outcome) {
  if (!outcome) {
    complete_error(id, outcome.error());
    return;
  }
  complete(id, [this, id, bytes = std::move(*outcome)](v8::Isolate* isolate) {
    // A serialized value is never empty: nothing stands for undefined.
    v8::Local<v8::Value> value = v8::Null(isolate);
    if (!bytes.empty()) value = to_uint8array(isolate, bytes.view());
    call(kCallValue, number(id), value);
  });
}

void IsolateHost::complete_value(uint32_t id, MakeValue value) {
  complete(id, [this, id, value = std::move(value)](v8::Isolate* isolate) mutable {
    call(kCallValue, number(id), value(isolate));
  });
}

void IsolateHost::complete_error(uint32_t id, const JsError& error) {
  complete(id, [this, id, error](v8::Isolate* isolate) {
    call(kCallError, number(id), to_v8(isolate, error.name).As<v8::Value>(),
         to_v8(isolate, error.message).As<v8::Value>(), to_v8(isolate, error.stack).As<v8::Value>(),
         number(error.flags),
         error.packed.empty() ? v8::Undefined(isolate).As<v8::Value>()
                              : to_uint8array(isolate, error.packed).As<v8::Value>());
  });
}

void IsolateHost::post_error(uint32_t id, JsError error) {
  world_.post_from_any_thread([this, id, error = std::move(error), alive = alive_] {
    if (*alive) complete_error(id, error);
  });
}

Reply<HttpResponseMessage> IsolateHost::head_reply(uint32_t id) {
  return [this, id, alive = alive_, &world = world_](Outcome<HttpResponseMessage> outcome) mutable {
    world.post_from_any_thread([this, id, alive, outcome = std::move(outcome)]() mutable {
      if (*alive) complete_head(id, std::move(outcome));
    });
  };
}

Reply<Blob> IsolateHost::bytes_reply(uint32_t id) {
  return [this, id, alive = alive_, &world = world_](Outcome<Blob> outcome) mutable {
    world.post_from_any_thread([this, id, alive, outcome = std::move(outcome)]() mutable {
      if (*alive) complete_bytes(id, std::move(outcome));
    });
  };
}

// Calls and timers of a cell's instance, or of one stateless event.
void IsolateHost::drop_calls_of(Cell* owner, uint32_t io) {
  std::vector<uint32_t> ids;
  if (owner) {
    for (auto& [id, c] : calls_) {
      if (c.cell == owner->index) ids.push_back(id);
    }
  } else if (Event* e = event(io)) {
    ids = std::move(e->calls);
  }
  for (uint32_t id : ids) end_cancelled_call(id);

  std::vector<uint32_t> timer_ids;
  if (owner) {
    for (auto& [id, t] : timers_) {
      if (t.cell == owner->index) timer_ids.push_back(id);
    }
  } else if (Event* e = event(io)) {
    timer_ids = std::move(e->timers);
  }
  for (uint32_t id : timer_ids) clear_timer(id);
}

// --- timers ---

uint32_t IsolateHost::set_timer(double ms, bool repeat) {
  if (!may_begin(0)) return 0;
  Who owner = who();
  Event* e = owner.cell ? nullptr : event(owner.io);
  size_t set = owner.cell ? owner.cell->timers : e ? e->timers.size() : timers_.size();
  if (set >= kTimersMax) {
    throw_error(isolate_, "Error", "You have exceeded the number of timeouts you may set.");
    return 0;
  }
  if (!(ms > 0)) ms = 0;
  ms = std::min(std::trunc(ms), kTimerMsMax);
  if (repeat && ms < 1) ms = 1;
  do {
    ++last_timer_;
  } while (last_timer_ == 0 || timers_.contains(last_timer_));
  uint32_t id = last_timer_;
  Timer t;
  t.io = owner.io;
  t.cell = owner.cell ? owner.cell->index : -1;
  t.section = owner.section;
  t.period = std::chrono::microseconds(static_cast<int64_t>(ms * 1000));
  t.repeat = repeat;
  t.frame.Reset(isolate_, frame_for_later());
  timers_.emplace(id, std::move(t));
  if (owner.cell) {
    ++owner.cell->timers;
  } else if (e) {
    e->timers.push_back(id);
  }
  arm_timer(id);
  return id;
}

void IsolateHost::arm_timer(uint32_t id) {
  Timer& t = timers_.at(id);
  t.armed = world_.call_at(world_.now() + t.period, [this, id] { timer_due(id); });
}

void IsolateHost::clear_timer(uint32_t id) {
  auto it = timers_.find(id);
  if (it == timers_.end()) return;
  world_.cancel(it->second.armed);
  const Timer& t = it->second;
  if (Cell* owner = cell(t.cell)) {
    if (owner->timers > 0) --owner->timers;
  } else if (Event* e = event(t.io)) {
    forget(e->timers, id);
  }
  timers_.erase(it);
}

void IsolateHost::timer_due(uint32_t id) {
  auto it = timers_.find(id);
  if (it == timers_.end() || condemned_) return;
  const Timer& t = it->second;
  if (Cell* owner = cell(t.cell); owner && owner->holds_back(t.section)) {
    owner->hold(t.section, [this, id] { fire_timer(id); });
    return;
  }
  fire_timer(id);
}

void IsolateHost::fire_timer(uint32_t id) {
  auto it = timers_.find(id);
  if (it == timers_.end()) return;
  Timer& t = it->second;
  Cell* owner = cell(t.cell);
  uint32_t io = t.io;
  v8::Global<v8::Object> frame;
  if (!t.frame.IsEmpty()) {
    v8::Isolate::Scope isolate_scope(isolate_);
    v8::HandleScope handles(isolate_);
    frame.Reset(isolate_, t.frame.Get(isolate_));
  }
  if (owner) owner->last_used = world_.now();
  if (t.repeat) {
    arm_timer(id);
  } else {
    clear_timer(id);
  }
  turn(frame, io, [&](v8::Isolate*, v8::Local<v8::Context>) { call(kTimer, number(id)); });
}

// --- pipes and bodies ---

uint32_t IsolateHost::add_reader(PipeReader p, uint32_t io) {
  do {
    ++last_pipe_;
  } while (last_pipe_ == 0 || readers_.contains(last_pipe_) || writers_.contains(last_pipe_));
  uint32_t id = last_pipe_;
  Who owner = who();
  if (Event* e = io != 0 ? event(io) : nullptr) e->has_readers = true;
  readers_.emplace(id, Reader{std::move(p), io, owner.cell ? owner.cell->index : -1});
  return id;
}

// Streams of a request end with it. Those of an object would last as long as its instance: the body
// of a reply that it never looked at.
void IsolateHost::own_reader(uint32_t id, v8::MaybeLocal<v8::Object> holder) {
  constexpr size_t kReaderBytes = 16 << 10;  // a hint for the collector
  auto it = readers_.find(id);
  if (it == readers_.end() || it->second.io != 0) return;
  stop_watching(std::exchange(it->second.holder, 0));
  v8::Local<v8::Object> object;
  if (!holder.ToLocal(&object)) return;
  it->second.holder = when_forgotten(object, kReaderBytes, [this, id] { take_reader(id).reset(); });
}

std::shared_ptr<Pipe> IsolateHost::reader(uint32_t id) const {
  auto it = readers_.find(id);
  return it == readers_.end() ? nullptr : it->second.pipe.pipe();
}

PipeReader IsolateHost::take_reader(uint32_t id) {
  auto it = readers_.find(id);
  if (it == readers_.end()) return {};
  auto p = std::move(it->second.pipe);
  stop_watching(it->second.holder);
  readers_.erase(it);
  return p;
}

void IsolateHost::drop_readers_of(uint32_t io, int32_t cell) {
  std::erase_if(readers_, [&](const auto& entry) {
    const Reader& r = entry.second;
    bool ours = io != 0 ? r.io == io : r.cell == cell;
    if (ours) stop_watching(r.holder);
    return ours;
  });
}

uint32_t IsolateHost::create_pipe(std::optional<uint64_t> length) {
  Who owner = who();
  auto [writer, reader] = make_pipe(length);
  uint32_t id = add_reader(std::move(reader), 0);
  uint32_t io = 0;
  if (Event* e = event(owner.io)) {
    ++e->holds;
    io = e->io;
  }
  writer->on_cancelled([this, id, alive = alive_, &world = world_] {
    world.post_from_any_thread([this, id, alive] {
      if (*alive) take_writer(id);
    });
  });
  writers_.emplace(id, Writer{std::move(writer), io, owner.cell ? owner.cell->index : -1});
  return id;
}

IsolateHost::Writer* IsolateHost::writer(uint32_t id) {
  auto it = writers_.find(id);
  return it == writers_.end() ? nullptr : &it->second;
}

PipeWriter IsolateHost::take_writer(uint32_t id) {
  auto it = writers_.find(id);
  if (it == writers_.end()) return {};
  Writer taken = std::move(it->second);
  writers_.erase(it);
  if (taken.io != 0) release(taken.io);
  return std::move(taken.pipe);
}

Body IsolateHost::body_from_v8(v8::Local<v8::Value> value) {
  if (value->IsString()) return Blob(to_utf8(isolate_, value));
  if (value->IsNumber()) {
    if (PipeReader p = take_reader(static_cast<uint32_t>(value.As<v8::Number>()->Value()))) return p;
    return std::monostate{};
  }
  if (value->IsArrayBuffer() || value->IsArrayBufferView()) {
    auto bytes = bytes_of(value);
    return Blob(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return std::monostate{};
}

v8::Local<v8::Value> IsolateHost::body_to_v8(Body body, uint32_t io) {
  if (auto* blob = std::get_if<Blob>(&body)) return to_uint8array(isolate_, blob->view());
  if (auto* p = std::get_if<PipeReader>(&body)) {
    return number(add_reader(std::move(*p), io));
  }
  return v8::Null(isolate_);
}

}  // namespace celld::js
