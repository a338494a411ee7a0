// Events: requests, RPC calls, alarms, constructors; the queue and the input gate of a cell.
#include <algorithm>

#include "base/check.h"
#include "js/isolate_internal.h"

namespace celld::js {

namespace {

JsError reset_error(std::string message) {
  return JsError{"Error", std::move(message), {}, kObjectReset};
}

}  // namespace

IsolateHost::Event& IsolateHost::new_event(Cell* cell, AnyReply reply) {
  uint32_t io = ++last_io_;
  if (io == 0) io = ++last_io_;
  Event& event = *events_.emplace(io, std::make_unique<Event>()).first->second;
  event.io = io;
  event.cell = cell;
  event.reply = std::move(reply);
  if (cell) {
    cell->active.insert(io);
    cell->last_used = world_.now();
  }
  v8::Isolate::Scope isolate_scope(isolate_);
  v8::HandleScope handles(isolate_);
  v8::Context::Scope context_scope(context_.Get(isolate_));
  Frame frame{io, cell ? cell->index : -1, 0};
  event.frame.Reset(isolate_, new_frame(frame, v8::Undefined(isolate_)));
  return event;
}

// Runs f(isolate), which calls the hook of the event, as the event's first turn.
template <class F>
void IsolateHost::start(Event& event, F&& f) {
  uint32_t io = event.io;
  bool called = true;
  turn(event.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) { called = f(isolate); });
  // The hooks catch what the user's code throws, so this is ours; the event must end all the same.
  if (!called) fail_event_now(io, JsError{"Error", "internal error; see the log of the node", {}, 0});
}

// --- stateless events ---

namespace {

// As long as work goes on after the answer, and as long as Workers allow.
constexpr Duration kHeldAfterAnswerMax = std::chrono::seconds(30);
// An alarm or a cron trigger has nobody who would lose patience. As on Workers.
constexpr Duration kUnattendedMax = std::chrono::minutes(15);

JsError isolate_gone() {
  return JsError{"Error", "Worker exceeded memory limit.", {}, 0};
}

}  // namespace

uint32_t IsolateHost::fetch(HttpRequestMessage request, Reply<HttpResponseMessage> reply) {
  if (condemned_) {
    reply(std::unexpected(isolate_gone()));
    return 0;
  }
  Event& event = new_event(nullptr, std::move(reply));
  uint32_t io = event.io;
  start(event, [&](v8::Isolate* isolate) {
    return call(kFetch, number(io), to_v8(isolate, "default").As<v8::Value>(),
                latin1(request.method), to_v8(isolate, request.url).As<v8::Value>(),
                latin1(request.headers), body_to_v8(std::move(request.body), io),
                to_v8(isolate, request.cf).As<v8::Value>());
  });
  return io;
}

uint32_t IsolateHost::scheduled(std::string cron, WallMs time, Reply<bool> reply) {
  if (condemned_) {
    reply(std::unexpected(isolate_gone()));
    return 0;
  }
  Event& event = new_event(nullptr, std::move(reply));
  event.deadline = world_.now() + kUnattendedMax;
  uint32_t io = event.io;
  start(event, [&](v8::Isolate* isolate) {
    return call(kScheduled, number(io), to_v8(isolate, "default").As<v8::Value>(),
                to_v8(isolate, cron).As<v8::Value>(),
                v8::Number::New(isolate, static_cast<double>(time.value)).As<v8::Value>());
  });
  return io;
}

void IsolateHost::disconnect(uint32_t io) {
  Event* e = event(io);
  if (!e || condemned_) return;
  turn(e->frame, io, [&](v8::Isolate*, v8::Local<v8::Context>) { call(kDisconnected, number(io)); });
}

void IsolateHost::caller_gone(uint32_t io) {
  Event* e = event(io);
  if (!e || condemned_) return;
  if (!e->answered) {
    e->answered = true;
    e->reply = std::monostate();
  }
  turn(e->frame, io, [&](v8::Isolate*, v8::Local<v8::Context>) {
    call(kDisconnected, number(io));
    if (Event* still = event(io)) end_event_if_done(*still);
  });
}

void IsolateHost::listen_to_caller(const std::shared_ptr<CallerLink>& caller, uint32_t io) {
  if (!caller) return;
  caller->on_hang_up([this, io, alive = alive_, &world = world_] {
    world.post_from_any_thread([this, io, alive] {
      if (*alive) caller_gone(io);
    });
  });
}

