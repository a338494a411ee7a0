#include "peer/secret.h"

#include <openssl/crypto.h>

#include <boost/json.hpp>

#include "base/hex.h"
#include "base/json.h"

namespace celld {

namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kRecordBytesMax = 4 << 10;
constexpr int kWordDigits = 16;
constexpr size_t kWordBytes = 8;

}  // namespace

bool operator==(const PeerSecret& a, const PeerSecret& b) {
  return CRYPTO_memcmp(a.bytes_.data(), b.bytes_.data(), PeerSecret::kBytes) == 0;
}

std::string encode_peer_auth(const PeerSecret& secret) {
  std::string key;
  for (char c : secret.view()) key += hex_fixed(static_cast<uint8_t>(c), 2);
  return boost::json::serialize(boost::json::object{{"version", kVersion}, {"key", key}});
}

Result<PeerSecret> decode_peer_auth(std::string_view text, std::string_view key) {
  // Boost.JSON's own message names a place, not the text.
  JsonLimits limits{.bytes_max = kRecordBytesMax, .depth_max = 2};
  TRY_ASSIGN(JsonDocument document, JsonDocument::parse(text, key, ErrorCode::kCorrupt, limits));
  JsonFields f = document.fields();
  uint64_t version = f.number("version", 1, UINT32_MAX);
  TRY(f.done());
  if (version != kVersion) {
    return fail(Error::unsupported(std::string(key) + ": version " + std::to_string(version) +
                                   " is not one that this celld knows (1): use the celld of the other nodes"));
  }
  std::string hex = f.text("key", 2 * PeerSecret::kBytes);
  std::array<uint8_t, PeerSecret::kBytes> bytes{};
  bool good = hex.size() == 2 * PeerSecret::kBytes;
  for (size_t i = 0; good && i < bytes.size(); i += kWordBytes) {
    auto word = parse_hex_fixed(std::string_view(hex).substr(2 * i, kWordDigits), kWordDigits);
    good = word.has_value();
    for (size_t j = 0; good && j < kWordBytes; ++j) bytes[i + j] = static_cast<uint8_t>(*word >> (56 - 8 * j));
  }
  if (!good) f.reject("key", "is not 64 lowercase hex digits");
  TRY(f.done());
  PeerSecret secret(bytes);
  // Two known fields and nothing else, in one spelling.
  if (encode_peer_auth(secret) != text) {
    return fail(Error::make(ErrorCode::kCorrupt, std::string(key) + ": holds more than version and key"));
  }
  return secret;
}

Task<Result<PeerSecret>> obtain_peer_secret(Bucket& bucket, Deadline deadline) {
  std::string key(kPeerAuthKey);
  Result<StoredObject> got = co_await bucket.get(key, deadline);
  if (!got && got.error().code == ErrorCode::kNotFound) {
    std::array<uint8_t, PeerSecret::kBytes> drawn;
    bucket.world().random(drawn);
    PeerSecret secret(drawn);
    Blob body(encode_peer_auth(secret));
    Condition condition = Condition::create();
    Settled settled = co_await bucket.settle(key, std::move(body), std::move(condition), deadline);
    if (settled.kind == Settled::kApplied) co_return secret;
    if (settled.kind == Settled::kUnsettled) co_return fail(std::move(settled.error));
    got = co_await bucket.get(key, deadline);  // another first node was faster
  }
  if (!got) co_return fail(std::move(got).error());
  co_return decode_peer_auth(got->body.view());
}

}  // namespace celld
