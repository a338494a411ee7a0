// Where the keys that sign requests come from.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "store/s3_sign.h"
#include "world/task.h"
#include "world/world.h"

namespace celld {

// One source is shared by everything that talks to one bucket. On the world's thread.
class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  // Keys that are valid now. kForbidden or kInvalid says which provider failed and why.
  virtual Task<Result<S3Credentials>> get(Deadline deadline) = 0;
  // The store said that the keys have expired: fetch new ones next time.
  virtual void invalidate() {}
};

// Always the same keys.
std::shared_ptr<CredentialSource> fixed_credentials(S3Credentials credentials);

// The value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// That of this process; empty values count as nothing. Read it before threads change it.
Environment process_environment();

}  // namespace celld
