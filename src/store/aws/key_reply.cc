#include "store/aws/key_reply.h"

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/s3_xml.h"

namespace celld {

namespace {

constexpr size_t kKeyCharsMax = 512;
constexpr size_t kTokenCharsMax = 32 << 10;

bool header_safe(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// "2030-01-02T03:04:05Z"
std::string format_iso8601(WallMs when) {
  std::time_t seconds = static_cast<std::time_t>(when.value / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

Result<AwsKeys> checked(AwsKeys keys, std::string_view expiration) {
  TRY(check_keys(keys.keys));
  if (!expiration.empty()) {
    keys.expires = parse_iso8601(expiration);
    if (!keys.expires) return fail(Error::invalid("'Expiration' is no time"));
  }
  return keys;
}

Result<JsonDocument> parse_json(std::string_view json) {
  return JsonDocument::parse(json, "the answer", ErrorCode::kInvalid);
}

}  // namespace

Result<void> check_keys(const S3Credentials& keys) {
  if (keys.access_key.empty()) return fail(Error::invalid("no access key"));
  if (keys.secret_key.empty()) return fail(Error::invalid("no secret key"));
  if (!header_safe(keys.access_key) || keys.access_key.size() > kKeyCharsMax) {
    return fail(Error::invalid("the access key holds characters that no key has"));
  }
  if (!header_safe(keys.session_token) || keys.session_token.size() > kTokenCharsMax) {
    return fail(Error::invalid("the session token holds characters that no token has"));
  }
  return {};
}

Result<AwsKeys> parse_metadata_keys(std::string_view json) {
  TRY_ASSIGN(JsonDocument document, parse_json(json));
  JsonFields fields = document.fields();
  std::string code = fields.text_or("Code", "Success", kKeyCharsMax);
  if (code != "Success") {
    std::string message = fields.text_or("Message", "", kTokenCharsMax);
    return fail(Error::invalid(printable_key(code + (message.empty() ? "" : ": " + message))));
  }
  AwsKeys out;
  out.keys.access_key = fields.text("AccessKeyId", kKeyCharsMax);
  out.keys.secret_key = fields.text("SecretAccessKey", kKeyCharsMax);
  out.keys.session_token = fields.text_or("Token", "", kTokenCharsMax);
  std::string expiration = fields.text_or("Expiration", "", 64);
  TRY(fields.done());
  return checked(std::move(out), expiration);
}

Result<AwsKeys> parse_process_keys(std::string_view json) {
  TRY_ASSIGN(JsonDocument document, parse_json(json));
  JsonFields fields = document.fields();
  const uint64_t version = fields.number("Version", 0, 1'000'000);
  AwsKeys out;
  out.keys.access_key = fields.text("AccessKeyId", kKeyCharsMax);
  out.keys.secret_key = fields.text("SecretAccessKey", kKeyCharsMax);
  out.keys.session_token = fields.text_or("SessionToken", "", kTokenCharsMax);
  std::string expiration = fields.text_or("Expiration", "", 64);
  TRY(fields.done());
  if (version != 1) return fail(Error::invalid("'Version' is not 1"));
  return checked(std::move(out), expiration);
}

Result<AwsKeys> parse_sso_keys(std::string_view json) {
  TRY_ASSIGN(JsonDocument document, parse_json(json));
  JsonFields fields = document.fields();
  JsonFields role = fields.object("roleCredentials");
  AwsKeys out;
  out.keys.access_key = role.text("accessKeyId", kKeyCharsMax);
  out.keys.secret_key = role.text("secretAccessKey", kKeyCharsMax);
  out.keys.session_token = role.text("sessionToken", kTokenCharsMax);
  out.expires = WallMs{role.integer("expiration", 1, int64_t(1) << 50)};
  TRY(role.done());
  TRY(check_keys(out.keys));
  return out;
}

Result<SsoToken> parse_sso_token(std::string_view json) {
  TRY_ASSIGN(JsonDocument document, parse_json(json));
  JsonFields fields = document.fields();
  SsoToken out;
  out.token = fields.text("accessToken", kTokenCharsMax);
  std::string expires = fields.text("expiresAt", 64);
  out.refresh_token = fields.text_or("refreshToken", "", kTokenCharsMax);
  out.client_id = fields.text_or("clientId", "", kTokenCharsMax);
  out.client_secret = fields.text_or("clientSecret", "", kTokenCharsMax);
  std::string client_expires = fields.text_or("registrationExpiresAt", "", 64);
  TRY(fields.done());
  auto when = parse_iso8601(expires);
  if (!when) return fail(Error::invalid("'expiresAt' is no time"));
  if (out.token.empty() || !header_safe(out.token)) {
    return fail(Error::invalid("'accessToken' holds characters that no token has"));
  }
  out.expires = *when;
  out.client_expires = parse_iso8601(client_expires);
  return out;
}

std::string SsoToken::not_renewable(WallMs now) const {
  if (refresh_token.empty()) return "no 'refreshToken'";
  if (client_id.empty()) return "no 'clientId'";
  if (client_secret.empty()) return "no 'clientSecret'";
  if (!client_expires) return "no 'registrationExpiresAt'";
  return *client_expires <= now ? "a client registration that has expired" : "";
}

std::string sso_renewal_request(const SsoToken& token) {
  return boost::json::serialize(boost::json::object{{"clientId", token.client_id},
                                                    {"clientSecret", token.client_secret},
                                                    {"grantType", "refresh_token"},
                                                    {"refreshToken", token.refresh_token}});
}

Result<std::string> renewed_sso_cache(std::string_view cached, std::string_view json, WallMs now) {
  constexpr uint64_t kSecondsMax = 10ull * 365 * 24 * 3600;
  TRY(parse_sso_token(cached));
  TRY_ASSIGN(JsonDocument document, parse_json(json));
  JsonFields fields = document.fields();
  const std::string token = fields.text("accessToken", kTokenCharsMax);
  const uint64_t seconds = fields.number("expiresIn", 1, kSecondsMax);
  const std::string refresh_token = fields.text_or("refreshToken", "", kTokenCharsMax);
  TRY(fields.done());
  std::error_code malformed;
  boost::json::value file = boost::json::parse(cached, malformed);
  if (malformed || !file.is_object()) return fail(Error::invalid("the cache is no JSON object"));
  boost::json::object& out = file.get_object();
  out["accessToken"] = token;
  out["expiresAt"] = format_iso8601(WallMs{now.value + static_cast<int64_t>(seconds) * 1000});
  // RFC 6749 section 6: without a new one the old one goes on.
  if (!refresh_token.empty()) out["refreshToken"] = refresh_token;
  std::string text = boost::json::serialize(out);
  TRY(parse_sso_token(text));
  return text;
}

Result<AwsKeys> parse_sts_keys(std::string_view xml) {
  TRY_ASSIGN(XmlElement root, parse_xml(xml));
  const XmlElement* result = nullptr;
  for (const auto& child : root.children) {
    if (child.name.ends_with("Result")) result = &child;
  }
  const XmlElement* found = result != nullptr ? result->child("Credentials") : nullptr;
  if (found == nullptr) return fail(Error::invalid("the answer holds no credentials"));
  AwsKeys out;
  out.keys.access_key = found->child_text("AccessKeyId");
  out.keys.secret_key = found->child_text("SecretAccessKey");
  out.keys.session_token = found->child_text("SessionToken");
  std::string_view expiration = found->child_text("Expiration");
  if (expiration.empty()) return fail(Error::invalid("the answer has no 'Expiration'"));
  return checked(std::move(out), expiration);
}

std::string shown_aws_error(std::string_view body) {
  std::string code, message;
  if (auto xml = parse_xml(body)) {
    const XmlElement* error = xml->name == "Error" ? &*xml : xml->child("Error");
    if (error != nullptr) {
      code = error->child_text("Code");
      message = error->child_text("Message");
    }
  } else if (auto json = JsonDocument::parse(body, "", ErrorCode::kInvalid)) {
    JsonFields fields = json->fields();
    for (const char* name : {"__type", "code", "Code", "error"}) {
      if (code.empty()) code = fields.text_or(name, "", kKeyCharsMax);
    }
    for (const char* name : {"message", "Message", "error_description"}) {
      if (message.empty()) message = fields.text_or(name, "", kTokenCharsMax);
    }
  }
  // STS quotes the canonical request here, with the session token in it.
  if (code.contains("Signature")) message.clear();
  if (code.empty() && message.empty()) return {};
  return printable_key(code + (code.empty() || message.empty() ? "" : ": ") + message);
}

}  // namespace celld
