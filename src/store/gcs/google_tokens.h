// Application Default Credentials: access tokens for Google Cloud.
#pragma once

#include <memory>

#include "store/s3_credentials.h"
#include "store/token_source.h"
#include "world/http_transport.h"

namespace celld {

// The first of these that is there:
//
//   GOOGLE_APPLICATION_CREDENTIALS    a file; that it cannot be read is an error
//   gcloud's own file                 application_default_credentials.json in CLOUDSDK_CONFIG, or
//   in
//                                     ~/.config/gcloud
//   metadata server                   of Compute Engine, GKE, Cloud Run; GCE_METADATA_HOST names
//   another
//
// A file is of type service_account (signs a JWT), authorized_user (refreshes), or external_account
// (workload identity federation, with the subject's token in a file or behind a URL, and
// impersonation if it says so). kInvalid and kUnsupported name the file and what is wrong with it,
// never a secret.
Result<std::shared_ptr<TokenSource>> google_token_source(World& world,
                                                         std::shared_ptr<HttpTransport> transport,
                                                         const Environment& environment);

}  // namespace celld
