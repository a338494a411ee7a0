// Outgoing HTTP with streamed bodies: what a Worker's fetch() stands on.
//
// Everything runs on the thread of the io_context, which outlives the client. No callback runs
// inside start(), pause(), resume() or cancel().
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/blob.h"
#include "base/result.h"

namespace celld {

struct FetchRequest {
  std::string method;        // a token, sent as it stands
  std::string url;           // absolute, http or https; the path is sent byte for byte
  std::string header_block;  // "name\nvalue\n..."; content-length and transfer-encoding are dropped

  // The request body: none, whole or pulled. A whole one may be sent again by the caller.
  std::optional<Blob> body;
  // Called for one piece at a time; `done` gets the piece, an empty one at the end, or an error,
  // which ends the call with it.
  using Pull = std::move_only_function<void(std::move_only_function<void(Result<Blob>)> done)>;
  Pull pull;
  std::optional<uint64_t> pull_bytes;  // how much will be pulled; without it the body is chunked

  // The server tells a repetition apart, so the request may be sent again when a kept connection turns out
  // to be dead. GET and HEAD without a body are repeatable in any case.
  bool repeatable = false;

  // Asks for "br, gzip" unless the header block has its own accept-encoding, and undoes gzip,
  // deflate and br. The head is told as it came.
  bool decompress = true;
};

// All optional. After on_end nothing more is called.
struct FetchHandlers {
  std::move_only_function<void(int status, std::string status_text, std::string header_block)>
      on_head;
  // The next piece, at most 256 KiB, never empty.
  std::move_only_function<void(Blob)> on_body;
  // A call without a complete reply ends with kUnavailable, kDeadline (connecting), kInvalid
  // (malformed request or compressed data), or the error of the pull. `retry` of the first two is kNow
  // exactly when nothing of the request was sent.
  std::move_only_function<void(Result<void>)> on_end;
};

class FetchCall {
 public:
  virtual ~FetchCall() = default;
  // No on_body and no on_end until resume(). At most about 512 KiB are then received and kept; the
  // server is held back.
  virtual void pause() = 0;
  virtual void resume() = 0;
  // Breaks the call off; nothing more is called, and the pull is not called again.
  virtual void cancel() = 0;
};

struct FetchOptions {
  long connections_per_host_max = 256;  // further calls wait
  bool proxy_from_environment = false;
  bool http2 = false;  // offered with TLS
};

// One connection pool. Redirects are not followed; a 3xx is a reply like any other.
class FetchClient {
 public:
  explicit FetchClient(boost::asio::io_context& io, FetchOptions options = {});
  // Calls still running end with kCancelled.
  ~FetchClient();
  FetchClient(const FetchClient&) = delete;
  FetchClient& operator=(const FetchClient&) = delete;

  // The call runs on when the handle is dropped, unless it is paused for ever.
  std::shared_ptr<FetchCall> start(FetchRequest request, FetchHandlers handlers);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace celld
