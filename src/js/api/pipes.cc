// Natives of byte streams between JavaScript and the host.
#include "js/isolate_internal.h"

namespace celld::js {

namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

uint32_t u32(Args args, int i) {
  v8::Local<v8::Value> v = args[i];
  return v->IsNumber() ? static_cast<uint32_t>(v.As<v8::Number>()->Value()) : 0;
}

void pipe_create(Args args) {
  if (!isolate_host(args.GetIsolate()).may_begin(0)) return;
  double length = args[0]->IsNumber() ? args[0].As<v8::Number>()->Value() : -1;
  std::optional<uint64_t> known;
  if (length >= 0) known = static_cast<uint64_t>(length);
  args.GetReturnValue().Set(isolate_host(args.GetIsolate()).create_pipe(known));
}

// What JavaScript is told when it writes to a pipe whose other end is gone.
void throw_reader_gone(v8::Isolate* isolate) {
  throw_error(isolate, "Error", "The stream's reader has gone away: the connection was closed.");
}

void pipe_write(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  IsolateHost& host = isolate_host(isolate);
  uint32_t id = u32(args, 0);
  uint32_t call = u32(args, 2);
  IsolateHost::Writer* writer = host.writer(id);
  if (!writer) return throw_reader_gone(isolate);
  // Behind the gate of the cell whose code runs, and of no other: the chunks stay in order.
  IsolateHost::Who caller = host.who();
  if (caller.index >= 0 && caller.index != writer->cell) {
    return throw_error(isolate, "Error",
                       "Cannot perform I/O on behalf of a different Durable Object.");
  }
  Cell* cell = host.cell(writer->cell);
  std::shared_ptr<Pipe> pipe = writer->pipe.pipe();
  Body body = host.body_from_v8(args[1]->IsNumber() ? v8::Null(isolate).As<v8::Value>() : args[1]);
  Blob chunk = std::holds_alternative<Blob>(body) ? std::get<Blob>(body) : Blob();
  if (!cell) {
    switch (pipe->write(std::move(chunk))) {
      case Pipe::Write::kRoom: args.GetReturnValue().Set(true); return;
      case Pipe::Write::kFull: break;
      case Pipe::Write::kReaderGone: return throw_reader_gone(isolate);
      case Pipe::Write::kTooLong:
        return throw_error(isolate, "TypeError",
                           "Attempt to write too many bytes through a FixedLengthStream.");
    }
    host.begin_call(call);
    host.complete_when_room(std::move(pipe), call);
    args.GetReturnValue().Set(false);
    return;
  }
  // A chunk may tell of an unproven commit: it waits behind the gate of its cell. The next one is
  // asked for when this one has gone into a pipe with room.
  host.begin_call(call);
  host.add_effect(cell, [&host, alive = host.alive(), call, pipe = std::move(pipe), chunk = std::move(chunk)](
                            const JsError* failed) mutable {
    if (failed) pipe->abort(*failed);
    Pipe::Write written = failed ? Pipe::Write::kReaderGone : pipe->write(std::move(chunk));
    if (!*alive) return;
    if (failed) return host.post_error(call, *failed);
    switch (written) {
      case Pipe::Write::kReaderGone:
        return host.post_error(
            call, JsError{"Error", "The stream's reader has gone away: the connection was closed.", {}, 0});
      case Pipe::Write::kTooLong:
        return host.post_error(
            call, JsError{"TypeError", "Attempt to write too many bytes through a FixedLengthStream.",
                          {}, 0});
      default: host.complete_when_room(pipe, call);
    }
  });
  args.GetReturnValue().Set(false);
}

// The cell that wrote the stream, which ends behind the gate like its chunks.
Cell* cell_of_writer(IsolateHost& host, uint32_t id) {
  IsolateHost::Writer* writer = host.writer(id);
  return writer ? host.cell(writer->cell) : nullptr;
}

void pipe_close(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  Cell* cell = cell_of_writer(host, u32(args, 0));
  PipeWriter writer = host.take_writer(u32(args, 0));
  if (!writer) return;
  host.add_effect(cell, [writer = std::move(writer)](const JsError* failed) {
    if (failed) {
      writer->abort(*failed);
    } else {
      writer->close();
    }
  });
}

void pipe_abort(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  JsError error = host.to_js_error(args[1]);
  Cell* cell = cell_of_writer(host, u32(args, 0));
  PipeWriter writer = host.take_writer(u32(args, 0));
  if (!writer) return;
  host.add_effect(cell, [writer = std::move(writer), error = std::move(error)](const JsError* failed) {
    writer->abort(failed ? *failed : error);
  });
}

void pipe_read(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  IsolateHost& host = isolate_host(isolate);
  uint32_t id = u32(args, 0);
  uint32_t call = u32(args, 1);
  auto pipe = host.reader(id);
  if (!pipe) {
    args.GetReturnValue().SetNull();
    return;
  }
  Pipe::Read r = pipe->read();
  switch (r.state) {
    case Pipe::Read::State::kData:
      args.GetReturnValue().Set(to_uint8array(isolate, r.data.view()));
      return;
    case Pipe::Read::State::kEnd:
      host.take_reader(id);
      args.GetReturnValue().SetNull();
      return;
    case Pipe::Read::State::kError:
      host.take_reader(id);
      isolate->ThrowException(host.make_error(r.error.name, r.error.message, r.error.flags));
      return;
    case Pipe::Read::State::kPending:
      host.begin_call(call);
      host.complete_when_readable(id, std::move(pipe), call);
      return;
  }
}

void pipe_cancel(Args args) {
  isolate_host(args.GetIsolate()).take_reader(u32(args, 0)).reset();
}

void pipe_tee(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  IsolateHost& host = isolate_host(isolate);
  PipeReader reader = host.take_reader(u32(args, 0));
  if (!reader) return throw_error(isolate, "TypeError", "the stream has already been read");
  auto [a, b] = tee(std::move(reader));
  uint32_t io = host.stateless_io();
  v8::Local<v8::Value> pair[] = {v8::Integer::NewFromUnsigned(isolate, host.add_reader(std::move(a), io)),
                                 v8::Integer::NewFromUnsigned(isolate, host.add_reader(std::move(b), io))};
  args.GetReturnValue().Set(v8::Array::New(isolate, pair, 2));
}

void pipe_own(Args args) {
  v8::MaybeLocal<v8::Object> holder;
  if (args[1]->IsObject()) holder = args[1].As<v8::Object>();
  isolate_host(args.GetIsolate()).own_reader(u32(args, 0), holder);
}

void pipe_length(Args args) {
  auto pipe = isolate_host(args.GetIsolate()).reader(u32(args, 0));
  double length = pipe && pipe->length() ? static_cast<double>(*pipe->length()) : -1;
  args.GetReturnValue().Set(length);
}

constexpr NativeFunction kTable[] = {
    {"pipeCreate", pipe_create}, {"pipeWrite", pipe_write},   {"pipeClose", pipe_close},
    {"pipeAbort", pipe_abort},   {"pipeRead", pipe_read},     {"pipeCancel", pipe_cancel},
    {"pipeTee", pipe_tee},       {"pipeLength", pipe_length}, {"pipeOwn", pipe_own},
};

}  // namespace

