// The sources of keys, in the order in which they are asked.
//
// A source that is not configured on this machine is skipped, with a reason. One that is
// configured and fails is an error: falling through to the next would hide the cause, or act as
// somebody else.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/aws/config_file.h"
#include "store/aws/host.h"
#include "store/aws/key_reply.h"
#include "world/http_transport.h"

namespace celld {

enum class AwsSource : uint8_t { kEnvironment, kWebIdentity, kProfile, kContainer, kInstance };
inline constexpr std::array kAwsSources = {AwsSource::kEnvironment, AwsSource::kWebIdentity,
                                           AwsSource::kProfile, AwsSource::kContainer,
                                           AwsSource::kInstance};

// "environment", "web identity", "profile", "container", "instance metadata".
std::string_view to_string(AwsSource source);

// What one source gave: keys, or why it was skipped.
struct AwsFound {
  std::optional<AwsKeys> keys;
  std::string skipped;
};

// kInvalid unless keys may be fetched from that URI: https anywhere; http from this machine
// (127.0.0.0/8, [::1], localhost) and from the addresses of ECS and EKS. Anything else could give a
// secret away, or take keys from anybody.
Result<void> check_container_uri(std::string_view uri);

// A setting of the chosen profile (AWS_PROFILE, "default"), when the files say something.
std::optional<std::string> aws_profile_setting(const AwsHost& host, std::string_view name);

// On the world's thread. What it is made of outlives its calls.
class AwsProviders {
 public:
  AwsProviders(World& world, std::shared_ptr<HttpTransport> transport,
               std::shared_ptr<AwsHost> host)
      : world_(world), transport_(std::move(transport)), host_(std::move(host)) {}

  Task<Result<AwsFound>> ask(AwsSource source, Deadline deadline);

 private:
  struct Call;
  Task<Result<AwsFound>> environment();
  Task<Result<AwsFound>> web_identity(Deadline deadline);
  Task<Result<AwsFound>> chosen_profile(Deadline deadline);
  Task<Result<AwsFound>> container(Deadline deadline);
  Task<Result<AwsFound>> instance(Deadline deadline);

  Task<Result<AwsFound>> profile(const AwsConfig& config, std::string name,
                                 std::set<std::string> visited, Deadline deadline);
  Task<Result<AwsFound>> credential_source(std::string name, Deadline deadline);
  Task<Result<AwsKeys>> sso(const AwsConfig& config, AwsSettings settings, Deadline deadline);
  Task<Result<SsoToken>> sso_token(std::string file, std::string region, std::string login, Deadline deadline);
  Task<Result<std::string>> renewed_sso(std::string file, std::string cached, std::string region, Deadline deadline);
  Task<Result<AwsKeys>> assume_role(AwsSettings settings, S3Credentials source, Deadline deadline);
  Task<Result<AwsKeys>> assume_with_token(std::string role, std::string session,
                                          std::string token_file, std::string region,
                                          Deadline deadline);
  Task<Result<AwsKeys>> sts(std::string region, std::string form,
                            std::optional<S3Credentials> signed_by, Deadline deadline);
  Task<Result<HttpReply>> call(HttpCall call, Call how, Deadline deadline);

  std::string session_name(std::optional<std::string> wanted);
  std::string region_of(const AwsSettings* settings) const;

  World& world_;
  const std::shared_ptr<HttpTransport> transport_;
  const std::shared_ptr<AwsHost> host_;
  // Caches of SSO tokens by path that were renewed, but could not be written.
  std::map<std::string, std::string> unwritten_sso_;
};

}  // namespace celld
