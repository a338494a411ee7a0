#include "store/aws/providers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "net/curl_transport.h"
#include "store/aws/aws_testing.h"
#include "store/aws/chain.h"
#include "store/aws/key_reply.h"
#include "store/file_temp_dir.h"

namespace celld {
namespace {

using ::testing::AllOf;
using testing::FakeHost;
using ::testing::HasSubstr;
using testing::MetadataServer;
using ::testing::Not;
using testing::RealWorld;

constexpr const char* kMetadataKeys =
    R"({"Code":"Success","AccessKeyId":"ASIA","SecretAccessKey":"Sekret","Token":"Tk0",
        "Expiration":"2099-01-01T00:00:00Z"})";
constexpr const char* kStsKeys =
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId>"
    "<SecretAccessKey>Sekret</SecretAccessKey><SessionToken>Tk0</SessionToken>"
    "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>"
    "</AssumeRoleResponse>";

struct AwsProvidersTest : ::testing::Test {
  RealWorld real;
  MetadataServer server{real};
  std::shared_ptr<FakeHost> host = std::make_shared<FakeHost>();
  std::shared_ptr<CurlTransport> transport =
      std::make_shared<CurlTransport>(real.io(), real.world());
  AwsProviders providers{real.world(), transport, host};

  void SetUp() override {
    host->variables["HOME"] = "/h";
    host->variables["AWS_ENDPOINT_URL_STS"] = server.url();
    host->variables["AWS_ENDPOINT_URL_SSO"] = server.url();
    host->variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url() + "/";
  }
  Result<AwsFound> ask(AwsSource source) {
    Deadline deadline = real.world().deadline_in(std::chrono::seconds(20));
    auto found = real.run(providers.ask(source, deadline));
    if (!found) {
      EXPECT_THAT(found.error().message, Not(HasSubstr("Sekret")));
      EXPECT_THAT(found.error().message, Not(HasSubstr("Tk0")));
    }
    return found;
  }
  void expect_keys(AwsSource source, std::string token = "Tk0") {
    auto found = ask(source);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_TRUE(found->keys) << found->skipped;
    EXPECT_EQ(found->keys->keys.access_key, "ASIA");
    EXPECT_EQ(found->keys->keys.secret_key, "Sekret");
    EXPECT_EQ(found->keys->keys.session_token, token);
  }
  std::string skipped(AwsSource source) {
    auto found = ask(source);
    EXPECT_TRUE(found) << found.error().message;
    EXPECT_TRUE(!found || !found->keys);
    return found ? found->skipped : "";
  }
  std::string error(AwsSource source) {
    auto found = ask(source);
    EXPECT_FALSE(found);
    return found ? "" : found.error().message;
  }
  void config(std::string text) { host->files["/h/.aws/config"] = std::move(text); }
};

TEST_F(AwsProvidersTest, environment) {
  EXPECT_THAT(skipped(AwsSource::kEnvironment), HasSubstr("AWS_ACCESS_KEY_ID is not set"));
  host->variables["AWS_ACCESS_KEY_ID"] = "ASIA";
  EXPECT_THAT(error(AwsSource::kEnvironment), HasSubstr("AWS_SECRET_ACCESS_KEY is not"));
  host->variables["AWS_SECRET_ACCESS_KEY"] = "Sekret";
  expect_keys(AwsSource::kEnvironment, "");
  host->variables["AWS_SESSION_TOKEN"] = "Tk0";
  expect_keys(AwsSource::kEnvironment);
  host->variables["AWS_SESSION_TOKEN"] = "Tk0\nx-forged: 1";
  EXPECT_THAT(error(AwsSource::kEnvironment), HasSubstr("session token"));
}

