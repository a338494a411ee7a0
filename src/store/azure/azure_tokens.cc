#include "store/azure/azure_tokens.h"

#include <algorithm>

#include "base/json.h"
#include "store/digest.h"
#include "store/file_text.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr std::string_view kResource = "https://storage.azure.com/";
constexpr size_t kTokenBytesMax = 64 << 10;
constexpr uint64_t kReplyBytesMax = 256 << 10;
constexpr int64_t kLifeSecondsMax = 30ll * 24 * 3600;

std::string slash_at_end(std::string text) {
  if (!text.ends_with('/')) text += '/';
  return text;
}

// Secrets go only over TLS, or to this machine and its link.
bool url_ok(const std::string& url) {
  if (url.find_first_of(" \r\n#") != std::string::npos) return false;
  return url.starts_with("https://") || url.starts_with("http://127.") ||
         url.starts_with("http://localhost") || url.starts_with("http://169.254.");
}

std::string refusal(const HttpReply& reply) {
  std::string text = "answered " + std::to_string(reply.status);
  auto document = JsonDocument::parse(reply.body, "reply", ErrorCode::kUnavailable);
  if (!document) return text;
  JsonFields fields = document->fields();
  std::string what = fields.text_or("error_description", "", 4096);
  if (what.empty()) what = fields.text_or("message", "", 4096);
  if (what.empty()) what = fields.text_or("error", "", 4096);
  what = what.substr(0, what.find_first_of("\r\n"));
  return what.empty() ? text : text + ": " + printable_key(what);
}

// Metadata services write numbers as text.
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

Result<AccessToken> token_of(const HttpReply& reply, WallMs asked_wall, MonoTime asked) {
  if (reply.status != 200) {
    const bool passing =
        reply.status >= 500 || reply.status == 429 || reply.status == 404 || reply.status == 410;
    return fail(
        Error::make(passing ? ErrorCode::kUnavailable : ErrorCode::kForbidden, refusal(reply)));
  }
  auto plain = parse_token(reply, asked_wall, asked, Numbers::kPlain);
  return plain ? plain : parse_token(reply, asked_wall, asked, Numbers::kText);
}

class HttpTokenSource : public TokenSource {
 public:
  HttpTokenSource(World& world, std::shared_ptr<HttpTransport> transport)
      : world_(world), transport_(std::move(transport)) {}

  Task<Result<AccessToken>> fetch(Deadline deadline) override {
    CO_TRY_ASSIGN(HttpCall call, make_call());
    call.deadline = deadline;
    call.reply_bytes_max = kReplyBytesMax;
    const MonoTime asked = world_.now();
    const WallMs asked_wall = world_.wall_now();
    Result<HttpReply> reply = co_await transport_->perform(std::move(call));
    if (!reply) co_return fail(std::move(reply).error());
    co_return token_of(*reply, asked_wall, asked);
  }

 protected:
  virtual Result<HttpCall> make_call() = 0;

 private:
  World& world_;
  const std::shared_ptr<HttpTransport> transport_;
};

// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
class ClientCredentials final : public HttpTokenSource {
 public:
  ClientCredentials(World& world, std::shared_ptr<HttpTransport> transport, std::string url,
                    std::string client, std::string secret, std::string token_file)
      : HttpTokenSource(world, std::move(transport)),
        url_(std::move(url)),
        client_(std::move(client)),
        secret_(std::move(secret)),
        token_file_(std::move(token_file)) {}

  std::string describe() const override {
    return token_file_.empty() ? "client secret (AZURE_CLIENT_SECRET)"
                               : "workload identity (AZURE_FEDERATED_TOKEN_FILE)";
  }