// waitUntil() and a promise that never settles must not keep an event for ever. What still writes a
// stream has a reader, which sets its own limits.
void IsolateHost::sweep() {
  MonoTime now = world_.now();
  std::vector<uint32_t> late;
  std::vector<uint32_t> held;
  for (auto& [io, e] : events_) {
    if (e->deadline && !e->answered && now >= *e->deadline) late.push_back(io);
    if (!e->held_since || now - *e->held_since < kHeldAfterAnswerMax) continue;
    bool writes = std::ranges::any_of(writers_, [&](auto& w) { return w.second.io == io; });
    if (!writes) held.push_back(io);
  }
  for (uint32_t io : held) {
    // What an object does goes on without the event.
    if (!event(io)->cell) {
      services_.log(LogLevel::kWarn,
                    "waitUntil() tasks did not complete within the allowed time after the answer and "
                    "have been cancelled");
    }
    fail_event_now(io, JsError{});
  }
  for (uint32_t io : late) {
    Event* e = event(io);
    if (!e) continue;
    JsError error{"Error", "The handler did not end within 15 minutes.", {}, 0};
    if (e->cell) {
      error.flags = kObjectReset;
      reset(*e->cell, error);
    } else {
      fail_event_now(io, error);
    }
  }
}

// --- cells ---

void IsolateHost::attach(Cell& cell) {
  CHECK(cell.isolate == nullptr && cell.index < 0) << "attached twice: " << cell.id;
  cell.isolate = this;
  cell.index = ++last_cell_;
  if (cell.storage) watch_sql(*cell.storage);
  cells_.emplace(cell.index, &cell);
}

void IsolateHost::detach(Cell& cell, const JsError& why) {
  end_instance(cell, why, Telling::kAtOnce);
}

void IsolateHost::reset(Cell& cell, const JsError& why) {
  end_instance(cell, why, Telling::kGated);
  if (!condemned_) attach(cell);
}

void IsolateHost::end_instance(Cell& cell, const JsError& why, Telling telling) {
  CHECK(cell.isolate == this) << "not attached here: " << cell.id;
  CHECK(!in_turn_) << "an instance ends in the middle of a turn: " << cell.id;
  const int32_t index = cell.index;
  bool has_instance = cell.state == Cell::State::kReady || cell.state == Cell::State::kStarting;
  // What waits for an instance to get ready would wait for the next one, which may fail the same way.
  bool waiting_fails = telling == Telling::kGated || cell.state == Cell::State::kStarting ||
                       cell.in_section();
  struct Callers {
    std::vector<AnyReply> replies;
    std::deque<CellEvent> waiting;
    std::vector<PipeWriter> streams;
  } callers;
  for (uint32_t io : std::exchange(cell.active, {})) {
    auto it = events_.find(io);
    if (it == events_.end()) continue;
    if (!it->second->answered) callers.replies.push_back(std::move(it->second->reply));
    events_.erase(it);
    ended_.push_back(io);  // told to JavaScript in the next turn
  }
  drop_calls_of(&cell, 0);
  for (TimerId limit : cell.reset_gate()) world_.cancel(limit);
  cell.timers = 0;
  cell.alarm_hidden = false;
  if (cell.storage) {
    cell.storage->abandon();
    cell.storage->set_stop_check(nullptr, nullptr);
  }
  drop_readers_of(0, index);
  for (auto it = writers_.begin(); it != writers_.end();) {
    if (it->second.cell != index) {
      ++it;
      continue;
    }
    callers.streams.push_back(std::move(it->second.pipe));
    it = writers_.erase(it);
  }
  if (waiting_fails) callers.waiting = cell.take_waiting();
  cells_.erase(index);
  std::erase(touched_, &cell);
  cell.isolate = nullptr;
  cell.index = -1;
  if (has_instance) cell.state = Cell::State::kCold;

  Effect tell = [callers = std::move(callers), why](const JsError* failed) mutable {
    const JsError& error = failed ? *failed : why;
    for (AnyReply& any : callers.replies) {
      std::visit(
          [&](auto& reply) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(reply)>, std::monostate>) {
              if (reply) reply(std::unexpected(error));
            }
          },
          any);
    }
    for (CellEvent& event : callers.waiting) fail_event(event, error);
    for (PipeWriter& stream : callers.streams) stream->abort(error);
  };
  if (telling == Telling::kGated) {
    cell.gate(std::move(tell));
  } else {
    tell(nullptr);
  }
  if (has_instance && !condemned_) {
    turn(v8::Global<v8::Object>(), 0, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
      call(kDropCell, v8::Integer::New(isolate, index).As<v8::Value>());
    });
  }
}

void IsolateHost::deliver(Cell& cell, CellEvent event) {
  if (cell.enqueue(std::move(event))) pump(cell);
}

void IsolateHost::post_pump(Cell& cell) {
  world_.post([this, id = cell.id, index = cell.index, alive = alive_] {
    if (!*alive) return;
    if (Cell* c = this->cell(index); c && c->id == id) pump(*c);
  });
}

