// celld deploy: from a project to the version that the fleet runs.
#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "cli/commands.h"
#include "cli/project.h"
#include "cli/settings.h"
#include "deploy/bundle.h"
#include "deploy/deployment.h"
#include "net/curl_transport.h"
#include "store/open_store.h"
#include "world/asio_world.h"

namespace celld {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kDeadline{10};

void print_bundle(const Bundle& bundle) {
  if (!bundle.warnings.empty()) fmt::print(stderr, "{}\n", bundle.warnings);
  uint64_t bytes = 0;
  for (const auto& m : bundle.modules) {
    if (m.kind == BundledKind::kSourceMap) continue;
    bytes += m.content.size();
    fmt::print(stderr, "  {:<9} {:>10}  {}\n", to_string(m.kind), shown_bytes(m.content.size()), m.name);
  }
  fmt::print(stderr, "Bundled {} in {} ms\n", shown_bytes(bytes), bundle.took.count());
}

Result<void> write_modules(const Bundle& bundle, const fs::path& outdir) {
  for (const auto& m : bundle.modules) {
    fs::path file = outdir / m.name;
    std::error_code ec;
    fs::create_directories(file.parent_path(), ec);
    std::ofstream out(file, std::ios::binary);
    out << m.content.view();
    out.close();
    if (ec || !out) return fail(Error::invalid(fmt::format("{}: cannot be written", file.string())));
  }
  fmt::print(stderr, "Wrote {} modules to {}\n", bundle.modules.size(), shown_path(outdir));
  return {};
}

Result<DeployedVersion> deploy_to(const BucketOptions& bucket, WorkerConfig config, Bundle bundle) {
  boost::asio::io_context io(1);
  AsioWorld world(io);
  HttpTransportFactory transports = [&] {
    CurlTransportOptions transport;
    transport.proxy_from_environment = true;
    return std::make_unique<CurlTransport>(io, world, transport);
  };
  auto store = open_store(world, transports, bucket.url, store_options(bucket));
  if (!store) return fail(std::move(store).error());

  std::optional<Result<DeployedVersion>> result;
  auto guard = boost::asio::make_work_guard(io);
  // Timers of deadlines that were not needed may still wait, so the loop is told to end.
  auto whole = [](Task<Result<DeployedVersion>> task, std::optional<Result<DeployedVersion>>& out,
                  boost::asio::io_context& loop) -> Task<void> {
    out.emplace(co_await std::move(task));
    loop.stop();
  };
  world.spawn(whole(deploy(world, **store, std::move(config), std::move(bundle),
                           world.deadline_in(kDeadline)),
                    result, io));
  io.run();
  return std::move(*result);
}

Result<void> run(const DeployOptions& options) {
  auto config = load_project(options.project, options.config);
  if (!config) return fail(std::move(config).error());
  if (config->compatibility_date.empty()) {
    return fail(Error::invalid(fmt::format(
        "{}: key 'compatibility_date' is missing: a deployment needs one, as in "
        "\"compatibility_date\": \"2026-01-31\"", config->file.filename().string())));
  }
  auto bundle = bundle_project(*config, {});
  if (!bundle) return fail(std::move(bundle).error());
  print_bundle(*bundle);

  if (options.dry_run) {
    if (!options.outdir.empty()) TRY(write_modules(*bundle, options.outdir));
    fmt::print(stderr, "Nothing was uploaded (--dry-run)\n");
    return {};
  }
  const std::string name = config->name;
  auto deployed = deploy_to(options.bucket, std::move(*config), std::move(*bundle));
  if (!deployed) return fail(std::move(deployed).error());
  if (deployed->outcome == DeployOutcome::kUnchanged) {
    fmt::print(stderr, "{} is already what {} runs\n", name, options.bucket.url);
  } else {
    fmt::print(stderr, "Deployed {} to {}: {} uploaded{}\n", name, options.bucket.url,
               shown_bytes(deployed->bytes_uploaded),
               deployed->replaced ? ", replaces version " + *deployed->replaced : "");
  }
  fmt::print("{}\n", deployed->version);
  return {};
}

}  // namespace

int run_deploy(const DeployOptions& options) {
  auto done = run(options);
  if (done) return 0;
  print_error(done.error());
  return 1;
}

}  // namespace celld
