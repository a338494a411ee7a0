#include "store/token_http.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr uint64_t kReplyBytesMax = 256 << 10;
constexpr int64_t kLifeSecondsMax = 30ll * 24 * 3600;

std::string refusal(const HttpReply& reply) {
  std::string text = "answered " + std::to_string(reply.status);
  auto document = JsonDocument::parse(reply.body, "reply", ErrorCode::kUnavailable);
  if (!document) return text;
  std::string what;
  JsonFields error = document->fields().object_or_empty("error");
  if (error.has("message")) what = error.text_or("message", "", 4096);  // Google's APIs
  JsonFields fields = document->fields();
  for (const char* name : {"error_description", "message", "error"}) {
    if (what.empty()) what = fields.text_or(name, "", 4096);
  }
  what = what.substr(0, what.find_first_of("\r\n"));
  return what.empty() ? text : text + ": " + printable_key(what);
}

enum class Numbers : bool { kPlain, kText };

int64_t seconds_field(JsonFields& fields, std::string_view name, Numbers numbers) {
  if (numbers == Numbers::kPlain) return fields.integer_or(name, 0, 0, 1ll << 40);
  std::string text = fields.text_or(name, "", 40);
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9' || value > (1ll << 40)) return 0;
    value = value * 10 + (c - '0');
  }
  return value;
}

Result<AccessToken> parse_token(const HttpReply& reply, WallMs asked_wall, MonoTime asked,
                                Numbers numbers) {
  TRY_ASSIGN(JsonDocument document,
             JsonDocument::parse(reply.body, "the reply", ErrorCode::kUnavailable));
  JsonFields fields = document.fields();
  AccessToken token;
  token.value = fields.text("access_token", kTokenBytesMax);
  int64_t life = seconds_field(fields, "expires_in", numbers);
  if (life == 0) {
    const int64_t at = seconds_field(fields, "expires_on", numbers);
    if (at > 0) life = at - asked_wall.value / 1000;
  }
  TRY(fields.done());
  const bool clean = std::all_of(token.value.begin(), token.value.end(),
                                 [](char c) { return c > 0x20 && c < 0x7f; });
  if (token.value.empty() || !clean || life <= 0) {
    return fail(Error::unavailable("the reply has no usable access_token with a life"));
  }
  token.expires = asked + std::chrono::seconds(std::min(life, kLifeSecondsMax));
  return token;
}

}  // namespace

bool is_private_url(std::string_view url) {
  if (std::any_of(url.begin(), url.end(),
                  [](char c) { return c <= 0x20 || c >= 0x7f || c == '#' || c == '@'; })) {
    return false;
  }
  if (url.starts_with("https://")) return true;
  constexpr std::string_view kHttp = "http://";
  if (!url.starts_with(kHttp)) return false;
  std::string_view host = url.substr(kHttp.size());
  host = host.substr(0, host.find_first_of("/?"));
  if (!host.starts_with('[')) host = host.substr(0, host.find(':'));
  if (host == "localhost" || host == "metadata.google.internal" || host.starts_with("[::1]"))
    return true;
  return host.find_first_not_of("0123456789.") == std::string_view::npos &&
         (host.starts_with("127.") || host.starts_with("169.254."));
}

Result<AccessToken> parse_token_reply(const HttpReply& reply, WallMs asked_wall, MonoTime asked) {
  if (reply.status != 200) {
    const bool passing =
        reply.status >= 500 || reply.status == 429 || reply.status == 404 || reply.status == 410;
    return fail(
        Error::make(passing ? ErrorCode::kUnavailable : ErrorCode::kForbidden, refusal(reply)));
  }
  auto plain = parse_token(reply, asked_wall, asked, Numbers::kPlain);
  return plain ? plain : parse_token(reply, asked_wall, asked, Numbers::kText);
}

Task<Result<HttpReply>> HttpTokenSource::perform(HttpCall call, Deadline deadline) {
  call.deadline = deadline;
  call.reply_bytes_max = kReplyBytesMax;
  return transport_->perform(std::move(call));
}

Task<Result<AccessToken>> HttpTokenSource::fetch(Deadline deadline) {
  CO_TRY_ASSIGN(HttpCall call, make_call());
  const MonoTime asked = world_.now();
  const WallMs asked_wall = world_.wall_now();
  Result<HttpReply> reply = co_await perform(std::move(call), deadline);
  if (!reply) co_return fail(std::move(reply).error());
  co_return parse_token_reply(*reply, asked_wall, asked);
}

HttpCall form_call(std::string url, std::string form) {
  HttpCall call;
  call.method = "POST";
  call.url = std::move(url);
  call.headers.emplace_back("content-type", "application/x-www-form-urlencoded");
  call.headers.emplace_back("accept", "application/json");
  call.body = Blob(std::move(form));
  return call;
}

}  // namespace celld
