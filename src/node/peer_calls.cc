#include "node/peer_calls.h"

#include <charconv>
#include <vector>

#include "js/caller_link.h"
#include "js/pipe.h"
#include "net/http_message.h"
#include "node/peer_wire.h"

namespace celld {

namespace {

// Beyond that a node that does not keep up is overloaded.
constexpr size_t kCallsMax = 10'000;
constexpr size_t kRoutesMax = 100'000;
// A node that owes an answer and has been silent for so long is asked whether it lives.
constexpr Duration kSilence = std::chrono::seconds(1);
// A node that could not be connected is not tried again for so long.
constexpr Duration kShunned = std::chrono::seconds(1);
// What is known of a node is kept so long after its authority has ended.
constexpr Duration kRemembered = std::chrono::seconds(60);
// A body up to this is passed on whole, a larger one as a stream.
constexpr uint64_t kWholeBytesMax = 64 << 10;
constexpr size_t kValueBytesMax = 256 << 20;
constexpr size_t kRefusalBytesMax = 4 << 10;

// As workerd says it.
js::JsError lost(const std::string& why) {
  return js::JsError{
      "Error", "Network connection lost.",
      "Error: Network connection lost.\n    at the node of the Durable Object (" + why + ")",
      js::kRetryable};
}

js::JsError not_begun(const std::string& why) {
  return js::JsError{
      "Error", "Durable Object is unavailable: " + why, {}, js::kRetryable | js::kNotBegun};
}

}  // namespace

// One event at another node. Ends once: answered, failed, delivered anew, or given up by its
// caller.
class PeerCalls::Call : public std::enable_shared_from_this<PeerCalls::Call> {
 public:
  Call(PeerCalls& owner, const NodeId& node, js::CellAddress to, js::CellEvent event)
      : owner_(owner),
        services_(owner.services_),
        node_(node),
        to_(std::move(to)),
        event_(std::move(event)) {}

  void start(const Peer& peer) {
    FetchRequest request;
    std::shared_ptr<js::CallerLink> caller;
    if (auto* fetch = std::get_if<js::CellFetch>(&event_)) {
      request = owner_.signed_request(peer, "POST", kPeerFetchTarget,
                                      encode_peer_fetch(to_, fetch->request));
      caller = fetch->caller;
      if (auto* blob = std::get_if<Blob>(&fetch->request.body)) {
        request.body = *blob;
      } else if (auto* pipe = std::get_if<js::PipeReader>(&fetch->request.body)) {
        upload_ = std::move(*pipe);
        request.pull_bytes = upload_->length();
        request.pull = [self = shared_from_this()](auto done) { self->pull(std::move(done)); };
      }
    } else {
      auto& rpc = std::get<js::CellRpc>(event_);
      request =
          owner_.signed_request(peer, "POST", kPeerRpcTarget, encode_peer_rpc(to_, rpc.method));
      caller = rpc.caller;
      request.body = rpc.arguments;
    }
    request.repeatable = !request.pull;  // a nonce is taken once
    FetchHandlers handlers;
    auto self = shared_from_this();
    handlers.on_head = [self](int status, std::string, std::string headers) {
      self->head(status, std::move(headers));
    };
    handlers.on_body = [self](Blob chunk) { self->body(std::move(chunk)); };
    handlers.on_end = [self](Result<void> result) { self->end(std::move(result)); };
    sent_at_ = owner_.world_.now();
    http_ = owner_.client_->start(std::move(request), std::move(handlers));
    if (!caller) return;
    caller->on_hang_up([weak = weak_from_this(), services = services_] {
      services->post([weak] {
        if (auto call = weak.lock()) call->cancel();
      });
    });
  }

  // It may have run.
  void lose(const std::string& why) {
    if (over_) return;
    http_->cancel();
    fail(lost(why));
  }

  void cancel() {
    if (over_) return;
    http_->cancel();
    if (download_) download_->abort(js::JsError{"AbortError", "The operation was aborted", {}, 0});
    finish();
  }

