// A hello-world HTTP server on one thread, to be loaded from outside: prints its port and serves
// until killed. GET / answers 12 bytes; anything else echoes the request body.
// links: net
#include "net/http_server.h"

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "net/acceptor.h"

using namespace celld;

namespace {

void echo(std::shared_ptr<HttpExchange> exchange) {
  auto& e = *exchange;
  e.read_body([exchange = std::move(exchange)](Result<Blob> piece) mutable {
    if (!piece) return;
    if (piece->empty()) return exchange->finish();
    auto& e = *exchange;
    e.write_body(std::move(*piece), [exchange = std::move(exchange)](Result<void> written) mutable {
      if (written) echo(std::move(exchange));
    });
  });
}

}  // namespace

int main(int argc, char** argv) {
  boost::asio::io_context io(1);
  Blob hello(std::string("Hello world\n"));
  HttpServer server(io, {}, [&](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->head().method == "GET") {
      return exchange->respond(200, "OK", "content-type\ntext/plain\n", hello);
    }
    exchange->start_response(200, "OK", "content-type\napplication/octet-stream\n", std::nullopt);
    echo(std::move(exchange));
  });
  std::vector<Acceptor::Sink> sinks;
  sinks.push_back([&](int fd) { server.adopt(fd); });
  auto port = static_cast<uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0);
  auto acceptor = Acceptor::listen(io, "127.0.0.1", port, std::move(sinks));
  if (!acceptor) {
    std::fprintf(stderr, "%s\n", acceptor.error().message.c_str());
    return 1;
  }
  std::printf("http://127.0.0.1:%u\n", (*acceptor)->port());
  std::fflush(stdout);
  io.run();
}
