// Requests of other nodes for cells of this one: the internal listener.
#include <algorithm>

#include "js/caller_link.h"
#include "node/http_bridge.h"
#include "node/loop.h"
#include "node/peer_wire.h"

namespace celld {

namespace {

constexpr std::string_view kTextHeaders = "content-type\ntext/plain; charset=utf-8\n";
// A head that came in on a public listener, with what is added to pass it on.
constexpr size_t kHeadBytesMax = 256 << 10;
// The arguments of a call, and what else is read whole.
constexpr uint64_t kArgumentBytesMax = 256 << 20;

std::string_view refusal_name(PeerRefusal reason) {
  switch (reason) {
    case PeerRefusal::kUnsigned: return "unsigned";
    case PeerRefusal::kMalformed: return "malformed";
    case PeerRefusal::kSignature: return "signature";
    case PeerRefusal::kWrongNode: return "wrong-node";
    case PeerRefusal::kClock: return "clock";
    case PeerRefusal::kReplayed: return "replayed";
    case PeerRefusal::kFull: return "full";
  }
  return "refused";
}

void refuse(HttpExchange& exchange, int status, std::string_view reason, std::string_view text) {
  exchange.respond(status, "", std::string(kTextHeaders) + "x-celld-refused\n" + std::string(reason) + "\n",
                   Blob(std::string(text) + "\n"));
}

}  // namespace

// The answer to a peer, on its way from any thread to the one that holds the exchange. Dropped without
// an answer it says so, unless the loops are being destroyed, all threads having ended: then what is left in
// the queue of one may belong to another that is gone.
class Loop::PeerAnswer {
 public:
  PeerAnswer(Loop& loop, std::shared_ptr<HttpExchange> exchange)
      : loop_(&loop), alive_(loop.alive_), exchange_(std::move(exchange)) {}
  PeerAnswer(PeerAnswer&& other) noexcept
      : loop_(std::exchange(other.loop_, nullptr)),
        alive_(std::move(other.alive_)),
        exchange_(std::move(other.exchange_)) {}
  PeerAnswer& operator=(PeerAnswer&&) = delete;
  ~PeerAnswer() {
    if (loop_) give(js::js_fail("the thread of the Durable Object was lost", js::kRetryable | js::kObjectReset));
  }

  using Answer = js::Outcome<std::variant<js::HttpResponseMessage, Blob>>;
  void give(Answer answer) {
    Loop* loop = std::exchange(loop_, nullptr);
    if (!*alive_) return;
    loop->post([loop, exchange = std::move(exchange_), answer = std::move(answer)]() mutable {
      loop->answer_peer(std::move(exchange), std::move(answer));
    });
  }