TEST_F(AwsProvidersTest, web_identity_of_a_service_account) {
  EXPECT_THAT(skipped(AwsSource::kWebIdentity), HasSubstr("AWS_WEB_IDENTITY_TOKEN_FILE"));
  host->variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/var/run/token";
  EXPECT_THAT(error(AwsSource::kWebIdentity), HasSubstr("AWS_ROLE_ARN"));
  host->variables["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/celld";
  EXPECT_THAT(error(AwsSource::kWebIdentity), HasSubstr("/var/run/token"));
  host->files["/var/run/token"] = "JWT.a+b/c=\n";
  server.answer("POST /", 200, kStsKeys);
  expect_keys(AwsSource::kWebIdentity);
  const auto& asked = server.asked.back();
  EXPECT_THAT(asked.body, AllOf(HasSubstr("Action=AssumeRoleWithWebIdentity&"),
                                HasSubstr("&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fcelld&"),
                                HasSubstr("&RoleSessionName=celld-"),
                                HasSubstr("&WebIdentityToken=JWT.a%2Bb%2Fc%3D")));
  EXPECT_EQ(asked.header("authorization"), "(none)");
  server.answer("POST /", 400,
                "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>Token expired"
                "</Message></Error></ErrorResponse>");
  EXPECT_THAT(error(AwsSource::kWebIdentity),
              HasSubstr("STS: 400 ExpiredTokenException: Token expired"));
}

TEST_F(AwsProvidersTest, failures_that_pass_are_repeated) {
  host->variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/t";
  host->variables["AWS_ROLE_ARN"] = "arn";
  host->files["/t"] = "JWT";
  server.routes["POST /"] = [&](const auto&) {
    return server.asked.size() < 3 ? MetadataServer::Answer{503, "slow down"}
                                   : MetadataServer::Answer{200, kStsKeys};
  };
  expect_keys(AwsSource::kWebIdentity);
  EXPECT_EQ(server.asked.size(), 3u);
}

TEST_F(AwsProvidersTest, profiles_with_keys) {
  EXPECT_THAT(skipped(AwsSource::kProfile),
              AllOf(HasSubstr("no profile 'default'"), HasSubstr("/h/.aws/config"),
                    HasSubstr("/h/.aws/credentials")));
  host->files["/h/.aws/credentials"] =
      "[default]\naws_access_key_id=ASIA\naws_secret_access_key=Sekret\n"
      "[other]\naws_access_key_id=ASIA\naws_secret_access_key=Sekret\naws_session_token=Tk0\n"
      "[half]\naws_access_key_id=ASIA\n";
  expect_keys(AwsSource::kProfile, "");
  host->variables["AWS_PROFILE"] = "other";
  expect_keys(AwsSource::kProfile);
  host->variables["AWS_PROFILE"] = "half";
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("profile 'half': no secret key"));
  host->variables["AWS_PROFILE"] = "none";
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("AWS_PROFILE: no profile 'none'"));
  host->files["/elsewhere"] = "[none]\naws_access_key_id=ASIA\naws_secret_access_key=Sekret\n";
  host->variables["AWS_SHARED_CREDENTIALS_FILE"] = "/elsewhere";
  expect_keys(AwsSource::kProfile, "");
}

TEST_F(AwsProvidersTest, a_profile_that_assumes_a_role_with_the_keys_of_another) {
  config(
      "[profile app]\nrole_arn=arn:role\nsource_profile=base\nexternal_id=ex/1\n"
      "role_session_name=me\nregion=eu-west-1\nduration_seconds=900\n"
      "[profile base]\naws_access_key_id=BASE\naws_secret_access_key=BASESECRET\n");
  host->variables["AWS_PROFILE"] = "app";
  server.answer("POST /", 200, kStsKeys);
  expect_keys(AwsSource::kProfile);
  const auto& asked = server.asked.back();
  EXPECT_EQ(asked.body,
            "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Arole&RoleSessionName=me&"
            "ExternalId=ex%2F1&DurationSeconds=900");
  EXPECT_THAT(asked.header("authorization"),
              AllOf(HasSubstr("Credential=BASE/"), HasSubstr("/eu-west-1/sts/aws4_request")));
}

