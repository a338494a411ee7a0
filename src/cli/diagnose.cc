// celld diagnose bucket: whether a bucket can carry a fleet, a line for each thing that it must do.
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <optional>

#include "cli/commands.h"
#include "cli/project.h"
#include "cli/settings.h"
#include "net/curl_transport.h"
#include "store/open_store.h"
#include "store/probe.h"
#include "world/asio_world.h"

namespace celld {

namespace {

void print_line(const ProbeLine& line) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(line.took).count();
  switch (line.outcome) {
    case ProbeOutcome::kKept:
      fmt::print("ok       {:<18} {} ms\n", line.step, ms);
      break;
    case ProbeOutcome::kBroken:
      fmt::print("BROKEN   {:<18} {}\n", line.step, line.detail);
      break;
    case ProbeOutcome::kFailed:
      fmt::print("FAILED   {:<18} {}\n", line.step, line.detail);
      break;
    case ProbeOutcome::kSkipped:
      fmt::print("skipped  {:<18} {}\n", line.step, line.detail);
      break;
  }
  std::fflush(stdout);
}

Result<bool> run(const DiagnoseBucketOptions& options) {
  boost::asio::io_context io;
  AsioWorld world(io);
  HttpTransportFactory transports = [&] {
    CurlTransportOptions transport;
    transport.proxy_from_environment = true;
    return std::make_unique<CurlTransport>(io, world, transport);
  };
  StoreOptions store_settings = store_options(options.bucket);
  store_settings.dialect = std::make_shared<StoreDialect>();
  // What the store answers counts, not what repeating makes of it.
  store_settings.retry.attempts_max = 1;
  TRY_ASSIGN(std::unique_ptr<ObjectStore> store,
             open_store(world, transports, options.bucket.url, store_settings));

  DiagnoseOptions diagnose;
  diagnose.dialect = store_settings.dialect;
  diagnose.read_only = options.read_only;
  diagnose.on_line = print_line;
  std::optional<bool> good;
  auto whole = [](Task<bool> task, std::optional<bool>& out,
                  boost::asio::io_context& loop) -> Task<void> {
    out = co_await std::move(task);
    loop.stop();
  };
  auto guard = boost::asio::make_work_guard(io);
  world.spawn(whole(diagnose_store(world, *store, std::move(diagnose)), good, io));
  io.run();
  if (*good && options.read_only) {
    fmt::print("{}: can be read; what writes was not tried\n", store->describe());
  } else if (*good) {
    fmt::print("{}: keeps every promise that a fleet needs\n", store->describe());
  } else {
    fmt::print("{}: the store does not do what a fleet needs: see above\n", store->describe());
  }
  return *good;
}

}  // namespace

int run_diagnose_bucket(const DiagnoseBucketOptions& options) {
  auto good = run(options);
  if (!good) {
    print_error(good.error());
    return 1;
  }
  return *good ? 0 : 1;
}

}  // namespace celld
