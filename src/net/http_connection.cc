#include "net/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace celld::http_detail {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr size_t kReadAheadBytes = 16 << 10;  // of what nobody has asked for yet
constexpr size_t kKeptCapacityBytes = 4 << 10;
static_assert(kReadAheadBytes <= ServerCore::kReceiveBytes);
constexpr int kRequestsPerTurn = 32;  // of pipelined ones, before others get their turn

}  // namespace

Connection::Connection(ServerCore& core, tcp::socket socket, std::string peer_address)
    : core_(core),
      core_owner_(core.shared_from_this()),
      socket_(std::move(socket)),
      peer_address_(std::move(peer_address)),
      parser_(core.limits) {}

void Connection::start() {
  deadline_ms_ = ServerCore::now_ms() + core_.limits.head_timeout.count();
  arm_read();
}

void Connection::stop() {
  if (state_ != State::kHead) return;
  on_readable();  // a request that is already here is still answered
  if (state_ != State::kHead) return;
  if (!head_started_) return close(false);
  deadline_ms_ = std::min(deadline_ms_, ServerCore::now_ms() + core_.limits.linger_timeout.count());
}

void Connection::close(bool reset) {
  if (state_ == State::kClosed) return;
  auto self = shared_from_this();
  state_ = State::kClosed;
  if (reset && socket_.is_open()) {
    linger immediately{1, 0};
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &immediately, sizeof immediately);
  }
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (write_done_) {
    asio::post(core_.io, [done = std::move(write_done_)]() mutable {
      done(fail(Error::cancelled(kClientLeft)));
    });
    write_done_ = nullptr;
  }
  notify_disconnect();
  if (exchange_) exchange_->gone_ = true;
  for (auto& gone : std::exchange(gone_, {})) asio::post(core_.io, std::move(gone));
  detach_exchange();
  core_.remove(this);
}

bool Connection::has_timed_out(int64_t now) {
  if (deadline_ms_ != 0 && now >= deadline_ms_) return true;
  if (write_deadline_ms_ != 0 && now >= write_deadline_ms_) return true;
  if (half_closed_deadline_ms_ != 0 && now >= half_closed_deadline_ms_) return true;
  // With the read-ahead full nothing watches the socket: tick() looks.
  return state_ == State::kBusy && !read_armed_ && !end_of_input_ && !disconnect_told_;
}

void Connection::tick(int64_t now) {
  if (state_ == State::kClosed) return;
  if (write_deadline_ms_ != 0 && now >= write_deadline_ms_) return close(true);
  if (half_closed_deadline_ms_ != 0 && now >= half_closed_deadline_ms_) return close(true);
  if (deadline_ms_ != 0 && now >= deadline_ms_) {
    deadline_ms_ = 0;
    switch (state_) {
      case State::kHead:
        if (!head_started_) return close(false);
        return send_error(408, "the request head did not arrive in time");
      case State::kBusy:
        return fail_body(Error::deadline("the request body did not arrive in time"), 408);
      case State::kDrain:
      case State::kLinger:
        return close(false);
      case State::kClosed:
        return;
    }
  }
  if (state_ == State::kBusy && !read_armed_ && !end_of_input_) {
    pollfd watched{socket_.native_handle(), POLLRDHUP, 0};
    if (poll(&watched, 1, 0) == 1 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
      if (watched.revents & (POLLHUP | POLLERR)) return close(false);
      notify_disconnect();
    }
  }
}

// ---- input

size_t Connection::read_room() const {
  if (end_of_input_) return 0;
  size_t held = in_.size() - in_used_;
  switch (state_) {
    case State::kHead: {
      // One byte more than a head may have decides every parse.
      size_t enough = core_.limits.head_bytes_max + 1024;
      return std::min(ServerCore::kReceiveBytes, enough - std::min(enough, held));
    }
    case State::kBusy:
      if (read_done_ && held == 0) return ServerCore::kReceiveBytes;
      return kReadAheadBytes - std::min(kReadAheadBytes, held);
    case State::kDrain:
    case State::kLinger:
      return ServerCore::kReceiveBytes;
    case State::kClosed:
      return 0;
  }
  return 0;
}

