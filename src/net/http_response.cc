// The output half of a connection.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "net/http_connection.h"

namespace celld::http_detail {

namespace asio = boost::asio;

namespace {

constexpr size_t kCopyBytesMax = 4 << 10;  // a body up to this is copied behind its head
constexpr int kLingerTimeouts = 10;  // after that many even a client that still sends is cut off
constexpr size_t kScratchBytesMax = 64 << 10;

void append_number(std::string& out, uint64_t value, int base = 10) {
  char digits[24];
  auto end = std::to_chars(digits, digits + sizeof digits, value, base).ptr;
  out.append(digits, end);
}

// Only what HTTP can carry; the rest would let a value forge headers.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '\r' || c == '\0') c = ' ';
  }
  return out;
}

bool has_no_body(int status) { return status < 200 || status == 204 || status == 304; }

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 20 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool contains_close(std::string_view value) {
  auto lower = std::string(value);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("close") != lower.npos;
}

}  // namespace

// Decided when the head of the response is written.
bool Connection::decide_keep_alive() {
  if (!keep_alive_ || core_.stopping || body_failed_) return false;
  if (requests_ >= core_.limits.requests_per_connection_max) return false;
  if (end_of_input_ && (!body_done() || input().empty())) return false;
  if (body_done()) return true;
  // Whether the client sends the body it has not been told to send is not known.
  if (continue_due_) return false;
  return body_framing_ == Framing::kChunked ||
         body_left_ <= core_.limits.drain_bytes_max + input().size();
}

void Connection::append_head(std::string& out, int status, std::string_view reason,
                             std::string_view block, Framing framing,
                             std::optional<uint64_t> length) {
  if (out.empty() && out.capacity() < core_.scratch.capacity()) std::swap(out, core_.scratch);
  std::string cleaned;
  if (!block.empty() && (std::memchr(block.data(), '\r', block.size()) ||
                         std::memchr(block.data(), '\0', block.size()))) {
    cleaned = printable(block);
    block = cleaned;
  }
  if (status == 200 && (reason.empty() || reason == "OK")) {
    out += "HTTP/1.1 200 OK\r\n";
  } else {
    out += "HTTP/1.1 ";
    append_number(out, static_cast<uint64_t>(status));
    out += ' ';
    if (reason.empty()) reason = default_reason(status);
    for (char c : reason) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    out += "\r\n";
  }

  keep_alive_ = decide_keep_alive();
  bool have_date = false;
  std::string_view given_length;
  while (!block.empty()) {
    size_t name_end = block.find('\n');
    if (name_end == block.npos) break;
    size_t value_end = std::min(block.find('\n', name_end + 1), block.size());
    auto name = block.substr(0, name_end);
    auto value = block.substr(name_end + 1, value_end - name_end - 1);
    block.remove_prefix(std::min(block.size(), value_end + 1));
    switch (name.size()) {
      case 0:
        continue;
      case 4:
        have_date |= name == "date";
        break;
      case 10:
        if (name == "connection") {
          if (contains_close(value)) keep_alive_ = false;
          continue;
        }
        if (name == "keep-alive") continue;
        break;
      case 14:
        if (name == "content-length") {
          given_length = value;
          continue;
        }
        break;
      case 17:
        if (name == "transfer-encoding") continue;
        break;
      default:
        break;
    }
    out.append(name).append(": ").append(value).append("\r\n");
  }

  if (framing == Framing::kUntilClose) keep_alive_ = false;
  bool bodiless = status < 200 || status == 204;
  if (!bodiless && (head_request_ || status == 304) && is_number(given_length)) {
    out.append("content-length: ").append(given_length).append("\r\n");
  } else if (!bodiless && status != 304) {
    if (length) {
      out += "content-length: ";
      append_number(out, *length);
      out += "\r\n";
    } else if (framing == Framing::kChunked) {
      out += "transfer-encoding: chunked\r\n";
    }
  }
  if (!have_date) out += core_.date_line();
  if (!keep_alive_) {
    out += "connection: close\r\n";
  } else if (http_1_0_) {
    out += "connection: keep-alive\r\n";
  }
  out += "\r\n";
}

void Connection::respond(int status, std::string_view reason, std::string_view block, Blob body) {
  CHECK(response_ == Response::kNone) << "a second response to one request";
  CHECK(status >= 200 && status <= 999) << "response status " << status;
  bool bodiless = head_request_ || has_no_body(status);
  append_head(out_head_, status, reason, block, bodiless ? Framing::kNone : Framing::kLength,
              head_request_ && body.empty() ? std::nullopt : std::optional<uint64_t>(body.size()));
  if (!bodiless) {
    if (body.size() <= kCopyBytesMax) {
      out_head_ += body.view();
    } else {
      out_body_ = std::move(body);
    }
  }
  response_ = Response::kFinished;
  flush();
}