TEST_F(AwsProvidersTest, profiles_may_be_their_own_source_but_not_go_in_circles) {
  host->variables["AWS_PROFILE"] = "a";
  server.answer("POST /", 200, kStsKeys);
  config(
      "[profile a]\nrole_arn=r\nsource_profile=a\naws_access_key_id=A\n"
      "aws_secret_access_key=S\n");
  expect_keys(AwsSource::kProfile);
  config("[profile a]\nrole_arn=r\nsource_profile=b\n[profile b]\nrole_arn=r\nsource_profile=a\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("is its own source, but has no keys"));
  config("[profile a]\nrole_arn=r\nsource_profile=none\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("profile 'none' does not exist"));
  config("[profile a]\nrole_arn=r\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("profile 'a': 'role_arn' without"));
  config("[profile a]\nrole_arn=r\ncredential_source=Mars\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("'Mars'"));
  config("[profile a]\nrole_arn=r\ncredential_source=Environment\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("AWS_ACCESS_KEY_ID is not set"));
  std::string deep;
  for (int i = 0; i < 12; ++i) {
    deep += "[profile p" + std::to_string(i) + "]\nrole_arn=r\nsource_profile=p" +
            std::to_string(i + 1) + "\n";
  }
  config(deep);
  host->variables["AWS_PROFILE"] = "p0";
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("more than 8 profiles"));
  config(
      "[profile p0]\nrole_arn=r\nsource_profile=p0\nmfa_serial=x\naws_access_key_id=A\n"
      "aws_secret_access_key=S\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("mfa_serial"));
}

TEST_F(AwsProvidersTest, a_profile_with_a_web_identity) {
  config("[default]\nrole_arn=r\nweb_identity_token_file=~/token\n");
  host->files["/h/token"] = "JWT";
  server.answer("POST /", 200, kStsKeys);
  expect_keys(AwsSource::kProfile);
}

TEST_F(AwsProvidersTest, credential_process) {
  config("[default]\ncredential_process=/opt/keys --for celld\n");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("profile 'default': credential_process"));
  host->commands["/opt/keys --for celld"] =
      R"({"Version":1,"AccessKeyId":"ASIA","SecretAccessKey":"Sekret","SessionToken":"Tk0"})";
  expect_keys(AwsSource::kProfile);
  host->commands["/opt/keys --for celld"] = R"({"Version":1,"AccessKeyId":"Sekret")";
  error(AwsSource::kProfile);
}

TEST_F(AwsProvidersTest, single_sign_on) {
  config(
      "[default]\nsso_session=corp\nsso_account_id=123\nsso_role_name=Dev Ops\n"
      "[sso-session corp]\nsso_region=eu-west-1\nsso_start_url=https://corp.example/start\n");
  EXPECT_THAT(error(AwsSource::kProfile),
              AllOf(HasSubstr("/h/.aws/sso/cache/"), HasSubstr("aws sso login")));
  // The file is named after the SHA-1 of the session's name.
  host->files["/h/.aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json"] =
      R"({"accessToken":"SSO-TOKEN","expiresAt":"2099-01-01T00:00:00Z"})";
  server.answer("GET /federation/credentials", 200,
                R"({"roleCredentials":{"accessKeyId":"ASIA","secretAccessKey":"Sekret",
                    "sessionToken":"Tk0","expiration":4070908800000}})");
  expect_keys(AwsSource::kProfile);
  EXPECT_EQ(server.asked.back().line,
            "GET /federation/credentials?account_id=123&role_name=Dev%20Ops");
  EXPECT_EQ(server.asked.back().header("x-amz-sso_bearer_token"), "SSO-TOKEN");
  server.answer("GET /federation/credentials", 401, R"({"message":"Session token not found"})");
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("aws sso login"));
  for (auto& [path, text] : host->files) {
    if (path.find("cache") != path.npos) {
      text = R"({"accessToken":"SSO-TOKEN","expiresAt":"2001-01-01T00:00:00Z"})";
    }
  }
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("the login has expired"));
}

// A login of an sso-session, as `aws sso login` leaves it, that ends in so many seconds.
struct AwsSsoRenewalTest : AwsProvidersTest {
  const std::string cache = "/h/.aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json";

  void SetUp() override {
    AwsProvidersTest::SetUp();
    host->variables["AWS_ENDPOINT_URL_SSO_OIDC"] = server.url();
    config(
        "[default]\nsso_session=corp\nsso_account_id=123\nsso_role_name=Ops\n"
        "[sso-session corp]\nsso_region=eu-west-1\nsso_start_url=https://corp.example/start\n");
    server.answer("GET /federation/credentials", 200,
                  R"({"roleCredentials":{"accessKeyId":"ASIA","secretAccessKey":"Sekret",
                      "sessionToken":"Tk0","expiration":4070908800000}})");
  }
  static std::string login(std::string_view expires,
                           std::string_view registration = "2099-01-01T00:00:00Z") {
    return R"({"startUrl":"https://corp.example/start","region":"eu-west-1","accessToken":"OLD","expiresAt":")" +
           std::string(expires) +
           R"(","clientId":"client","clientSecret":"Sekret","registrationExpiresAt":")" +
           std::string(registration) + R"(","refreshToken":"Tk0-refresh"})";
  }
  std::string bearer() { return server.asked.back().header("x-amz-sso_bearer_token"); }
  size_t renewals() const {
    return static_cast<size_t>(std::ranges::count_if(
        server.asked,
        [](const MetadataServer::Asked& a) { return a.line.starts_with("POST /token"); }));
  }
};

