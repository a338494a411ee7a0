#include "cli/serve.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "deploy/dev_vars.h"
#include "net/curl_transport.h"
#include "node/code.h"
#include "store/open_store.h"
#include "store/probe.h"

namespace celld {

namespace {

std::string_view level_name(js::LogLevel level) {
  switch (level) {
    case js::LogLevel::kDebug: return "debug";
    case js::LogLevel::kWarn: return "warn";
    case js::LogLevel::kError: return "error";
    default: return "info";
  }
}

// Raises the limit of open files as far as it goes, and answers it.
size_t raise_file_limit() {
  constexpr rlim_t kEnough = 1 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur < wanted) {
    rlimit raised{wanted, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<size_t>(std::min(limit.rlim_cur, kEnough));
}

}  // namespace

Result<void> check_file_limit() {
  // Threads, directories and connections of the bucket need about 200, and half are for clients.
  constexpr size_t kFilesMin = 512;
  const size_t files = raise_file_limit();
  if (files >= kFilesMin) return {};
  return fail(Error::invalid("at most " + std::to_string(files) +
                             " files may be open here and celld needs " + std::to_string(kFilesMin) +
                             ": raise the hard limit (ulimit -Hn, LimitNOFILE=, --ulimit nofile=)"));
}

namespace {

// Half of the files are for clients, an eighth for requests of other nodes and one for requests to them. So whoever
// comes, the bucket and the databases have the rest, and the lease does not run out.
ServeOptions within_file_limit(ServeOptions options) {
  const size_t files = raise_file_limit();
  const size_t front = std::max<size_t>(options.node.front_loops, 1);
  const size_t cells = std::max<size_t>(options.node.cell_loops, 1);
  LoopOptions& loop = options.node.loop;
  auto bound = [](size_t& most, size_t connections) { most = std::clamp<size_t>(connections, 1, most); };
  bound(loop.http.connections_max, files / 2 / front);
  bound(loop.internal_connections_max, files / 8 / front);
  bound(loop.peer_connections_max, files / 8 / cells);
  return options;
}

}  // namespace

LogSink stderr_log() {
  return [](js::LogLevel level, const std::string& text) {
    auto now = std::chrono::system_clock::now();
    std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    int millis = static_cast<int>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char stamp[40];
    size_t n = std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    std::string line(stamp, n);
    char fraction[8];
    std::snprintf(fraction, sizeof fraction, ".%03dZ ", millis);
    line += fraction;
    line += level_name(level);
    line += ' ';
    line += text;
    line += '\n';
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
}

Serve::Serve(ServeOptions options, LogSink log)
    : options_(within_file_limit(std::move(options))), log_(std::move(log)), world_(io_) {}

Serve::~Serve() = default;

int Serve::run(std::function<Task<Result<void>>(Serve&)> ready) {
  std::signal(SIGPIPE, SIG_IGN);
  boost::asio::signal_set signals(io_, SIGTERM, SIGINT);
  std::function<void()> wait_for_signal = [&] {
    signals.async_wait([&](const boost::system::error_code& ec, int signal) {
      if (ec) return;
      if (std::exchange(signalled_, true)) _exit(128 + signal);
      if (std::exchange(stopping_, true)) return wait_for_signal();
      log_(js::LogLevel::kInfo, "stopping: finishing requests, making everything durable");
      wait_for_signal();
      world_.spawn(stop());
    });
  };
  wait_for_signal();
  auto work = boost::asio::make_work_guard(io_);
  world_.spawn(start(std::move(ready)));
  io_.run();
  return exit_code_;
}

Task<void> Serve::start(std::function<Task<Result<void>>(Serve&)> ready) {
  auto fail_with = [this](const Error& error) {
    log_(js::LogLevel::kError, error.message);
    finish(kExitFailure);
  };
  HttpTransportFactory transports = [this] {
    CurlTransportOptions transport;
    transport.proxy_from_environment = true;
    return std::make_unique<CurlTransport>(io_, world_, transport);
  };
  // What the probe finds out about the store counts for both connection pools.
  StoreOptions store_options = options_.store;
  store_options.dialect = std::make_shared<StoreDialect>();
  store_options.shared = std::make_shared<StoreShared>();
  auto data = open_store(world_, transports, options_.bucket, store_options);
  if (!data) co_return fail_with(data.error());
  auto lease = open_store(world_, transports, options_.bucket, store_options);
  if (!lease) co_return fail_with(lease.error());
  data_ = std::move(*data);
  lease_ = std::move(*lease);

  ProbeOptions probe;
  probe.dialect = store_options.dialect;
  Result<void> conforming = co_await probe_store(world_, *data_, std::move(probe));
  if (!conforming) co_return fail_with(conforming.error());

  Result<DataDir> data_dir = DataDir::open(options_.data_dir);
  if (!data_dir) co_return fail_with(data_dir.error());
  node_ = std::make_unique<Node>(io_, world_, options_.node, std::move(*data_dir), log_);
  node_->on_fence([this] {
    std::fprintf(stderr, "SELF-FENCE: %s\n", node_->fenced()->c_str());
    std::fflush(stderr);
    // Nothing that runs may be acknowledged any more, so nothing is waited for.
    _exit(kExitSelfFence);
  });
  node_->on_worn_out([this](const std::string& why) {
    if (stopping_) return;
    stopping_ = true;
    exit_code_ = kExitWornOut;
    log_(js::LogLevel::kError, "the node leaves, to be started again: " + why);
    world_.spawn(stop());
  });
  Result<void> joined = co_await node_->join(*data_, *lease_);
  if (!joined) co_return fail_with(joined.error());
  joined_ = true;
  Result<void> is_ready = co_await ready(*this);
  if (!is_ready) co_return fail_with(is_ready.error());
}

Task<void> Serve::stop() {
  if (!joined_) co_return finish(exit_code_);  // nothing has been served
  Result<void> left = co_await node_->leave();
  if (left) {
    log_(js::LogLevel::kInfo, "stopped: every cell is durable and released");
    co_return finish(exit_code_);
  }
  log_(js::LogLevel::kError, "stopped, but not everything was released: " + left.error().message +
                                 "; the next node recovers it");
  finish(exit_code_);
}

void Serve::finish(int code) {
  exit_code_ = code;
  stopping_ = true;
  if (node_ && !node_->stuck() && node_->lost_threads() == 0) node_->stop_loops();
  std::fflush(stdout);
  std::fflush(stderr);
  // Tasks that still wait (timers, the lease) hold references into this; the process ends here.
  _exit(code);
}

void Serve::set_local_vars(std::vector<Var> vars) {
  if (vars == local_vars_) return;
  local_vars_ = std::move(vars);
  local_vars_changed_ = true;
}

Task<Result<bool>> Serve::adopt_current() {
  Deadline deadline = world_.deadline_in(std::chrono::seconds(60));
  std::string known = local_vars_changed_ ? std::string() : version_;
  CO_TRY_ASSIGN(std::optional<LoadedDeployment> loaded,
                co_await load_current(world_, *data_, known, deadline));
  if (!loaded) co_return false;
  loaded->manifest.vars = override_vars(std::move(loaded->manifest.vars), local_vars_);
  std::string version = loaded->version;
  std::vector<std::string> crons = loaded->manifest.crons;
  CO_TRY_ASSIGN(std::shared_ptr<const js::WorkerCode> code, worker_code(std::move(*loaded)));
  Result<void> adopted = co_await node_->adopt(std::move(code), std::move(crons));
  if (!adopted) co_return fail(adopted.error().at("deployment " + version));
  version_ = version;
  local_vars_changed_ = false;
  co_return true;
}

}  // namespace celld
