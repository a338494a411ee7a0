// The secret that the nodes of one fleet share: fleet/peer-auth.json, layout in docs/formats/peer-auth.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/bucket.h"

namespace celld {

inline constexpr std::string_view kPeerAuthKey = "fleet/peer-auth.json";

// Never printed, never in an error.
class PeerSecret {
 public:
  static constexpr size_t kBytes = 32;
  explicit PeerSecret(const std::array<uint8_t, kBytes>& bytes) : bytes_(bytes) {}
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes_.data()), kBytes}; }
  friend bool operator==(const PeerSecret& a, const PeerSecret& b);  // in constant time

 private:
  std::array<uint8_t, kBytes> bytes_;
};

// Canonical. Pure; any thread.
std::string encode_peer_auth(const PeerSecret& secret);
// Unlike other records it refuses unknown fields: whoever adds one means that old nodes must not go on.
// kUnsupported for another version, otherwise kCorrupt; errors never show the text.
Result<PeerSecret> decode_peer_auth(std::string_view json, std::string_view key = kPeerAuthKey);

// The secret in the bucket; drawn and created when there is none. Of nodes that do so at once all return
// the same. Costs one GET, for the first node also a PUT. On the control thread.
Task<Result<PeerSecret>> obtain_peer_secret(Bucket& bucket, Deadline deadline);

}  // namespace celld