 private:
  void finish() {
    over_ = true;
    upload_.reset();
    auto it = owner_.peers_.find(node_);
    if (it != owner_.peers_.end()) it->second.calls.erase(shared_from_this());
  }

  // The caller learns of the failure by the reply, or by the body once it has that.
  void fail(const js::JsError& error) {
    if (over_) return;
    auto self = shared_from_this();
    finish();
    if (download_) {
      download_->abort(error);
    } else {
      fail_event(event_, error);
    }
  }

  // It did not begin there: the node has refused it, or not got it.
  void again(bool refused) {
    if (pulled_) return fail(not_begun("its node changed while the body was under way."));
    auto self = shared_from_this();
    owner_.routes_.erase(to_.cell);
    if (refused) {
      js::Journey& journey = *journey_of(event_);
      ++journey.sent;
      journey.refused_by = node_;
    }
    if (upload_) std::get<js::CellFetch>(event_).request.body = std::move(upload_);
    finish();
    services_->deliver(std::move(to_), std::move(event_));
  }

  void pull(std::move_only_function<void(Result<Blob>)> done) {
    if (!upload_) return done(celld::fail(Error::cancelled("the call has ended")));
    js::Pipe::Read r = upload_->read();
    switch (r.state) {
      case js::Pipe::Read::State::kData:
        pulled_ = true;
        return done(std::move(r.data));
      case js::Pipe::Read::State::kEnd:
        return done(Blob());
      case js::Pipe::Read::State::kError:
        return done(celld::fail(Error::cancelled("the request body failed: " + r.error.message)));
      case js::Pipe::Read::State::kPending:
        upload_->on_readable([self = shared_from_this(), done = std::move(done)]() mutable {
          auto services = self->services_;
          services->post([self = std::move(self), done = std::move(done)]() mutable {
            self->pull(std::move(done));
          });
        });
    }
  }

  void head(int status, std::string headers) {
    status_ = status;
    if (status != 200) {
      refusal_ = std::string(find_header(headers, "x-celld-refused").value_or(""));
      return;
    }
    auto reply = decode_peer_reply(headers);
    if (!reply) return lose("its reply is no answer of a node: " + reply.error().message);
    kind_ = reply->kind;
    owner_.heard(node_, sent_at_, reply->authority);
    if (kind_ != PeerReply::Kind::kFetch) return;
    if (!std::holds_alternative<js::CellFetch>(event_)) return lose("its reply is of another kind");
    response_ = std::move(reply->response);
    if (reply->body == PeerReply::BodyKind::kNone) return;
    auto length = content_length(headers);
    if (reply->body == PeerReply::BodyKind::kBytes && length && *length <= kWholeBytesMax) {
      whole_ = true;
      return;
    }
    auto [writer, reader] = js::make_pipe(length);
    download_ = std::move(writer);
    download_->on_cancelled([weak = weak_from_this(), services = services_] {
      services->post([weak] {
        if (auto call = weak.lock()) call->cancel();
      });
    });
    response_.body = std::move(reader);
    std::get<js::CellFetch>(event_).reply(std::move(response_));
  }

