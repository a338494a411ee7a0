// What sources of tokens share that ask over HTTP.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/token_source.h"
#include "world/http_transport.h"

namespace celld {

inline constexpr size_t kTokenBytesMax = 64 << 10;

// Whether what is sent there is read by nobody on the way: https, or http to this machine, a
// link-local address or Google's metadata server.
bool is_private_url(std::string_view url);

// A token in JSON, as RFC 6749 section 5.1 has it or with the metadata services' numbers in text.
// kForbidden when the issuer refuses and kUnavailable when it cannot say, with its reason.
Result<AccessToken> parse_token_reply(const HttpReply& reply, WallMs asked_wall, MonoTime asked);

// One request, one token.
class HttpTokenSource : public TokenSource {
 public:
  // `world` outlives it.
  HttpTokenSource(World& world, std::shared_ptr<HttpTransport> transport)
      : world_(world), transport_(std::move(transport)) {}
  Task<Result<AccessToken>> fetch(Deadline deadline) override;

 protected:
  // Without deadline and limits.
  virtual Result<HttpCall> make_call() = 0;
  // Sends any request of an exchange of tokens; the reply to it, whatever its status.
  Task<Result<HttpReply>> perform(HttpCall call, Deadline deadline);

  World& world_;

 private:
  const std::shared_ptr<HttpTransport> transport_;
};

// A POST of a form.
HttpCall form_call(std::string url, std::string form);

}  // namespace celld
