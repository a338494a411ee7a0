#include "store/s3_credentials.h"

#include <stdlib.h>

#include <utility>

namespace celld {

namespace {

class FixedCredentials final : public CredentialSource {
 public:
  explicit FixedCredentials(S3Credentials credentials) : credentials_(std::move(credentials)) {}
  Task<Result<S3Credentials>> get(Deadline) override { co_return credentials_; }

 private:
  const S3Credentials credentials_;
};

}  // namespace

std::shared_ptr<CredentialSource> fixed_credentials(S3Credentials credentials) {
  return std::make_shared<FixedCredentials>(std::move(credentials));
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = ::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

}  // namespace celld