void IsolateHost::pump(Cell& cell) {
  if (in_turn_) {
    post_pump(cell);
    return;
  }
  // Then others get their turn.
  constexpr int kTurnsMax = 64;
  for (int turns = 0; cell.isolate == this && !condemned_; ++turns) {
    if (turns == kTurnsMax) {
      post_pump(cell);
      return;
    }
    if (cell.state == Cell::State::kCold) {
      if (cell.waiting.empty()) return;
      construct(cell);
      continue;
    }
    // What the input gate held comes first, in order.
    if (auto run = cell.next_held()) {
      run();
      continue;
    }
    if (cell.state != Cell::State::kReady || cell.in_section() || cell.must_wait() || cell.waiting.empty()) {
      return;
    }
    start_cell_event(cell, cell.dequeue());
  }
}

void IsolateHost::construct(Cell& cell) {
  std::optional<uint32_t> ns = namespace_of(cell.class_name);
  if (!ns) {
    JsError error{"Error", "the class \"" + cell.class_name + "\" is not bound by this deployment", {}, 0};
    for (CellEvent& e : cell.take_waiting()) fail_event(e, error);
    return;
  }
  cell.state = Cell::State::kStarting;
  Event& event = new_event(&cell, {});
  event.constructing = true;
  uint32_t io = event.io;
  int32_t index = cell.index;
  bool called = true;
  turn(event.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
    v8::Local<v8::Value> name = v8::Undefined(isolate);
    if (cell.name) name = to_v8(isolate, *cell.name);
    called = call(kConstruct, number(io), v8::Integer::New(isolate, index).As<v8::Value>(), number(*ns),
                  to_v8(isolate, cell.hex).As<v8::Value>(), name);
  });
  if (!called && cell.isolate == this && cell.index == index) {
    reset(cell, JsError{"Error", "internal error; see the log of the node", {}, kObjectReset});
  }
}

void IsolateHost::start_cell_event(Cell& cell, CellEvent cell_event) {
  AnyReply reply = std::visit([](auto& some) { return AnyReply(std::move(some.reply)); }, cell_event);
  Event& e = new_event(&cell, std::move(reply));
  uint32_t io = e.io;
  int32_t index = cell.index;
  if (auto* f = std::get_if<CellFetch>(&cell_event)) {
    listen_to_caller(f->caller, io);
    start(e, [&](v8::Isolate* isolate) {
      HttpRequestMessage& r = f->request;
      return call(kCellFetch, number(io), v8::Integer::New(isolate, index).As<v8::Value>(),
                  latin1(r.method), to_v8(isolate, r.url).As<v8::Value>(), latin1(r.headers),
                  body_to_v8(std::move(r.body), io));
    });
  } else if (auto* rpc = std::get_if<CellRpc>(&cell_event)) {
    listen_to_caller(rpc->caller, io);
    start(e, [&](v8::Isolate* isolate) {
      return call(kCellRpc, number(io), v8::Integer::New(isolate, index).As<v8::Value>(),
                  to_v8(isolate, rpc->method).As<v8::Value>(),
                  to_uint8array(isolate, rpc->arguments.view()).As<v8::Value>());
    });
  } else if (auto* alarm = std::get_if<CellAlarm>(&cell_event)) {
    e.is_alarm = true;
    e.deadline = world_.now() + kUnattendedMax;
    cell.alarm_hidden = true;
    start(e, [&](v8::Isolate* isolate) {
      return call(kCellAlarm, number(io), v8::Integer::New(isolate, index).As<v8::Value>(),
                  number(alarm->retry_count),
                  v8::Number::New(isolate, static_cast<double>(alarm->scheduled.value)).As<v8::Value>());
    });
  }
}

// --- answers (JavaScript is on the stack) ---

void IsolateHost::answer(uint32_t io, Outcome<HttpResponseMessage> outcome) {
  Event* e = event(io);
  if (!e || e->answered) return;
  auto* reply = std::get_if<Reply<HttpResponseMessage>>(&e->reply);
  if (!reply) return;
  e->answered = true;
  add_effect(e->cell, [reply = std::move(*reply), outcome = std::move(outcome)](
                          const JsError* failed) mutable {
    reply(failed ? Outcome<HttpResponseMessage>(std::unexpected(*failed)) : std::move(outcome));
  });
  end_event_if_done(*e);
}

void IsolateHost::answer(uint32_t io, Outcome<Blob> outcome) {
  Event* e = event(io);
  if (!e || e->answered) return;
  auto* reply = std::get_if<Reply<Blob>>(&e->reply);
  if (!reply) return;
  e->answered = true;
  add_effect(e->cell, [reply = std::move(*reply), outcome = std::move(outcome)](
                          const JsError* failed) mutable {
    reply(failed ? Outcome<Blob>(std::unexpected(*failed)) : std::move(outcome));
  });
  end_event_if_done(*e);
}

