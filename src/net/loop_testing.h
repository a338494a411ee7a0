// For tests of this folder: a loop with bounded waits, a raw client, a server that lies.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "net/acceptor.h"

namespace celld::net_testing {

class Loop {
 public:
  boost::asio::io_context io{1};

  // Runs the loop until `condition` holds; false after 10 seconds.
  template <class F>
  bool run_until(F condition, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      if (io.poll() == 0) io.run_one_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  // Runs what can run without waiting; what was sent over loopback before has arrived.
  void settle() {
    for (int i = 0; i < 10; ++i) io.poll();
  }

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      io.get_executor()};
};

// One non-blocking end of a connection.
class Raw {
 public:
  Raw() = default;
  explicit Raw(int fd) : fd_(fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }
  static Raw connect(uint16_t port, int receive_buffer = 0) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    if (receive_buffer)
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) << errno;
    return Raw(fd);
  }
  Raw(Raw&& o) noexcept { *this = std::move(o); }
  Raw& operator=(Raw&& o) noexcept {
    close();
    fd_ = std::exchange(o.fd_, -1);
    received = std::move(o.received);
    return *this;
  }
  ~Raw() { close(); }

  std::string received;
  bool ended = false;  // the other side closed in order
  bool reset = false;

  // As much as the kernel takes.
  size_t send_some(std::string_view bytes) {
    ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? static_cast<size_t>(n) : 0;
  }
  // All of it, with the loop running meanwhile. False when the other side does not take it.
  bool send(Loop& loop, std::string_view bytes) {
    return loop.run_until([&] {
      bytes.remove_prefix(send_some(bytes));
      receive();
      return bytes.empty() || reset;
    }) && bytes.empty();
  }
  void receive(size_t most = 1 << 20) {
    char buffer[16384];
    while (fd_ >= 0 && most > 0) {
      ssize_t n = recv(fd_, buffer, std::min(most, sizeof buffer), MSG_DONTWAIT);
      if (n > 0) {
        received.append(buffer, static_cast<size_t>(n));
        most -= static_cast<size_t>(n);
        continue;
      }
      if (n == 0) ended = true;
      if (n < 0 && errno != EAGAIN && errno != EINTR) reset = true;
      return;
    }
  }
  bool receive_until(Loop& loop, std::string_view text) {
    return loop.run_until([&] {
      receive();
      return received.find(text) != received.npos;
    });
  }
  bool receive_to_end(Loop& loop) {
    return loop.run_until([&] {
      receive();
      return ended || reset;
    });
  }
  void shut_write() { shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void close_with_reset() {
    linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Accepts connections and hands them to `script` as raw sockets once a whole request head is there
// (with what else has arrived in `received`).
class LyingServer {
 public:
  LyingServer(Loop& loop, std::function<void(Raw&)> script)
      : loop_(loop), script_(std::move(script)) {
    std::vector<Acceptor::Sink> sinks;
    sinks.push_back([this](int fd) {
      ++accepted;
      connections_.push_back(std::make_unique<Raw>(fd));
      connections_.back()->received.clear();
    });
    auto listening = Acceptor::listen(loop.io, "127.0.0.1", 0, std::move(sinks));
    CHECK(listening) << listening.error().message;
    acceptor_ = std::move(*listening);
  }
  std::string url(std::string_view path = "/") const {
    return "http://127.0.0.1:" + std::to_string(acceptor_->port()) + std::string(path);
  }
  int accepted = 0;
  int requests = 0;
  // To be called in the condition of every wait.
  void serve() {
    for (size_t i = 0; i < connections_.size(); ++i) {
      auto& c = *connections_[i];
      c.receive();
      if (c.received.find("\r\n\r\n") == c.received.npos) continue;
      ++requests;
      script_(c);
      c.received.clear();
    }
  }

 private:
  Loop& loop_;
  std::function<void(Raw&)> script_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<std::unique_ptr<Raw>> connections_;
};

}  // namespace celld::net_testing