TEST_F(AwsSsoRenewalTest, a_login_that_has_expired_is_renewed_and_written_back) {
  host->files[cache] = login("2001-01-01T00:00:00Z");
  server.answer("POST /token", 200,
                R"({"accessToken":"NEW","expiresIn":28800,"refreshToken":"next"})");
  expect_keys(AwsSource::kProfile);
  EXPECT_EQ(bearer(), "NEW");
  ASSERT_EQ(renewals(), 1u);
  for (const char* part : {R"("grantType":"refresh_token")", R"("refreshToken":"Tk0-refresh")",
                           R"("clientId":"client")"}) {
    EXPECT_THAT(server.asked.front().body, HasSubstr(part));
  }
  auto kept = parse_sso_token(host->files[cache]);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->token, "NEW");
  EXPECT_EQ(kept->refresh_token, "next");
  EXPECT_THAT(host->files[cache], HasSubstr("https://corp.example/start"))
      << "what else is in it stays";
  expect_keys(AwsSource::kProfile);
  EXPECT_EQ(renewals(), 1u) << "it lasts for eight hours now";
}

TEST_F(AwsSsoRenewalTest, a_login_that_lasts_is_left_alone) {
  host->files[cache] = login("2099-01-01T00:00:00Z");
  expect_keys(AwsSource::kProfile);
  EXPECT_EQ(bearer(), "OLD");
  EXPECT_EQ(renewals(), 0u);
}

TEST_F(AwsSsoRenewalTest, what_cannot_be_renewed_says_what_to_run) {
  for (const char* refusal : {R"({"error":"invalid_grant"})", R"({"error":"invalid_client"})"}) {
    host->files[cache] = login("2001-01-01T00:00:00Z");
    server.answer("POST /token", 400, refusal);
    EXPECT_THAT(error(AwsSource::kProfile),
                AllOf(HasSubstr("could not be renewed"),
                      HasSubstr("run: aws sso login --sso-session corp")));
    EXPECT_EQ(host->files[cache], login("2001-01-01T00:00:00Z"));
  }
  host->files[cache] = login("2001-01-01T00:00:00Z", "2002-01-01T00:00:00Z");
  EXPECT_THAT(error(AwsSource::kProfile),
              AllOf(HasSubstr("a client registration that has expired"),
                    HasSubstr("run: aws sso login --sso-session corp")));
}

TEST_F(AwsSsoRenewalTest, a_store_of_tokens_that_fails_for_a_moment_is_not_a_reason_to_log_in) {
  host->files[cache] = login("2001-01-01T00:00:00Z");
  server.answer("POST /token", 500, "");
  EXPECT_THAT(error(AwsSource::kProfile), Not(HasSubstr("aws sso login")));
}

TEST_F(AwsSsoRenewalTest, replies_that_are_none_change_nothing) {
  for (const char* reply :
       {"", "{}", "[]", R"({"accessToken":"NEW"})", R"({"accessToken":"a b","expiresIn":5})",
        R"({"accessToken":"NEW","expiresIn":-5})"}) {
    host->files[cache] = login("2001-01-01T00:00:00Z");
    server.answer("POST /token", 200, reply);
    EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("CreateToken")) << reply;
    EXPECT_EQ(host->files[cache], login("2001-01-01T00:00:00Z"));
  }
}

TEST_F(AwsSsoRenewalTest, a_cache_that_cannot_be_written_is_kept_in_memory) {
  host->files[cache] = login("2001-01-01T00:00:00Z");
  host->read_only = true;
  server.answer("POST /token", 200,
                R"({"accessToken":"NEW","expiresIn":28800,"refreshToken":"next"})");
  expect_keys(AwsSource::kProfile);
  expect_keys(AwsSource::kProfile);
  EXPECT_EQ(bearer(), "NEW");
  EXPECT_EQ(renewals(), 1u) << "a renewal token serves once";
}

TEST_F(AwsSsoRenewalTest, its_secrets_go_to_no_plain_address_elsewhere) {
  host->files[cache] = login("2001-01-01T00:00:00Z");
  host->variables["AWS_ENDPOINT_URL_SSO_OIDC"] = "http://192.0.2.1";
  EXPECT_THAT(error(AwsSource::kProfile), HasSubstr("AWS_ENDPOINT_URL_SSO_OIDC"));
}

