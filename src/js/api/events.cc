// Natives of events: answers, calls out, ids, time, gates, logging, async context.
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstring>

#include "base/check.h"
#include "js/isolate_internal.h"
#include "js/platform.h"
#include "js/tenure.h"

namespace celld::js {

namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

uint32_t u32(Args args, int i) {
  v8::Local<v8::Value> v = args[i];
  return v->IsNumber() ? static_cast<uint32_t>(v.As<v8::Number>()->Value()) : 0;
}
int32_t i32(Args args, int i) {
  v8::Local<v8::Value> v = args[i];
  return v->IsNumber() ? static_cast<int32_t>(v.As<v8::Number>()->Value()) : -1;
}
std::string text(Args args, int i) { return to_utf8(args.GetIsolate(), args[i]); }

// A string of Latin-1 characters as bytes.
std::string latin1_text(Args args, int i) {
  if (!args[i]->IsString()) return {};
  v8::Local<v8::String> s = args[i].As<v8::String>();
  std::string out(static_cast<size_t>(s->Length()), '\0');
  s->WriteOneByte(args.GetIsolate(), reinterpret_cast<uint8_t*>(out.data()), 0,
                  static_cast<int>(out.size()), v8::String::NO_NULL_TERMINATION);
  return out;
}

void install(Args args) { isolate_host(args.GetIsolate()).set_hooks(args[0].As<v8::Object>()); }

void respond(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  HttpResponseMessage m;
  m.status = i32(args, 1);
  m.status_text = latin1_text(args, 2);
  m.headers = latin1_text(args, 3);
  m.body = host.body_from_v8(args[4]);
  host.answer(u32(args, 0), Outcome<HttpResponseMessage>(std::move(m)));
}

void reply_bytes(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  auto bytes = bytes_of(args[1]);
  host.answer(u32(args, 0), Outcome<Blob>(Blob(std::string(
                                reinterpret_cast<const char*>(bytes.data()), bytes.size()))));
}

void done(Args args) { isolate_host(args.GetIsolate()).answer_done(u32(args, 0), true); }

void fail_io(Args args) {
  auto packed = bytes_of(args[2]);
  isolate_host(args.GetIsolate())
      .answer_error(u32(args, 0), args[1],
                    std::string(reinterpret_cast<const char*>(packed.data()), packed.size()));
}

void hold(Args args) {
  if (auto* e = isolate_host(args.GetIsolate()).event(u32(args, 0))) ++e->holds;
}

void release(Args args) { isolate_host(args.GetIsolate()).release(u32(args, 0)); }

void current_io(Args args) {
  args.GetReturnValue().Set(isolate_host(args.GetIsolate()).who().io);
}

void current_cell(Args args) {
  auto who = isolate_host(args.GetIsolate()).who();
  args.GetReturnValue().Set(who.cell ? who.cell->index : -1);
}

// --- async context ---

void context_get(Args args) {
  args.GetReturnValue().Set(isolate_host(args.GetIsolate()).context_map());
}

void call_in_frame(Args args, v8::Local<v8::Object> frame, v8::Local<v8::Function> fn,
                   v8::Local<v8::Value> self, std::span<v8::Local<v8::Value>> list,
                   v8::MaybeLocal<v8::Value>* result) {
  v8::Isolate* isolate = args.GetIsolate();
  v8::Local<v8::Context> context = isolate->GetCurrentContext();
  v8::Local<v8::Value> before = get_frame(isolate, context);
  set_frame(isolate, context, frame);
  {
    JavaScriptScope javascript;
    *result = fn->Call(context, self, static_cast<int>(list.size()), list.data());
  }
  set_frame(isolate, context, before);
}

void context_run(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  IsolateHost& host = isolate_host(isolate);
  std::vector<v8::Local<v8::Value>> list;
  if (args[3]->IsArray()) {
    v8::Local<v8::Array> array = args[3].As<v8::Array>();
    for (uint32_t i = 0; i < array->Length(); ++i) {
      v8::Local<v8::Value> v;
      if (!array->Get(isolate->GetCurrentContext(), i).ToLocal(&v)) return;
      list.push_back(v);
    }
  }
  v8::MaybeLocal<v8::Value> result;
  call_in_frame(args, host.derive_frame(std::nullopt, args[0]), args[1].As<v8::Function>(), args[2],
                list, &result);
  v8::Local<v8::Value> value;
  if (result.ToLocal(&value)) args.GetReturnValue().Set(value);
}

// --- calls ---

// What a message counts for while its call lasts.
size_t bytes_of_body(v8::Local<v8::Value> body) {
  if (body->IsString()) return static_cast<size_t>(body.As<v8::String>()->Length());
  return bytes_of(body).size();
}

// Sends a message of a cell, or of a stateless event, behind the gate. A cell's caller may have
// given up meanwhile: then nothing is sent.
template <class Send>
void send_gated(IsolateHost& host, uint32_t call, Send send) {
  Cell* cell = host.who().cell;
  host.add_effect(cell, [&host, alive = host.alive(), call, gated = cell != nullptr,
                         send = std::move(send)](const JsError* failed) mutable {
    if (!*alive || (gated && !host.waits_for(call))) return;
    if (failed) return host.post_error(call, *failed);
    send(host);
  });
}

void fetch(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  size_t bytes = bytes_of_body(args[4]);
  if (!host.may_begin(bytes)) return;
  uint32_t call = u32(args, 0);
  HttpRequestMessage m;
  m.method = latin1_text(args, 1);
  m.url = text(args, 2);
  m.headers = latin1_text(args, 3);
  m.body = host.body_from_v8(args[4]);
  auto handle = std::make_shared<uint64_t>(0);
  auto cancel = [&services = host.services(), handle] {
    if (*handle) services.cancel_fetch(*handle);
  };
  host.begin_call(call, std::move(cancel), bytes);
  send_gated(host, call, [call, handle, m = std::move(m)](IsolateHost& h) mutable {
    *handle = h.services().fetch(std::move(m), h.head_reply(call));
  });
}

std::optional<CellAddress> address(Args args, IsolateHost& host) {
  uint32_t ns = u32(args, 1);
  if (ns >= host.code().namespaces.size()) {
    throw_error(args.GetIsolate(), "TypeError", "unknown Durable Object namespace");
    return std::nullopt;
  }
  CellAddress to{CellId(host.code().namespaces[ns].class_name + ":" + text(args, 2)), std::nullopt};
  if (args[3]->IsString()) to.name = text(args, 3);
  return to;
}

void stub_fetch(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  size_t bytes = bytes_of_body(args[7]);
  if (!host.may_begin(bytes)) return;
  uint32_t call = u32(args, 0);
  auto to = address(args, host);
  if (!to) return;
  CellFetch event;
  event.request.method = latin1_text(args, 4);
  event.request.url = text(args, 5);
  event.request.headers = latin1_text(args, 6);
  event.request.body = host.body_from_v8(args[7]);
  event.caller = std::make_shared<CallerLink>();
  event.reply = host.head_reply(call);
  host.begin_call(call, [caller = event.caller] { caller->hang_up(); }, bytes);
  send_gated(host, call, [to = std::move(*to), event = std::move(event)](IsolateHost& h) mutable {
    h.services().call_cell(std::move(to), std::move(event));
  });
}

void stub_rpc(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  auto arguments = bytes_of(args[5]);
  if (!host.may_begin(arguments.size())) return;
  uint32_t call = u32(args, 0);
  auto to = address(args, host);
  if (!to) return;
  CellRpc event;
  event.method = text(args, 4);
  event.arguments =
      Blob(std::string(reinterpret_cast<const char*>(arguments.data()), arguments.size()));
  event.caller = std::make_shared<CallerLink>();
  event.reply = host.bytes_reply(call);
  host.begin_call(call, [caller = event.caller] { caller->hang_up(); }, arguments.size());
  send_gated(host, call, [to = std::move(*to), event = std::move(event)](IsolateHost& h) mutable {
    h.services().call_cell(std::move(to), std::move(event));
  });
}

void cancel_call(Args args) { isolate_host(args.GetIsolate()).end_cancelled_call(u32(args, 0)); }

// --- ids: 16 bytes that say which object, 16 that prove the namespace ---

using Half = std::array<uint8_t, 16>;

Half keyed_half(const NamespaceSpec& ns, std::string_view kind, std::span<const uint8_t> data) {
  std::string message(kind);
  message.append(reinterpret_cast<const char*>(data.data()), data.size());
  uint8_t digest[32];
  unsigned length = 0;
  HMAC(EVP_sha256(), ns.key.data(), static_cast<int>(ns.key.size()),
       reinterpret_cast<const uint8_t*>(message.data()), message.size(), digest, &length);
  CHECK(length == 32);
  Half half;
  std::memcpy(half.data(), digest, half.size());
  return half;
}

std::string id_of(const NamespaceSpec& ns, const Half& base) {
  Half proof = keyed_half(ns, "id:", base);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(64);
  auto append = [&](const Half& half) {
    for (uint8_t b : half) {
      hex += kDigits[b >> 4];
      hex += kDigits[b & 15];
    }
  };
  append(base);
  append(proof);
  return hex;
}

const NamespaceSpec* namespace_at(Args args, int i) {
  const auto& all = isolate_host(args.GetIsolate()).code().namespaces;
  uint32_t ns = u32(args, i);
  return ns < all.size() ? &all[ns] : nullptr;
}

void id_from_name(Args args) {
  const NamespaceSpec* ns = namespace_at(args, 0);
  if (!ns) return;
  std::string name = text(args, 1);
  Half base = keyed_half(*ns, "name:", {reinterpret_cast<const uint8_t*>(name.data()), name.size()});
  base[0] &= 0x7f;  // the top bit tells a unique id from a named one
  args.GetReturnValue().Set(to_v8(args.GetIsolate(), id_of(*ns, base)));
}

void id_unique(Args args) {
  const NamespaceSpec* ns = namespace_at(args, 0);
  if (!ns) return;
  Half base;
  CHECK(RAND_bytes(base.data(), base.size()) == 1);
  base[0] |= 0x80;
  args.GetReturnValue().Set(to_v8(args.GetIsolate(), id_of(*ns, base)));
}

void id_valid(Args args) {
  const NamespaceSpec* ns = namespace_at(args, 0);
  std::string id = text(args, 1);
  bool valid = ns && id.size() == 64;
  Half base{};
  for (size_t i = 0; valid && i < 64; ++i) {
    char c = id[i];
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    valid = digit >= 0;
    if (valid && i < 32) base[i / 2] = static_cast<uint8_t>(base[i / 2] << 4 | digit);
  }
  args.GetReturnValue().Set(valid && id_of(*ns, base) == id);
}

// --- time ---

void set_timer(Args args) {
  double ms = args[0]->IsNumber() ? args[0].As<v8::Number>()->Value() : 0;
  args.GetReturnValue().Set(isolate_host(args.GetIsolate()).set_timer(ms, args[1]->IsTrue()));
}

void clear_timer(Args args) { isolate_host(args.GetIsolate()).clear_timer(u32(args, 0)); }

void performance_now(Args args) { args.GetReturnValue().Set(javascript_performance_now()); }

// --- gates ---

void gate_run(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  IsolateHost& host = isolate_host(isolate);
  Cell* cell = host.cell(i32(args, 0));
  if (!cell) return throw_error(isolate, "Error", "The Durable Object has been reset.");
  uint32_t section = host.open_section(*cell);
  v8::MaybeLocal<v8::Value> result;
  call_in_frame(args, host.derive_frame(section, {}), args[1].As<v8::Function>(),
                v8::Undefined(isolate), {}, &result);
  v8::Local<v8::Value> value;
  if (!result.ToLocal(&value)) {
    host.close_section(*cell, section);
    return;
  }
  v8::Local<v8::Value> pair[] = {v8::Integer::NewFromUnsigned(isolate, section), value};
  args.GetReturnValue().Set(v8::Array::New(isolate, pair, 2));
}

void gate_busy(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  Cell* cell = host.cell(i32(args, 0));
  args.GetReturnValue().Set(cell && !cell->admits(host.who().section));
}

void gate_end(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  if (Cell* cell = host.cell(i32(args, 0))) host.close_section(*cell, u32(args, 1));
}

void abort_cell(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  auto packed = bytes_of(args[2]);
  if (Cell* cell = host.cell(i32(args, 0))) {
    host.abort_cell(*cell, args[1],
                    std::string(reinterpret_cast<const char*>(packed.data()), packed.size()));
  }
}

// --- diagnostics ---

void log(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  std::string level = text(args, 0);
  LogLevel l = level == "debug"  ? LogLevel::kDebug
               : level == "info" ? LogLevel::kInfo
               : level == "warn" ? LogLevel::kWarn
               : level == "error" ? LogLevel::kError
                                  : LogLevel::kLog;
  host.services().log(l, host.log_text(text(args, 1)));
}

void report_error(Args args) {
  IsolateHost& host = isolate_host(args.GetIsolate());
  host.services().log(LogLevel::kError, "Uncaught " + host.describe_thrown(args[0]));
}

constexpr NativeFunction kTable[] = {
    {"install", install},
    {"respond", respond},
    {"replyBytes", reply_bytes},
    {"done", done},
    {"fail", fail_io},
    {"hold", hold},
    {"release", release},
    {"currentIo", current_io},
    {"currentCell", current_cell},
    {"contextGet", context_get},
    {"contextRun", context_run},
    {"fetch", fetch},
    {"stubFetch", stub_fetch},
    {"stubRpc", stub_rpc},
    {"cancelCall", cancel_call},
    {"idFromName", id_from_name},
    {"idUnique", id_unique},
    {"idValid", id_valid},
    {"setTimer", set_timer},
    {"clearTimer", clear_timer},
    {"performanceNow", performance_now},
    {"gateRun", gate_run},
    {"gateBusy", gate_busy},
    {"gateEnd", gate_end},
    {"abortCell", abort_cell},
    {"log", log},
    {"reportError", report_error},
};

}  // namespace

std::span<const NativeFunction> event_natives() { return kTable; }

}  // namespace celld::js
