// What peers and the bucket say about the fleet's secret: any text is decoded or refused, what is decoded
// has one spelling, and no text passes for a signature.
// links: peer
#include "peer/signature.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/check.h"

using namespace celld;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = as_chars({data, size});
  if (auto signature = parse_peer_signature(text)) {
    CHECK(encode_peer_signature(*signature) == text);
  }
  if (auto secret = decode_peer_auth(text)) {
    CHECK(encode_peer_auth(*secret) == text);
  }
  static PeerChecker checker(PeerSecret({1, 2, 3}), NodeId("b"));
  CHECK(!checker.check(PeerRequest{"GET", "/", text}, WallMs{1'700'000'000'000}));
  std::string block = std::string(kPeerSignatureHeader) + "\n" + std::string(text);
  CHECK(!checker.check(PeerRequest{"GET", "/", block}, WallMs{1'700'000'000'000}));
  return 0;
}