TEST_F(AwsProvidersTest, containers_of_ecs_and_eks) {
  EXPECT_THAT(skipped(AwsSource::kContainer), HasSubstr("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
  host->variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url() + "/v1/keys";
  host->variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "from the variable";
  server.answer("GET /v1/keys", 200, kMetadataKeys);
  expect_keys(AwsSource::kContainer);
  EXPECT_EQ(server.asked.back().header("authorization"), "from the variable");
  // A report: with EKS Pod Identity the file was not looked at, and the chain fell through to IMDS.
  host->variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/var/run/eks";
  EXPECT_THAT(error(AwsSource::kContainer), HasSubstr("/var/run/eks"));
  host->files["/var/run/eks"] = "from the file\n";
  expect_keys(AwsSource::kContainer);
  EXPECT_EQ(server.asked.back().header("authorization"), "from the file");
  host->files["/var/run/eks"] = "from\nthe file";
  EXPECT_THAT(error(AwsSource::kContainer), HasSubstr("authorization token is malformed"));
  host->files["/var/run/eks"] = "from the file";
  server.answer("GET /v1/keys", 403, R"({"code":"AccessDenied","message":"no association"})");
  EXPECT_THAT(error(AwsSource::kContainer), HasSubstr("403 AccessDenied: no association"));
  host->variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://169.254.169.254/keys";
  EXPECT_THAT(error(AwsSource::kContainer), HasSubstr("without TLS"));
}

TEST(AwsContainerUri, only_this_machine_and_the_addresses_of_amazon_without_tls) {
  for (const char* good :
       {"https://anywhere.example/x", "http://127.0.0.1/x", "http://127.9.8.7:80/", "http://[::1]/",
        "http://[::1]:8080/x", "http://localhost:1/", "http://169.254.170.2/v2",
        "http://169.254.170.23/v1", "http://[fd00:ec2::23]/v1", "http://127.0.0.1?x"}) {
    EXPECT_TRUE(check_container_uri(good)) << good;
  }
  for (const char* bad :
       {"", "ftp://127.0.0.1/", "http://", "http:///x", "http://10.0.0.1/", "http://example.com/",
        "http://127.0.0.1.example.com/", "http://127.0.0.1@evil/", "http://evil@127.0.0.1/",
        "http://127.0.0.1:80@evil/", "http://127.0.0.1:x/", "http://[::2]/", "http://[::1/",
        "http://[::1]evil/", "http://localhost.evil/", "http://127.0.0.1\\@evil/",
        "http://127.0.0.1 /", "https://user@host/"}) {
    EXPECT_FALSE(check_container_uri(bad)) << bad;
  }
}

TEST_F(AwsProvidersTest, instances_with_a_session_token) {
  server.answer("PUT /latest/api/token", 200, "IMDS-TOKEN");
  server.answer("GET /latest/meta-data/iam/security-credentials/", 200, "my role\n");
  server.answer("GET /latest/meta-data/iam/security-credentials/my%20role", 200, kMetadataKeys);
  expect_keys(AwsSource::kInstance);
  ASSERT_EQ(server.asked.size(), 3u);
  EXPECT_NE(server.asked[0].header("x-aws-ec2-metadata-token-ttl-seconds"), "(none)");
  EXPECT_EQ(server.asked[1].header("x-aws-ec2-metadata-token"), "IMDS-TOKEN");
  EXPECT_EQ(server.asked[2].header("x-aws-ec2-metadata-token"), "IMDS-TOKEN");
  server.answer("GET /latest/meta-data/iam/security-credentials/my%20role", 200,
                R"({"Code":"AssumeRoleUnauthorizedAccess","Message":"cannot assume"})");
  EXPECT_THAT(error(AwsSource::kInstance), AllOf(HasSubstr("my role"), HasSubstr("cannot assume")));
  server.answer("GET /latest/meta-data/iam/security-credentials/", 404, "");
  EXPECT_THAT(skipped(AwsSource::kInstance), HasSubstr("no role"));
  server.answer("PUT /latest/api/token", 403, "");
  EXPECT_THAT(skipped(AwsSource::kInstance), HasSubstr("403"));
  host->variables["AWS_EC2_METADATA_DISABLED"] = "true";
  EXPECT_THAT(skipped(AwsSource::kInstance), HasSubstr("AWS_EC2_METADATA_DISABLED"));
}

TEST_F(AwsProvidersTest, a_machine_that_is_no_instance_is_left_alone_soon) {
  host->variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1";
  EXPECT_THAT(skipped(AwsSource::kInstance), HasSubstr("hop limit"));
}

// The whole chain on this machine, with files and a process of its own.
TEST_F(AwsProvidersTest, the_chain_says_what_every_source_lacked) {
  testing::TempDir home;
  Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    if (name == "HOME") return home.path();
    return host->variable(name);
  };
  server.answer("PUT /latest/api/token", 404, "");
  std::shared_ptr<AwsHost> machine = aws_host(real.world(), environment);
  Deadline deadline = real.world().deadline_in(std::chrono::seconds(20));
  auto chain = aws_credentials(real.world(), transport, machine);
  auto none = real.run(chain->get(deadline));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(none.error().message,
              AllOf(HasSubstr("environment: AWS_ACCESS_KEY_ID is not set"),
                    HasSubstr("web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set"),
                    HasSubstr("profile: no profile 'default' in " + home.path()),
                    HasSubstr("container: neither"), HasSubstr("instance metadata: ")));

  std::filesystem::create_directory(home.path() + "/.aws");
  auto write = [&](const std::string& command) {
    std::ofstream(home.path() + "/.aws/config")
        << "[default]\ncredential_process=" << command << "\n";
  };
  auto ask = [&] {
    auto fresh = aws_credentials(real.world(), transport, machine);
    return real.run(fresh->get(real.world().deadline_in(std::chrono::seconds(20))));
  };
  write("echo '{\"Version\":1,\"AccessKeyId\":\"'$(printf A)'\",\"SecretAccessKey\":\"S\"}'");
  auto keys = ask();
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->access_key, "A");
  write("echo not so fast >&2; exit 3");
  EXPECT_THAT(ask().error().message, HasSubstr("ended with status 3: not so fast"));
  write("/no/such/program");
  EXPECT_THAT(ask().error().message, HasSubstr("status 127"));
  write("yes");
  EXPECT_THAT(ask().error().message, HasSubstr("more than 64 KiB"));
  write("sleep 1000 & echo '{}'");
  EXPECT_THAT(ask().error().message, HasSubstr("Version"));
}

