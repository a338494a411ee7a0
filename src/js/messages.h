// What travels between isolates, loops and the network: plain data, no V8.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/blob.h"
#include "base/ids.h"
#include "world/world.h"

namespace celld::js {

class CallerLink;
class Pipe;

// Error flags, as in js/native.d.ts.
inline constexpr uint32_t kRetryable = 1;
inline constexpr uint32_t kOverloaded = 2;
inline constexpr uint32_t kRemote = 4;
inline constexpr uint32_t kObjectReset = 8;
inline constexpr uint32_t kUnconfirmed = 16;  // a write may or may not have been stored
// JavaScript does not see these.
inline constexpr uint32_t kNotBegun = 32;   // nothing of the event has run
inline constexpr uint32_t kElsewhere = 64;  // and it should be sent to wherever the object lives now

// An Error as JavaScript sees it, on its way between isolates.
struct JsError {
  std::string name = "Error";
  std::string message;
  std::string stack;
  uint32_t flags = 0;
  std::string packed;  // the thrown value in full, as the prelude wrote it; empty: what is above
};

template <class T>
using Outcome = std::expected<T, JsError>;
template <class T>
using Reply = std::move_only_function<void(Outcome<T>)>;

inline std::unexpected<JsError> js_fail(std::string message, uint32_t flags = 0,
                                        std::string name = "Error") {
  return std::unexpected(JsError{std::move(name), std::move(message), {}, flags});
}

// The reading end of a Pipe. Dropped before the end of the stream, it tells the writer.
class PipeReader {
 public:
  PipeReader() = default;
  explicit PipeReader(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  PipeReader(PipeReader&& other) noexcept : pipe_(std::move(other.pipe_)) {}
  PipeReader& operator=(PipeReader&& other) noexcept;
  ~PipeReader() { reset(); }

  explicit operator bool() const { return pipe_ != nullptr; }
  Pipe* operator->() const { return pipe_.get(); }
  // For callbacks that outlive a move of the end; whoever holds only this reads nothing for long.
  const std::shared_ptr<Pipe>& pipe() const { return pipe_; }
  void reset();

 private:
  std::shared_ptr<Pipe> pipe_;
};

// No body, bytes, or a stream.
using Body = std::variant<std::monostate, Blob, PipeReader>;

// Header blocks are "name\nvalue\n..." with names in lower case, Latin-1.
struct HttpRequestMessage {
  std::string method;
  std::string url;
  std::string headers;
  Body body;
  std::string cf;  // JSON, or empty
};

struct HttpResponseMessage {
  int status = 0;
  std::string status_text;
  std::string headers;
  Body body;
};

// The object a call goes to.
struct CellAddress {
  CellId cell;
  std::optional<std::string> name;  // what the id was made from, where the caller knows it
};

// How an event came here, when nodes pass it on.
struct Journey {
  bool from_peer = false;  // so it is not passed on
  uint8_t sent = 0;        // how often to other nodes
  NodeId refused_by;       // where it did not begin
  std::optional<MonoTime> until;  // it waits for a node that is to be reached
};

struct CellFetch {
  HttpRequestMessage request;
  Reply<HttpResponseMessage> reply;
  std::shared_ptr<CallerLink> caller = nullptr;  // null: it waits for ever
  Journey journey = {};
};
struct CellRpc {
  std::string method;
  Blob arguments;
  Reply<Blob> reply;
  std::shared_ptr<CallerLink> caller = nullptr;
  Journey journey = {};
};
struct CellAlarm {
  uint32_t retry_count = 0;
  WallMs scheduled;
  // true: the handler ran to its end; the commit that consumed the alarm is proven.
  Reply<bool> reply;
};
using CellEvent = std::variant<CellFetch, CellRpc, CellAlarm>;

// Of an event that may travel; null for an alarm.
Journey* journey_of(CellEvent& event);

// Ends an event that cannot run with an error.
void fail_event(CellEvent& event, const JsError& error);

}  // namespace celld::js
