// Microsoft Entra tokens for Azure Storage: managed identity, workload identity, client secret.
#pragma once

#include <memory>
#include <string>

#include "store/s3_credentials.h"
#include "store/token_source.h"
#include "world/http_transport.h"

namespace celld {

// The first of these that the environment describes:
//
//   workload identity   AZURE_FEDERATED_TOKEN_FILE with AZURE_TENANT_ID, AZURE_CLIENT_ID
//   client secret       AZURE_CLIENT_SECRET with AZURE_TENANT_ID, AZURE_CLIENT_ID
//   App Service         IDENTITY_ENDPOINT, IDENTITY_HEADER (AZURE_CLIENT_ID chooses an identity)
//   virtual machine     IMDS, always (AZURE_CLIENT_ID chooses an identity)
//
// kInvalid names the variable that is missing or malformed.
Result<std::shared_ptr<TokenSource>> azure_token_source(World& world,
                                                        std::shared_ptr<HttpTransport> transport,
                                                        const Environment& environment);

}  // namespace celld
