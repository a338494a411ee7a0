#include "store/azure/azure_open.h"

#include <algorithm>
#include <map>
#include <utility>

#include "store/azure/azure_tokens.h"
#include "store/key.h"
#include "store/token_http.h"

namespace celld {

namespace {

// Azurite's account. Public: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
constexpr const char* kDevelopmentAccount = "devstoreaccount1";
constexpr const char* kDevelopmentKey =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
constexpr const char* kDevelopmentHost = "http://127.0.0.1:10000";

struct Account {
  std::string name;
  std::string endpoint;
  std::string key;
  std::string sas;
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

bool account_name_ok(std::string_view name) {
  return name.size() >= 3 && name.size() <= 24 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

// https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
Result<Account> parse_connection_string(std::string_view text) {
  const std::string where = "AZURE_STORAGE_CONNECTION_STRING";
  std::map<std::string, std::string> fields;
  while (!text.empty()) {
    const size_t end = text.find(';');
    std::string_view field = text.substr(0, end);
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    if (field.empty()) continue;
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return fail(
          Error::invalid(where + ": a part is not NAME=VALUE"));  // it may be half a key: not shown
    }
    fields[lower(field.substr(0, equals))] = field.substr(equals + 1);
  }
  Account account;
  if (lower(fields["usedevelopmentstorage"]) == "true") {
    std::string host = fields["developmentstorageproxyuri"];
    while (host.ends_with('/')) host.pop_back();
    account.name = kDevelopmentAccount;
    account.key = kDevelopmentKey;
    account.endpoint = (host.empty() ? kDevelopmentHost : host) + "/" + kDevelopmentAccount;
    return account;
  }
  account.name = fields["accountname"];
  account.key = fields["accountkey"];
  account.sas = fields["sharedaccesssignature"];
  account.endpoint = fields["blobendpoint"];
  if (account.endpoint.empty()) {
    if (account.name.empty())
      return fail(Error::invalid(where + ": neither AccountName nor BlobEndpoint"));
    const std::string protocol =
        fields["defaultendpointsprotocol"].empty() ? "https" : fields["defaultendpointsprotocol"];
    const std::string suffix =
        fields["endpointsuffix"].empty() ? "core.windows.net" : fields["endpointsuffix"];
    account.endpoint = protocol + "://" + account.name + ".blob." + suffix;
  }
  if (account.key.empty() == account.sas.empty()) {
    return fail(
        Error::invalid(where + ": exactly one of AccountKey and SharedAccessSignature is needed"));
  }
  return account;
}

std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = environment(name)) return *value;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<AzureStore>> open_azure(World& world,
                                               std::shared_ptr<HttpTransport> transport,
                                               std::string container, std::string endpoint,
                                               const Environment& environment,
                                               std::shared_ptr<AzureAuth>* shared) {
  Account account;
  if (auto text = environment("AZURE_STORAGE_CONNECTION_STRING")) {
    TRY_ASSIGN(account, parse_connection_string(*text));
  } else {
    account.name = first_of(environment, {"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"});
    account.key = first_of(environment, {"AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY",
                                         "AZURE_STORAGE_ACCESS_KEY"});
    if (account.key.empty()) account.sas = first_of(environment, {"AZURE_STORAGE_SAS_TOKEN"});
    account.endpoint =
        first_of(environment, {"AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_STORAGE_BLOB_ENDPOINT"});
    if (account.name.empty() && (account.endpoint.empty() || !account.key.empty()) &&
        (endpoint.empty() || !account.key.empty())) {
      return fail(Error::invalid(
          "no account: neither AZURE_STORAGE_ACCOUNT nor AZURE_STORAGE_CONNECTION_STRING is set"));
    }
    if (account.endpoint.empty())
      account.endpoint = "https://" + account.name + ".blob.core.windows.net";
  }
  if (!account.name.empty() && !account_name_ok(account.name)) {
    return fail(Error::invalid("'" + printable_key(account.name) +
                               "' is not an account's name: 3 to 24 of [a-z0-9]"));
  }
  AzureOptions options;
  options.container = std::move(container);
  options.endpoint = endpoint.empty() ? account.endpoint : std::move(endpoint);
  if (account.key.empty() && !is_private_url(options.endpoint)) {
    return fail(Error::invalid("endpoint '" + printable_key(options.endpoint) +
                               "' is not https, so that anybody on the way could read the token"));
  }
  if (shared != nullptr && *shared) {
    options.auth = *shared;
  } else if (!account.key.empty()) {
    TRY_ASSIGN(options.auth, azure_shared_key(world, account.name, account.key));
  } else if (!account.sas.empty()) {
    TRY_ASSIGN(options.auth, azure_sas(world, account.sas));
  } else {
    auto source = azure_token_source(world, transport, environment);
    if (!source)
      return fail(
          source.error().at("no key (AZURE_STORAGE_KEY), no SAS (AZURE_STORAGE_SAS_TOKEN)"));
    options.auth = azure_bearer(world, std::move(*source));
  }
  if (shared != nullptr) *shared = options.auth;
  return AzureStore::make(world, std::move(transport), std::move(options));
}

}  // namespace celld
