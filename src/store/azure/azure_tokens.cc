#include "store/azure/azure_tokens.h"

#include "store/digest.h"
#include "store/file_text.h"
#include "store/key.h"
#include "store/token_http.h"

namespace celld {

namespace {

constexpr std::string_view kResource = "https://storage.azure.com/";

std::string slash_at_end(std::string text) {
  if (!text.ends_with('/')) text += '/';
  return text;
}

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
    return form_call(url_, form.take());
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
    call.direct = true;
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
    if (!is_private_url(url))
      return fail(Error::invalid("AZURE_AUTHORITY_HOST is not an https URL"));
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
    if (!is_private_url(*endpoint) && !endpoint->starts_with("http://")) {
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
  if (!is_private_url(host))
    return fail(Error::invalid("AZURE_POD_IDENTITY_AUTHORITY_HOST is not a link-local URL"));
  std::string url = slash_at_end(std::move(host)) +
                    "metadata/identity/oauth2/token?api-version=2018-02-01&" + query;
  std::pair<std::string, std::string> header("metadata", "true");
  return std::make_shared<ManagedIdentity>(world, std::move(transport), "IMDS", std::move(url),
                                           std::move(header));
}

}  // namespace celld
