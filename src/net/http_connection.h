// One connection of an HttpServer: reads requests one after the other, writes their responses.
// Internal to the server.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/http_parser.h"
#include "net/http_server.h"

namespace celld::http_detail {

inline constexpr const char* kClientLeft = "the client closed the connection";
// The text that Workers know.
inline constexpr const char* kBodyAfterResponse =
    "Can't read from request stream after response has been sent.";

// What the connections of one server share.
struct ServerCore : std::enable_shared_from_this<ServerCore> {
  ServerCore(boost::asio::io_context& io, HttpLimits limits, HttpServer::Handler handler);

  boost::asio::io_context& io;
  const HttpLimits limits;
  HttpServer::Handler handler;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  std::move_only_function<void()> on_empty;
  bool stopping = false;
  RequestHead spare_head;  // its strings keep their memory from one request to the next
  std::string scratch;     // a response head in the making; empty between calls

  void remove(Connection* connection);
  void arm_tick();
  // "date: ...\r\n", made once per second.
  std::string_view date_line();
  // Milliseconds on a monotonic clock, to within a few.
  static int64_t now_ms();

  // Everything is received here first, so an idle connection holds no buffer.
  static constexpr size_t kReceiveBytes = 64 << 10;
  std::unique_ptr<char[]> receive_buffer;

 private:
  boost::asio::steady_timer tick_;
  std::chrono::milliseconds tick_every_;
  bool tick_armed_ = false;
  int64_t date_second_ = -1;
  char date_[40];
  size_t date_size_ = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerCore& core, boost::asio::ip::tcp::socket socket, std::string peer_address);

  void start();
  size_t memory_bytes() const { return sizeof *this + in_.capacity() + out_head_.capacity(); }
  // Goes on after a handler that will never return.
  void resume();
  // Closes if idle, else arranges for "connection: close".
  void stop();
  // Acts on timeouts.
  void tick(int64_t now_ms);
  bool has_timed_out(int64_t now_ms);
  // Closes and tells whoever waits. With `reset`, the client sees an error instead of an end.
  void close(bool reset);

  // The calls of HttpExchange.
  void read_body(std::move_only_function<void(Result<Blob>)> done);
  void respond(int status, std::string_view reason, std::string_view block, Blob body);
  void start_response(int status, std::string_view reason, std::string_view block,
                      std::optional<uint64_t> content_length);
  void write_body(Blob chunk, std::move_only_function<void(Result<void>)> done);
  void finish();
  void abort();
  void on_disconnect(std::move_only_function<void()> callback);
  void on_gone(std::move_only_function<void()> callback);
  void take_over(std::move_only_function<void(Result<TakenSocket>)> done);
  void exchange_dropped();

 private:
  enum class State : uint8_t {
    kHead,    // waits for a request, or has part of one
    kBusy,    // a request is being answered
    kDrain,   // the response is out, the rest of the request body is read and dropped
    kLinger,  // nothing more is sent; what still arrives is dropped until the client closes
    kClosed,
  };
  enum class Framing : uint8_t { kNone, kLength, kChunked, kUntilClose };
  enum class Response : uint8_t { kNone, kStarted, kFinished };

  // Input.
  void arm_read();
  size_t read_room() const;
  void on_readable();
  void on_input(std::string_view fresh);
  void on_end_of_input();
  void process();
  bool step();
  // What parse said about the bytes at the front of the input.
  bool handle_head(ParseStatus status);
  void begin_exchange();
  Result<void> decode_body(std::string& out);
  void deliver_body();
  void fail_body(Error error, int status);
  std::string_view input() const { return std::string_view(in_).substr(in_used_); }
  void use_input(size_t bytes);
  void await_next_request();
  int64_t half_closed_deadline() const;

  // Output.
  void append_head(std::string& out, int status, std::string_view reason, std::string_view block,
                   Framing framing, std::optional<uint64_t> length);
  bool decide_keep_alive();
  void send_error(int status, std::string_view message);
  void flush();
  void arm_write();
  bool output_pending() const {
    return out_sent_ < out_head_.size() + out_body_.size() + out_tail_.size();
  }
  void response_complete();
  void begin_linger();
  void detach_exchange();
  void notify_disconnect();

  ServerCore& core_;
  std::shared_ptr<ServerCore> core_owner_;
  boost::asio::ip::tcp::socket socket_;
  const std::string peer_address_;

  State state_ = State::kHead;
  bool read_armed_ = false;
  bool write_armed_ = false;
  bool processing_ = false;
  bool end_of_input_ = false;
  bool head_started_ = false;  // a byte of the next request has arrived
  uint64_t requests_ = 0;
  int64_t deadline_ms_ = 0;  // of the present state, 0 = none
  int64_t linger_end_ms_ = 0;
  int64_t write_deadline_ms_ = 0;  // of the output, 0 = none
  int64_t half_closed_deadline_ms_ = 0;  // of the response to a client that sends no more, 0 = none

  std::string in_;  // received and not yet used, from in_used_ on
  size_t in_used_ = 0;
  RequestParser parser_;
  RequestHead next_head_;

  // The exchange.
  HttpExchange* exchange_ = nullptr;
  Response response_ = Response::kNone;
  bool keep_alive_ = true;
  bool head_request_ = false;
  bool http_1_0_ = false;
  bool continue_due_ = false;  // the client waits for "100 Continue"
  bool body_failed_ = false;
  bool disconnect_told_ = false;
  Framing body_framing_ = Framing::kNone;
  Framing response_framing_ = Framing::kNone;
  uint64_t body_left_ = 0;      // of a body with a length
  uint64_t body_seen_ = 0;      // decoded so far
  uint64_t dropped_ = 0;        // while draining or lingering
  uint64_t response_left_ = 0;  // of a response with a length
  ChunkedDecoder chunks_;
  std::move_only_function<void(Result<Blob>)> read_done_;
  std::move_only_function<void(Result<void>)> write_done_;
  std::move_only_function<void()> disconnected_;
  std::vector<std::move_only_function<void()>> gone_;
  std::move_only_function<void(Result<TakenSocket>)> taken_;

  bool body_done() const;

  // Output not yet taken by the kernel: head, body, tail, of which out_sent_ bytes have left.
  std::string out_head_;
  Blob out_body_;
  std::string out_tail_;
  size_t out_sent_ = 0;
  bool flush_posted_ = false;
};

}  // namespace celld::http_detail
