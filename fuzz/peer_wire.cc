// Heads of requests and replies between nodes: any text is decoded or refused, and what is decoded means the same
// when it is sent again.
// links: node
#include "node/peer_wire.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/check.h"

using namespace celld;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = as_chars({data, size});
  if (auto fetch = decode_peer_fetch(text)) {
    if (fetch->has_body) fetch->request.body = Blob();
    std::string block = encode_peer_fetch(fetch->to, fetch->request);
    auto again = decode_peer_fetch(block);
    CHECK(again);
    CHECK(again->to.cell == fetch->to.cell && again->to.name == fetch->to.name);
    CHECK(again->request.method == fetch->request.method && again->request.url == fetch->request.url);
    CHECK(again->request.headers == fetch->request.headers && again->has_body == fetch->has_body);
  }
  if (auto rpc = decode_peer_rpc(text)) {
    auto again = decode_peer_rpc(encode_peer_rpc(rpc->to, rpc->method));
    CHECK(again && again->to.cell == rpc->to.cell && again->method == rpc->method);
  }
  if (auto reply = decode_peer_reply(text); reply && reply->kind == PeerReply::Kind::kFetch) {
    auto again = decode_peer_reply(encode_peer_response(reply->response, reply->authority));
    CHECK(again && again->response.headers == reply->response.headers && again->authority == reply->authority);
    CHECK(again->response.status == reply->response.status);
  }
  if (auto error = decode_peer_error(text)) {
    CHECK(encode_peer_error(*error) == text);
  }
  return 0;
}