TEST(AwsHost, a_command_that_does_not_end_is_killed) {
  RealWorld real;
  Environment none = [](const std::string&) { return std::optional<std::string>(); };
  auto host = aws_host(real.world(), none);
  Deadline soon = real.world().deadline_in(std::chrono::milliseconds(50));
  auto result = real.run(host->run_command("echo x; exec sleep 1000", soon));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadline);
  Cancellation cancellation;
  cancellation.cancel();
  Deadline cancelled = Deadline::never().cancelled_by(cancellation);
  EXPECT_EQ(real.run(host->run_command("true", cancelled)).error().code, ErrorCode::kCancelled);
}

TEST(AwsHost, files_are_bounded_and_named) {
  testing::TempDir dir;
  RealWorld real;
  auto host = aws_host(real.world(), process_environment());
  EXPECT_EQ(host->read_file(dir.path() + "/none").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(host->read_file(dir.path()).error().message, HasSubstr("not a file"));
  std::ofstream(dir.path() + "/big") << std::string((1 << 20) + 1, 'x');
  EXPECT_THAT(host->read_file(dir.path() + "/big").error().message, HasSubstr("1 MiB"));
  std::ofstream(dir.path() + "/good") << "text";
  EXPECT_EQ(*host->read_file(dir.path() + "/good"), "text");
}

TEST(AwsHost, a_file_is_replaced_whole_and_is_its_owners_only) {
  testing::TempDir dir;
  RealWorld real;
  auto host = aws_host(real.world(), process_environment());
  const std::string path = dir.path() + "/cache.json";
  std::ofstream(path) << "a longer text that was there before";
  std::filesystem::permissions(path, std::filesystem::perms::all);
  ASSERT_TRUE(host->replace_file(path, "new"));
  EXPECT_EQ(*host->read_file(path), "new");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_THAT(host->replace_file(dir.path() + "/none/cache.json", "x").error().message,
              HasSubstr("/none/cache.json"));
  size_t files = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator(dir.path())) ++files;
  EXPECT_EQ(files, 1u) << "nothing is left beside it";
}

}  // namespace
}  // namespace celld
