// What nodes say to each other about cells, as HTTP/1.1: docs/peer-protocol.md.
//
// Pure functions between messages and header blocks; any thread. Everything decoded may have been
// written by anybody.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "js/messages.h"

namespace celld {

// In the lease. Nodes with another number do not forward to each other.
inline constexpr uint32_t kPeerProtocol = 1;

inline constexpr std::string_view kPeerFetchTarget = "/__celld/peer/fetch";
inline constexpr std::string_view kPeerRpcTarget = "/__celld/peer/rpc";
inline constexpr std::string_view kPeerPingTarget = "/__celld/peer/ping";

// Bodies are not part of these; `has_body` says whether there is one, maybe of no bytes.
struct PeerFetch {
  js::CellAddress to;
  js::HttpRequestMessage request;
  bool has_body = false;
};
struct PeerRpc {
  js::CellAddress to;
  std::string method;
};
std::string encode_peer_fetch(const js::CellAddress& to, const js::HttpRequestMessage& request);
std::string encode_peer_rpc(const js::CellAddress& to, std::string_view method);
// kInvalid names the header.
Result<PeerFetch> decode_peer_fetch(std::string_view header_block);
Result<PeerRpc> decode_peer_rpc(std::string_view header_block);

// The head of a reply; all of them have HTTP status 200.
struct PeerReply {
  enum class Kind : uint8_t { kFetch, kValue, kError, kPong };
  enum class BodyKind : uint8_t { kNone, kBytes, kStream };
  Kind kind = Kind::kPong;
  // How long the node that answers still has authority, as it knows; not below 0.
  std::chrono::milliseconds authority{0};
  js::HttpResponseMessage response;  // of kFetch, without its body
  BodyKind body = BodyKind::kNone;   // of kFetch
};
std::string encode_peer_reply(PeerReply::Kind kind, std::chrono::milliseconds authority);
std::string encode_peer_response(const js::HttpResponseMessage& response, std::chrono::milliseconds authority);
Result<PeerReply> decode_peer_reply(std::string_view header_block);

// The body of a kError reply.
std::string encode_peer_error(const js::JsError& error);
Result<js::JsError> decode_peer_error(std::string_view bytes);

}  // namespace celld
