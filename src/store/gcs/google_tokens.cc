#include "store/gcs/google_tokens.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/json.h"
#include "store/digest.h"
#include "store/file_text.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/token_http.h"

namespace celld {

namespace {

namespace json = boost::json;

constexpr const char* kScope = "https://www.googleapis.com/auth/devstorage.read_write";
constexpr const char* kCloudScope = "https://www.googleapis.com/auth/cloud-platform";
constexpr size_t kFileBytesMax = 256 << 10;
constexpr size_t kFieldBytesMax = 16 << 10;
constexpr int64_t kJwtSeconds = 3600;

Result<std::string> checked_url(JsonFields& fields, const char* name, const char* fallback) {
  std::string url = fields.text_or(name, fallback, kFieldBytesMax);
  if (!url.empty() && !is_private_url(url)) {
    return fail(Error::invalid(std::string(name) + " is not an https URL"));
  }
  return url;
}

// https://developers.google.com/identity/protocols/oauth2/service-account#httprest
class ServiceAccount final : public HttpTokenSource {
 public:
  struct Key {
    std::string email, key_id, private_key, token_url;
  };
  ServiceAccount(World& world, std::shared_ptr<HttpTransport> transport, Key key)
      : HttpTokenSource(world, std::move(transport)), key_(std::move(key)) {}

  std::string describe() const override { return "service account " + printable_key(key_.email); }

 protected:
  Result<HttpCall> make_call() override {
    const int64_t now = world_.wall_now().value / 1000;
    json::object header{{"alg", "RS256"}, {"typ", "JWT"}};
    if (!key_.key_id.empty()) header["kid"] = key_.key_id;
    const json::object claims{{"iss", key_.email},
                              {"scope", kScope},
                              {"aud", key_.token_url},
                              {"iat", now},
                              {"exp", now + kJwtSeconds}};
    std::string jwt =
        base64url_encode(json::serialize(header)) + "." + base64url_encode(json::serialize(claims));
    TRY_ASSIGN(std::string signature, rs256_sign(key_.private_key, jwt));
    jwt += "." + base64url_encode(signature);
    FormText form;
    form.add("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer").add("assertion", jwt);
    return form_call(key_.token_url, form.take());
  }

 private:
  const Key key_;
};

// https://developers.google.com/identity/protocols/oauth2/web-server#offline
class AuthorizedUser final : public HttpTokenSource {
 public:
  AuthorizedUser(World& world, std::shared_ptr<HttpTransport> transport, std::string url,
                 std::string form)
      : HttpTokenSource(world, std::move(transport)),
        url_(std::move(url)),
        form_(std::move(form)) {}
  std::string describe() const override {
    return "authorized user (gcloud auth application-default login)";
  }

 protected:
  Result<HttpCall> make_call() override { return form_call(url_, form_); }

 private:
  const std::string url_, form_;
};

// https://cloud.google.com/compute/docs/access/authenticate-workloads#applications
class MetadataServer final : public HttpTokenSource {
 public:
  MetadataServer(World& world, std::shared_ptr<HttpTransport> transport, std::string origin,
                 std::string tried)
      : HttpTokenSource(world, std::move(transport)),
        origin_(std::move(origin)),
        tried_(std::move(tried)) {}
  std::string describe() const override { return tried_ + "metadata server " + origin_; }

 protected:
  Result<HttpCall> make_call() override {
    HttpCall call;
    call.method = "GET";
    call.url = origin_ + "/computeMetadata/v1/instance/service-accounts/default/token?scopes=" +
               percent_encode(kScope, Slash::kEncode);
    call.direct = true;
    call.headers.emplace_back("metadata-flavor", "Google");
    return call;
  }

 private:
  const std::string origin_, tried_;
};

// https://google.aip.dev/auth/4117: a token of somebody else's is traded for one of Google's.
class ExternalAccount final : public HttpTokenSource {
 public:
  struct Settings {
    std::string audience, subject_token_type, token_url, impersonation_url;
    std::string file, url;  // where the subject's token is: one of both
    HeaderList headers;     // for the url
    std::string field;      // of JSON; empty: the whole is the token
  };
  ExternalAccount(World& world, std::shared_ptr<HttpTransport> transport, Settings settings)
      : HttpTokenSource(world, std::move(transport)), settings_(std::move(settings)) {}

  std::string describe() const override { return "workload identity federation"; }

