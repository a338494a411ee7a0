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

IsolateHost::Event& IsolateHost::new_event(Cell* cell) {
  uint32_t io = ++last_io_;
  if (io == 0) io = ++last_io_;
  auto event = std::make_unique<Event>();
  event->io = io;
  event->cell = cell;
  v8::Isolate::Scope isolate_scope(isolate_);
  v8::HandleScope handles(isolate_);
  v8::Context::Scope context_scope(context_.Get(isolate_));
  Frame frame{io, cell ? cell->index : -1, 0};
  event->frame.Reset(isolate_, new_frame(frame, v8::Undefined(isolate_)));
  Event& ref = *event;
  events_.emplace(io, std::move(event));
  if (cell) {
    cell->active.insert(io);
    cell->last_used = world_.now();
  }
  return ref;
}

// --- stateless events ---

uint32_t IsolateHost::fetch(HttpRequestMessage request, Reply<HttpResponseMessage> reply) {
  Event& event = new_event(nullptr);
  event.reply = std::move(reply);
  uint32_t io = event.io;
  turn(event.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
    call(kFetch, number(io), to_v8(isolate, "default").As<v8::Value>(),
         latin1(request.method), to_v8(isolate, request.url).As<v8::Value>(),
         latin1(request.headers), body_to_v8(std::move(request.body), io),
         to_v8(isolate, request.cf).As<v8::Value>());
  });
  return io;
}