  static std::optional<uint64_t> content_length(std::string_view headers) {
    auto text = find_header(headers, "content-length");
    uint64_t length = 0;
    if (!text) return std::nullopt;
    auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), length);
    if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
    return length;
  }

  void body(Blob chunk) {
    if (over_) return;
    if (!download_) {
      if (status_ != 200) {
        if (collected_.size() < kRefusalBytesMax)
          collected_ += chunk.view().substr(0, kRefusalBytesMax);
        return;
      }
      if (collected_.size() + chunk.size() > kValueBytesMax)
        return lose("its answer is larger than 256 MiB");
      collected_ += chunk.view();
      return;
    }
    if (download_->write(std::move(chunk)) != js::Pipe::Write::kFull) return;
    http_->pause();
    download_->on_room([self = shared_from_this()] {
      auto services = self->services_;
      services->post([self] { self->http_->resume(); });
    });
  }

  void end(Result<void> result) {
    if (over_) return;
    if (!result) {
      if (result.error().retry == Retry::kNow) {
        owner_.not_reached(node_, result.error().message);
        return again(false);
      }
      return fail(lost(result.error().message));
    }
    if (status_ != 200) return refused();
    auto self = shared_from_this();
    switch (kind_) {
      case PeerReply::Kind::kFetch:
        finish();
        if (download_) {
          download_->close();
        } else {
          if (whole_) response_.body = Blob(std::move(collected_));
          std::get<js::CellFetch>(event_).reply(std::move(response_));
        }
        return;
      case PeerReply::Kind::kValue:
        if (auto* rpc = std::get_if<js::CellRpc>(&event_)) {
          finish();
          return rpc->reply(Blob(std::move(collected_)));
        }
        break;
      case PeerReply::Kind::kError: {
        auto error = decode_peer_error(collected_);
        if (!error) return fail(lost(error.error().message));
        if ((error->flags & js::kElsewhere) != 0) return again(true);
        return fail(*error);
      }
      case PeerReply::Kind::kPong:
        break;
    }
    fail(lost("its reply is of another kind"));
  }

  void refused() {
    if (refusal_ == "wrong-node") return again(true);  // another process has its address now
    if (status_ == 503 && refusal_.empty()) {  // of its listener: it has too many connections
      return fail(js::JsError{"Error",
                              "Durable Object is overloaded. Its node has too many connections.",
                              {},
                              js::kOverloaded | js::kRetryable | js::kNotBegun});
    }
    while (!collected_.empty() && collected_.back() == '\n') collected_.pop_back();
    std::string why =
        "node " + node_.value + " answers " + std::to_string(status_) + ": " + collected_;
    services_->log(js::LogLevel::kError, "PEER-REFUSED: " + why);
    if (refusal_.empty() || refusal_ == "replayed") return fail(lost(why));
    fail(not_begun("its node does not take requests of this node."));
  }

  PeerCalls& owner_;  // not after the end
  const std::shared_ptr<const Services> services_;
  const NodeId node_;
  js::CellAddress to_;
  js::CellEvent event_;
  std::shared_ptr<FetchCall> http_;
  MonoTime sent_at_;
  bool over_ = false;

  js::PipeReader upload_;
  bool pulled_ = false;  // some of it has gone

  int status_ = 0;
  std::string refusal_;
  PeerReply::Kind kind_ = PeerReply::Kind::kPong;
  js::HttpResponseMessage response_;
  bool whole_ = false;
  std::string collected_;
  js::PipeWriter download_;
};

PeerCalls::PeerCalls(boost::asio::io_context& io, World& world, PeerIdentity identity, Services services,
                     long connections_max)
    : io_(io),
      world_(world),
      identity_(std::move(identity)),
      services_(std::make_shared<const Services>(std::move(services))),
      session_(world.random_u64()),
      client_(std::make_unique<FetchClient>(
          io_, FetchOptions{.connections_per_host_max = connections_max})) {}

PeerCalls::~PeerCalls() {
  *alive_ = false;
  std::vector<std::shared_ptr<Call>> calls;
  for (auto& [node, peer] : peers_) calls.insert(calls.end(), peer.calls.begin(), peer.calls.end());
  for (auto& call : calls) call->lose("this node ends");
}

void PeerCalls::learn(const CellId& cell, const OwnedElsewhere& where) {
  Peer& peer = peers_[where.node];
  if (peer.node.empty()) peer.heard_at = world_.now();
  peer.node = where.node;
  peer.addr = where.addr;
  peer.until = std::max(peer.until, where.until);
  if (routes_.size() >= kRoutesMax) routes_.clear();
  routes_[cell] = where.node;
}