void Connection::arm_read() {
  if (read_armed_ || read_room() == 0) return;
  read_armed_ = true;
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& ec) {
                       self->read_armed_ = false;
                       if (ec || self->state_ == State::kClosed) return;
                       self->on_readable();
                     });
}

void Connection::on_readable() {
  size_t room = read_room();
  if (room == 0) return;
  ssize_t n;
  do {
    n = recv(socket_.native_handle(), core_.receive_buffer.get(), room, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) return on_input(std::string_view(core_.receive_buffer.get(), static_cast<size_t>(n)));
  if (n == 0) {
    end_of_input_ = true;
    return on_end_of_input();
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) return arm_read();
  close(false);
}

void Connection::on_input(std::string_view fresh) {
  if (state_ == State::kHead && in_used_ == in_.size() && !processing_) {
    // The usual case: the whole request is in the shared buffer, nothing is copied.
    in_.clear();
    in_used_ = 0;
    processing_ = true;
    if (!head_started_) {
      head_started_ = true;
      next_head_ = std::exchange(core_.spare_head, {});
      next_head_.clear();
      parser_.reset(&next_head_);
      if (requests_ > 0) {
        deadline_ms_ = ServerCore::now_ms() + core_.limits.head_timeout.count();
      }
    }
    auto status = parser_.parse(fresh);
    in_.assign(status == ParseStatus::kDone ? fresh.substr(parser_.consumed()) : fresh);
    handle_head(status);
    processing_ = false;
  } else {
    if (in_used_ > 0) {
      in_.erase(0, in_used_);
      in_used_ = 0;
    }
    in_.append(fresh);
  }
  process();
}

void Connection::on_end_of_input() {
  switch (state_) {
    case State::kBusy:
      notify_disconnect();
      deliver_body();
      break;
    case State::kDrain:
    case State::kLinger:
      close(false);
      break;
    case State::kHead:
      process();
      break;
    case State::kClosed:
      break;
  }
}

void Connection::process() {
  if (processing_) return;
  processing_ = true;
  int budget = kRequestsPerTurn;
  while (step()) {
    if (--budget == 0) {
      asio::post(core_.io, [self = shared_from_this()] { self->process(); });
      break;
    }
  }
  processing_ = false;
  if (in_used_ == in_.size() && in_.capacity() > kKeptCapacityBytes) {
    in_ = std::string();
    in_used_ = 0;
  }
  arm_read();
}

void Connection::resume() {
  if (!processing_) return;
  processing_ = false;
  process();
}

bool Connection::step() {
  switch (state_) {
    case State::kHead: {
      if (input().empty()) {
        if (end_of_input_) close(false);
        return false;
      }
      if (!head_started_) {
        head_started_ = true;
        next_head_ = std::exchange(core_.spare_head, {});
        next_head_.clear();
        parser_.reset(&next_head_);
        deadline_ms_ = ServerCore::now_ms() + core_.limits.head_timeout.count();
      }
      auto status = parser_.parse(input());
      if (status == ParseStatus::kNeedMore && end_of_input_) {
        close(false);
        return false;
      }
      if (status == ParseStatus::kDone) use_input(parser_.consumed());
      return handle_head(status);
    }
    case State::kBusy:
      deliver_body();
      return false;
    case State::kDrain: {
      std::string dropped;
      auto decoded = decode_body(dropped);
      dropped_ += dropped.size();
      if (!decoded || dropped_ > core_.limits.drain_bytes_max) {
        begin_linger();
        return false;
      }
      if (!body_done()) return false;
      await_next_request();
      return true;
    }
    case State::kLinger:
      dropped_ += input().size();
      if (!input().empty() && !core_.stopping) {
        deadline_ms_ =
            std::min(linger_end_ms_, ServerCore::now_ms() + core_.limits.linger_timeout.count());
      }
      use_input(input().size());
      if (dropped_ > core_.limits.linger_bytes_max) close(false);
      return false;
    case State::kClosed:
      return false;
  }
  return false;
}

void Connection::use_input(size_t bytes) {
  in_used_ += bytes;
  if (in_used_ == in_.size()) {
    in_.clear();
    in_used_ = 0;
  }
}

bool Connection::handle_head(ParseStatus status) {
  switch (status) {
    case ParseStatus::kNeedMore:
      return false;
    case ParseStatus::kError:
      send_error(parser_.error_status(), parser_.error_message());
      return false;
    case ParseStatus::kDone:
      begin_exchange();
      return true;
  }
  return false;
}

void Connection::begin_exchange() {
  ++requests_;
  state_ = State::kBusy;
  deadline_ms_ = 0;
  half_closed_deadline_ms_ = end_of_input_ ? half_closed_deadline() : 0;
  response_ = Response::kNone;
  keep_alive_ = next_head_.keep_alive;
  head_request_ = next_head_.method == "HEAD";
  http_1_0_ = parser_.http_1_0();
  continue_due_ = parser_.expect_continue();
  body_failed_ = disconnect_told_ = false;
  body_framing_ = parser_.chunked()     ? Framing::kChunked
                  : next_head_.has_body ? Framing::kLength
                                        : Framing::kNone;
  body_left_ = next_head_.content_length.value_or(0);
  body_seen_ = 0;
  if (body_framing_ == Framing::kChunked) chunks_.reset();
  next_head_.peer_address = peer_address_;
  auto exchange =
      std::make_shared<HttpExchange>(core_owner_, shared_from_this(), std::move(next_head_));
  exchange_ = exchange.get();
  core_.handler(std::move(exchange));
}

int64_t Connection::half_closed_deadline() const {
  return ServerCore::now_ms() + core_.limits.half_closed_timeout.count();
}

void Connection::await_next_request() {
  state_ = State::kHead;
  head_started_ = false;
  deadline_ms_ = ServerCore::now_ms() + core_.limits.idle_timeout.count();
}

// ---- request body

bool Connection::body_done() const {
  switch (body_framing_) {
    case Framing::kLength:
      return body_left_ == 0;
    case Framing::kChunked:
      return chunks_.done();
    default:
      return true;
  }
}

// Appends to `out` what of the body the input holds.
Result<void> Connection::decode_body(std::string& out) {
  size_t before = out.size();
  if (body_framing_ == Framing::kLength) {
    size_t n = static_cast<size_t>(std::min<uint64_t>(body_left_, input().size()));
    if (before == 0 && in_used_ == 0 && n == in_.size()) {
      out = std::exchange(in_, {});
    } else {
      out.append(input().substr(0, n));
      use_input(n);
    }
    body_left_ -= n;
  } else if (body_framing_ == Framing::kChunked) {
    use_input(chunks_.decode(input(), out));
    if (chunks_.failed()) {
      return fail(
          Error::invalid("the chunked request body is malformed: " + std::string(chunks_.error())));
    }
  }
  body_seen_ += out.size() - before;
  if (body_seen_ > core_.limits.body_bytes_max) {
    return fail(Error::overloaded("the request body is larger than the limit of " +
                                  std::to_string(core_.limits.body_bytes_max) + " bytes"));
  }
  return {};
}

void Connection::read_body(std::move_only_function<void(Result<Blob>)> done) {
  CHECK(!read_done_) << "a read of the request body is already outstanding";
  read_done_ = std::move(done);
  if (continue_due_ && response_ == Response::kNone) {
    continue_due_ = false;
    out_head_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
    if (state_ != State::kBusy) return;
  }
  deliver_body();
  arm_read();
}

void Connection::deliver_body() {
  if (!read_done_) return;
  auto answer = [this](Result<Blob> piece) {
    deadline_ms_ = 0;
    asio::post(core_.io, [done = std::move(read_done_), piece = std::move(piece)]() mutable {
      done(std::move(piece));
    });
    read_done_ = nullptr;
  };
  if (body_failed_) return answer(fail(Error::invalid("the request body is malformed")));
  std::string piece;
  if (!body_done()) {
    if (auto decoded = decode_body(piece); !decoded) {
      int status = decoded.error().code == ErrorCode::kOverloaded ? 413 : 400;
      return fail_body(std::move(decoded).error(), status);
    }
  }
  if (!piece.empty() || body_done()) return answer(Blob(std::move(piece)));
  if (end_of_input_) {
    return answer(fail(Error::cancelled(kClientLeft)));
  }
  deadline_ms_ = ServerCore::now_ms() + core_.limits.body_timeout.count();
}

// Ends the body with an error, and the exchange too unless its response has started.
void Connection::fail_body(Error error, int status) {
  body_failed_ = true;
  keep_alive_ = false;
  std::string message = error.message;
  if (auto done = std::exchange(read_done_, nullptr)) {
    asio::post(core_.io, [done = std::move(done), error = std::move(error)]() mutable {
      done(fail(std::move(error)));
    });
  }
  if (response_ != Response::kNone) return;
  detach_exchange();
  send_error(status, message);
}

// ---- the end of an exchange

void Connection::notify_disconnect() {
  if (!exchange_ || disconnect_told_) return;
  disconnect_told_ = true;
  exchange_->client_left_ = true;
  if (half_closed_deadline_ms_ == 0) half_closed_deadline_ms_ = half_closed_deadline();
  if (disconnected_) asio::post(core_.io, std::exchange(disconnected_, nullptr));
}

void Connection::on_disconnect(std::move_only_function<void()> callback) {
  disconnected_ = std::move(callback);
  if (disconnect_told_) asio::post(core_.io, std::exchange(disconnected_, nullptr));
}

void Connection::on_gone(std::move_only_function<void()> callback) {
  gone_.push_back(std::move(callback));
}

void Connection::detach_exchange() {
  disconnected_ = nullptr;
  gone_.clear();
  half_closed_deadline_ms_ = 0;
  if (read_done_) {
    const char* why = state_ == State::kClosed ? kClientLeft : kBodyAfterResponse;
    asio::post(core_.io, [done = std::exchange(read_done_, nullptr), why]() mutable {
      done(fail(Error::cancelled(why)));
    });
  }
  if (exchange_) std::exchange(exchange_, nullptr)->connection_.reset();
}

void Connection::exchange_dropped() {
  exchange_ = nullptr;
  if (state_ != State::kBusy || response_ == Response::kFinished) return;
  if (response_ == Response::kStarted) return close(true);
  disconnected_ = nullptr;
  respond(500, "", "content-type\ntext/plain\n", Blob("the handler gave no response\n"));
}

void Connection::abort() {
  disconnected_ = nullptr;
  gone_.clear();
  // What was sent shall arrive; a reset would take it back. Only a body that ends with the
  // connection could then be taken for a whole one.
  close(response_framing_ != Framing::kLength && response_framing_ != Framing::kChunked);
}

void Connection::take_over(std::move_only_function<void(Result<TakenSocket>)> done) {
  Result<TakenSocket> taken = fail(Error::invalid(
      "a connection is taken over before its response and after its request body only"));
  if (response_ == Response::kNone && body_done() && !output_pending()) {
    boost::system::error_code ec;
    socket_.native_non_blocking(true, ec);
    int fd = socket_.release(ec);
    if (ec) {
      taken = fail(Error::internal("taking over a connection: " + ec.message()));
    } else {
      taken = TakenSocket{fd, std::string(input())};
    }
    abort();
  }
  asio::post(core_.io, [done = std::move(done), taken = std::move(taken)]() mutable {
    done(std::move(taken));
  });
}

}  // namespace celld::http_detail
