// What travels between isolates, loops and the network: plain data, no V8.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/blob.h"
#include "base/ids.h"

namespace celld::js {

class Pipe;

// Error flags, as in js/native.d.ts.
inline constexpr uint32_t kRetryable = 1;
inline constexpr uint32_t kOverloaded = 2;
inline constexpr uint32_t kRemote = 4;
inline constexpr uint32_t kObjectReset = 8;

// An Error as JavaScript sees it, on its way between isolates.
struct JsError {
  std::string name = "Error";
  std::string message;
  std::string stack;
  uint32_t flags = 0;
};

template <class T>
using Outcome = std::expected<T, JsError>;
template <class T>
using Reply = std::move_only_function<void(Outcome<T>)>;

inline std::unexpected<JsError> js_fail(std::string message, uint32_t flags = 0,
                                        std::string name = "Error") {
  return std::unexpected(JsError{std::move(name), std::move(message), {}, flags});
}

// No body, bytes, or a stream.
using Body = std::variant<std::monostate, Blob, std::shared_ptr<Pipe>>;

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

struct CellFetch {
  HttpRequestMessage request;
  Reply<HttpResponseMessage> reply;
};
struct CellRpc {
  std::string method;
  Blob arguments;
  Reply<Blob> reply;
};
struct CellAlarm {
  uint32_t retry_count = 0;
  WallMs scheduled;
  // true: the handler ran to its end; the commit that consumed the alarm is proven.
  Reply<bool> reply;
};
using CellEvent = std::variant<CellFetch, CellRpc, CellAlarm>;

// Ends an event that cannot run with an error.
void fail_event(CellEvent& event, const JsError& error);

}  // namespace celld::js
