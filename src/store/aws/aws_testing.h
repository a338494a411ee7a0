// For tests: a machine made up by the test, and a server that plays IMDS, ECS, STS and SSO.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/acceptor.h"
#include "net/http_server.h"
#include "store/aws/host.h"
#include "store/store_testing.h"

namespace celld::testing {

struct FakeHost final : AwsHost {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;
  std::map<std::string, Result<std::string>> commands;

  std::optional<std::string> variable(const std::string& name) const override {
    auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  }
  Result<std::string> read_file(const std::string& path) const override {
    auto it = files.find(path);
    if (it == files.end()) return fail(Error::not_found(path + ": no such file"));
    return it->second;
  }
  bool read_only = false;
  Result<void> replace_file(const std::string& path, std::string_view text) override {
    if (read_only) return fail(Error::invalid(path + ": read-only file system"));
    files[path] = text;
    return {};
  }
  Task<Result<std::string>> run_command(std::string command, Deadline) override {
    auto it = commands.find(command);
    if (it == commands.end()) co_return fail(Error::invalid("no such command"));
    co_return it->second;
  }
};

// On loopback; keeps what it was asked and answers what `routes` say: by "METHOD /path" without
// the query.
class MetadataServer {
 public:
  struct Asked {
    std::string line;   // "GET /path?query"
    std::string block;  // "name\nvalue\n..."
    std::string body;
    std::string header(std::string_view name) const {
      size_t at = ("\n" + block).find("\n" + std::string(name) + "\n");
      if (at == std::string::npos) return "(none)";
      at += name.size() + 1;
      return block.substr(at, block.find('\n', at) - at);
    }
  };
  struct Answer {
    int status = 200;
    std::string body;
  };

  explicit MetadataServer(RealWorld& real)
      : server_(real.io(), HttpLimits{}, [this](auto exchange) { serve(std::move(exchange)); }) {
    std::vector<Acceptor::Sink> sinks;
    sinks.push_back([this](int fd) { server_.adopt(fd); });
    auto listening = Acceptor::listen(real.io(), "127.0.0.1", 0, std::move(sinks));
    CHECK(listening) << listening.error().message;
    acceptor_ = std::move(*listening);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(acceptor_->port()); }
  std::map<std::string, std::function<Answer(const Asked&)>> routes;
  std::vector<Asked> asked;

  void answer(const std::string& route, int status, std::string body) {
    routes[route] = [status, body](const Asked&) { return Answer{status, body}; };
  }

 private:
  void serve(std::shared_ptr<HttpExchange> exchange, std::string body = {}) {
    exchange->read_body([this, exchange, body = std::move(body)](Result<Blob> piece) mutable {
      if (piece && !piece->empty()) {
        body += piece->view();
        return serve(exchange, std::move(body));
      }
      Asked now{exchange->head().method + " " + exchange->head().target,
                exchange->head().header_block, std::move(body)};
      asked.push_back(now);
      auto it = routes.find(now.line.substr(0, now.line.find('?')));
      Answer answer = it == routes.end() ? Answer{404, ""} : it->second(now);
      exchange->respond(answer.status, "", "", Blob(answer.body));
    });
  }

  HttpServer server_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace celld::testing
