// An HTTP/1.1 server inside an event loop.
//
// Everything here runs on the one thread that runs the io_context: the handler, every callback and
// every call. No callback runs inside the call that registered it. The io_context outlives the
// server and all its exchanges. Another thread may take the place of that one (resume()).
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/blob.h"
#include "base/result.h"
#include "net/http_message.h"

namespace celld {

namespace http_detail {
class Connection;
struct ServerCore;
}  // namespace http_detail

// A connection taken away from the server: the caller owns `fd` (non-blocking, TCP_NODELAY).
struct TakenSocket {
  int fd = -1;
  std::string unread;  // what the client sent after the request
};

// One request and its response.
//
// An exchange that is dropped before its response has started answers 500; dropped in the middle of
// its response it resets the connection. When the client is gone every call is still allowed: reads
// and writes fail with kCancelled, the rest does nothing.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<http_detail::ServerCore> core,
               std::shared_ptr<http_detail::Connection> connection, RequestHead head);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const RequestHead& head() const { return head_; }

  // Pulls the next piece of the request body; an empty blob is its end, and so is every later one.
  // At most one read may be outstanding. Unless a read is outstanding at most 16 KiB of the body
  // are taken from the socket. Answers "Expect: 100-continue" on the first call.
  //
  //   kCancelled   the client left, or the response ended first
  //   kInvalid     the body is malformed; 400 is answered unless a response has started
  //   kOverloaded  the body exceeds HttpLimits::body_bytes_max; likewise 413
  //   kDeadline    nothing arrived for HttpLimits::body_timeout; likewise 408
  void read_body(std::move_only_function<void(Result<Blob>)> done);

  // The whole response. `reason` may be empty; `header_block` is as in RequestHead. Framing
  // (content-length, transfer-encoding, connection) and date are the server's; of the block only
  // "connection: close" counts, and content-length where the response has no body (HEAD, 304).
  // `status` is 200 to 999. Call once, instead of start_response.
  void respond(int status, std::string_view reason, std::string_view header_block, Blob body);

  // A response in pieces. With `content_length` exactly that many bytes must follow: finish() with
  // fewer resets the connection, more are cut off. Without it the body is chunked. The head leaves
  // with the first piece, or at the end of this turn of the loop.
  void start_response(int status, std::string_view reason, std::string_view header_block,
                      std::optional<uint64_t> content_length);
  // At most one write may be outstanding. `done` runs when the kernel has taken the bytes.
  void write_body(Blob chunk, std::move_only_function<void(Result<void>)> done);
  // Ends the response; also while a write is outstanding.
  void finish();
  // Resets the connection, so that a truncated body cannot be taken for a whole one.
  void abort();

  // Runs once if the client closes its side or the connection breaks before the response has
  // ended. A client that only closed its sending side can still read the response.
  void on_disconnect(std::move_only_function<void()> callback);
  // Runs once if the connection has ended before the response: nobody can read it any more. Each
  // call adds a callback.
  void on_gone(std::move_only_function<void()> callback);

  // Takes the socket away, before any response has started and with no body left to read.
  void take_over(std::move_only_function<void(Result<TakenSocket>)> done);

 private:
  friend class http_detail::Connection;

  const std::shared_ptr<http_detail::ServerCore> core_;
  RequestHead head_;
  bool client_left_ = false;
  bool gone_ = false;
  std::shared_ptr<http_detail::Connection> connection_;  // null when the exchange is over
};

class HttpServer {
 public:
  using Handler = std::move_only_function<void(std::shared_ptr<HttpExchange>)>;

  HttpServer(boost::asio::io_context& io, HttpLimits limits, Handler handler);
  // Resets what is still open.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves the connected stream socket `fd`, which becomes the server's. On the loop's thread.
  void adopt(int fd);

  // Idle connections are closed, busy ones after their response, which says so. `empty` runs when
  // none is left. Sockets adopted afterwards are closed at once. Call once.
  void stop(std::move_only_function<void()> empty);

  // A call of the handler will never return, since its thread was given up; this thread goes on in its
  // place. The exchange of that call is as good as any other.
  void resume();

  size_t open_connections() const;

 private:
  std::shared_ptr<http_detail::ServerCore> core_;
};

}  // namespace celld
