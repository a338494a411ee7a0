// Listens and hands out connected sockets.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace celld {

// Lives on one io_context and its thread; everything but listen() is called there.
class Acceptor {
 public:
  // Gets a connected socket (non-blocking, close-on-exec) that is now its own, on the acceptor's
  // thread. It passes it to the thread that will serve it.
  using Sink = std::move_only_function<void(int fd)>;

  // Listens on a numeric `address` ("127.0.0.1", "::", ...) and `port` (0 = any free one), and
  // accepts from the first turn of the loop on. Sockets go to `sinks` in turn. kUnavailable names
  // the address when it is taken.
  static Result<std::unique_ptr<Acceptor>> listen(boost::asio::io_context& io,
                                                  const std::string& address, uint16_t port,
                                                  std::vector<Sink> sinks);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  uint16_t port() const;
  // Stops listening. Sockets already handed out are not touched.
  void close();

 private:
  struct State;
  explicit Acceptor(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace celld
