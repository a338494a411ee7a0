#include "net/acceptor.h"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>

#include "base/check.h"

namespace celld {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int kBacklog = 4096;
constexpr int kAcceptsPerTurn = 64;
// Without a free descriptor a ready listener stays ready: wait for connections to end instead of
// spinning.
constexpr std::chrono::milliseconds kFullPause{100};

}  // namespace

struct Acceptor::State : std::enable_shared_from_this<State> {
  State(asio::io_context& io, std::vector<Sink> s) : listener(io), pause(io), sinks(std::move(s)) {}

  tcp::acceptor listener;
  asio::steady_timer pause;
  std::vector<Sink> sinks;
  size_t next = 0;
  uint16_t port = 0;

  void wait() {
    listener.async_wait(tcp::acceptor::wait_read,
                        [self = shared_from_this()](const boost::system::error_code& ec) {
                          if (!ec && self->listener.is_open()) self->accept();
                        });
  }

  void accept() {
    for (int i = 0; i < kAcceptsPerTurn && listener.is_open(); ++i) {
      int fd = accept4(listener.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        sinks[next++ % sinks.size()](fd);
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      pause.expires_after(kFullPause);
      pause.async_wait([self = shared_from_this()](const boost::system::error_code& ec) {
        if (!ec && self->listener.is_open()) self->accept();
      });
      return;
    }
    if (listener.is_open()) wait();
  }
};

Result<std::unique_ptr<Acceptor>> Acceptor::listen(asio::io_context& io, const std::string& address,
                                                   uint16_t port, std::vector<Sink> sinks) {
  CHECK(!sinks.empty()) << "an acceptor without a sink";
  std::string where = address + ":" + std::to_string(port);
  boost::system::error_code ec;
  auto ip = asio::ip::make_address(address, ec);
  if (ec) return fail(Error::invalid("listen on " + where + ": not an IP address"));
  auto state = std::make_shared<State>(io, std::move(sinks));
  tcp::endpoint endpoint(ip, port);
  auto& listener = state->listener;
  listener.open(endpoint.protocol(), ec);
  if (!ec) listener.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) listener.bind(endpoint, ec);
  if (!ec) listener.listen(kBacklog, ec);
  if (!ec) listener.native_non_blocking(true, ec);
  if (!ec) state->port = listener.local_endpoint(ec).port();
  if (ec) return fail(Error::unavailable("listen on " + where + ": " + ec.message()));
  state->wait();
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(state)));
}

Acceptor::~Acceptor() { close(); }

uint16_t Acceptor::port() const { return state_->port; }

void Acceptor::close() {
  boost::system::error_code ignored;
  state_->listener.close(ignored);
  state_->pause.cancel();
}

}  // namespace celld
