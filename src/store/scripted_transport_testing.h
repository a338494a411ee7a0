// For tests: a transport that answers what the test wrote down and keeps what was sent.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "world/http_transport.h"

namespace celld::testing {

class ScriptedTransport final : public HttpTransport {
 public:
  std::vector<HttpCall> calls;
  std::deque<Result<HttpReply>> replies;

  void reply(int status, HeaderList headers = {}, std::string body = {}) {
    replies.push_back(HttpReply{status, std::move(headers), std::move(body)});
  }
  Task<Result<HttpReply>> perform(HttpCall call) override {
    calls.push_back(std::move(call));
    CHECK(!replies.empty()) << "an unexpected call to " << calls.back().url;
    Result<HttpReply> reply = std::move(replies.front());
    replies.pop_front();
    co_return reply;
  }
  // Of the last call; "" when it was not sent.
  std::string header(std::string_view name) const {
    for (const auto& [header, value] : calls.back().headers) {
      if (header == name) return value;
    }
    return {};
  }
};

}  // namespace celld::testing
