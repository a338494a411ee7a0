// celld (node): runs the bucket's current deployment and adopts new ones in place.
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/project.h"
#include "cli/serve.h"
#include "cli/settings.h"

namespace celld {

namespace {

// How often the deployment pointer is read: one GET.
constexpr Duration kPollInterval = std::chrono::seconds(5);

Task<void> follow_deployments(Serve& serve) {
  std::string last_failure;
  while (true) {
    co_await sleep_for(serve.world(), kPollInterval);
    Result<bool> adopted = co_await serve.adopt_current();
    if (adopted) {
      last_failure.clear();
      if (*adopted) serve.log(js::LogLevel::kInfo, "adopted deployment " + serve.version());
      continue;
    }
    // The version that runs goes on; the same failure is told once.
    if (adopted.error().code == ErrorCode::kNotFound || adopted.error().message == last_failure) continue;
    last_failure = adopted.error().message;
    serve.log(js::LogLevel::kError, "the new deployment is not adopted: " + last_failure);
  }
}

Task<Result<void>> begin(Serve& serve, std::string ip) {
  Result<bool> adopted = co_await serve.adopt_current();
  if (!adopted && adopted.error().code != ErrorCode::kNotFound) {
    co_return fail(adopted.error());
  }
  CO_TRY_ASSIGN(uint16_t port, serve.node().listen());
  std::string where = "http://" + host_and_port(ip, port);
  serve.log(js::LogLevel::kInfo, "other nodes reach this one at " + serve.node().advertised());
  serve.log(js::LogLevel::kInfo, adopted ? fmt::format("listening on {}, deployment {}", where, serve.version())
                                         : fmt::format("listening on {}, nothing is deployed yet", where));
  fmt::print("{}\n", where);
  std::fflush(stdout);
  serve.world().spawn(follow_deployments(serve));
  co_return Result<void>();
}

}  // namespace

int run_node(const NodeOptions& options) {
  if (Result<void> enough = check_file_limit(); !enough) {
    print_error(enough.error());
    return kExitFailure;
  }
  ServeOptions serve_options;
  serve_options.bucket = options.bucket.url;
  serve_options.store = store_options(options.bucket);
  serve_options.data_dir = options.data;
  serve_options.node = node_config(options.tuning);
  serve_options.node.listen_address = options.listen.ip;
  serve_options.node.listen_port = options.listen.port;
  serve_options.node.internal =
      InternalListener{options.internal.listen.ip, options.internal.listen.port, options.internal.advertise};
  Serve serve(std::move(serve_options), stderr_log());
  return serve.run([&](Serve& s) { return begin(s, options.listen.ip); });
}

}  // namespace celld
