// What `celld dev` and `celld` (node) share: a process that runs one node until a signal or a fence.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/deployment.h"
#include "node/node.h"
#include "store/object_store.h"
#include "store/open_store.h"
#include "world/asio_world.h"

namespace celld {

// Exit codes of the node, as users of this field know them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitSelfFence = 3;
inline constexpr int kExitWornOut = 4;

struct ServeOptions {
  std::string bucket;      // "file:///dir", "s3://bucket/prefix"
  StoreOptions store;
  std::string data_dir;
  NodeConfig node;
};

// Raises the limit of open files as far as it goes. kInvalid when that is not enough to serve; to be
// called before anything is opened.
Result<void> check_file_limit();

// Lives on the thread that calls run(): it becomes the control thread.
class Serve {
 public:
  Serve(ServeOptions options, LogSink log);
  ~Serve();

  // Opens the bucket, probes it, joins; then runs `ready`, which loads code and listens; then
  // serves until SIGTERM or SIGINT (exit 0 after a clean end), a fence (3), too many lost threads (4) or
  // a failure of `ready` (1). A second signal ends the process at once.
  int run(std::function<Task<Result<void>>(Serve&)> ready);

  World& world() { return world_; }
  ObjectStore& store() { return *data_; }
  Node& node() { return *node_; }
  void log(js::LogLevel level, const std::string& text) { log_(level, text); }
  // Any thread.
  void post(Callback callback) { world_.post_from_any_thread(std::move(callback)); }

  // Loads the bucket's current deployment and makes it current, if it is another one than before.
  // Whether there was one to adopt.
  Task<Result<bool>> adopt_current();
  // Vars of this process alone, stronger than those of any deployment and never in the bucket. The next
  // adopt_current() applies them, also to the version that runs.
  void set_local_vars(std::vector<Var> vars);
  // Of the deployment that runs; empty before the first.
  const std::string& version() const { return version_; }

 private:
  Task<void> start(std::function<Task<Result<void>>(Serve&)> ready);
  Task<void> stop();
  void finish(int code);

  const ServeOptions options_;
  LogSink log_;
  boost::asio::io_context io_;
  AsioWorld world_;
  std::unique_ptr<ObjectStore> data_;
  std::unique_ptr<ObjectStore> lease_;
  std::unique_ptr<Node> node_;
  std::string version_;  // of the deployment that runs
  std::vector<Var> local_vars_;
  bool local_vars_changed_ = false;
  int exit_code_ = kExitOk;
  bool joined_ = false;  // the node is a member of the fleet
  bool stopping_ = false;
  bool signalled_ = false;
};

// Writes log lines to stderr: "2026-11-30T12:00:00.000Z error text".
LogSink stderr_log();

}  // namespace celld