 private:
  Loop* loop_;
  std::shared_ptr<const bool> alive_;
  std::shared_ptr<HttpExchange> exchange_;  // only the loop's thread looks into it
};

void Loop::begin_peers() {
  HttpLimits limits = options_.http;
  limits.head_bytes_max = kHeadBytesMax;
  limits.connections_max = options_.internal_connections_max;
  internal_server_ = std::make_unique<HttpServer>(
      io_, limits, [this](std::shared_ptr<HttpExchange> e) { serve_peer(std::move(e)); });
  PeerCalls::Services services;
  services.deliver = [this](js::CellAddress to, js::CellEvent event) { deliver(std::move(to), std::move(event)); };
  services.log = [this](js::LogLevel level, std::string text) { log(level, std::move(text)); };
  services.post = [this](Callback callback) { post(std::move(callback)); };
  peers_ = std::make_unique<PeerCalls>(io_, world_, *identity_, std::move(services),
                                       static_cast<long>(options_.peer_connections_max));
}

std::chrono::milliseconds Loop::authority_left() {
  // Far in the past after a fence.
  int64_t until = control_.authority_until_ns().load(std::memory_order_acquire);
  int64_t now = world_.now().since_start.count();
  if (until <= now) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(Duration(until - now));
}

void Loop::serve_peer(std::shared_ptr<HttpExchange> exchange) {
  const RequestHead& head = exchange->head();
  PeerRequest request{head.method, head.target, head.header_block};
  auto who = peer_checker_->check(request, world_.wall_now());
  if (!who) return refuse(*exchange, who.error().status, refusal_name(who.error().reason), who.error().text);
  if (head.target == kPeerPingTarget && head.method == "GET") {
    exchange->respond(200, "", encode_peer_reply(PeerReply::Kind::kPong, authority_left()), Blob());
    return;
  }
  if (head.method != "POST") return refuse(*exchange, 404, "unknown", "there is no such part of a node");
  if (head.target == kPeerFetchTarget) return serve_peer_fetch(counted(std::move(exchange)));
  if (head.target == kPeerRpcTarget) return serve_peer_rpc(counted(std::move(exchange)));
  refuse(*exchange, 404, "unknown", "there is no such part of a node");
}

// The same exchange, under way until nobody has it any more.
std::shared_ptr<HttpExchange> Loop::counted(std::shared_ptr<HttpExchange> exchange) {
  ++peers_served_;
  HttpExchange* raw = exchange.get();
  auto release = [this, alive = alive_, exchange = std::move(exchange)](HttpExchange*) mutable {
    if (!*alive) return;
    post([this, exchange = std::move(exchange)]() mutable {
      exchange.reset();
      --peers_served_;
      look_at_peers_served();
    });
  };
  return std::shared_ptr<HttpExchange>(raw, std::move(release));
}

void Loop::look_at_peers_served() {
  if (peers_served_done_ && peers_served_ == 0) std::exchange(peers_served_done_, nullptr)();
}

void Loop::serve_peer_fetch(std::shared_ptr<HttpExchange> exchange) {
  auto fetch = decode_peer_fetch(exchange->head().header_block);
  if (!fetch) return refuse(*exchange, 400, "malformed", fetch.error().message);
  js::CellFetch event;
  event.request = std::move(fetch->request);
  auto go = [this, to = std::move(fetch->to), event = std::move(event)](std::shared_ptr<HttpExchange> e,
                                                                        js::Body body) mutable {
    event.request.body = std::move(body);
    event.journey.from_peer = true;
    event.caller = std::make_shared<js::CallerLink>();
    // A peer that closes its side has cancelled the call.
    e->on_disconnect([caller = event.caller] { caller->hang_up(); });
    event.reply = [answer = PeerAnswer(*this, std::move(e))](js::Outcome<js::HttpResponseMessage> outcome) mutable {
      if (!outcome) return answer.give(std::unexpected(std::move(outcome).error()));
      answer.give(std::move(*outcome));
    };
    call_cell(std::move(to), std::move(event));
  };
  const RequestHead& head = exchange->head();
  if (!fetch->has_body) return go(std::move(exchange), std::monostate{});
  if (!head.has_body) return go(std::move(exchange), Blob());
  if (head.content_length && *head.content_length <= kWholeBodyBytesMax) {
    read_whole(std::move(exchange), kWholeBodyBytesMax,
               [go = std::move(go)](std::shared_ptr<HttpExchange> e, Blob body) mutable {
                 go(std::move(e), std::move(body));
               });
    return;
  }
  auto pipe = stream_request_body(world_, exchange);
  go(std::move(exchange), std::move(pipe));
}

void Loop::serve_peer_rpc(std::shared_ptr<HttpExchange> exchange) {
  auto rpc = decode_peer_rpc(exchange->head().header_block);
  if (!rpc) return refuse(*exchange, 400, "malformed", rpc.error().message);
  read_whole(std::move(exchange), kArgumentBytesMax,
             [this, rpc = std::move(*rpc)](std::shared_ptr<HttpExchange> e, Blob arguments) mutable {
               js::CellRpc event;
               event.method = std::move(rpc.method);
               event.arguments = std::move(arguments);
               event.journey.from_peer = true;
               event.caller = std::make_shared<js::CallerLink>();
               e->on_disconnect([caller = event.caller] { caller->hang_up(); });
               event.reply = [answer = PeerAnswer(*this, std::move(e))](js::Outcome<Blob> outcome) mutable {
                 if (!outcome) return answer.give(std::unexpected(std::move(outcome).error()));
                 answer.give(std::move(*outcome));
               };
               call_cell(std::move(rpc.to), std::move(event));
             });
}

void Loop::answer_peer(std::shared_ptr<HttpExchange> exchange, PeerAnswer::Answer answer) {
  // What the lease no longer covers is not said, although it is durable.
  if (answer && !has_authority()) {
    answer = js::js_fail("this node has lost its lease", js::kRetryable | js::kObjectReset);
  }
  if (!answer) {
    exchange->respond(200, "", encode_peer_reply(PeerReply::Kind::kError, authority_left()),
                      Blob(encode_peer_error(answer.error())));
    return;
  }
  if (auto* value = std::get_if<Blob>(&*answer)) {
    exchange->respond(200, "", encode_peer_reply(PeerReply::Kind::kValue, authority_left()), std::move(*value));
    return;
  }
  auto& response = std::get<js::HttpResponseMessage>(*answer);
  std::string block = encode_peer_response(response, authority_left());
  if (auto* pipe = std::get_if<js::PipeReader>(&response.body)) {
    exchange->on_gone([reader = pipe->pipe()] { reader->cancel(); });
    exchange->start_response(200, "", block, (*pipe)->length());
    stream_response_body(world_, std::move(exchange), std::move(*pipe));
    return;
  }
  Blob body;
  if (auto* blob = std::get_if<Blob>(&response.body)) body = std::move(*blob);
  exchange->respond(200, "", block, std::move(body));
}

}  // namespace celld
