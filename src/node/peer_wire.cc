#include "node/peer_wire.h"

#include <charconv>
#include <optional>

#include "base/bytes.h"
#include "base/hex.h"

namespace celld {

namespace {

constexpr std::string_view kInner = "h-";  // before the name of every header that is passed on
constexpr std::string_view kOwn = "x-celld-";
constexpr uint32_t kErrorVersion = 1;
constexpr uint64_t kAuthorityMsMax = 3'600'000;

void put(std::string& block, std::string_view name, std::string_view value) {
  block.append(kOwn).append(name).append("\n").append(value).append("\n");
}

bool plain(char c) { return c > ' ' && c < 0x7f && c != '%'; }

// Any bytes as a value of visible ASCII.
std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (plain(c)) {
      out += c;
    } else {
      out += '%';
      out += hex_fixed(static_cast<uint8_t>(c), 2);
    }
  }
  return out;
}

std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!plain(text[i])) return std::nullopt;
      out += text[i];
      continue;
    }
    auto byte = parse_hex_fixed(text.substr(i + 1, 2), 2);
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    i += 2;
  }
  return out;
}

std::string_view take_line(std::string_view& text) {
  size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void put_inner(std::string& block, std::string_view headers) {
  while (!headers.empty()) {
    std::string_view name = take_line(headers);
    std::string_view value = take_line(headers);
    block.append(kInner).append(name).append("\n").append(value).append("\n");
  }
}

// Calls back with the name, without "x-celld-", and value of each header of ours, once each, and puts
// what is passed on into `inner`. The others are the connection's.
template <class Own>
Result<void> for_each_header(std::string_view block, std::string* inner, Own own) {
  while (!block.empty()) {
    std::string_view name = take_line(block);
    std::string_view value = take_line(block);
    if (name.starts_with(kInner)) {
      if (inner && name.size() > kInner.size()) {
        inner->append(name.substr(kInner.size())).append("\n").append(value).append("\n");
      }
    } else if (name.starts_with(kOwn)) {
      if (!own(name.substr(kOwn.size()), value)) {
        return fail(Error::invalid("the header " + std::string(name.substr(0, 64)) + " is malformed or repeated"));
      }
    }
  }
  return {};
}

// Sets what is not set yet.
template <class T>
bool set_once(std::optional<T>& out, std::optional<T> value) {
  if (out || !value) return false;
  out = std::move(value);
  return true;
}

std::optional<uint64_t> number(std::string_view text, uint64_t max) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

Error missing(std::string_view name) {
  return Error::invalid("the header x-celld-" + std::string(name) + " is missing");
}

std::string address(const js::CellAddress& to) {
  std::string block;
  put(block, "cell", to.cell.value);
  if (to.name) put(block, "name", escape(*to.name));
  return block;
}

constexpr std::string_view kBodyNames[] = {"none", "bytes", "stream"};

std::string_view body_name(const js::Body& body) { return kBodyNames[body.index()]; }

std::optional<PeerReply::BodyKind> parse_body(std::string_view text) {
  for (size_t i = 0; i < std::size(kBodyNames); ++i) {
    if (text == kBodyNames[i]) return static_cast<PeerReply::BodyKind>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string encode_peer_fetch(const js::CellAddress& to, const js::HttpRequestMessage& request) {
  std::string block = address(to);
  block.reserve(block.size() + 2 * request.headers.size() + request.url.size() + 256);
  put(block, "method", escape(request.method));
  put(block, "url", escape(request.url));
  if (!request.cf.empty()) put(block, "cf", escape(request.cf));
  put(block, "body", body_name(request.body));
  put_inner(block, request.headers);
  return block;
}

std::string encode_peer_rpc(const js::CellAddress& to, std::string_view method) {
  std::string block = address(to);
  put(block, "method", escape(method));
  return block;
}

Result<PeerFetch> decode_peer_fetch(std::string_view header_block) {
  PeerFetch out;
  std::optional<CellId> cell;
  std::optional<std::string> name, method, url, cf;
  std::optional<PeerReply::BodyKind> body;
  TRY(for_each_header(header_block, &out.request.headers, [&](std::string_view key, std::string_view value) {
    if (key == "cell") return set_once(cell, parse_cell_id(value));
    if (key == "name") return set_once(name, unescape(value));
    if (key == "method") return set_once(method, unescape(value));
    if (key == "url") return set_once(url, unescape(value));
    if (key == "cf") return set_once(cf, unescape(value));
    if (key == "body") return set_once(body, parse_body(value));
    return true;
  }));
  if (!cell) return fail(missing("cell"));
  if (!method || method->empty()) return fail(missing("method"));
  if (!url || url->empty()) return fail(missing("url"));
  if (!body) return fail(missing("body"));
  out.to.cell = std::move(*cell);
  out.to.name = std::move(name);
  out.request.method = std::move(*method);
  out.request.url = std::move(*url);
  out.request.cf = std::move(cf).value_or("");
  out.has_body = *body != PeerReply::BodyKind::kNone;
  return out;
}

Result<PeerRpc> decode_peer_rpc(std::string_view header_block) {
  PeerRpc out;
  std::optional<CellId> cell;
  std::optional<std::string> name, method;
  TRY(for_each_header(header_block, nullptr, [&](std::string_view key, std::string_view value) {
    if (key == "cell") return set_once(cell, parse_cell_id(value));
    if (key == "name") return set_once(name, unescape(value));
    if (key == "method") return set_once(method, unescape(value));
    return true;
  }));
  if (!cell) return fail(missing("cell"));
  if (!method) return fail(missing("method"));
  out.to.cell = std::move(*cell);
  out.to.name = std::move(name);
  out.method = std::move(*method);
  return out;
}

std::string encode_peer_reply(PeerReply::Kind kind, std::chrono::milliseconds authority) {
  static constexpr std::string_view kNames[] = {"fetch", "value", "error", "pong"};
  std::string block;
  put(block, "reply", kNames[static_cast<size_t>(kind)]);
  put(block, "authority-ms", std::to_string(std::max<int64_t>(authority.count(), 0)));
  return block;
}

std::string encode_peer_response(const js::HttpResponseMessage& response, std::chrono::milliseconds authority) {
  std::string block = encode_peer_reply(PeerReply::Kind::kFetch, authority);
  put(block, "status", std::to_string(response.status));
  if (!response.status_text.empty()) put(block, "reason", escape(response.status_text));
  put(block, "body", body_name(response.body));
  put_inner(block, response.headers);
  return block;
}

Result<PeerReply> decode_peer_reply(std::string_view header_block) {
  PeerReply out;
  std::optional<std::string> kind, reason;
  std::optional<uint64_t> authority, status;
  std::optional<PeerReply::BodyKind> body;
  TRY(for_each_header(header_block, &out.response.headers, [&](std::string_view key, std::string_view value) {
    if (key == "reply") return set_once(kind, std::optional<std::string>(value));
    if (key == "authority-ms") return set_once(authority, number(value, kAuthorityMsMax));
    if (key == "status") return set_once(status, number(value, 999));
    if (key == "reason") return set_once(reason, unescape(value));
    if (key == "body") return set_once(body, parse_body(value));
    return true;
  }));
  if (!kind) return fail(missing("reply"));
  if (!authority) return fail(missing("authority-ms"));
  out.authority = std::chrono::milliseconds(*authority);
  if (*kind == "fetch") {
    if (!status) return fail(missing("status"));
    if (!body) return fail(missing("body"));
    out.kind = PeerReply::Kind::kFetch;
    out.response.status = static_cast<int>(*status);
    out.response.status_text = std::move(reason).value_or("");
    out.body = *body;
  } else if (*kind == "value") {
    out.kind = PeerReply::Kind::kValue;
  } else if (*kind == "error") {
    out.kind = PeerReply::Kind::kError;
  } else if (*kind == "pong") {
    out.kind = PeerReply::Kind::kPong;
  } else {
    return fail(Error::invalid("the header x-celld-reply names no kind of reply"));
  }
  return out;
}

std::string encode_peer_error(const js::JsError& error) {
  std::string out;
  put_be(out, kErrorVersion, 1);
  put_be(out, error.flags, 4);
  for (const std::string* part : {&error.name, &error.message, &error.stack, &error.packed}) {
    put_be(out, part->size(), 4);
    out += *part;
  }
  return out;
}

Result<js::JsError> decode_peer_error(std::string_view bytes) {
  ByteReader reader(bytes);
  js::JsError error;
  uint32_t version = reader.u8();
  error.flags = reader.u32();
  for (std::string* part : {&error.name, &error.message, &error.stack, &error.packed}) {
    uint32_t size = reader.u32();
    *part = reader.take(size);
  }
  if (!reader.ok() || reader.left() != 0 || version != kErrorVersion) {
    return fail(Error::invalid("the error in the reply is malformed"));
  }
  return error;
}

}  // namespace celld