void Connection::start_response(int status, std::string_view reason, std::string_view block,
                                std::optional<uint64_t> content_length) {
  CHECK(response_ == Response::kNone) << "a second response to one request";
  CHECK(status >= 200 && status <= 999) << "response status " << status;
  response_framing_ = content_length ? Framing::kLength
                      : http_1_0_    ? Framing::kUntilClose
                                     : Framing::kChunked;
  append_head(out_head_, status, reason, block, response_framing_, content_length);
  if (head_request_ || has_no_body(status)) response_framing_ = Framing::kNone;
  response_left_ = content_length.value_or(0);
  response_ = Response::kStarted;
  if (flush_posted_) return;
  flush_posted_ = true;
  asio::post(core_.io, [self = shared_from_this()] {
    self->flush_posted_ = false;
    if (self->state_ == State::kBusy && self->output_pending()) self->flush();
  });
}

void Connection::write_body(Blob chunk, std::move_only_function<void(Result<void>)> done) {
  CHECK(response_ == Response::kStarted) << "write_body outside of a response";
  CHECK(!write_done_) << "a write of the response body is already outstanding";
  write_done_ = std::move(done);
  switch (response_framing_) {
    case Framing::kNone:
      break;
    case Framing::kLength:
      if (chunk.size() > response_left_) {
        chunk = Blob(std::string(chunk.view().substr(0, static_cast<size_t>(response_left_))));
      }
      response_left_ -= chunk.size();
      out_body_ = std::move(chunk);
      break;
    case Framing::kUntilClose:
      out_body_ = std::move(chunk);
      break;
    case Framing::kChunked:
      if (chunk.empty()) break;
      append_number(out_head_, chunk.size(), 16);
      out_head_ += "\r\n";
      if (chunk.size() <= kCopyBytesMax) {
        out_head_.append(chunk.view()).append("\r\n");
      } else {
        out_body_ = std::move(chunk);
        out_tail_ = "\r\n";
      }
      break;
  }
  flush();
}

void Connection::finish() {
  CHECK(response_ == Response::kStarted) << "finish outside of a response";
  if (response_framing_ == Framing::kLength && response_left_ > 0) return abort();
  if (response_framing_ == Framing::kChunked) out_tail_ += "0\r\n\r\n";
  response_ = Response::kFinished;
  flush();
}

// Answers a request that has no handler, or whose handler must not answer it.
void Connection::send_error(int status, std::string_view message) {
  state_ = State::kBusy;
  deadline_ms_ = 0;
  keep_alive_ = false;
  head_request_ = false;
  http_1_0_ = false;
  response_ = Response::kNone;
  Blob body(std::string(message) + "\n");
  respond(status, "", "content-type\ntext/plain;charset=UTF-8\n", std::move(body));
}

void Connection::flush() {
  while (output_pending()) {
    iovec pieces[3];
    size_t count = 0;
    size_t skip = out_sent_;
    for (std::string_view piece :
         {std::string_view(out_head_), out_body_.view(), std::string_view(out_tail_)}) {
      if (skip >= piece.size()) {
        skip -= piece.size();
        continue;
      }
      pieces[count++] = {const_cast<char*>(piece.data()) + skip, piece.size() - skip};
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    ssize_t n = count == 1
                    ? send(socket_.native_handle(), pieces[0].iov_base, pieces[0].iov_len,
                           MSG_NOSIGNAL | MSG_DONTWAIT)
                    : sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return arm_write();
      return close(false);
    }
    out_sent_ += static_cast<size_t>(n);
    write_deadline_ms_ = 0;
    if (half_closed_deadline_ms_ != 0) half_closed_deadline_ms_ = half_closed_deadline();
  }
  out_sent_ = 0;
  out_body_ = Blob();
  out_tail_.clear();
  out_head_.clear();
  if (out_head_.capacity() > core_.scratch.capacity()) std::swap(out_head_, core_.scratch);
  if (core_.scratch.capacity() > kScratchBytesMax) core_.scratch = std::string();
  if (out_head_.capacity() > kScratchBytesMax) out_head_ = std::string();
  if (write_done_) {
    asio::post(core_.io, [done = std::exchange(write_done_, nullptr)]() mutable { done({}); });
  }
  if (response_ == Response::kFinished && state_ == State::kBusy) response_complete();
}

void Connection::arm_write() {
  if (write_deadline_ms_ == 0) {
    write_deadline_ms_ = ServerCore::now_ms() + core_.limits.write_timeout.count();
  }
  if (write_armed_) return;
  write_armed_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& ec) {
                       self->write_armed_ = false;
                       if (ec || self->state_ == State::kClosed) return;
                       self->flush();
                     });
}

void Connection::response_complete() {
  detach_exchange();
  if (!keep_alive_ || core_.stopping) {
    begin_linger();
  } else if (!body_done()) {
    state_ = State::kDrain;
    dropped_ = 0;
    deadline_ms_ = ServerCore::now_ms() + core_.limits.body_timeout.count();
  } else {
    await_next_request();
  }
  process();
}

void Connection::begin_linger() {
  state_ = State::kLinger;
  dropped_ = 0;
  int64_t now = ServerCore::now_ms();
  deadline_ms_ = now + core_.limits.linger_timeout.count();
  linger_end_ms_ = now + kLingerTimeouts * core_.limits.linger_timeout.count();
  boost::system::error_code ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  if (ec || end_of_input_) close(false);
}

}  // namespace celld::http_detail
