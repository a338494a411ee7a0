// Requests from the network on their way to the Worker and back.
#include "net/http_message.h"
#include "node/http_bridge.h"
#include "node/loop.h"

namespace celld {

namespace {

constexpr std::string_view kTextHeaders = "content-type\ntext/plain; charset=utf-8\n";

bool is_health_path(std::string_view target) {
  std::string_view path = target.substr(0, target.find('?'));
  return path == "/.well-known/celld/health" || path == "/__celld/health";
}

}  // namespace

void Loop::serve(std::shared_ptr<HttpExchange> exchange) {
  const RequestHead& head = exchange->head();
  if (is_health_path(head.target)) {
    bool healthy = !stopping_ && !fenced_ && current_ && has_authority();
    exchange->respond(healthy ? 200 : 503, "", kTextHeaders,
                      Blob(healthy ? "ok\n" : "not serving\n"));
    return;
  }
  if (!current_) {
    exchange->respond(503, "", kTextHeaders, Blob("no deployment yet\n"));
    return;
  }
  if (!head.has_body) {
    // An announced length of 0 is a body too.
    if (head.content_length) return dispatch(std::move(exchange), Blob());
    return dispatch(std::move(exchange), std::monostate{});
  }
  if (head.content_length && *head.content_length <= kWholeBodyBytesMax) {
    return read_whole(std::move(exchange), kWholeBodyBytesMax,
                      [this](std::shared_ptr<HttpExchange> e, Blob body) {
                        dispatch(std::move(e), std::move(body));
                      });
  }
  auto pipe = stream_request_body(world_, exchange);
  dispatch(std::move(exchange), std::move(pipe));
}

void Loop::dispatch(std::shared_ptr<HttpExchange> exchange, js::Body body) {
  if (!current_) return;
  const RequestHead& head = exchange->head();
  js::HttpRequestMessage message;
  message.method = head.method;
  message.url = request_url(head);
  message.headers = head.header_block;
  message.body = std::move(body);
  js::IsolateHost& host = *current_;
  uint32_t io = host.fetch(std::move(message),
                           [this, exchange](js::Outcome<js::HttpResponseMessage> outcome) mutable {
                             answer(std::move(exchange), std::move(outcome));
                           });
  if (exchange.use_count() == 1) return;  // answered already
  exchange->on_disconnect([io, alive = host.alive(), &host] {
    if (*alive) host.disconnect(io);
  });
  exchange->on_gone([io, alive = host.alive(), &host] {
    if (*alive) host.caller_gone(io);
  });
}

void Loop::answer(std::shared_ptr<HttpExchange> exchange,
                  js::Outcome<js::HttpResponseMessage> outcome) {
  // A suspended process may wake with answers on their way here: what the lease no longer covers is
  // not said, although it is durable.
  if (!has_authority()) {
    outcome = js::js_fail("this node has lost its lease", js::kRetryable | js::kObjectReset);
  }
  if (!outcome) return answer_error(*exchange, outcome.error());
  js::HttpResponseMessage& m = *outcome;
  if (m.status < 200 || m.status > 999) {
    js::JsError error;
    error.message = "The response of the Worker is an error response (Response.error()).";
    return answer_error(*exchange, error);
  }
  // Bodies are plain on their way through Workers; a Content-Encoding is applied here.
  std::shared_ptr<ContentEncoder> encoder =
      ContentEncoder::make(find_header(m.headers, "content-encoding").value_or(""));
  if (encoder) {
    if (auto* blob = std::get_if<Blob>(&m.body)) {
      auto [writer, reader] = js::make_pipe();
      writer->write(std::move(*blob));
      writer->close();
      m.body = std::move(reader);
    }
    if (auto* pipe = std::get_if<js::PipeReader>(&m.body)) {
      exchange->on_gone([reader = pipe->pipe()] { reader->cancel(); });
      exchange->start_response(m.status, m.status_text, m.headers, std::nullopt);
      return stream_response_body(world_, std::move(exchange), std::move(*pipe), std::move(encoder));
    }
  }
  if (auto* pipe = std::get_if<js::PipeReader>(&m.body)) {
    // Whoever writes learns of a client that left also while there is nothing to write.
    exchange->on_gone([reader = pipe->pipe()] { reader->cancel(); });
    exchange->start_response(m.status, m.status_text, m.headers, (*pipe)->length());
    stream_response_body(world_, std::move(exchange), std::move(*pipe));
    return;
  }
  Blob body;
  if (auto* blob = std::get_if<Blob>(&m.body)) body = std::move(*blob);
  exchange->respond(m.status, m.status_text, m.headers, std::move(body));
}

void Loop::answer_error(HttpExchange& exchange, const js::JsError& error) {
  std::string what = error.stack.empty() ? error.name + ": " + error.message : error.stack;
  bool overloaded = (error.flags & js::kOverloaded) != 0;
  if (overloaded) {
    exchange.respond(503, "",
                     std::string(kTextHeaders) + "retry-after\n1\nx-celld-overload\ncell\n",
                     Blob(error.message + "\n"));
    return;
  }
  if ((error.flags & js::kUnconfirmed) != 0) {
    // Logged once for all of them.
    exchange.respond(503, "", std::string(kTextHeaders) + "retry-after\n1\nx-celld-error\nunconfirmed\n",
                     Blob(error.message + "\n"));
    return;
  }
  log(js::LogLevel::kError, exchange.head().method + " " + exchange.head().target + ": " + what);
  bool unavailable = (error.flags & js::kRetryable) != 0;
  std::string body = options_.error_detail == ErrorDetail::kFull ? what + "\n"
                     : unavailable ? "Service Unavailable\n"
                                   : "Internal Server Error\n";
  std::string headers(kTextHeaders);
  if (unavailable) headers += "retry-after\n1\n";
  if ((error.flags & js::kNotBegun) != 0) headers += "x-celld-error\nnot-begun\n";
  exchange.respond(unavailable ? 503 : 500, "", headers, Blob(std::move(body)));
}

}  // namespace celld
