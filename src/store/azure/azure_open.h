// From the environment to an Azure container: which account, which endpoint, which credentials.
#pragma once

#include <memory>
#include <string>

#include "store/azure/azure_store.h"
#include "store/s3_credentials.h"

namespace celld {

// The first of these wins, for the account and its endpoint as for the credentials:
//
//   AZURE_STORAGE_CONNECTION_STRING   all in one; "UseDevelopmentStorage=true" for Azurite
//   AZURE_STORAGE_ACCOUNT             and AZURE_STORAGE_KEY, or AZURE_STORAGE_SAS_TOKEN, or, when
//   neither is
//                                     set, what azure_token_source() finds
//
// `endpoint`, or else AZURE_STORAGE_SERVICE_ENDPOINT, replaces the account's own address. kInvalid
// says what is missing or malformed and never shows a secret.
// `shared` holds what authorises another store on the same account, or takes that of this one.
Result<std::unique_ptr<AzureStore>> open_azure(World& world,
                                               std::shared_ptr<HttpTransport> transport,
                                               std::string container, std::string endpoint,
                                               const Environment& environment,
                                               std::shared_ptr<AzureAuth>* shared = nullptr);

}  // namespace celld
