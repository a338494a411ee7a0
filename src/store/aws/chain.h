// Keys from wherever this machine has them, kept and refreshed.
#pragma once

#include <memory>

#include "store/aws/host.h"
#include "store/s3_credentials.h"
#include "world/http_transport.h"
#include "world/world.h"

namespace celld {

// The source for everything that talks to one bucket.
//
// Asks the sources of providers.h in their order, stays with the first that has keys, and gives
// these until they expire. From some time before that on (a quarter of their life, at most 15
// minutes, less a random part) they are fetched anew beside the requests, one fetch at a time; while
// that fails, the old ones are given as long as they hold. get() fails with what every source said
// when none has keys; failures are remembered for a moment, so that many requests are not many
// fetches.
//
//   kInvalid      no source has keys, or one is misconfigured
//   kForbidden    a source refuses to give keys
//   kUnavailable  a source cannot be reached
//
// `world` outlives it.
std::shared_ptr<CredentialSource> aws_credentials(World& world,
                                                  std::shared_ptr<HttpTransport> transport,
                                                  std::shared_ptr<AwsHost> host);

}  // namespace celld
