// CPU of one small PUT through CurlTransport to a server on the same loop: client and server
// together. The argument is the number of calls in flight.
// links: net
#include <benchmark/benchmark.h>

#include "net/acceptor.h"
#include "net/curl_transport.h"
#include "net/http_server.h"
#include "world/asio_world.h"

using namespace celld;

namespace {

Task<void> put_for_ever(CurlTransport& transport, std::string url, Blob body, int64_t& done,
                        bool& stop) {
  while (!stop) {
    HttpCall call;
    call.method = "PUT";
    call.url = url;
    call.headers = {{"authorization", std::string(200, 'x')}, {"if-none-match", "*"}};
    call.body = body;
    auto reply = co_await transport.perform(std::move(call));
    CHECK(reply && reply->status == 200);
    ++done;
  }
}

void put(benchmark::State& state) {
  boost::asio::io_context io(1);
  AsioWorld world(io);
  HttpServer server(io, {}, [](std::shared_ptr<HttpExchange> exchange) {
    auto& e = *exchange;
    e.read_body([exchange = std::move(exchange)](Result<Blob>) {
      exchange->respond(200, "OK", "etag\n\"0123456789abcdef\"\n", Blob());
    });
  });
  std::vector<Acceptor::Sink> sinks;
  sinks.push_back([&](int fd) { server.adopt(fd); });
  auto acceptor = Acceptor::listen(io, "127.0.0.1", 0, std::move(sinks));
  CurlTransport transport(io, world);
  bool stop = false;
  int64_t done = 0;
  int64_t in_flight = state.range(0);
  Blob body(std::string(1000, 'b'));
  std::string url = "http://127.0.0.1:" + std::to_string((*acceptor)->port()) + "/bucket/key";
  for (int64_t i = 0; i < in_flight; ++i) start(put_for_ever(transport, url, body, done, stop));
  while (done < 2 * in_flight) io.run_one();
  for (auto _ : state) {
    int64_t target = done + 1;
    while (done < target) io.run_one();
  }
  state.SetItemsProcessed(state.iterations());
  stop = true;
  int64_t target = done + in_flight;
  while (done < target) io.run_one();
}
BENCHMARK(put)->Arg(1)->Arg(32);

}  // namespace

BENCHMARK_MAIN();
