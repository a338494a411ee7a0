#include "node/http_bridge.h"

#include <utility>

namespace celld {

namespace {

void pump_in(World& world, std::shared_ptr<HttpExchange> exchange, js::PipeWriter pipe) {
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
    auto room = pipe.pipe();
    room->on_room([&world, exchange = std::move(exchange), pipe = std::move(pipe)]() mutable {
      world.post_from_any_thread(
          [&world, exchange = std::move(exchange), pipe = std::move(pipe)]() mutable {
            pump_in(world, std::move(exchange), std::move(pipe));
          });
    });
  });
}

void collect(std::shared_ptr<HttpExchange> exchange, uint64_t bytes_max, std::shared_ptr<std::string> collected,
             std::move_only_function<void(std::shared_ptr<HttpExchange>, Blob)> then) {
  HttpExchange& e = *exchange;
  e.read_body([exchange = std::move(exchange), bytes_max, collected = std::move(collected),
               then = std::move(then)](Result<Blob> chunk) mutable {
    if (!chunk) return;  // answered by the server, or the client has gone
    if (chunk->empty()) return then(std::move(exchange), Blob(std::move(*collected)));
    if (collected->size() + chunk->size() > bytes_max) {
      exchange->respond(413, "", "content-type\ntext/plain; charset=utf-8\n", Blob("the body is too large\n"));
      return;
    }
    collected->append(chunk->view());
    collect(std::move(exchange), bytes_max, std::move(collected), std::move(then));
  });
}

}  // namespace

void read_whole(std::shared_ptr<HttpExchange> exchange, uint64_t bytes_max,
                std::move_only_function<void(std::shared_ptr<HttpExchange>, Blob)> then) {
  collect(std::move(exchange), bytes_max, std::make_shared<std::string>(), std::move(then));
}

js::PipeReader stream_request_body(World& world, std::shared_ptr<HttpExchange> exchange) {
  auto [writer, reader] = js::make_pipe(exchange->head().content_length);
  pump_in(world, std::move(exchange), std::move(writer));
  return std::move(reader);
}

void stream_response_body(World& world, std::shared_ptr<HttpExchange> exchange, js::PipeReader body,
                          std::shared_ptr<ContentEncoder> encoder) {
  js::Pipe::Read r = body->read();
  switch (r.state) {
    case js::Pipe::Read::State::kEnd: {
      if (!encoder) {
        exchange->finish();
        return;
      }
      HttpExchange& e = *exchange;
      e.write_body(Blob(encoder->finish()), [exchange = std::move(exchange)](Result<void> written) {
        if (written) exchange->finish();
      });
      return;
    }
    case js::Pipe::Read::State::kError: exchange->abort(); return;
    case js::Pipe::Read::State::kPending: {
      auto pipe = body.pipe();
      pipe->on_readable([&world, exchange = std::move(exchange), body = std::move(body),
                         encoder = std::move(encoder)]() mutable {
        world.post_from_any_thread([&world, exchange = std::move(exchange), body = std::move(body),
                                    encoder = std::move(encoder)]() mutable {
          stream_response_body(world, std::move(exchange), std::move(body), std::move(encoder));
        });
      });
      return;
    }
    case js::Pipe::Read::State::kData: {
      HttpExchange& e = *exchange;
      Blob data = encoder ? Blob(encoder->encode(r.data.view())) : std::move(r.data);
      e.write_body(std::move(data), [&world, exchange = std::move(exchange), body = std::move(body),
                                     encoder = std::move(encoder)](Result<void> written) mutable {
        if (!written) return;  // the client has gone, and so is the reader now
        stream_response_body(world, std::move(exchange), std::move(body), std::move(encoder));
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
