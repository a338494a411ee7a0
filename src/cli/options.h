// What a command line asks for.
//
// Precedence: option, then environment variable, then default. Parsing touches nothing outside but the
// environment; it does not look at files. Any thread, once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "deploy/wrangler_config.h"

namespace celld {

inline constexpr uint16_t kDevPortDefault = 8787;

// Bounds and times of a running node. The environment variable stands beside each.
struct TuningOptions {
  std::chrono::milliseconds lease_ttl{10'000};    // CELLD_TTL_MS: 1,000 to 300,000
  std::chrono::milliseconds cpu_limit{30'000};    // CELLD_CPU_LIMIT_MS, of one event: 10 to 3,600,000
  std::chrono::milliseconds grace{2'000};         // CELLD_GRACE_MS, CPU time after the limit: 10 to 3,600,000
  uint32_t lost_threads_max = 4;                  // CELLD_LOST_THREADS_MAX, then the process ends: 1 to 1,024
  uint32_t heap_limit_mb = 128;                   // CELLD_HEAP_LIMIT_MB, of one isolate: 16 to 65,536
  uint32_t loops = 0;                             // CELLD_LOOPS, threads that run Workers; twice as many
                                                  // hold objects. 0 = one per core, up to 1,024
  std::chrono::milliseconds idle_evict{10'000};   // CELLD_IDLE_EVICT_MS: 0 to 86,400,000
  std::chrono::milliseconds confirm_timeout{30'000};  // CELLD_CONFIRM_TIMEOUT_MS: 1,000 to 3,600,000
  uint32_t journal_limit_mb = 256;       // CELLD_JOURNAL_LIMIT_MB: 16 to 65,536
  uint32_t transaction_limit_mb = 128;   // CELLD_TRANSACTION_LIMIT_MB: 1 to 512
  uint32_t database_limit_mb = 10'240;   // CELLD_DATABASE_LIMIT_MB: 1 to 65,536
};

struct BucketOptions {
  std::string url;       // file:///dir, s3://bucket/prefix, ...; CELLD_BUCKET
  std::string endpoint;  // of the store; for s3:// also S3_ENDPOINT; empty = the cloud's own
  std::string region;    // AWS_REGION, AWS_DEFAULT_REGION; empty = not given
};

struct ListenAddress {
  std::string ip = "127.0.0.1";  // IPv4, or IPv6 without brackets
  uint16_t port = kDevPortDefault;  // 0 = any free port
  bool operator==(const ListenAddress&) const = default;
};

// The side of a node that only other nodes use.
struct InternalOptions {
  ListenAddress listen{"127.0.0.1", 0};   // CELLD_INTERNAL_ADDR
  std::string advertise;                  // CELLD_ADVERTISE, HOST:PORT; empty: what is listened on
};

// celld dev
struct DevOptions {
  std::filesystem::path project = ".";
  std::filesystem::path config;           // empty: found in or above the project
  std::optional<std::string> ip;          // --host; else dev.ip of the configuration, else 127.0.0.1
  std::optional<uint16_t> port;           // else dev.port, else kDevPortDefault; 0 = any free port
  bool watch = true;
  bool clean = false;                     // remove the state first
  std::optional<BucketOptions> bucket;    // else a folder within `data`. Not from the environment
  std::filesystem::path data;             // empty: .celld beside the configuration
  std::vector<Var> vars;                  // --var; stronger than .dev.vars
  TuningOptions tuning;
};

// celld deploy
struct DeployOptions {
  std::filesystem::path project = ".";
  std::filesystem::path config;
  BucketOptions bucket;                   // url is empty only with dry_run
  bool dry_run = false;                   // bundle and check, but write to no bucket
  std::filesystem::path outdir;           // with dry_run: where the modules go; empty: nowhere
};

// celld [node]
struct NodeOptions {
  BucketOptions bucket;
  ListenAddress listen;                   // CELLD_ADDR
  InternalOptions internal;
  std::filesystem::path data = ".celld/node";  // CELLD_DATA; local files, all of them expendable
  TuningOptions tuning;
};

// celld diagnose bucket
struct DiagnoseBucketOptions {
  BucketOptions bucket;
  bool read_only = false;
};

// Nothing to run: print and end.
struct ExitRequest {
  int status = 0;   // 0: help or version, for stdout; 2: a mistake, for stderr
  std::string text;
};

using Command = std::variant<ExitRequest, DevOptions, DeployOptions, NodeOptions, DiagnoseBucketOptions>;

// `arguments` are without the program's name.
Command parse_command_line(const std::vector<std::string>& arguments);

// "IP:PORT" or "[IPv6]:PORT"; "localhost" stands for 127.0.0.1.
std::optional<ListenAddress> parse_listen_address(std::string_view text);

}  // namespace celld