void IsolateHost::answer_done(uint32_t io, Outcome<bool> outcome) {
  Event* e = event(io);
  if (!e || e->answered) return;
  if (e->constructing) {
    if (!outcome) return add_abort(*e->cell, std::move(outcome).error());
    // The instance is ready at once: nothing has left the cell.
    e->answered = true;
    e->cell->state = Cell::State::kReady;
    post_pump(*e->cell);
    return end_event_if_done(*e);
  }
  auto* reply = std::get_if<Reply<bool>>(&e->reply);
  if (!reply) return;
  e->answered = true;
  if (e->is_alarm) end_alarm(*e->cell, outcome.has_value());
  add_effect(e->cell, [reply = std::move(*reply), outcome = std::move(outcome)](
                          const JsError* failed) mutable {
    reply(failed ? Outcome<bool>(std::unexpected(*failed)) : std::move(outcome));
  });
  end_event_if_done(*e);
}

// The commit that consumes the alarm is part of the turn in which the handler ended.
void IsolateHost::end_alarm(Cell& cell, bool succeeded) {
  bool consumed = std::exchange(cell.alarm_hidden, false);
  if (!consumed || !succeeded) return;
  touch(cell);
  if (auto cleared = cell.storage->set_alarm(std::nullopt); !cleared) {
    add_abort(cell, reset_error(cleared.error().message));
  }
}

void IsolateHost::answer_error(uint32_t io, v8::Local<v8::Value> exception, std::string packed) {
  Event* e = event(io);
  if (!e || e->answered) return;
  JsError error = to_js_error(exception);
  error.packed = std::move(packed);
  if (e->cell) error.flags |= e->constructing ? kObjectReset : kRemote;
  // Also the error of a handler that threw may tell of an unproven write: it is gated like the rest.
  if (std::holds_alternative<Reply<HttpResponseMessage>>(e->reply)) {
    answer(io, Outcome<HttpResponseMessage>(std::unexpected(std::move(error))));
  } else if (std::holds_alternative<Reply<Blob>>(e->reply)) {
    answer(io, Outcome<Blob>(std::unexpected(std::move(error))));
  } else {
    answer_done(io, std::unexpected(std::move(error)));
  }
}

void IsolateHost::fail_event_now(uint32_t io, const JsError& error) {
  Event* e = event(io);
  if (!e) return;
  AnyReply reply = e->answered ? AnyReply() : std::exchange(e->reply, AnyReply());
  e->answered = true;
  std::erase_if(writers_, [io](const auto& w) { return w.second.io == io; });
  end_event(io);
  std::visit(
      [&](auto& r) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(r)>, std::monostate>) {
          if (r) r(std::unexpected(error));
        }
      },
      reply);
}

void IsolateHost::end_event_if_done(Event& e) {
  if (!e.answered) return;
  if (e.holds == 0) {
    end_event(e.io);
  } else if (!e.held_since) {
    e.held_since = world_.now();
  }
}

void IsolateHost::release(uint32_t io) {
  Event* e = event(io);
  if (!e || e->holds == 0) return;
  --e->holds;
  end_event_if_done(*e);
}

void IsolateHost::end_event(uint32_t io) {
  auto it = events_.find(io);
  if (it == events_.end()) return;
  Cell* owner = it->second->cell;
  if (it->second->has_readers) drop_readers_of(io, -1);
  if (owner) {
    owner->active.erase(io);
    owner->last_used = world_.now();
    events_.erase(it);
  } else {
    drop_calls_of(nullptr, io);
    events_.erase(io);
  }
  ended_.push_back(io);
}

// --- critical sections ---

uint32_t IsolateHost::open_section(Cell& cell) {
  uint32_t section = ++last_section_;
  TimerId limit = world_.call_at(
      world_.now() + limits_.critical_section,
      [this, section, index = cell.index, alive = alive_] {
        if (!*alive) return;
        Cell* c = this->cell(index);
        if (!c || !c->section_open(section)) return;
        JsError why = reset_error("A call to blockConcurrencyWhile() in a Durable Object waited for too long. "
                                  "The call was canceled and the Durable Object was reset.");
        why.flags |= kOverloaded;
        reset(*c, why);
      });
  cell.open_section(section, limit);
  return section;
}

void IsolateHost::close_section(Cell& cell, uint32_t section) {
  auto limit = cell.close_section(section);
  if (!limit) return;
  world_.cancel(*limit);
  pump(cell);
}

void IsolateHost::abort_cell(Cell& cell, v8::Local<v8::Value> reason, std::string packed) {
  JsError error = to_js_error(reason);
  error.packed = std::move(packed);
  error.flags |= kObjectReset;
  add_abort(cell, std::move(error));
  // The turn goes on with an exception; what it still writes is undone at its end. Terminating would
  // drop the microtasks of other cells too.
  isolate_->ThrowException(reason);
}

}  // namespace celld::js
