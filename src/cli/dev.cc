// celld dev: bundles a project, deploys it to a bucket of its own, serves it, and does so again
// when a file changes.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/dev_data.h"
#include "cli/project.h"
#include "cli/serve.h"
#include "cli/settings.h"
#include "deploy/dev_vars.h"
#include "deploy/watch.h"

namespace celld {

namespace {

namespace fs = std::filesystem;

// The project as it is on disk now, ready to deploy. Blocks.
struct Built {
  WorkerConfig config;
  Bundle bundle;
  std::vector<Var> local_vars;  // .dev.vars and --var: for this process, never for the bucket
};

Result<Built> build(const DevOptions& options, const fs::path& file) {
  Built built;
  TRY_ASSIGN(built.config, read_wrangler_config(file));
  TRY_ASSIGN(std::vector<Var> dev_vars, read_dev_vars(built.config.project_dir));
  built.local_vars = override_vars(std::move(dev_vars), options.vars);
  BundleOptions bundle_options;
  bundle_options.mode = BundleMode::kDevelopment;
  TRY_ASSIGN(built.bundle, bundle_project(built.config, bundle_options));
  return built;
}

class Dev {
 public:
  Dev(const DevOptions& options, fs::path config_file)
      : options_(options), config_file_(std::move(config_file)) {}

  Task<Result<void>> begin(Serve& serve, std::string ip) {
    serve_ = &serve;
    Result<void> loaded = co_await reload();
    if (!loaded) {
      if (!options_.watch) co_return fail(loaded.error());
      print_error(loaded.error());
    }
    CO_TRY_ASSIGN(uint16_t port, serve.node().listen());
    fmt::print(stderr, "Ready on http://{}:{}{}\n", ip, port,
               loaded ? "" : " as soon as the error above is mended");
    if (!options_.watch) co_return Result<void>();
    CO_TRY_ASSIGN(watcher_, ProjectWatcher::start(config_file_.parent_path(),
                                                  [this](const std::vector<std::string>&) {
                                                    serve_->post([this] { changed(); });
                                                  }));
    co_return Result<void>();
  }

 private:
  void changed() {
    pending_ = true;
    if (!reloading_) serve_->world().spawn(reload_all());
  }

  Task<void> reload_all() {
    reloading_ = true;
    while (std::exchange(pending_, false)) {
      MonoTime started = serve_->world().now();
      Result<void> loaded = co_await reload();
      auto took = std::chrono::duration_cast<std::chrono::milliseconds>(serve_->world().now() - started);
      if (loaded) {
        fmt::print(stderr, "Reloaded in {} ms\n", took.count());
      } else {
        print_error(loaded.error());
        fmt::print(stderr, "The version before goes on serving.\n");
      }
    }
    reloading_ = false;
  }

  // Builds on a thread of its own, so that the lease is renewed meanwhile; then deploys and adopts.
  Task<Result<void>> reload() {
    OneShot<Result<Built>> built(serve_->world());
    std::thread builder([this, &built] {
      Result<Built> result = build(options_, config_file_);
      serve_->post([&built, result = std::move(result)]() mutable { built.set(std::move(result)); });
    });
    Result<Built> result = co_await built.take();
    builder.join();
    if (!result) co_return fail(result.error());
    if (!result->bundle.warnings.empty()) fmt::print(stderr, "{}\n", result->bundle.warnings);
    Deadline deadline = serve_->world().deadline_in(std::chrono::seconds(60));
    WorkerConfig config = std::move(result->config);
    Bundle bundle = std::move(result->bundle);
    CO_TRY_ASSIGN(DeployedVersion deployed, co_await deploy(serve_->world(), serve_->store(), std::move(config),
                                                            std::move(bundle), deadline));
    serve_->set_local_vars(std::move(result->local_vars));
    Result<bool> adopted = co_await serve_->adopt_current();
    if (!adopted) co_return fail(adopted.error());
    co_return Result<void>();
  }

  const DevOptions& options_;
  const fs::path config_file_;
  Serve* serve_ = nullptr;
  std::unique_ptr<ProjectWatcher> watcher_;
  bool pending_ = false;
  bool reloading_ = false;
};

LogSink dev_log() {
  return [](js::LogLevel, const std::string& text) {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    fmt::print(stderr, "{}\n", text);
  };
}

}  // namespace

int run_dev(const DevOptions& options) {
  if (Result<void> enough = check_file_limit(); !enough) {
    print_error(enough.error());
    return kExitFailure;
  }
  Result<WorkerConfig> config = load_project(options.project, options.config);
  if (!config) {
    print_error(config.error());
    return kExitFailure;
  }
  std::error_code ec;
  fs::path config_file = fs::absolute(config->file, ec);
  fs::path data = options.data.empty() ? config_file.parent_path() / ".celld" : fs::absolute(options.data, ec);
  if (Result<void> prepared = prepare_dev_data(data.string(), options.clean); !prepared) {
    print_error(prepared.error());
    return kExitFailure;
  }

  ServeOptions serve_options;
  if (options.bucket) {
    serve_options.bucket = options.bucket->url;
    serve_options.store = store_options(*options.bucket);
  } else {
    serve_options.bucket = "file://" + (data / "bucket").string();
    // What survives a crash of the process is enough here; a power failure may take the last second.
    serve_options.store.file.fsync = Fsync::kOff;
  }
  serve_options.data_dir = (data / "node").string();
  serve_options.node = node_config(options.tuning);
  serve_options.node.listen_address = options.ip.value_or(config->dev_ip.value_or("127.0.0.1"));
  if (serve_options.node.listen_address == "localhost") serve_options.node.listen_address = "127.0.0.1";
  serve_options.node.listen_port = options.port.value_or(config->dev_port.value_or(kDevPortDefault));
  serve_options.node.loop.error_detail = ErrorDetail::kFull;
  std::string ip = serve_options.node.listen_address;
  Serve serve(std::move(serve_options), dev_log());
  Dev dev(options, config_file);
  return serve.run([&](Serve& s) { return dev.begin(s, ip); });
}

}  // namespace celld
