#include "store/aws/providers.h"

#include <openssl/evp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hex.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/token_http.h"

namespace celld {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kReplyBytesMax = 64 << 10;
constexpr size_t kProfilesMax = 8;  // that name each other as source
constexpr milliseconds kCallBackoff{100};

std::string lower_hex_sha1(std::string_view text) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  CHECK(EVP_Digest(text.data(), text.size(), out, &length, EVP_sha1(), nullptr) == 1);
  return hex_lower(std::string_view(reinterpret_cast<const char*>(out), length));
}

// "a=b&c=d"
std::string form_of(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    if (!out.empty()) out += '&';
    out += std::string(name) + "=" + percent_encode(value, Slash::kEncode);
  }
  return out;
}

AwsFound skipped(std::string why) {
  AwsFound out;
  out.skipped = std::move(why);
  return out;
}

AwsFound found(AwsKeys keys) {
  AwsFound out;
  out.keys = std::move(keys);
  return out;
}

Error refused(const HttpReply& reply, std::string_view what) {
  std::string message = std::string(what) + ": " + std::to_string(reply.status);
  const std::string shown = shown_aws_error(reply.body);
  if (!shown.empty()) message += " " + shown;
  const bool passing = reply.status >= 500 || reply.status == 429 || reply.status == 408;
  return passing ? Error::unavailable(std::move(message))
                 : Error::make(ErrorCode::kForbidden, std::move(message));
}

bool loopback_v4(std::string_view host) {
  if (!host.starts_with("127.")) return false;
  int dots = 0;
  for (char c : host) {
    if (c == '.') {
      ++dots;
    } else if (c < '0' || c > '9') {
      return false;
    }
  }
  return dots == 3;
}