bool PeerCalls::forward(js::CellAddress& to, js::CellEvent& event) {
  auto route = routes_.find(to.cell);
  js::Journey* journey = journey_of(event);
  if (route == routes_.end() || !journey || journey->from_peer || journey->sent >= kSentMax)
    return false;
  auto it = peers_.find(route->second);
  if (it == peers_.end() || !answers(it->second)) {
    routes_.erase(route);
    return false;
  }
  Peer& peer = it->second;
  if (peer.calls.size() >= kCallsMax) {
    fail_event(event,
               js::JsError{"Error",
                           "Durable Object is overloaded. Too many requests wait for its node.",
                           {},
                           js::kOverloaded | js::kNotBegun});
    return true;
  }
  if (peer.calls.empty()) peer.heard_at = world_.now();
  auto call = std::make_shared<Call>(*this, peer.node, std::move(to), std::move(event));
  peer.calls.insert(call);
  call->start(peer);
  return true;
}

FetchRequest PeerCalls::signed_request(const Peer& peer, std::string_view method,
                                       std::string_view target, std::string block) {
  PeerStamp stamp{identity_.self, peer.node, world_.wall_now(),
                  peer_nonce(session_, ++last_number_)};
  std::string signature =
      sign_peer_request(identity_.secret, PeerRequest{method, target, block}, stamp);
  FetchRequest request;
  request.method = method;
  request.url = "http://" + peer.addr + std::string(target);
  request.header_block = std::move(block);
  request.header_block.append(kPeerSignatureHeader).append("\n").append(signature).append("\n");
  request.decompress = false;
  return request;
}

void PeerCalls::heard(const NodeId& node, MonoTime sent_at, Duration authority) {
  auto it = peers_.find(node);
  if (it == peers_.end()) return;
  it->second.heard_at = world_.now();
  it->second.until = std::max(it->second.until, sent_at + authority);
}

bool PeerCalls::answers(const Peer& peer) const {
  MonoTime now = world_.now();
  bool silent = peer.asked && now - peer.heard_at >= 2 * kSilence;
  return peer.until > now && peer.shunned_until <= now && !silent;
}

// What is under way goes on: its connections are there.
void PeerCalls::not_reached(const NodeId& node, const std::string& why) {
  auto it = peers_.find(node);
  if (it == peers_.end()) return;
  MonoTime now = world_.now();
  if (it->second.shunned_until <= now) {
    services_->log(js::LogLevel::kWarn,
                   "PEER-UNREACHABLE: node " + node.value + " at " + it->second.addr + ": " + why);
  }
  it->second.shunned_until = now + kShunned;
}

void PeerCalls::ping(Peer& peer) {
  peer.asked = true;
  FetchHandlers handlers;
  struct Pong {
    std::shared_ptr<bool> alive;
    PeerCalls* owner;
    NodeId node;
    MonoTime sent_at;
  };
  auto pong = std::make_shared<Pong>(Pong{alive_, this, peer.node, world_.now()});
  handlers.on_head = [pong](int status, std::string, std::string headers) {
    if (!*pong->alive || status != 200) return;
    if (auto reply = decode_peer_reply(headers))
      pong->owner->heard(pong->node, pong->sent_at, reply->authority);
  };
  handlers.on_end = [pong](const Result<void>&) {
    if (!*pong->alive) return;
    auto it = pong->owner->peers_.find(pong->node);
    if (it != pong->owner->peers_.end()) it->second.asked = false;
  };
  client_->start(signed_request(peer, "GET", kPeerPingTarget, {}), std::move(handlers));
}

void PeerCalls::look_after() {
  MonoTime now = world_.now();
  std::vector<std::shared_ptr<Call>> given_up;
  for (auto& [node, peer] : peers_) {
    if (peer.calls.empty()) continue;
    if (peer.until <= now) {
      given_up.insert(given_up.end(), peer.calls.begin(), peer.calls.end());
    } else if (!peer.asked && now - peer.heard_at >= kSilence) {
      ping(peer);
    }
  }
  for (auto& call : given_up) call->lose("it has not answered until its lease ended");
  std::erase_if(peers_, [&](const auto& entry) {
    return entry.second.calls.empty() && entry.second.until + kRemembered <= now;
  });
}

}  // namespace celld
