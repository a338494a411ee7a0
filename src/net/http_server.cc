#include "net/http_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "net/http_connection.h"

namespace celld {

namespace asio = boost::asio;

namespace http_detail {

ServerCore::ServerCore(asio::io_context& loop, HttpLimits bounds, HttpServer::Handler h)
    : io(loop),
      limits(bounds),
      handler(std::move(h)),
      receive_buffer(std::make_unique_for_overwrite<char[]>(kReceiveBytes)),
      tick_(loop) {
  auto shortest = std::min({limits.head_timeout, limits.idle_timeout, limits.body_timeout,
                            limits.write_timeout, limits.linger_timeout});
  tick_every_ =
      std::clamp(shortest / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
}

int64_t ServerCore::now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

std::string_view ServerCore::date_line() {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (now.tv_sec != date_second_) {
    date_second_ = now.tv_sec;
    tm parts;
    gmtime_r(&now.tv_sec, &parts);
    // In the C locale, whatever the locale of the process.
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    int n = snprintf(date_, sizeof date_, "date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n",
                     kDays[parts.tm_wday], parts.tm_mday, kMonths[parts.tm_mon],
                     (parts.tm_year + 1900) % 10000, parts.tm_hour, parts.tm_min, parts.tm_sec);
    date_size_ = static_cast<size_t>(n);
  }
  return {date_, date_size_};
}

void ServerCore::remove(Connection* connection) {
  connections.erase(connection);
  if (!connections.empty()) return;
  tick_.cancel();
  if (stopping && on_empty) asio::post(io, std::exchange(on_empty, nullptr));
}

void ServerCore::arm_tick() {
  if (tick_armed_ || connections.empty()) return;
  tick_armed_ = true;
  tick_.expires_after(tick_every_);
  tick_.async_wait([weak = weak_from_this()](const boost::system::error_code&) {
    auto self = weak.lock();
    if (!self) return;
    self->tick_armed_ = false;
    int64_t now = now_ms();
    std::vector<std::shared_ptr<Connection>> late;
    for (auto& [raw, connection] : self->connections) {
      if (raw->has_timed_out(now)) late.push_back(connection);
    }
    for (auto& connection : late) connection->tick(now);
    self->arm_tick();
  });
}

}  // namespace http_detail

using http_detail::Connection;
using http_detail::kBodyAfterResponse;
using http_detail::kClientLeft;
using http_detail::ServerCore;

HttpExchange::HttpExchange(std::shared_ptr<ServerCore> core, std::shared_ptr<Connection> connection,
                           RequestHead head)
    : core_(std::move(core)), head_(std::move(head)), connection_(std::move(connection)) {}

HttpExchange::~HttpExchange() {
  core_->spare_head = std::move(head_);
  if (auto c = std::move(connection_)) c->exchange_dropped();
}

// Each call keeps the connection alive: it may end the exchange.

void HttpExchange::read_body(std::move_only_function<void(Result<Blob>)> done) {
  if (auto c = connection_) return c->read_body(std::move(done));
  asio::post(core_->io, [done = std::move(done), left = client_left_]() mutable {
    done(fail(Error::cancelled(left ? kClientLeft : kBodyAfterResponse)));
  });
}

void HttpExchange::respond(int status, std::string_view reason, std::string_view header_block,
                           Blob body) {
  if (auto c = connection_) c->respond(status, reason, header_block, std::move(body));
}

void HttpExchange::start_response(int status, std::string_view reason,
                                  std::string_view header_block,
                                  std::optional<uint64_t> content_length) {
  if (auto c = connection_) c->start_response(status, reason, header_block, content_length);
}

void HttpExchange::write_body(Blob chunk, std::move_only_function<void(Result<void>)> done) {
  if (auto c = connection_) return c->write_body(std::move(chunk), std::move(done));
  asio::post(core_->io,
             [done = std::move(done)]() mutable { done(fail(Error::cancelled(kClientLeft))); });
}

void HttpExchange::finish() {
  if (auto c = connection_) c->finish();
}

void HttpExchange::abort() {
  if (auto c = connection_) c->abort();
}

void HttpExchange::on_disconnect(std::move_only_function<void()> callback) {
  if (auto c = connection_) return c->on_disconnect(std::move(callback));
  if (client_left_) asio::post(core_->io, std::move(callback));
}

void HttpExchange::on_gone(std::move_only_function<void()> callback) {
  if (auto c = connection_) return c->on_gone(std::move(callback));
  if (gone_) asio::post(core_->io, std::move(callback));
}

void HttpExchange::take_over(std::move_only_function<void(Result<TakenSocket>)> done) {
  if (auto c = connection_) return c->take_over(std::move(done));
  asio::post(core_->io,
             [done = std::move(done)]() mutable { done(fail(Error::cancelled(kClientLeft))); });
}

HttpServer::HttpServer(asio::io_context& io, HttpLimits limits, Handler handler)
    : core_(std::make_shared<ServerCore>(io, limits, std::move(handler))) {}

HttpServer::~HttpServer() {
  core_->stopping = true;
  core_->on_empty = nullptr;
  std::vector<std::shared_ptr<Connection>> open;
  for (auto& [raw, connection] : core_->connections) open.push_back(connection);
  for (auto& connection : open) connection->close(true);
}

namespace {

// The IP address of the other side, "" for another kind of socket.
std::string peer_of(int fd, int& family) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  family = AF_UNSPEC;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  family = address.ss_family;
  char text[INET6_ADDRSTRLEN] = "";
  if (family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
  }
  return text;
}

}  // namespace

void HttpServer::adopt(int fd) {
  CHECK(fd >= 0) << "adopting fd " << fd;
  int family = AF_UNSPEC;
  std::string peer = peer_of(fd, family);
  if (core_->stopping) {
    ::close(fd);
    return;
  }
  if (core_->connections.size() >= core_->limits.connections_max) {
    std::string_view busy =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n"
        "content-length: 29\r\n\r\nthe connection limit is hit.\n";
    (void)!send(fd, busy.data(), busy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
    return;
  }
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  asio::ip::tcp::socket socket(core_->io);
  boost::system::error_code ec;
  socket.assign(family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd, ec);
  if (ec) {
    ::close(fd);
    return;
  }
  auto connection = std::make_shared<Connection>(*core_, std::move(socket), std::move(peer));
  core_->connections.emplace(connection.get(), connection);
  core_->arm_tick();
  connection->start();
}

void HttpServer::resume() {
  std::vector<std::shared_ptr<Connection>> open;
  for (auto& [raw, connection] : core_->connections) open.push_back(connection);
  for (auto& connection : open) connection->resume();
}

void HttpServer::stop(std::move_only_function<void()> empty) {
  CHECK(!core_->stopping) << "stop was called before";
  core_->stopping = true;
  core_->on_empty = std::move(empty);
  if (core_->connections.empty()) {
    if (core_->on_empty) asio::post(core_->io, std::exchange(core_->on_empty, nullptr));
    return;
  }
  std::vector<std::shared_ptr<Connection>> open;
  for (auto& [raw, connection] : core_->connections) open.push_back(connection);
  for (auto& connection : open) connection->stop();
}

size_t HttpServer::open_connections() const { return core_->connections.size(); }

}  // namespace celld