std::span<const NativeFunction> pipe_natives() { return kTable; }

// --- completions that wait for a pipe ---

void IsolateHost::complete_when_room(std::shared_ptr<Pipe> pipe, uint32_t call) {
  pipe->on_room([this, call, alive = alive_, &world = world_] {
    world.post_from_any_thread([this, call, alive] {
      if (!*alive) return;
      complete_value(call, [](v8::Isolate* i) { return v8::Undefined(i).As<v8::Value>(); });
    });
  });
}

void IsolateHost::complete_when_readable(uint32_t id, std::shared_ptr<Pipe> pipe, uint32_t call) {
  Pipe& p = *pipe;
  p.on_readable([this, id, call, pipe = std::move(pipe), alive = alive_, &world = world_] {
    world.post_from_any_thread([this, id, call, pipe, alive] {
      if (!*alive || !calls_.contains(call)) return;
      Pipe::Read r = pipe->read();
      switch (r.state) {
        case Pipe::Read::State::kPending: complete_when_readable(id, pipe, call); return;
        case Pipe::Read::State::kError:
          take_reader(id);
          complete_error(call, r.error);
          return;
        case Pipe::Read::State::kEnd:
          take_reader(id);
          complete_value(call, [](v8::Isolate* i) { return v8::Null(i).As<v8::Value>(); });
          return;
        case Pipe::Read::State::kData:
          complete_value(call, [data = std::move(r.data)](v8::Isolate* i) {
            return to_uint8array(i, data.view()).As<v8::Value>();
          });
          return;
      }
    });
  });
}

}  // namespace celld::js
