// The signature that a request from node to node carries, and its check.
//
// HMAC-SHA256 by the fleet's secret over method, target, all headers but those of the connection, time,
// nonce and both nodes: docs/peer-signature.md. The body is not covered, so that it can be streamed.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <expected>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/ids.h"
#include "peer/secret.h"

namespace celld {

inline constexpr std::string_view kPeerSignatureHeader = "x-celld-peer-signature";
inline constexpr std::chrono::milliseconds kPeerClockWindow{30'000};  // in both directions

// Refers to memory of the caller.
struct PeerRequest {
  std::string_view method;
  std::string_view target;        // as in the request line
  std::string_view header_block;  // "name\nvalue\n...", names in lower case
};

// Never used twice: 8 unpredictable bytes of the sender's session, and a number that grows within it
// (big-endian).
using PeerNonce = std::array<uint8_t, 16>;

PeerNonce peer_nonce(uint64_t session, uint64_t number);

// Who signed, for whom, and when.
struct PeerStamp {
  NodeId source;
  NodeId target;
  WallMs time;      // from 0
  PeerNonce nonce;
  friend bool operator==(const PeerStamp&, const PeerStamp&) = default;
};

// The value of kPeerSignatureHeader. Pure.
std::string sign_peer_request(const PeerSecret& secret, const PeerRequest& request, const PeerStamp& stamp);

struct PeerSignature {
  PeerStamp stamp;
  std::string mac;  // 64 lowercase hex digits
};
// Nothing for what sign_peer_request never gives. Pure.
std::optional<PeerSignature> parse_peer_signature(std::string_view value);
std::string encode_peer_signature(const PeerSignature& signature);

// Nonces that may not come again.
//
// Of each session it remembers the newest number and which of the kWindow numbers up to it were here;
// anything older counts as seen. So the memory grows with the sessions of a minute and not with the
// requests. When it is full, new sessions are refused and none that still counts is forgotten. Only
// what carries a right signature gets in, so a stranger cannot fill it. Any thread.
class NonceMemory {
 public:
  // Of the numbers of one session that are under way at once.
  static constexpr uint64_t kWindow = 16'384;

  enum class Answer : uint8_t { kFresh, kSeen, kFull };
  explicit NonceMemory(size_t sessions_max) : sessions_max_(sessions_max) {}

  // kSeen also for times up to that of anything forgotten: a clock that was set back opens no gap.
  Answer enter(WallMs time, const PeerNonce& nonce, WallMs now);

 private:
  struct Session {
    int64_t newest_time = 0;
    uint64_t newest = 0;
    std::array<uint64_t, kWindow / 64> seen{};  // a ring of bits, by number
  };
  void forget_old(WallMs now);

  const size_t sessions_max_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  int64_t looked_at_ = 0;   // when what is old was last forgotten
  int64_t forgotten_ = -1;         // the newest time among the forgotten
};

enum class PeerRefusal : uint8_t { kUnsigned, kMalformed, kSignature, kWrongNode, kClock, kReplayed, kFull };

struct PeerRefused {
  PeerRefusal reason;
  int status;        // of HTTP
  std::string text;  // for the other side's log; says about clocks and nodes only to who holds the secret
};

// Checks requests to one node. Any thread.
class PeerChecker {
 public:
  static constexpr size_t kSessionsMax = 20'000;  // of one minute, at most about 45 MiB

  PeerChecker(PeerSecret secret, NodeId self, size_t sessions_max = kSessionsMax)
      : secret_(secret), self_(std::move(self)), nonces_(sessions_max) {}

  // Who sent it.
  std::expected<NodeId, PeerRefused> check(const PeerRequest& request, WallMs now);

 private:
  const PeerSecret secret_;
  const NodeId self_;
  NonceMemory nonces_;
};

}  // namespace celld
