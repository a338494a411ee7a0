// Where keys come from: the AWS configuration files and the answers of metadata servers, STS, SSO and
// credential processes take any bytes.
//
// links: store
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "store/aws/config_file.h"
#include "store/aws/key_reply.h"
#include "store/aws/providers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace celld;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto sections = parse_aws_file(text)) {
    for (const auto& [name, settings] : *sections) CHECK(!name.empty() && !name.contains('\n'));
    CHECK(AwsConfig::parse(text, text)) << "two files that can be read alone make one";
  }
  for (const auto& keys : {parse_metadata_keys(text), parse_process_keys(text),
                           parse_sso_keys(text), parse_sts_keys(text)}) {
    if (!keys) continue;
    CHECK(check_keys(keys->keys)) << "keys that cannot be sent";
  }
  if (auto token = parse_sso_token(text)) {
    CHECK(!token->token.empty());
    (void)sso_renewal_request(*token);
    const std::string_view reply = R"({"accessToken":"new","expiresIn":3600,"refreshToken":"next"})";
    auto renewed = renewed_sso_cache(text, reply, WallMs{0});
    CHECK(renewed) << "a cache that can be read can be renewed: " << renewed.error().message;
    CHECK(parse_sso_token(*renewed)->token == "new" && parse_sso_token(*renewed)->refresh_token == "next");
  }
  const std::string_view cached = R"({"accessToken":"old","expiresAt":"2030-01-01T00:00:00Z"})";
  if (auto renewed = renewed_sso_cache(cached, text, WallMs{0})) {
    CHECK(parse_sso_token(*renewed));
  }
  (void)shown_aws_error(text);
  if (check_container_uri(text)) {
    CHECK(text.starts_with("http")) << text;
    CHECK(text.find('@') == text.npos || text.find('@') > text.find_first_of("/?#", 8)) << text;
  }
  return 0;
}