bool region_ok(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string amazon_suffix(std::string_view region) {
  return region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
}

std::string home_path(const AwsHost& host, std::string_view path) {
  if (path != "~" && !path.starts_with("~/")) return std::string(path);
  return host.variable("HOME").value_or("/") + std::string(path.substr(1));
}

// " (run: ...)", with a name that a shell takes as it stands.
std::string sso_login(const std::optional<std::string>& session) {
  const bool plain = session && std::all_of(session->begin(), session->end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  return " (run: aws sso login" + (plain ? " --sso-session " + *session : std::string()) + ")";
}

std::string chosen_profile_name(const AwsHost& host) {
  return host.variable("AWS_PROFILE").value_or("default");
}

Result<AwsConfig> read_config(const AwsHost& host, std::string& looked_at) {
  auto config_path = home_path(host, host.variable("AWS_CONFIG_FILE").value_or("~/.aws/config"));
  auto keys_path =
      home_path(host, host.variable("AWS_SHARED_CREDENTIALS_FILE").value_or("~/.aws/credentials"));
  looked_at = config_path + " and " + keys_path;
  auto read = [&](const std::string& path) -> Result<std::string> {
    auto text = host.read_file(path);
    if (!text && text.error().code == ErrorCode::kNotFound) return std::string();
    return text;
  };
  TRY_ASSIGN(std::string config, read(config_path));
  TRY_ASSIGN(std::string keys, read(keys_path));
  return AwsConfig::parse(config, keys);
}

}  // namespace

std::optional<std::string> aws_profile_setting(const AwsHost& host, std::string_view name) {
  std::string looked_at;
  auto config = read_config(host, looked_at);
  const AwsSettings* settings = config ? config->profile(chosen_profile_name(host)) : nullptr;
  return settings != nullptr ? find_setting(*settings, name) : std::nullopt;
}

std::string_view to_string(AwsSource source) {
  switch (source) {
    case AwsSource::kEnvironment:
      return "environment";
    case AwsSource::kWebIdentity:
      return "web identity";
    case AwsSource::kProfile:
      return "profile";
    case AwsSource::kContainer:
      return "container";
    case AwsSource::kInstance:
      return "instance metadata";
  }
  return "?";
}

Result<void> check_container_uri(std::string_view uri) {
  const bool tls = uri.starts_with("https://");
  if (!tls && !uri.starts_with("http://")) {
    return fail(Error::invalid("it is not an http or https URI"));
  }
  std::string_view host = uri.substr(tls ? 8 : 7);
  host = host.substr(0, host.find_first_of("/?#"));
  const bool odd = std::any_of(host.begin(), host.end(), [](char c) {
    return c <= 0x20 || c >= 0x7f || c == '@' || c == '\\';
  });
  if (host.empty() || odd) return fail(Error::invalid("its host is malformed"));
  if (tls) return {};
  if (host.front() == '[') {
    const size_t end = host.find(']');
    const std::string_view port = end == std::string_view::npos ? "?" : host.substr(end + 1);
    const bool port_ok = port.empty() || (port.front() == ':' && parse_decimal(port.substr(1)));
    host = host.substr(0, end == std::string_view::npos ? 0 : end + 1);
    if (port_ok && (host == "[::1]" || host == "[fd00:ec2::23]")) return {};
  } else {
    const size_t colon = host.find(':');
    if (colon != std::string_view::npos && !parse_decimal(host.substr(colon + 1))) {
      return fail(Error::invalid("its host is malformed"));
    }
    host = host.substr(0, colon);
    if (host == "localhost" || host == "169.254.170.2" || host == "169.254.170.23" ||
        loopback_v4(host)) {
      return {};
    }
  }
  return fail(Error::invalid(
      "without TLS, keys are taken only from this machine and the addresses of ECS and EKS"));
}

struct AwsProviders::Call {
  uint32_t attempts_max = 3;
  Duration timeout = seconds(5);  // of each attempt
};

// Repeats what fails on its way or with 5xx.
Task<Result<HttpReply>> AwsProviders::call(HttpCall call, Call how, Deadline deadline) {
  call.reply_bytes_max = kReplyBytesMax;
  for (uint32_t attempt = 1;; ++attempt) {
    HttpCall once = call;
    once.deadline = deadline.sooner(world_.now() + how.timeout);
    Result<HttpReply> reply = co_await transport_->perform(std::move(once));
    const bool passing = reply ? reply->status >= 500 || reply->status == 429
                               : reply.error().code == ErrorCode::kUnavailable ||
                                     reply.error().code == ErrorCode::kDeadline;
    if (!passing || attempt >= how.attempts_max || deadline.passed(world_.now())) co_return reply;
    Duration wait(static_cast<int64_t>(static_cast<double>(Duration(kCallBackoff).count()) *
                                       static_cast<double>(1u << std::min(attempt, 10u)) *
                                       world_.random_unit()));
    bool whole = co_await sleep_within(world_, wait, deadline);
    if (!whole) co_return reply;
  }
}

Task<Result<AwsFound>> AwsProviders::ask(AwsSource source, Deadline deadline) {
  switch (source) {
    case AwsSource::kEnvironment:
      return environment();
    case AwsSource::kWebIdentity:
      return web_identity(deadline);
    case AwsSource::kProfile:
      return chosen_profile(deadline);
    case AwsSource::kContainer:
      return container(deadline);
    case AwsSource::kInstance:
      break;
  }
  return instance(deadline);
}

Task<Result<AwsFound>> AwsProviders::environment() {
  auto access = host_->variable("AWS_ACCESS_KEY_ID");
  auto secret = host_->variable("AWS_SECRET_ACCESS_KEY");
  if (!access && !secret) co_return skipped("AWS_ACCESS_KEY_ID is not set");
  if (!access || !secret) {
    co_return fail(Error::invalid(
        std::string(access ? "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not"
                           : "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not")));
  }
  AwsKeys keys;
  keys.keys.access_key = std::move(*access);
  keys.keys.secret_key = std::move(*secret);
  keys.keys.session_token = host_->variable("AWS_SESSION_TOKEN").value_or("");
  CO_TRY(check_keys(keys.keys));
  co_return found(std::move(keys));
}

Task<Result<AwsFound>> AwsProviders::web_identity(Deadline deadline) {
  auto file = host_->variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  if (!file) co_return skipped("AWS_WEB_IDENTITY_TOKEN_FILE is not set");
  auto role = host_->variable("AWS_ROLE_ARN");
  if (!role) {
    co_return fail(
        Error::invalid("AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not"));
  }
  std::string session = session_name(host_->variable("AWS_ROLE_SESSION_NAME"));
  std::string region = region_of(nullptr);
  CO_TRY_ASSIGN(AwsKeys keys,
                co_await assume_with_token(std::move(*role), std::move(session), std::move(*file),
                                           std::move(region), deadline));
  co_return found(std::move(keys));
}

std::string AwsProviders::region_of(const AwsSettings* settings) const {
  std::optional<std::string> region = host_->variable("AWS_REGION");
  if (!region) region = host_->variable("AWS_DEFAULT_REGION");
  if (!region && settings != nullptr) region = find_setting(*settings, "region");
  if (!region) region = aws_profile_setting(*host_, "region");
  // "auto" is what R2 and others call their only region.
  return region && *region != "auto" && region_ok(*region) ? *region : "us-east-1";
}

std::string AwsProviders::session_name(std::optional<std::string> wanted) {
  return wanted ? std::move(*wanted) : "celld-" + hex_fixed(world_.random_u64(), 16);
}

Task<Result<AwsFound>> AwsProviders::chosen_profile(Deadline deadline) {
  const std::string name = chosen_profile_name(*host_);
  std::string looked_at;
  CO_TRY_ASSIGN(AwsConfig config, read_config(*host_, looked_at));
  if (config.profile(name) == nullptr) {
    std::string nowhere = "no profile '" + printable_key(name) + "' in " + looked_at;
    if (!host_->variable("AWS_PROFILE")) co_return skipped(std::move(nowhere));
    co_return fail(Error::invalid("AWS_PROFILE: " + nowhere));
  }
  std::set<std::string> visited;
  std::string first = name;
  auto task = profile(config, std::move(first), std::move(visited), deadline);
  co_return co_await std::move(task);
}

Task<Result<AwsFound>> AwsProviders::profile(const AwsConfig& config, std::string name,
                                             std::set<std::string> visited, Deadline deadline) {
  const std::string where = "profile '" + printable_key(name) + "'";
  const AwsSettings* settings = config.profile(name);
  if (settings == nullptr) co_return fail(Error::invalid(where + " does not exist"));
  const bool again = !visited.insert(name).second;
  if (visited.size() > kProfilesMax) {
    co_return fail(Error::invalid(where + ": more than " + std::to_string(kProfilesMax) +
                                  " profiles that name each other"));
  }

  // A role, unless this is the profile that it takes its own keys from.
  auto role = find_setting(*settings, "role_arn");
  if (role && !again) {
    auto token_file = find_setting(*settings, "web_identity_token_file");
    auto source = find_setting(*settings, "source_profile");
    auto kind = find_setting(*settings, "credential_source");
    Result<AwsKeys> keys = fail(Error::invalid(
        "'role_arn' without web_identity_token_file, source_profile or credential_source"));
    if (token_file) {
      std::string session = session_name(find_setting(*settings, "role_session_name"));
      std::string region = region_of(settings);
      keys = co_await assume_with_token(std::move(*role), std::move(session),
                                        std::move(*token_file), std::move(region), deadline);
    } else if (source || kind) {
      Result<AwsFound> from = fail(Error::internal("no source"));
      if (source) {
        auto task = profile(config, std::move(*source), visited, deadline);
        from = co_await std::move(task);
      } else {
        from = co_await credential_source(std::move(*kind), deadline);
      }
      if (!from) co_return fail(from.error().at(where));
      if (!from->keys) co_return fail(Error::invalid(where + ": " + from->skipped));
      AwsSettings all = *settings;
      S3Credentials by = from->keys->keys;
      keys = co_await assume_role(std::move(all), std::move(by), deadline);
    }
    if (!keys) co_return fail(keys.error().at(where));
    co_return found(std::move(*keys));
  }

  auto access = find_setting(*settings, "aws_access_key_id");
  auto secret = find_setting(*settings, "aws_secret_access_key");
  if (access || secret) {
    AwsKeys keys;
    keys.keys.access_key = access.value_or("");
    keys.keys.secret_key = secret.value_or("");
    keys.keys.session_token = find_setting(*settings, "aws_session_token").value_or("");
    if (auto ok = check_keys(keys.keys); !ok) co_return fail(ok.error().at(where));
    co_return found(std::move(keys));
  }
  if (again) co_return fail(Error::invalid(where + " is its own source, but has no keys"));

  if (find_setting(*settings, "sso_account_id") || find_setting(*settings, "sso_session")) {
    AwsSettings all = *settings;
    Result<AwsKeys> keys = co_await sso(config, std::move(all), deadline);
    if (!keys) co_return fail(keys.error().at(where));
    co_return found(std::move(*keys));
  }
  if (auto command = find_setting(*settings, "credential_process")) {
    Result<std::string> printed = co_await host_->run_command(std::move(*command), deadline);
    Result<AwsKeys> keys = fail(Error::internal("not run"));
    if (printed) {
      keys = parse_process_keys(*printed);
    } else {
      keys = fail(std::move(printed).error());
    }
    if (!keys) co_return fail(keys.error().at(where + ": credential_process"));
    co_return found(std::move(*keys));
  }
  co_return skipped(where + " has no keys, role, SSO or credential_process");
}

Task<Result<AwsFound>> AwsProviders::credential_source(std::string name, Deadline deadline) {
  if (name == "Environment") co_return co_await environment();
  if (name == "EcsContainer") co_return co_await container(deadline);
  if (name == "Ec2InstanceMetadata") co_return co_await instance(deadline);
  co_return fail(Error::invalid("credential_source '" + printable_key(name) +
                                "' is not Environment, EcsContainer or Ec2InstanceMetadata"));
}

// https://docs.aws.amazon.com/singlesignon/latest/PortalAPIReference/API_GetRoleCredentials.html
Task<Result<AwsKeys>> AwsProviders::sso(const AwsConfig& config, AwsSettings settings,
                                        Deadline deadline) {
  const AwsSettings* session = &settings;
  std::optional<std::string> cached_as = find_setting(settings, "sso_start_url");
  if (auto name = find_setting(settings, "sso_session")) {
    session = config.sso_session(*name);
    if (session == nullptr) {
      co_return fail(Error::invalid("sso-session '" + printable_key(*name) + "' does not exist"));
    }
    cached_as = name;
  }
  auto region = find_setting(*session, "sso_region");
  auto account = find_setting(settings, "sso_account_id");
  auto role = find_setting(settings, "sso_role_name");
  if (!cached_as || !region || !account || !role || !region_ok(*region)) {
    co_return fail(Error::invalid(
        "SSO needs sso_account_id, sso_role_name, sso_region and sso_session or sso_start_url"));
  }
  std::string file = home_path(*host_, "~/.aws/sso/cache/" + lower_hex_sha1(*cached_as) + ".json");
  const std::string login = sso_login(find_setting(settings, "sso_session"));
  std::string token_region = *region;
  std::string token_login = login;
  CO_TRY_ASSIGN(SsoToken token, co_await sso_token(std::move(file), std::move(token_region),
                                                   std::move(token_login), deadline));
  HttpCall request;
  request.method = "GET";
  request.url = host_->variable("AWS_ENDPOINT_URL_SSO")
                    .value_or("https://portal.sso." + *region + amazon_suffix(*region)) +
                "/federation/credentials?" +
                form_of({{"account_id", *account}, {"role_name", *role}});
  request.headers.emplace_back("x-amz-sso_bearer_token", token.token);
  Call how;
  Result<HttpReply> reply = co_await call(std::move(request), how, deadline);
  if (!reply) co_return fail(reply.error().at("SSO"));
  if (reply->status != 200) {
    Error error = refused(*reply, "SSO");
    if (reply->status == 401) error.message += login;
    co_return fail(std::move(error));
  }
  auto keys = parse_sso_keys(reply->body);
  if (!keys) co_return fail(keys.error().at("SSO"));
  co_return std::move(*keys);
}

// The token in `file`, renewed when it ends soon. Errors end with `login`, where a login helps.
Task<Result<SsoToken>> AwsProviders::sso_token(std::string file, std::string region, std::string login,
                                               Deadline deadline) {
  // As the AWS CLI has it: in time for keys that are asked for now, seldom enough for one a quarter of an hour.
  constexpr int64_t kRenewedBeforeMs = 15 * 60 * 1000;
  auto text = host_->read_file(file);
  if (!text) {
    Error error = Error::invalid("SSO: " + text.error().message + login);
    co_return fail(std::move(error));
  }
  auto token = parse_sso_token(*text);
  if (auto kept = unwritten_sso_.find(file); kept != unwritten_sso_.end()) {
    auto ours = parse_sso_token(kept->second);
    if (ours && (!token || token->expires < ours->expires)) {
      text = kept->second;
      token = std::move(ours);
    }
  }
  if (!token) co_return fail(token.error().at("SSO: " + file));
  const WallMs now = world_.wall_now();
  if (now.value + kRenewedBeforeMs < token->expires.value) co_return std::move(*token);

  const bool expired = token->expires <= now;
  const std::string lacks = token->not_renewable(now);
  if (!lacks.empty()) {
    if (!expired) co_return std::move(*token);
    Error error =
        Error::make(ErrorCode::kForbidden, "SSO: the login has expired, and " + file + " has " + lacks + login);
    co_return fail(std::move(error));
  }
  std::string cached = *text;
  std::string path = file;
  Result<std::string> renewed = co_await renewed_sso(std::move(path), std::move(cached), std::move(region), deadline);
  if (renewed) co_return parse_sso_token(*renewed);
  // A renewal token serves once: another process may have been quicker.
  auto again = host_->read_file(file);
  auto theirs = again ? parse_sso_token(*again) : Result<SsoToken>(fail(Error()));
  if (theirs && token->expires < theirs->expires && world_.wall_now() < theirs->expires) co_return std::move(*theirs);
  if (!expired && world_.wall_now() < token->expires) {
    spdlog::warn("the SSO login holds, but could not be renewed: {}", renewed.error().message);
    co_return std::move(*token);
  }
  Error error = renewed.error().at("SSO: the login has expired and could not be renewed");
  if (error.code == ErrorCode::kForbidden) error.message += login;
  co_return fail(std::move(error));
}

// https://docs.aws.amazon.com/singlesignon/latest/OIDCAPIReference/API_CreateToken.html
Task<Result<std::string>> AwsProviders::renewed_sso(std::string file, std::string cached, std::string region,
                                                    Deadline deadline) {
  auto token = parse_sso_token(cached);
  if (!token) co_return fail(std::move(token).error());
  HttpCall request;
  request.method = "POST";
  request.url = host_->variable("AWS_ENDPOINT_URL_SSO_OIDC").value_or("https://oidc." + region + amazon_suffix(region));
  while (request.url.ends_with('/')) request.url.pop_back();
  if (!is_private_url(request.url)) {
    co_return fail(Error::invalid("AWS_ENDPOINT_URL_SSO_OIDC: secrets are sent over https or to this machine only"));
  }
  request.url += "/token";
  request.headers.emplace_back("content-type", "application/json");
  request.body = Blob(sso_renewal_request(*token));
  Call how;
  Result<HttpReply> reply = co_await call(std::move(request), how, deadline);
  if (!reply) co_return fail(std::move(reply).error());
  if (reply->status != 200) co_return fail(refused(*reply, "CreateToken"));
  auto renewed = renewed_sso_cache(cached, reply->body, world_.wall_now());
  if (!renewed) co_return fail(renewed.error().at("CreateToken"));
  if (auto written = host_->replace_file(file, *renewed); written) {
    unwritten_sso_.erase(file);
  } else {
    spdlog::warn("the renewed SSO login is kept in memory only: {}", written.error().message);
    unwritten_sso_[file] = *renewed;
  }
  co_return renewed;
}

Task<Result<AwsKeys>> AwsProviders::assume_role(AwsSettings settings, S3Credentials source,
                                                Deadline deadline) {
  if (find_setting(settings, "mfa_serial")) {
    co_return fail(Error::unsupported("mfa_serial: nobody is there to give the code"));
  }
  auto text = [&](std::string_view name) { return find_setting(settings, name).value_or(""); };
  const std::string session = session_name(find_setting(settings, "role_session_name"));
  std::string form = form_of({{"Action", "AssumeRole"},
                              {"Version", "2011-06-15"},
                              {"RoleArn", text("role_arn")},
                              {"RoleSessionName", session},
                              {"ExternalId", text("external_id")},
                              {"DurationSeconds", text("duration_seconds")}});
  std::string region = region_of(&settings);
  std::optional<S3Credentials> by = std::move(source);
  co_return co_await sts(std::move(region), std::move(form), std::move(by), deadline);
}

Task<Result<AwsKeys>> AwsProviders::assume_with_token(std::string role, std::string session,
                                                      std::string token_file, std::string region,
                                                      Deadline deadline) {
  CO_TRY_ASSIGN(std::string token, host_->read_file(home_path(*host_, token_file)));
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  if (token.empty()) co_return fail(Error::invalid(token_file + " is empty"));
  std::string form = form_of({{"Action", "AssumeRoleWithWebIdentity"},
                              {"Version", "2011-06-15"},
                              {"RoleArn", role},
                              {"RoleSessionName", session},
                              {"WebIdentityToken", token}});
  std::optional<S3Credentials> unsigned_call;
  co_return co_await sts(std::move(region), std::move(form), std::move(unsigned_call), deadline);
}

// https://docs.aws.amazon.com/STS/latest/APIReference/
Task<Result<AwsKeys>> AwsProviders::sts(std::string region, std::string form,
                                        std::optional<S3Credentials> signed_by,
                                        Deadline deadline) {
  std::optional<std::string> endpoint = host_->variable("AWS_ENDPOINT_URL_STS");
  if (!endpoint) endpoint = host_->variable("AWS_ENDPOINT_URL");
  std::string origin = endpoint ? *endpoint : "https://sts." + region + amazon_suffix(region);
  while (origin.ends_with('/')) origin.pop_back();
  HttpCall request;
  request.method = "POST";
  request.body = Blob(std::move(form));
  std::string path = "/";
  if (signed_by) {
    S3Signer signer(region, "sts");
    S3Unsigned to_sign;
    to_sign.method = "POST";
    const size_t scheme = origin.find("://");
    if (scheme == std::string::npos || origin.find('/', scheme + 3) != std::string::npos) {
      co_return fail(Error::invalid("STS: AWS_ENDPOINT_URL is not http(s)://HOST[:PORT]"));
    }
    to_sign.host = origin.substr(scheme + 3);
    std::string_view own_port = origin.starts_with("https:") ? ":443" : ":80";
    if (to_sign.host.ends_with(own_port)) {
      to_sign.host.resize(to_sign.host.size() - own_port.size());
    }
    to_sign.path = "/";
    to_sign.body = request.body.view();
    S3Signed sealed = signer.sign(*signed_by, to_sign, world_.wall_now());
    request.headers = std::move(sealed.headers);
  }
  request.headers.emplace_back("content-type", "application/x-www-form-urlencoded; charset=utf-8");
  request.url = origin + path;
  Call how;
  Result<HttpReply> reply = co_await call(std::move(request), how, deadline);
  if (!reply) co_return fail(reply.error().at("STS"));
  if (reply->status != 200) co_return fail(refused(*reply, "STS"));
  auto keys = parse_sts_keys(reply->body);
  if (!keys) co_return fail(keys.error().at("STS"));
  co_return std::move(*keys);
}

// https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
Task<Result<AwsFound>> AwsProviders::container(Deadline deadline) {
  auto relative = host_->variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  auto full = host_->variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!relative && !full) {
    co_return skipped(
        "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is "
        "set");
  }
  HttpCall request;
  request.method = "GET";
  request.direct = true;
  if (relative) {
    if (!relative->starts_with('/')) {
      co_return fail(
          Error::invalid("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with '/'"));
    }
    request.url = "http://169.254.170.2" + *relative;
  } else {
    if (auto ok = check_container_uri(*full); !ok) {
      co_return fail(ok.error().at("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
    }
    request.url = *full;
  }
  std::optional<std::string> token = host_->variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (auto file = host_->variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
    CO_TRY_ASSIGN(std::string text, host_->read_file(*file));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    token = std::move(text);
  }
  if (token) {
    if (token->empty() || token->find_first_of("\r\n") != std::string::npos) {
      co_return fail(Error::invalid("the container's authorization token is malformed"));
    }
    request.headers.emplace_back("authorization", *token);
  }
  Call how;
  Result<HttpReply> reply = co_await call(std::move(request), how, deadline);
  if (!reply) co_return fail(std::move(reply).error());
  if (reply->status != 200) co_return fail(refused(*reply, "the container's credential server"));
  auto keys = parse_metadata_keys(reply->body);
  if (!keys) co_return fail(keys.error().at("the container's credential server"));
  co_return found(std::move(*keys));
}

// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
//
// Version 2 only: version 1 gives keys to whoever can make this machine fetch a URL.
Task<Result<AwsFound>> AwsProviders::instance(Deadline deadline) {
  auto disabled = host_->variable("AWS_EC2_METADATA_DISABLED");
  if (disabled && (*disabled == "true" || *disabled == "TRUE" || *disabled == "True")) {
    co_return skipped("AWS_EC2_METADATA_DISABLED is set");
  }
  std::string origin = "http://169.254.169.254";
  auto mode = host_->variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
  if (mode && (*mode == "IPv6" || *mode == "ipv6")) origin = "http://[fd00:ec2::254]";
  if (auto given = host_->variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")) origin = *given;
  while (origin.ends_with('/')) origin.pop_back();
  auto number = [&](const char* name, uint64_t fallback, uint64_t max) {
    auto text = host_->variable(name);
    auto value = text ? parse_decimal(*text) : std::optional<uint64_t>();
    return value && *value > 0 ? std::min(*value, max) : fallback;
  };
  // On a machine that is no instance nothing answers, so the wait is short.
  Call how;
  how.timeout = seconds(number("AWS_METADATA_SERVICE_TIMEOUT", 1, 60));
  how.attempts_max = static_cast<uint32_t>(number("AWS_METADATA_SERVICE_NUM_ATTEMPTS", 2, 10));

  HttpCall ask_token;
  ask_token.method = "PUT";
  ask_token.direct = true;
  ask_token.url = origin + "/latest/api/token";
  ask_token.headers.emplace_back("x-aws-ec2-metadata-token-ttl-seconds", "300");
  Result<HttpReply> token = co_await call(std::move(ask_token), how, deadline);
  if (!token) {
    co_return skipped("no answer (" + token.error().message +
                      "); in a container, the instance's hop limit must be at least 2");
  }
  if (token->status != 200) {
    co_return skipped(origin + " answers " + std::to_string(token->status) +
                      " instead of a session token");
  }
  const bool token_ok = !token->body.empty() &&
                        std::all_of(token->body.begin(), token->body.end(),
                                    [](char c) { return c > 0x20 && c < 0x7f; });
  if (!token_ok) co_return skipped(origin + " gives no session token");

  const std::string base = "/latest/meta-data/iam/security-credentials/";
  auto get = [&](const std::string& path) {
    HttpCall request;
    request.method = "GET";
    request.direct = true;
    request.url = origin + path;
    request.headers.emplace_back("x-aws-ec2-metadata-token", token->body);
    return request;
  };
  HttpCall ask_roles = get(base);
  Result<HttpReply> roles = co_await call(std::move(ask_roles), how, deadline);
  if (!roles) co_return fail(std::move(roles).error());
  std::string role = roles->body.substr(0, roles->body.find_first_of("\r\n"));
  if (roles->status == 404 || (roles->status == 200 && role.empty())) {
    co_return skipped("the instance has no role");
  }
  if (roles->status != 200) co_return fail(refused(*roles, "the roles of the instance"));
  HttpCall ask_keys = get(base + percent_encode(role, Slash::kEncode));
  Result<HttpReply> reply = co_await call(std::move(ask_keys), how, deadline);
  if (!reply) co_return fail(std::move(reply).error());
  const std::string where = "role '" + printable_key(role) + "' of the instance";
  if (reply->status != 200) co_return fail(refused(*reply, where));
  auto keys = parse_metadata_keys(reply->body);
  if (!keys) co_return fail(keys.error().at(where));
  co_return found(std::move(*keys));
}

}  // namespace celld
