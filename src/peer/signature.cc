#include "peer/signature.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hex.h"
#include "store/digest.h"

namespace celld {

namespace {

constexpr std::string_view kDomain = "celld-peer-request-1";
constexpr std::string_view kVersion = "1";
constexpr size_t kValueBytesMax = 512;
constexpr int64_t kTimeMax = int64_t{1} << 53;
// Sessions that no longer count are looked for this often, and when there is no room.
constexpr int64_t kLookEveryMs = 1000;

// These belong to one connection; whoever relays may set them.
constexpr std::string_view kOfTheConnection[] = {
    "connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
    kPeerSignatureHeader};

std::string_view take_line(std::string_view& text) {
  size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// Neither a request line nor a header holds a line feed, so different requests give different texts.
std::string text_to_sign(const PeerRequest& request, std::string_view stamp) {
  std::string out;
  out.reserve(64 + stamp.size() + request.method.size() + request.target.size() + request.header_block.size());
  for (std::string_view part : {kDomain, stamp, request.method, request.target}) out.append(part).append("\n");
  std::string_view rest = request.header_block;
  while (!rest.empty()) {
    std::string_view name = take_line(rest);
    std::string_view value = take_line(rest);
    if (std::ranges::find(kOfTheConnection, name) != std::end(kOfTheConnection)) continue;
    out.append(name).append("\n").append(value).append("\n");
  }
  return out;
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += hex_fixed(static_cast<uint8_t>(c), 2);
  return out;
}

std::string stamp_text(const PeerStamp& s) {
  std::string_view nonce(reinterpret_cast<const char*>(s.nonce.data()), s.nonce.size());
  return std::string(kVersion) + " " + s.source.value + " " + s.target.value + " " + std::to_string(s.time.value) +
         " " + to_hex(nonce);
}

std::string mac_of(const PeerSecret& secret, const PeerRequest& request, const PeerStamp& stamp) {
  return to_hex(hmac_sha256_bytes(secret.view(), text_to_sign(request, stamp_text(stamp))));
}

std::string_view take_word(std::string_view& text) {
  size_t end = std::min(text.find(' '), text.size());
  std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// The only header of its name; two would leave open which one counts.
std::optional<std::string_view> signature_header(std::string_view block, bool* twice) {
  std::optional<std::string_view> found;
  while (!block.empty()) {
    std::string_view name = take_line(block);
    std::string_view value = take_line(block);
    if (name != kPeerSignatureHeader) continue;
    *twice = found.has_value();
    if (*twice) break;
    found = value;
  }
  return found;
}

std::unexpected<PeerRefused> refuse(PeerRefusal reason, int status, std::string text) {
  return std::unexpected(PeerRefused{reason, status, std::move(text)});
}

}  // namespace

std::string encode_peer_signature(const PeerSignature& signature) {
  return stamp_text(signature.stamp) + " " + signature.mac;
}

std::optional<PeerSignature> parse_peer_signature(std::string_view value) {
  if (value.size() > kValueBytesMax) return std::nullopt;
  std::string_view rest = value;
  if (take_word(rest) != kVersion) return std::nullopt;
  auto source = parse_node_id(take_word(rest));
  auto target = parse_node_id(take_word(rest));
  auto time = parse_decimal(take_word(rest));
  std::string_view nonce = take_word(rest);
  std::string_view mac = rest;
  if (!source || !target || !time || *time > kTimeMax || nonce.size() != 32 || mac.size() != 64) return std::nullopt;
  PeerSignature out{PeerStamp{std::move(*source), std::move(*target), WallMs{static_cast<int64_t>(*time)}, {}}, ""};
  for (size_t i = 0; i < out.stamp.nonce.size(); ++i) {
    auto byte = parse_hex_fixed(nonce.substr(2 * i, 2), 2);
    if (!byte) return std::nullopt;
    out.stamp.nonce[i] = static_cast<uint8_t>(*byte);
  }
  for (size_t i = 0; i < mac.size(); i += 16) {
    if (!parse_hex_fixed(mac.substr(i, 16), 16)) return std::nullopt;
  }
  out.mac = mac;
  return out;
}

std::string sign_peer_request(const PeerSecret& secret, const PeerRequest& request, const PeerStamp& stamp) {
  CHECK(stamp.time.value >= 0 && stamp.time.value <= kTimeMax) << stamp.time;
  return encode_peer_signature(PeerSignature{stamp, mac_of(secret, request, stamp)});
}

PeerNonce peer_nonce(uint64_t session, uint64_t number) {
  PeerNonce nonce;
  for (size_t i = 0; i < 8; ++i) {
    nonce[i] = static_cast<uint8_t>(session >> (56 - 8 * i));
    nonce[8 + i] = static_cast<uint8_t>(number >> (56 - 8 * i));
  }
  return nonce;
}

void NonceMemory::forget_old(WallMs now) {
  if (now.value - looked_at_ < kLookEveryMs && now.value >= looked_at_ && sessions_.size() < sessions_max_) return;
  looked_at_ = now.value;
  std::erase_if(sessions_, [&](const auto& entry) {
    if (entry.second->newest_time >= now.value - kPeerClockWindow.count()) return false;
    forgotten_ = std::max(forgotten_, entry.second->newest_time);
    return true;
  });
}

NonceMemory::Answer NonceMemory::enter(WallMs time, const PeerNonce& nonce, WallMs now) {
  ByteReader reader(as_chars(nonce));
  uint64_t id = reader.u64();
  uint64_t number = reader.u64();
  std::lock_guard lock(mutex_);
  forget_old(now);
  if (time.value <= forgotten_) return Answer::kSeen;
  auto it = sessions_.find(id);
  if (it == sessions_.end()) {
    if (sessions_.size() >= sessions_max_) return Answer::kFull;
    it = sessions_.emplace(id, std::make_unique<Session>()).first;
    it->second->newest = number;
  }
  Session& s = *it->second;
  auto word = [&](uint64_t n) -> uint64_t& { return s.seen[n % kWindow / 64]; };
  if (number > s.newest) {
    if (number - s.newest >= kWindow) {
      s.seen.fill(0);
    } else {
      for (uint64_t n = s.newest + 1; n != number; ++n) word(n) &= ~(uint64_t{1} << n % 64);
      word(number) &= ~(uint64_t{1} << number % 64);
    }
    s.newest = number;
  } else if (s.newest - number >= kWindow) {
    return Answer::kSeen;
  }
  uint64_t bit = uint64_t{1} << number % 64;
  if ((word(number) & bit) != 0) return Answer::kSeen;
  word(number) |= bit;
  s.newest_time = std::max(s.newest_time, time.value);
  return Answer::kFresh;
}

std::expected<NodeId, PeerRefused> PeerChecker::check(const PeerRequest& request, WallMs now) {
  bool twice = false;
  auto header = signature_header(request.header_block, &twice);
  if (!header) return refuse(PeerRefusal::kUnsigned, 401, "the request is not signed");
  auto signature = twice ? std::nullopt : parse_peer_signature(*header);
  if (!signature) return refuse(PeerRefusal::kMalformed, 401, "the signature is malformed or of another version");
  const PeerStamp& stamp = signature->stamp;
  std::string mac = mac_of(secret_, request, stamp);
  // First of all: who does not hold the secret learns nothing else.
  if (CRYPTO_memcmp(mac.data(), signature->mac.data(), mac.size()) != 0) {
    return refuse(PeerRefusal::kSignature, 401,
                  "the signature does not fit: another fleet's secret, or the request was changed on its way");
  }
  if (stamp.target != self_) {
    return refuse(PeerRefusal::kWrongNode, 409,
                  "the request is for node " + stamp.target.value + ", this is node " + self_.value);
  }
  int64_t ahead = stamp.time.value - now.value;
  if (std::abs(ahead) > kPeerClockWindow.count()) {
    return refuse(PeerRefusal::kClock, 401,
                  "the clock of node " + stamp.source.value + " is " + std::to_string(std::abs(ahead)) + " ms " +
                      (ahead > 0 ? "ahead of" : "behind") + " that of node " + self_.value +
                      " (at most 30000), or the request was long on its way");
  }
  switch (nonces_.enter(stamp.time, stamp.nonce, now)) {
    case NonceMemory::Answer::kFresh: break;
    case NonceMemory::Answer::kSeen: return refuse(PeerRefusal::kReplayed, 409, "the request was here before");
    case NonceMemory::Answer::kFull:
      return refuse(PeerRefusal::kFull, 503, "more sessions of peers than are remembered; try again in a second");
  }
  return stamp.source;
}

}  // namespace celld
