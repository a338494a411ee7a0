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

Result<std::shared_ptr<CredentialSource>> credentials_from(const Environment& environment) {
  auto access = environment("AWS_ACCESS_KEY_ID");
  auto secret = environment("AWS_SECRET_ACCESS_KEY");
  auto token = environment("AWS_SESSION_TOKEN");
  if (!access || !secret) {
    return fail(Error::invalid(std::string("no credentials: ") +
                               (access ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID") +
                               " is not set, and keys come only from the environment"));
  }
  return fixed_credentials({std::move(*access), std::move(*secret), token.value_or("")});
}

}  // namespace celld