  Task<Result<AccessToken>> fetch(Deadline deadline) override {
    CO_TRY_ASSIGN(std::string subject, co_await subject_token(deadline));
    FormText form;
    form.add("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
    form.add("audience", settings_.audience);
    // An impersonation needs the wider scope; what comes of it has the narrow one.
    form.add("scope", settings_.impersonation_url.empty() ? kScope : kCloudScope);
    form.add("requested_token_type", "urn:ietf:params:oauth:token-type:access_token");
    form.add("subject_token_type", settings_.subject_token_type).add("subject_token", subject);
    const MonoTime asked = world_.now();
    const WallMs asked_wall = world_.wall_now();
    HttpCall exchange = form_call(settings_.token_url, form.take());
    Result<HttpReply> reply = co_await perform(std::move(exchange), deadline);
    if (!reply) co_return fail(std::move(reply).error());
    CO_TRY_ASSIGN(AccessToken federated, parse_token_reply(*reply, asked_wall, asked));
    if (settings_.impersonation_url.empty()) co_return federated;

    const json::object wanted{{"scope", json::array{kScope}}, {"lifetime", "3600s"}};
    HttpCall call;
    call.method = "POST";
    call.url = settings_.impersonation_url;
    call.headers.emplace_back("authorization", "Bearer " + federated.value);
    call.headers.emplace_back("content-type", "application/json");
    call.body = Blob(json::serialize(wanted));
    reply = co_await perform(std::move(call), deadline);
    if (!reply) co_return fail(std::move(reply).error());
    co_return impersonated(*reply, asked_wall, asked);
  }

 protected:
  Result<HttpCall> make_call() override {
    HttpCall call;
    call.method = "GET";
    call.url = settings_.url;
    call.headers = settings_.headers;
    return call;
  }

 private:
  Task<Result<std::string>> subject_token(Deadline deadline) {
    std::string text;
    if (!settings_.file.empty()) {
      CO_TRY_ASSIGN(text, read_text_file(settings_.file, kFileBytesMax));
    } else {
      CO_TRY_ASSIGN(HttpCall call, make_call());
      Result<HttpReply> reply = co_await perform(std::move(call), deadline);
      if (!reply) co_return fail(std::move(reply).error());
      if (reply->status != 200) {
        co_return fail(Error::unavailable("the source of the subject's token answered " +
                                          std::to_string(reply->status)));
      }
      text = std::move(reply->body);
    }
    if (!settings_.field.empty()) {
      CO_TRY_ASSIGN(JsonDocument document,
                    JsonDocument::parse(text, "the subject's token", ErrorCode::kInvalid));
      JsonFields fields = document.fields();
      text = fields.text(settings_.field, kTokenBytesMax);
      CO_TRY(fields.done());
    }
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    if (text.empty()) co_return fail(Error::invalid("the subject's token is empty"));
    co_return text;
  }

  static Result<AccessToken> impersonated(const HttpReply& reply, WallMs asked_wall,
                                          MonoTime asked) {
    if (reply.status != 200) return fail(parse_token_reply(reply, asked_wall, asked).error());
    TRY_ASSIGN(JsonDocument document,
               JsonDocument::parse(reply.body, "the reply", ErrorCode::kUnavailable));
    JsonFields fields = document.fields();
    AccessToken token;
    token.value = fields.text("accessToken", kTokenBytesMax);
    auto expires = parse_iso8601(fields.text("expireTime", 64));
    TRY(fields.done());
    const int64_t life_ms = expires ? expires->value - asked_wall.value : 0;
    if (token.value.empty() || life_ms <= 0 || life_ms > 24ll * 3600 * 1000) {
      return fail(Error::unavailable("the impersonation's reply has no usable token with a life"));
    }
    token.expires = asked + std::chrono::milliseconds(life_ms);
    return token;
  }

  const Settings settings_;
};

// credential_source.headers of a file that is known to be well-formed.
Result<HeaderList> source_headers(std::string_view text) {
  HeaderList out;
  const json::value root = json::parse(json::string_view(text.data(), text.size()));
  const json::object& source = root.at("credential_source").as_object();
  const json::value* headers = source.if_contains("headers");
  if (headers == nullptr) return out;
  if (!headers->is_object())
    return fail(Error::invalid("credential_source.headers is not an object"));
  for (const auto& [name, value] : headers->get_object()) {
    if (!value.is_string())
      return fail(Error::invalid("credential_source.headers has a value that is no string"));
    out.emplace_back(std::string(name), std::string(value.get_string()));
  }
  return out;
}

Result<std::shared_ptr<TokenSource>> external_account(World& world,
                                                      std::shared_ptr<HttpTransport> transport,
                                                      JsonFields& fields, std::string_view text) {
  ExternalAccount::Settings settings;
  settings.audience = fields.text("audience", kFieldBytesMax);
  settings.subject_token_type = fields.text("subject_token_type", kFieldBytesMax);
  TRY_ASSIGN(settings.token_url,
             checked_url(fields, "token_url", "https://sts.googleapis.com/v1/token"));
  TRY_ASSIGN(settings.impersonation_url,
             checked_url(fields, "service_account_impersonation_url", ""));
  JsonFields source = fields.object("credential_source");
  TRY(fields.done());
  if (source.has("environment_id") || source.has("executable") || source.has("certificate")) {
    return fail(
        Error::unsupported("credential_source other than 'file' and 'url' is not supported"));
  }
  settings.file = source.text_or("file", "", kFieldBytesMax);
  settings.url = source.text_or("url", "", kFieldBytesMax);
  if (settings.file.empty() == settings.url.empty()) {
    return fail(Error::invalid("credential_source needs 'file' or 'url'"));
  }
  TRY_ASSIGN(settings.headers, source_headers(text));
  JsonFields format = source.object_or_empty("format");
  const std::string type = format.text_or("type", "text", 64);
  if (type == "json") {
    settings.field = format.text("subject_token_field_name", 256);
  } else if (type != "text") {
    return fail(Error::invalid("credential_source.format.type is neither 'text' nor 'json'"));
  }
  TRY(fields.done());
  return std::make_shared<ExternalAccount>(world, std::move(transport), std::move(settings));
}

Result<std::shared_ptr<TokenSource>> from_file(World& world,
                                               std::shared_ptr<HttpTransport> transport,
                                               const std::string& path, std::string_view text) {
  TRY_ASSIGN(JsonDocument document,
             JsonDocument::parse(text, printable_key(path), ErrorCode::kInvalid));
  JsonFields fields = document.fields();
  const std::string type = fields.text("type", 64);
  TRY(fields.done());
  if (type == "service_account") {
    ServiceAccount::Key key;
    key.email = fields.text("client_email", kFieldBytesMax);
    key.private_key = fields.text("private_key", kFieldBytesMax);
    key.key_id = fields.text_or("private_key_id", "", kFieldBytesMax);
    TRY_ASSIGN(key.token_url,
               checked_url(fields, "token_uri", "https://oauth2.googleapis.com/token"));
    TRY(fields.done());
    TRY(rs256_sign(key.private_key, ""));  // says now what is wrong with it
    return std::make_shared<ServiceAccount>(world, std::move(transport), std::move(key));
  }
  if (type == "authorized_user") {
    FormText form;
    form.add("grant_type", "refresh_token")
        .add("client_id", fields.text("client_id", kFieldBytesMax));
    form.add("client_secret", fields.text("client_secret", kFieldBytesMax));
    form.add("refresh_token", fields.text("refresh_token", kFieldBytesMax));
    TRY_ASSIGN(std::string url,
               checked_url(fields, "token_uri", "https://oauth2.googleapis.com/token"));
    TRY(fields.done());
    return std::make_shared<AuthorizedUser>(world, std::move(transport), std::move(url),
                                            form.take());
  }
  if (type == "external_account")
    return external_account(world, std::move(transport), fields, text);
  return fail(
      Error::unsupported("credentials of type '" + printable_key(type) + "' are not supported"));
}

}  // namespace

Result<std::shared_ptr<TokenSource>> google_token_source(World& world,
                                                         std::shared_ptr<HttpTransport> transport,
                                                         const Environment& environment) {
  std::string tried;
  if (auto path = environment("GOOGLE_APPLICATION_CREDENTIALS")) {
    auto text = read_text_file(*path, kFileBytesMax);
    if (!text) return fail(text.error().at("GOOGLE_APPLICATION_CREDENTIALS"));
    auto source = from_file(world, std::move(transport), *path, *text);
    if (!source) return fail(source.error().at("GOOGLE_APPLICATION_CREDENTIALS"));
    return source;
  }
  tried = "no GOOGLE_APPLICATION_CREDENTIALS; ";
  std::string folder = environment("CLOUDSDK_CONFIG").value_or("");
  if (folder.empty()) {
    if (auto home = environment("HOME")) folder = *home + "/.config/gcloud";
  }
  if (!folder.empty()) {
    const std::string path = folder + "/application_default_credentials.json";
    auto text = read_text_file(path, kFileBytesMax);
    if (text) {
      auto source = from_file(world, std::move(transport), path, *text);
      if (!source) return fail(source.error().at(printable_key(path)));
      return source;
    }
    tried += text.error().message + "; ";
  }
  std::string host = environment("GCE_METADATA_HOST").value_or("metadata.google.internal");
  if (host.find_first_of("/?#@ ") != std::string::npos) {
    return fail(Error::invalid("GCE_METADATA_HOST is not HOST or HOST:PORT"));
  }
  return std::make_shared<MetadataServer>(world, std::move(transport), "http://" + host,
                                          std::move(tried));
}

}  // namespace celld
