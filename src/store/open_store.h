// From what a user writes ("file:///dir", "s3://bucket/prefix") to a bucket.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "store/azure/azure_auth.h"
#include "store/dialect.h"
#include "store/file_store.h"
#include "store/object_store.h"
#include "store/retry_store.h"
#include "store/s3_credentials.h"
#include "world/http_transport.h"

namespace celld {

// A connection pool of its own for one store.
using HttpTransportFactory = std::function<std::unique_ptr<HttpTransport>()>;

// What the stores on one bucket share: the first that is opened fills it.
struct StoreShared {
  std::shared_ptr<CredentialSource> aws;
  std::shared_ptr<AzureAuth> azure;
  std::shared_ptr<TokenCache> google;
};

struct StoreOptions {
  FileStore::Options file;

  // `endpoint` also for az:// and gs:// (azure_open.h, gcs_store.h). The rest for s3://. Empty:
  // AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of the profile; AWS_REGION,
  // AWS_DEFAULT_REGION, region of the profile, then us-east-1; what aws_credentials finds
  // (store/aws/chain.h).
  std::string endpoint;
  std::string region;
  std::shared_ptr<CredentialSource> credentials;
  std::shared_ptr<StoreShared> shared;  // null: nothing

  // Shared with probe_store and with other stores on the same bucket; null: a dialect of its own.
  std::shared_ptr<StoreDialect> dialect;
  RetryStore::Options retry;
  Environment environment = process_environment();
};

// Opens the bucket that `spec` names; a store behind a network repeats reads and plain writes
// (RetryStore). Does not talk to it yet, except that a directory is opened or made.
//
// kInvalid: the spec is malformed, credentials are, or the directory is not usable.
// Errors name the spec. `world` outlives the store.
Result<std::unique_ptr<ObjectStore>> open_store(World& world,
                                                const HttpTransportFactory& transports,
                                                std::string_view spec, StoreOptions options);

}  // namespace celld
