// How a request to Azure Blob Storage proves who sends it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "store/token_source.h"
#include "world/http_transport.h"
#include "world/task.h"

namespace celld {

// A request before it is authorised. Names of headers are lower case; values have no blanks at
// their ends.
struct AzureRequest {
  std::string method;
  std::string path;                                        // encoded, as sent; starts with '/'
  std::vector<std::pair<std::string, std::string>> query;  // not encoded; names in lower case
  HeaderList headers;
  uint64_t body_bytes = 0;
};

// "?a=b&c=d", or "" for no query.
std::string azure_query_text(const std::vector<std::pair<std::string, std::string>>& query);

// Authorises requests. On the world's thread.
class AzureAuth {
 public:
  virtual ~AzureAuth() = default;
  // Adds the headers that are needed, dates included.
  virtual Task<Result<void>> authorize(AzureRequest& request, Deadline deadline) = 0;
  // Text that follows the query of the URL, without '?' or '&'; a secret.
  virtual std::string url_suffix() const { return {}; }
  // The store refused `request` as not (any more) authorised.
  virtual void refused(const AzureRequest&) {}
};

// By the account's key.
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key `key` is what the
// portal shows: base64. kInvalid when it is not.
Result<std::shared_ptr<AzureAuth>> azure_shared_key(World& world, std::string account,
                                                    std::string_view key);
// By a shared access signature: the text of a query, with or without '?'. kInvalid when it has
// none.
Result<std::shared_ptr<AzureAuth>> azure_sas(World& world, std::string_view sas);
// By bearer tokens.
std::shared_ptr<AzureAuth> azure_bearer(World& world, std::shared_ptr<TokenSource> source);

// What the key signs; for tests and logs. Holds no secret.
std::string azure_string_to_sign(const std::string& account, const AzureRequest& request);

// "Mon, 30 Nov 2026 21:15:30 GMT"
std::string http_date(WallMs time);

}  // namespace celld
