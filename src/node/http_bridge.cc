#include "node/http_bridge.h"

#include <utility>

namespace celld {

namespace {

void pump_in(World& world, std::shared_ptr<HttpExchange> exchange, std::shared_ptr<js::Pipe> pipe) {
  HttpExchange& source = *exchange;
  source.read_body([&world, exchange = std::move(exchange),
                    pipe = std::move(pipe)](Result<Blob> chunk) mutable {
    if (!chunk) {
      pipe->abort(js::JsError{"Error", "the request body ended early: " + chunk.error().message, {}, 0});
      return;
    }
    if (chunk->empty()) {
      pipe->close();
      return;
    }
    if (pipe->write(std::move(*chunk)) == js::Pipe::Write::kReaderGone) return;
    js::Pipe& p = *pipe;
    p.on_room([&world, exchange = std::move(exchange), pipe = std::move(pipe)]() mutable {
      world.post_from_any_thread(
          [&world, exchange = std::move(exchange), pipe = std::move(pipe)]() mutable {
            pump_in(world, std::move(exchange), std::move(pipe));
          });
    });
  });
}

}  // namespace

std::shared_ptr<js::Pipe> stream_request_body(World& world,
                                              std::shared_ptr<HttpExchange> exchange) {
  auto pipe = std::make_shared<js::Pipe>(exchange->head().content_length);
  pump_in(world, std::move(exchange), pipe);
  return pipe;
}

void stream_response_body(World& world, std::shared_ptr<HttpExchange> exchange,
                          std::shared_ptr<js::Pipe> pipe) {
  js::Pipe::Read r = pipe->read();
  switch (r.state) {
    case js::Pipe::Read::State::kEnd: exchange->finish(); return;
    case js::Pipe::Read::State::kError: exchange->abort(); return;
    case js::Pipe::Read::State::kPending: {
      js::Pipe& p = *pipe;
      p.on_readable([&world, exchange = std::move(exchange), pipe = std::move(pipe)]() mutable {
        world.post_from_any_thread(
            [&world, exchange = std::move(exchange), pipe = std::move(pipe)]() mutable {
              stream_response_body(world, std::move(exchange), std::move(pipe));
            });
      });
      return;
    }
    case js::Pipe::Read::State::kData: {
      HttpExchange& e = *exchange;
      e.write_body(std::move(r.data), [&world, exchange = std::move(exchange),
                                       pipe = std::move(pipe)](Result<void> written) mutable {
        if (!written) {
          pipe->cancel();
          return;
        }
        stream_response_body(world, std::move(exchange), std::move(pipe));
      });
      return;
    }
  }
}

std::string request_url(const RequestHead& head) {
  if (head.target.starts_with("http://") || head.target.starts_with("https://")) return head.target;
  std::string url;
  const std::string_view host = head.host.empty() ? std::string_view("localhost") : head.host;
  url.reserve(7 + host.size() + head.target.size());
  url += "http://";
  url += host;
  if (!head.target.starts_with('/')) url += '/';
  url += head.target;
  return url;
}

}  // namespace celld
