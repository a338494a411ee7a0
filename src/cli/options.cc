#include "cli/options.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <functional>

#include "cli/internal_address.h"

namespace celld {
namespace {

using std::chrono::milliseconds;

constexpr int kUsageStatus = 2;

constexpr std::string_view kDescription =
    "celld runs Cloudflare Workers and Durable Objects on your own machines;\n"
    "a bucket is all that its nodes share.\n\n"
    "  celld dev                                  serve the project in this folder\n"
    "  celld deploy --bucket s3://my-bucket       make it the version the fleet runs\n"
    "  celld --bucket s3://my-bucket              run a node of the fleet\n"
    "  celld diagnose bucket --bucket s3://...    find out whether a bucket can carry a fleet\n";

constexpr std::string_view kNodeDescription =
    "Run a node: serve the current deployment of the bucket, and adopt new ones in place";

constexpr std::string_view kBucketHint =
    "write file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";

bool is_ip(const std::string& text) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, text.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

std::optional<std::string> parse_ip(std::string text) {
  if (text == "localhost") text = "127.0.0.1";
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (!is_ip(text)) return std::nullopt;
  return text;
}

// The checks below answer with the reason for a refusal; empty is consent.
std::string check_bucket(const std::string& url) {
  for (std::string_view scheme : {"file://", "s3://", "gs://", "az://"}) {
    if (!url.starts_with(scheme)) continue;
    if (url.size() == scheme.size()) return fmt::format("'{}' names no bucket: {}", url, kBucketHint);
    if (scheme == "file://" && !url.starts_with("file:///")) {
      return fmt::format("'{}': a folder is named by an absolute path, as in file:///var/lib/celld",
                         url);
    }
    return "";
  }
  return fmt::format("'{}' does not say what kind of bucket it is: {}", url, kBucketHint);
}

std::string check_listen(const std::string& text) {
  if (parse_listen_address(text)) return "";
  return fmt::format("'{}' is not IP:PORT, such as 0.0.0.0:8787 or [::]:8787", text);
}

std::string check_host(const std::string& text) {
  if (parse_ip(text)) return "";
  return fmt::format("'{}' is not an IP address, such as 127.0.0.1 or 0.0.0.0 for all interfaces",
                     text);
}

std::string check_var(const std::string& text) {
  size_t colon = text.find(':');
  if (colon != text.npos && is_binding_name(std::string_view(text).substr(0, colon))) return "";
  return fmt::format("'{}' is not NAME:VALUE", text);
}

constexpr std::string_view kNoEnvironments =
    "named environments (--env, CLOUDFLARE_ENV) are not supported yet: use one configuration file for "
    "each and choose it with --config";

// Everything that one parse fills.
struct Parsed {
  DevOptions dev;
  DeployOptions deploy;
  // CLI11 sets the options of every command from the environment, so `celld` and `celld node` must not
  // share what they fill.
  DiagnoseBucketOptions diagnose;
  struct Node {
    NodeOptions options;
    std::string listen;
    std::string internal_listen;
    bool unsafe_public = false;
  };
  Node plain;
  Node node;
  BucketOptions dev_bucket;
  std::string dev_host;
  uint16_t dev_port = 0;
  std::vector<std::string> dev_vars;
  std::string environment;
  bool no_watch = false;
};

void add_bucket(CLI::App& app, BucketOptions& bucket, std::string text, bool from_environment) {
  auto* url = app.add_option("--bucket", bucket.url, std::move(text))
                  ->type_name("URL")
                  ->check(CLI::Validator(check_bucket, ""));
  app.add_option("--endpoint", bucket.endpoint,
                 "Address of the store, when it is not the cloud's own: http://127.0.0.1:9000")
      ->type_name("URL");
  auto* region = app.add_option("--region", bucket.region, "Region of the bucket")->type_name("NAME");
  if (from_environment) {
    url->envname("CELLD_BUCKET");
    region->envname("AWS_REGION");
  }
}

// A number within bounds, as milliseconds or as it is.
void add_number(CLI::App& app, const std::string& name, const char* environment, uint64_t value,
                uint64_t min, uint64_t max, std::string text, std::function<void(uint64_t)> set) {
  auto range = [min, max, environment](const std::string& given) -> std::string {
    uint64_t number = 0;
    auto [end, ec] = std::from_chars(given.data(), given.data() + given.size(), number);
    if (ec == std::errc() && end == given.data() + given.size() && number >= min && number <= max) {
      return "";
    }
    return fmt::format("'{}' is not a whole number from {} to {} (the option, or {} of the environment)",
                       given, min, max, environment);
  };
  app.add_option_function<uint64_t>(name, std::move(set), std::move(text))
      ->type_name("N")
      ->envname(environment)
      ->default_str(std::to_string(value))
      ->check(CLI::Validator(range, ""))
      ->group("Tuning");
}

void add_tuning(CLI::App& app, TuningOptions& t) {
  add_number(app, "--ttl-ms", "CELLD_TTL_MS", 10'000, 1'000, 300'000,
             "Life of this node's lease: others take over this long after it died",
             [&t](uint64_t v) { t.lease_ttl = milliseconds(v); });
  add_number(app, "--cpu-limit-ms", "CELLD_CPU_LIMIT_MS", 30'000, 10, 3'600'000,
             "Processor time of one event before it is ended",
             [&t](uint64_t v) { t.cpu_limit = milliseconds(v); });
  add_number(app, "--grace-ms", "CELLD_GRACE_MS", 2'000, 10, 3'600'000,
             "Processor time after that before the thread is given up",
             [&t](uint64_t v) { t.grace = milliseconds(v); });
  add_number(app, "--lost-threads-max", "CELLD_LOST_THREADS_MAX", 4, 1, 1'024,
             "The process leaves and ends with code 4 after so many of them",
             [&t](uint64_t v) { t.lost_threads_max = static_cast<uint32_t>(v); });
  add_number(app, "--heap-limit-mb", "CELLD_HEAP_LIMIT_MB", 128, 16, 65'536,
             "JavaScript heap of one isolate",
             [&t](uint64_t v) { t.heap_limit_mb = static_cast<uint32_t>(v); });
  add_number(app, "--loops", "CELLD_LOOPS", 0, 0, 1'024,
             "Threads that run JavaScript; 0 means one per core",
             [&t](uint64_t v) { t.loops = static_cast<uint32_t>(v); });
  add_number(app, "--confirm-timeout-ms", "CELLD_CONFIRM_TIMEOUT_MS", 30'000, 1'000, 3'600'000,
             "Time after which an answer is given up that waits for a bucket that confirms nothing",
             [&t](uint64_t v) { t.confirm_timeout = milliseconds(v); });
  add_number(app, "--journal-limit-mb", "CELLD_JOURNAL_LIMIT_MB", 256, 16, 65'536,
             "Memory for writes that wait for the bucket; above it, events of objects that write wait",
             [&t](uint64_t v) { t.journal_limit_mb = static_cast<uint32_t>(v); });
  add_number(app, "--transaction-limit-mb", "CELLD_TRANSACTION_LIMIT_MB", 128, 1, 512,
             "Size of the pages that one transaction may change",
             [&t](uint64_t v) { t.transaction_limit_mb = static_cast<uint32_t>(v); });
  add_number(app, "--database-limit-mb", "CELLD_DATABASE_LIMIT_MB", 10'240, 1, 65'536,
             "Size of the database of one object",
             [&t](uint64_t v) { t.database_limit_mb = static_cast<uint32_t>(v); });
  add_number(app, "--idle-evict-ms", "CELLD_IDLE_EVICT_MS", 10'000, 0, 86'400'000,
             "Idle time after which an object leaves memory",
             [&t](uint64_t v) { t.idle_evict = milliseconds(v); });
}

void add_project(CLI::App& app, std::filesystem::path& project, std::filesystem::path& config,
                 std::string& environment) {
  app.add_option("PROJECT", project, "Folder of the project")->default_str(".")->type_name("");
  app.add_option("-c,--config", config,
                 "Configuration file, instead of wrangler.json, .jsonc or .toml in or above PROJECT")
      ->type_name("FILE");
  app.add_option("-e,--env", environment, "")->group("");  // not in the help
}

void add_node(CLI::App& app, Parsed::Node& node) {
  NodeOptions& out = node.options;
  add_bucket(app, out.bucket, "The fleet's bucket", true);
  app.add_option("--listen", node.listen, "Where to serve")
      ->type_name("IP:PORT")
      ->envname("CELLD_ADDR")
      ->default_str(fmt::format("127.0.0.1:{}", kDevPortDefault))
      ->check(CLI::Validator(check_listen, ""));
  app.add_option("--internal-listen", node.internal_listen, "Where other nodes reach this one")
      ->type_name("IP:PORT")
      ->envname("CELLD_INTERNAL_ADDR")
      ->default_str("127.0.0.1:0")
      ->check(CLI::Validator(check_listen, ""));
  app.add_option("--advertise", out.internal.advertise,
                 "How they call that address, when they see another one than this machine does")
      ->type_name("HOST:PORT")
      ->envname("CELLD_ADVERTISE")
      ->check(CLI::Validator(check_advertised, ""));
  app.add_flag("--unsafe-public-advertise", node.unsafe_public,
               "Let that be a public address: what nodes say is signed, not encrypted")
      ->envname("CELLD_UNSAFE_PUBLIC_ADVERTISE");
  app.add_option("--data", out.data, "Folder for local files; a cache, its loss costs no data")
      ->type_name("DIR")
      ->envname("CELLD_DATA")
      ->default_str(".celld/node");
  add_tuning(app, out.tuning);
}

CLI::App* add_dev(CLI::App& app, Parsed& out) {
  auto* dev = app.add_subcommand("dev", "Serve a project on this machine and reload it on change");
  add_project(*dev, out.dev.project, out.dev.config, out.environment);
  dev->add_option("-p,--port", out.dev_port, "Port to serve on; 0 means any that is free")
      ->type_name("PORT")
      ->default_str(std::to_string(kDevPortDefault));
  dev->add_option("--host,--ip", out.dev_host, "Address to serve on")
      ->type_name("IP")
      ->default_str("127.0.0.1")
      ->check(CLI::Validator(check_host, ""));
  dev->add_flag("--no-watch", out.no_watch, "Do not reload when files change");
  dev->add_option("--var", out.dev_vars, "Set a variable, stronger than .dev.vars and vars; repeatable")
      ->type_name("NAME:VALUE")
      ->allow_extra_args(false)
      ->check(CLI::Validator(check_var, ""));
  dev->add_flag("--clean", out.dev.clean, "Remove the state of earlier runs first");
  dev->add_option("--data", out.dev.data, "Folder for the state, instead of .celld in the project")
      ->type_name("DIR");
  add_bucket(*dev, out.dev_bucket, "Keep the state in this bucket, instead of a local folder", false);
  add_tuning(*dev, out.dev.tuning);
  return dev;
}

CLI::App* add_deploy(CLI::App& app, Parsed& out) {
  auto* deploy = app.add_subcommand("deploy", "Bundle a project and make it the fleet's version");
  add_project(*deploy, out.deploy.project, out.deploy.config, out.environment);
  add_bucket(*deploy, out.deploy.bucket, "The fleet's bucket", true);
  auto* dry = deploy->add_flag("--dry-run", out.deploy.dry_run, "Bundle and check, but upload nothing");
  deploy->add_option("--outdir", out.deploy.outdir, "With --dry-run: write the modules to this folder")
      ->type_name("DIR")
      ->needs(dry);
  return deploy;
}

struct Diagnose {
  CLI::App* group;
  CLI::App* bucket;
};

Diagnose add_diagnose(CLI::App& app, Parsed& out) {
  auto* group = app.add_subcommand("diagnose", "Find out what is wrong with what celld stands on");
  group->require_subcommand(1);
  auto* bucket = group->add_subcommand("bucket", "Try everything that a fleet needs of its bucket");
  add_bucket(*bucket, out.diagnose.bucket, "The bucket to try", true);
  bucket->add_flag("--read-only", out.diagnose.read_only, "Only what does not write");
  return {group, bucket};
}

// `command` is a subcommand, or null for celld itself.
ExitRequest mistake(const CLI::App* command, std::string_view text) {
  std::string name = command != nullptr ? "celld " + command->get_name() : "celld";
  return {kUsageStatus, fmt::format("{}: {}\nRun '{} --help' for more.\n", name, text, name)};
}

// The fallbacks that CLI11 has no word for.
void finish_bucket(BucketOptions& bucket, bool from_environment = true) {
  if (from_environment && bucket.endpoint.empty() && bucket.url.starts_with("s3://")) {
    if (const char* endpoint = ::getenv("S3_ENDPOINT")) bucket.endpoint = endpoint;
  }
  if (bucket.region.empty()) {
    if (const char* region = ::getenv("AWS_DEFAULT_REGION")) bucket.region = region;
  }
}

}  // namespace

std::optional<ListenAddress> parse_listen_address(std::string_view text) {
  size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  auto host = text.substr(0, colon);
  bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (host.contains(':') && !bracketed) return std::nullopt;
  auto ip = parse_ip(std::string(host));
  auto digits = text.substr(colon + 1);
  ListenAddress out;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  if (!ip || digits.empty() || ec != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  out.ip = std::move(*ip);
  return out;
}

Command parse_command_line(const std::vector<std::string>& arguments) {
  Parsed out;
  CLI::App app{std::string(kDescription), "celld"};
  app.set_version_flag("-V,--version", "celld " CELLD_VERSION);
  app.require_subcommand(0, 1);
  add_node(app, out.plain);
  auto* dev = add_dev(app, out);
  auto* deploy = add_deploy(app, out);
  auto* node = app.add_subcommand("node", std::string(kNodeDescription) + " (the default)");
  add_node(*node, out.node);
  const Diagnose diagnose = add_diagnose(app, out);
  for (auto* sub : {dev, deploy, node, diagnose.group, diagnose.bucket}) {
    sub->get_formatter()->column_width(34);
  }
  app.get_formatter()->column_width(34);

  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    app.exit(e, text, text);
    return ExitRequest{0, text.str()};
  } catch (const CLI::ParseError& e) {
    const CLI::App* where = nullptr;
    for (auto* sub : {dev, deploy, node, diagnose.group}) {
      if (!arguments.empty() && arguments[0] == sub->get_name()) where = sub;
    }
    return mistake(where, e.what());
  }

  if (dev->parsed() || deploy->parsed()) {
    const char* environment = ::getenv("CLOUDFLARE_ENV");
    if (!out.environment.empty() || (environment != nullptr && *environment != '\0')) {
      return mistake(dev->parsed() ? dev : deploy, kNoEnvironments);
    }
  }
  if (dev->parsed()) {
    if (dev->count("--port") > 0) out.dev.port = out.dev_port;
    if (dev->count("--host") > 0) out.dev.ip = parse_ip(out.dev_host);
    if (dev->count("--bucket") > 0) {
      finish_bucket(out.dev_bucket, false);
      out.dev.bucket = std::move(out.dev_bucket);
    }
    out.dev.watch = !out.no_watch;
    for (const auto& var : out.dev_vars) {
      size_t colon = var.find(':');
      out.dev.vars.push_back({var.substr(0, colon), VarKind::kText, var.substr(colon + 1)});
    }
    return std::move(out.dev);
  }
  if (deploy->parsed()) {
    if (out.deploy.bucket.url.empty() && !out.deploy.dry_run) {
      return mistake(deploy, fmt::format("--bucket (or CELLD_BUCKET) is needed: {}", kBucketHint));
    }
    finish_bucket(out.deploy.bucket);
    return std::move(out.deploy);
  }
  if (diagnose.bucket->parsed()) {
    if (out.diagnose.bucket.url.empty()) {
      return mistake(diagnose.group, fmt::format("--bucket (or CELLD_BUCKET) is needed: {}", kBucketHint));
    }
    finish_bucket(out.diagnose.bucket);
    return std::move(out.diagnose);
  }
  Parsed::Node& given = node->parsed() ? out.node : out.plain;
  const CLI::App* where = node->parsed() ? node : nullptr;
  NodeOptions& chosen = given.options;
  if (chosen.bucket.url.empty()) {
    if (arguments.empty()) return ExitRequest{0, app.help()};
    return mistake(where, fmt::format("--bucket (or CELLD_BUCKET) is needed: {}", kBucketHint));
  }
  if (!given.listen.empty()) chosen.listen = parse_listen_address(given.listen).value();
  bool internal_given = !given.internal_listen.empty();
  if (internal_given) chosen.internal.listen = parse_listen_address(given.internal_listen).value();
  std::string wrong =
      check_addresses({chosen.listen, chosen.internal, internal_given, given.unsafe_public});
  if (!wrong.empty()) return mistake(where, wrong);
  finish_bucket(chosen.bucket);
  return std::move(chosen);
}

}  // namespace celld