uint32_t IsolateHost::scheduled(std::string cron, WallMs time, Reply<bool> reply) {
  Event& event = new_event(nullptr);
  event.reply = std::move(reply);
  uint32_t io = event.io;
  turn(event.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
    call(kScheduled, number(io), to_v8(isolate, "default").As<v8::Value>(),
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

bool IsolateHost::has_handler(std::string_view name) {
  v8::Isolate::Scope isolate_scope(isolate_);
  v8::HandleScope handles(isolate_);
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::Context::Scope context_scope(context);
  v8::Local<v8::Value> arguments[] = {to_v8(isolate_, "default")};
  v8::Local<v8::Value> list;
  if (!call_hook(kHandlers, arguments, &list) || !list->IsArray()) return false;
  v8::Local<v8::Array> names = list.As<v8::Array>();
  for (uint32_t i = 0; i < names->Length(); ++i) {
    v8::Local<v8::Value> v;
    if (names->Get(context, i).ToLocal(&v) && to_utf8(isolate_, v) == name) return true;
  }
  return false;
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
  CHECK(cell.isolate == this) << "not attached here: " << cell.id;
  bool has_instance = cell.state == Cell::State::kReady || cell.state == Cell::State::kStarting;
  auto active = std::exchange(cell.active, {});
  for (uint32_t io : active) {
    Event* e = event(io);
    if (!e) continue;
    reply_outcome(*e, why);
    drop_calls_of(nullptr, io);
    events_.erase(io);
  }
  drop_calls_of(&cell, 0);
  cell.sections.clear();
  cell.deferred.clear();
  cell.timers = 0;
  cell.alarm_hidden = false;
  if (cell.storage) cell.storage->abandon();
  if (has_instance && !condemned_) {
    v8::Isolate::Scope isolate_scope(isolate_);
    v8::HandleScope handles(isolate_);
    v8::Context::Scope context_scope(context_.Get(isolate_));
    call(kDropCell, v8::Integer::New(isolate_, cell.index).As<v8::Value>());
  }
  drop_readers_of(0, cell.index);
  cells_.erase(cell.index);
  std::erase(touched_, &cell);
  cell.isolate = nullptr;
  cell.index = -1;
  if (has_instance) cell.state = Cell::State::kCold;
}

void IsolateHost::reset(Cell& cell, const JsError& why) {
  // What waits belongs to the instance that ends: started again, it could fail for ever.
  auto waiting = std::exchange(cell.waiting, {});
  detach(cell, why);
  if (!condemned_) attach(cell);
  for (CellEvent& e : waiting) fail_event(e, why);
}

void IsolateHost::deliver(Cell& cell, CellEvent event) {
  if (cell.waiting.size() >= Cell::kWaitingMax) {
    fail_event(event, JsError{"Error", "Durable Object is overloaded. Too many requests queued.", {},
                              kOverloaded});
    return;
  }
  cell.waiting.push_back(std::move(event));
  pump(cell);
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
  while (cell.isolate == this && !condemned_) {
    if (cell.state == Cell::State::kCold) {
      if (cell.waiting.empty()) return;
      construct(cell);
      continue;
    }
    // What the input gate held comes first, in order.
    if (!cell.deferred.empty() && cell.sections.empty()) {
      auto run = std::move(cell.deferred.front());
      cell.deferred.pop_front();
      run();
      continue;
    }
    if (cell.state != Cell::State::kReady || !cell.sections.empty() || cell.waiting.empty()) return;
    CellEvent next = std::move(cell.waiting.front());
    cell.waiting.pop_front();
    start_cell_event(cell, std::move(next));
  }
}

void IsolateHost::construct(Cell& cell) {
  cell.state = Cell::State::kStarting;
  std::optional<uint32_t> ns = namespace_of(cell.class_name);
  if (!ns) {
    JsError error{"Error", "the class \"" + cell.class_name + "\" is not bound by this deployment", {}, 0};
    cell.state = Cell::State::kCold;
    for (CellEvent& e : std::exchange(cell.waiting, {})) fail_event(e, error);
    return;
  }
  Event& event = new_event(&cell);
  event.constructing = true;
  event.reply = Reply<bool>([this, id = cell.id, index = cell.index](Outcome<bool> outcome) {
    if (Cell* c = this->cell(index); c && c->id == id) constructed(*c, std::move(outcome));
  });
  uint32_t io = event.io;
  turn(event.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
    v8::Local<v8::Value> name = v8::Undefined(isolate);
    if (cell.name) name = to_v8(isolate, *cell.name);
    call(kConstruct, number(io), v8::Integer::New(isolate, cell.index).As<v8::Value>(), number(*ns),
         to_v8(isolate, cell.hex).As<v8::Value>(), name);
  });
}

void IsolateHost::constructed(Cell& cell, Outcome<bool> outcome) {
  if (cell.state != Cell::State::kStarting) return;
  if (outcome) {
    cell.state = Cell::State::kReady;
    return;  // pump goes on when the turn is over
  }
  // The constructor threw: what waited fails with its error, the next event tries again.
  cell.state = Cell::State::kCold;
  cell.sections.clear();
  auto waiting = std::exchange(cell.waiting, {});
  for (CellEvent& e : waiting) fail_event(e, outcome.error());
}

void IsolateHost::start_cell_event(Cell& cell, CellEvent cell_event) {
  Event& e = new_event(&cell);
  uint32_t io = e.io;
  int32_t index = cell.index;
  if (auto* f = std::get_if<CellFetch>(&cell_event)) {
    e.reply = std::move(f->reply);
    turn(e.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
      HttpRequestMessage& r = f->request;
      call(kCellFetch, number(io), v8::Integer::New(isolate, index).As<v8::Value>(),
           latin1(r.method), to_v8(isolate, r.url).As<v8::Value>(), latin1(r.headers),
           body_to_v8(std::move(r.body), io));
    });
  } else if (auto* rpc = std::get_if<CellRpc>(&cell_event)) {
    e.reply = std::move(rpc->reply);
    turn(e.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
      call(kCellRpc, number(io), v8::Integer::New(isolate, index).As<v8::Value>(),
           to_v8(isolate, rpc->method).As<v8::Value>(),
           to_uint8array(isolate, rpc->arguments.view()).As<v8::Value>());
    });
  } else if (auto* alarm = std::get_if<CellAlarm>(&cell_event)) {
    e.is_alarm = true;
    cell.alarm_hidden = true;
    e.reply = std::move(alarm->reply);
    turn(e.frame, io, [&](v8::Isolate* isolate, v8::Local<v8::Context>) {
      call(kCellAlarm, number(io), v8::Integer::New(isolate, index).As<v8::Value>(),
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
  auto* reply = std::get_if<Reply<bool>>(&e->reply);
  if (!reply) return;
  e->answered = true;
  if (e->constructing) {
    // The instance is ready at once: nothing has left the cell.
    (*reply)(std::move(outcome));
    post_pump(*e->cell);
  } else {
    if (e->is_alarm) end_alarm(*e->cell, outcome.has_value());
    add_effect(e->cell, [reply = std::move(*reply), outcome = std::move(outcome)](
                            const JsError* failed) mutable {
      reply(failed ? Outcome<bool>(std::unexpected(*failed)) : std::move(outcome));
    });
  }
  end_event_if_done(*e);
}

// The commit that consumes the alarm is part of the turn in which the handler ended.
void IsolateHost::end_alarm(Cell& cell, bool succeeded) {
  bool consumed = std::exchange(cell.alarm_hidden, false);
  if (!consumed || !succeeded) return;
  CellStorage* s = storage(cell.index);
  if (!s) return;
  if (auto cleared = s->set_alarm(std::nullopt); !cleared) {
    aborts_.emplace_back(&cell, reset_error(cleared.error().message));
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

// Outside of a turn, or at its end: the event fails with an error of the host's, ungated.
void IsolateHost::reply_outcome(Event& e, const JsError& error) {
  if (e.answered) return;
  e.answered = true;
  std::visit(
      [&](auto& reply) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(reply)>, std::monostate>) {
          if (reply) reply(std::unexpected(error));
        }
      },
      e.reply);
}

void IsolateHost::end_event_if_done(Event& e) {
  if (e.answered && e.holds == 0) end_event(e.io);
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
  if (owner) {
    owner->active.erase(io);
    owner->last_used = world_.now();
    events_.erase(it);
  } else {
    drop_calls_of(nullptr, io);
    events_.erase(io);
  }
  drop_readers_of(io, -1);
  ended_.push_back(io);
}

// --- critical sections ---

uint32_t IsolateHost::open_section(Cell& cell) {
  uint32_t section = ++last_section_;
  cell.sections.push_back(section);
  world_.call_at(world_.now() + limits_.critical_section,
                 [this, section, index = cell.index, id = cell.id, alive = alive_] {
                   if (!*alive) return;
                   Cell* c = this->cell(index);
                   if (!c || c->id != id) return;
                   if (std::find(c->sections.begin(), c->sections.end(), section) ==
                       c->sections.end()) {
                     return;
                   }
                   JsError error = reset_error(
                       "A call to blockConcurrencyWhile() in a Durable Object waited for too long. "
                       "The call was canceled and the Durable Object was reset.");
                   reset(*c, error);
                 });
  return section;
}

void IsolateHost::close_section(Cell& cell, uint32_t section) {
  std::erase(cell.sections, section);
  if (cell.sections.empty()) pump(cell);
}

void IsolateHost::abort_cell(Cell& cell, v8::Local<v8::Value> reason, std::string packed) {
  JsError error = to_js_error(reason);
  error.packed = std::move(packed);
  error.flags |= kObjectReset;
  aborts_.emplace_back(&cell, std::move(error));
  // The turn goes on with an exception; what it still writes is undone at its end. Terminating would
  // drop the microtasks of other cells too.
  isolate_->ThrowException(reason);
}

}  // namespace celld::js