 protected:
  Result<HttpCall> make_call() override {
    FormText form;
    form.add("grant_type", "client_credentials").add("client_id", client_);
    form.add("scope", std::string(kResource) + ".default");
    if (token_file_.empty()) {
      form.add("client_secret", secret_);
    } else {
      // Read each time: the file is renewed under us.
      TRY_ASSIGN(std::string assertion, read_text_file(token_file_, kTokenBytesMax));
      while (!assertion.empty() && (assertion.back() == '\n' || assertion.back() == '\r'))
        assertion.pop_back();
      if (assertion.empty()) return fail(Error::invalid(token_file_ + " is empty"));
      form.add("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
      form.add("client_assertion", assertion);
    }
    HttpCall call;
    call.method = "POST";
    call.url = url_;
    call.headers.emplace_back("content-type", "application/x-www-form-urlencoded");
    call.headers.emplace_back("accept", "application/json");
    call.body = Blob(form.take());
    return call;
  }

 private:
  const std::string url_, client_, secret_, token_file_;
};

// https://learn.microsoft.com/azure/app-service/overview-managed-identity and
// https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
class ManagedIdentity final : public HttpTokenSource {
 public:
  ManagedIdentity(World& world, std::shared_ptr<HttpTransport> transport, std::string what,
                  std::string url, std::pair<std::string, std::string> header)
      : HttpTokenSource(world, std::move(transport)),
        what_(std::move(what)),
        url_(std::move(url)),
        header_(std::move(header)) {}

  std::string describe() const override { return "managed identity (" + what_ + ")"; }

 protected:
  Result<HttpCall> make_call() override {
    HttpCall call;
    call.method = "GET";
    call.url = url_;
    call.headers.push_back(header_);
    return call;
  }

 private:
  const std::string what_, url_;
  const std::pair<std::string, std::string> header_;
};

}  // namespace

Result<std::shared_ptr<TokenSource>> azure_token_source(World& world,
                                                        std::shared_ptr<HttpTransport> transport,
                                                        const Environment& environment) {
  const std::string client = environment("AZURE_CLIENT_ID").value_or("");
  const auto tenant = environment("AZURE_TENANT_ID");
  const auto token_file = environment("AZURE_FEDERATED_TOKEN_FILE");
  const auto secret = environment("AZURE_CLIENT_SECRET");
  if (token_file || secret) {
    const std::string given = token_file ? "AZURE_FEDERATED_TOKEN_FILE" : "AZURE_CLIENT_SECRET";
    if (!tenant) return fail(Error::invalid(given + " is set, but AZURE_TENANT_ID is not"));
    if (client.empty()) return fail(Error::invalid(given + " is set, but AZURE_CLIENT_ID is not"));
    const std::string authority = slash_at_end(
        environment("AZURE_AUTHORITY_HOST").value_or("https://login.microsoftonline.com/"));
    const std::string url =
        authority + percent_encode(*tenant, Slash::kEncode) + "/oauth2/v2.0/token";
    if (!url_ok(url)) return fail(Error::invalid("AZURE_AUTHORITY_HOST is not an https URL"));
    return std::make_shared<ClientCredentials>(world, std::move(transport), url, client,
                                               secret.value_or(""), token_file.value_or(""));
  }
  std::string query = "resource=" + percent_encode(kResource, Slash::kEncode);
  if (!client.empty()) query += "&client_id=" + percent_encode(client, Slash::kEncode);
  if (auto endpoint = environment("IDENTITY_ENDPOINT")) {
    auto header = environment("IDENTITY_HEADER");
    if (!header) {
      return fail(Error::unsupported(
          "IDENTITY_ENDPOINT without IDENTITY_HEADER (Azure Arc) is not supported"));
    }
    if (!url_ok(*endpoint) && !endpoint->starts_with("http://")) {
      return fail(Error::invalid("IDENTITY_ENDPOINT is not a URL"));
    }
    std::string url = *endpoint + (endpoint->find('?') == std::string::npos ? "?" : "&") +
                      "api-version=2019-08-01&" + query;
    std::pair<std::string, std::string> secret_header("x-identity-header", std::move(*header));
    return std::make_shared<ManagedIdentity>(world, std::move(transport), "App Service",
                                             std::move(url), std::move(secret_header));
  }
  std::string host =
      environment("AZURE_POD_IDENTITY_AUTHORITY_HOST").value_or("http://169.254.169.254");
  if (!url_ok(host))
    return fail(Error::invalid("AZURE_POD_IDENTITY_AUTHORITY_HOST is not a link-local URL"));
  std::string url = slash_at_end(std::move(host)) +
                    "metadata/identity/oauth2/token?api-version=2018-02-01&" + query;
  std::pair<std::string, std::string> header("metadata", "true");
  return std::make_shared<ManagedIdentity>(world, std::move(transport), "IMDS", std::move(url),
                                           std::move(header));
}

}  // namespace celld
