#include "deploy/bundle.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "deploy/glob.h"
#include "deploy/subprocess.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::array<std::pair<BundledKind, std::string_view>, 5> kKindNames = {{
    {BundledKind::kEsm, "esm"},
    {BundledKind::kText, "text"},
    {BundledKind::kData, "data"},
    {BundledKind::kWasm, "wasm"},
    {BundledKind::kSourceMap, "sourcemap"},
}};

// Modules of Node that may be imported by their bare name under nodejs_compat.
constexpr std::array<std::string_view, 42> kNodeModules = {
    "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants", "crypto",
    "dgram", "diagnostics_channel", "dns", "domain", "events", "fs", "http", "http2", "https",
    "inspector", "module", "net", "os", "path", "perf_hooks", "process", "punycode", "querystring",
    "readline", "repl", "stream", "string_decoder", "sys", "timers", "tls", "trace_events", "tty",
    "url", "util", "v8", "vm", "wasi", "worker_threads", "zlib"};

// Extensions of code: a rule that turns these into text would take the bundle's own sources away.
constexpr std::array<std::string_view, 10> kCodeExtensions = {
    ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".css", ".node"};

constexpr size_t kDirectoryEntriesMax = 100'000;

std::optional<BundledKind> kind_of(RuleType type) {
  switch (type) {
    case RuleType::kEsModule: return BundledKind::kEsm;
    case RuleType::kText: return BundledKind::kText;
    case RuleType::kData: return BundledKind::kData;
    case RuleType::kCompiledWasm: return BundledKind::kWasm;
    case RuleType::kCommonJs: return std::nullopt;
  }
  return std::nullopt;
}

const ModuleRule* matching_rule(const std::vector<ModuleRule>& rules, std::string_view path) {
  for (const auto& rule : rules) {
    for (const auto& glob : rule.globs) {
      if (glob_matches(glob, path)) return &rule;
    }
  }
  return nullptr;
}

Result<std::string> read_whole(const fs::path& file, size_t bytes_max) {
  std::error_code ec;
  auto size = fs::file_size(file, ec);
  if (ec) return fail(Error::invalid(fmt::format("{}: {}", file.string(), ec.message())));
  if (size > bytes_max) {
    return fail(Error::invalid(fmt::format("{}: {} bytes; all modules together may have {}",
                                           file.string(), size, kBundleBytesMax)));
  }
  std::string out(size, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(out.data(), static_cast<std::streamsize>(size));
  if (!in) return fail(Error::invalid(fmt::format("{}: cannot be read", file.string())));
  return out;
}

// Collects modules within the limits.
class ModuleSet {
 public:
  Result<void> add(std::string name, BundledKind kind, const fs::path& file) {
    auto content = read_whole(file, kBundleBytesMax - bytes_);
    if (!content) return fail(std::move(content).error());
    return add(std::move(name), kind, std::move(*content));
  }
  Result<void> add(std::string name, BundledKind kind, std::string content) {
    if (modules_.size() >= kBundleModulesMax) {
      return fail(Error::invalid(
          fmt::format("more than {} modules ('{}' is one too many)", kBundleModulesMax, name)));
    }
    if (content.size() > kBundleBytesMax - bytes_) {
      return fail(Error::invalid(fmt::format("module '{}' has {} bytes; all modules together may have {}",
                                             name, content.size(), kBundleBytesMax)));
    }
    bytes_ += content.size();
    modules_.push_back({std::move(name), kind, Blob(std::move(content))});
    return {};
  }
  std::vector<BundledModule> take() {
    std::ranges::sort(modules_, {}, &BundledModule::name);
    return std::move(modules_);
  }

 private:
  std::vector<BundledModule> modules_;
  size_t bytes_ = 0;
};

// A folder that is removed with all it holds.
class ScratchDir {
 public:
  static Result<ScratchDir> make() {
    std::error_code ec;
    std::string pattern = (fs::temp_directory_path(ec) / "celld-bundle-XXXXXX").string();
    if (ec || ::mkdtemp(pattern.data()) == nullptr) {
      return fail(Error::invalid(fmt::format("cannot make a temporary folder {}", pattern)));
    }
    return ScratchDir(fs::canonical(pattern, ec));
  }
  ScratchDir(ScratchDir&& o) noexcept : path_(std::exchange(o.path_, fs::path())) {}
  ScratchDir& operator=(ScratchDir&&) = delete;
  ~ScratchDir() {
    std::error_code ec;
    if (!path_.empty()) fs::remove_all(path_, ec);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit ScratchDir(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// The extensions that esbuild shall copy, from the rules that concern bundled projects.
Result<std::set<std::string>> copied_extensions(const WorkerConfig& config) {
  std::set<std::string> out;
  for (const auto& rule : config.rules) {
    // Code is bundled whatever its kind is called.
    if (rule.type == RuleType::kEsModule || rule.type == RuleType::kCommonJs) continue;
    for (const auto& glob : rule.globs) {
      std::string extension = glob_extension(glob);
      if (extension.empty()) {
        return fail(Error::unsupported(fmt::format(
            "{}: the rule '{}' does not end in an extension such as '*.txt', which is not supported "
            "yet together with bundling", config.file.filename().string(), glob)));
      }
      if (std::ranges::find(kCodeExtensions, extension) != kCodeExtensions.end()) {
        return fail(Error::unsupported(fmt::format(
            "{}: the rule '{}' makes code into plain modules, which is not supported yet together "
            "with bundling", config.file.filename().string(), glob)));
      }
      out.insert(std::move(extension));
    }
  }
  return out;
}

std::vector<std::string> esbuild_arguments(const WorkerConfig& config, BundleMode mode,
                                           const std::set<std::string>& copied,
                                           const fs::path& out_dir) {
  std::vector<std::string> args = {
      "./" + config.main,
      "--bundle",
      "--format=esm",
      "--target=es2022",
      "--platform=browser",
      "--conditions=workerd,worker,browser",
      "--sourcemap=external",
      "--entry-names=index",
      "--asset-names=[name]-[hash]",
      "--loader:.js=jsx",
      "--loader:.mjs=jsx",
      "--loader:.cjs=jsx",
      "--external:cloudflare:*",
      "--external:node:*",
      "--color=false",
      "--log-level=warning",
      "--log-limit=20",
      "--outdir=" + out_dir.string(),
      "--metafile=" + (out_dir / "celld-metafile.json").string(),
  };
  for (const auto& extension : copied) args.push_back(fmt::format("--loader:{}=copy", extension));
  if (config.keep_names) args.push_back("--keep-names");
  if (config.minify) args.push_back("--minify");
  if (!config.tsconfig.empty()) args.push_back("--tsconfig=" + config.tsconfig);
  auto has = [](const auto& pairs, std::string_view key) {
    return std::ranges::any_of(pairs, [&](const auto& p) { return p.first == key; });
  };
  if (config.has_compatibility_flag("nodejs_compat")) {
    for (auto name : kNodeModules) {
      if (!has(config.alias, name)) args.push_back(fmt::format("--alias:{}=node:{}", name, name));
    }
  }
  for (const auto& [from, to] : config.alias) args.push_back(fmt::format("--alias:{}={}", from, to));
  if (!has(config.define, "process.env.NODE_ENV")) {
    args.push_back(fmt::format("--define:process.env.NODE_ENV=\"{}\"",
                               mode == BundleMode::kProduction ? "production" : "development"));
  }
  for (const auto& [name, value] : config.define) {
    args.push_back(fmt::format("--define:{}={}", name, value));
  }
  return args;
}

std::string explain(std::string output, const WorkerConfig& config) {
  while (output.ends_with('\n')) output.pop_back();
  std::string hint;
  if (output.contains("built into node") && !config.has_compatibility_flag("nodejs_compat")) {
    hint = fmt::format("\nTo use Node.js modules add \"nodejs_compat\" to compatibility_flags in {}.",
                       config.file.filename().string());
  } else if (output.contains("No loader is configured for")) {
    hint = fmt::format("\nFiles that are not code need a rule in {}, such as "
                       "{{\"type\": \"Text\", \"globs\": [\"**/*.md\"], \"fallthrough\": true}} in 'rules'.",
                       config.file.filename().string());
  }
  return output + hint;
}

// Paths in `sources` are relative to the temporary folder: make them relative to the project, so
// that the same sources give the same bytes anywhere.
std::string portable_source_map(std::string text, const fs::path& out_dir, const fs::path& project) {
  json::error_code ec;
  json::value map = json::parse(text, ec);
  if (ec || !map.is_object()) return text;
  auto* sources = map.get_object().if_contains("sources");
  if (!sources || !sources->is_array()) return text;
  for (auto& source : sources->get_array()) {
    if (auto* s = source.if_string()) {
      fs::path absolute = (out_dir / std::string(std::string_view(*s))).lexically_normal();
      source = absolute.lexically_relative(project).generic_string();
    }
  }
  return json::serialize(map);
}

// What esbuild says about its outputs.
struct Outputs {
  struct Copied {
    std::string name;  // of the module
    std::string from;  // relative to the project
  };
  std::vector<Copied> copied;
  std::vector<std::string> exports;
};

Result<Outputs> read_metafile(const fs::path& out_dir) {
  auto text = read_whole(out_dir / "celld-metafile.json", kBundleBytesMax);
  if (!text) return fail(std::move(text).error());
  json::error_code ec;
  json::value meta = json::parse(*text, ec);
  auto* root = ec ? nullptr : meta.if_object();
  auto* outputs = root ? root->if_contains("outputs") : nullptr;
  if (!outputs || !outputs->is_object()) return fail(Error::internal("esbuild wrote no metafile"));
  Outputs out;
  for (const auto& member : outputs->get_object()) {
    std::string name = fs::path(std::string(std::string_view(member.key()))).filename().string();
    auto* output = member.value().if_object();
    if (!output || name == "index.js.map") continue;
    if (name == "index.js") {
      if (auto* exports = output->if_contains("exports"); exports && exports->is_array()) {
        for (const auto& e : exports->get_array()) {
          if (e.is_string()) out.exports.emplace_back(std::string_view(e.get_string()));
        }
      }
      continue;
    }
    auto* inputs = output->if_contains("inputs");
    if (!inputs || !inputs->is_object() || inputs->get_object().size() != 1) {
      return fail(Error::unsupported(fmt::format(
          "esbuild made '{}', which is not supported yet (CSS and code splitting)", name)));
    }
    out.copied.push_back({name, std::string(std::string_view(inputs->get_object().begin()->key()))});
  }
  return out;
}

Result<void> check_exports(const WorkerConfig& config, const std::vector<std::string>& exports) {
  if (exports.empty()) {
    return fail(Error::unsupported(fmt::format(
        "{}: exports nothing. A Worker is an ES module that exports its handlers (`export default "
        "{{ fetch() {{ ... }} }}`); the older service-worker syntax (addEventListener) is not supported",
        config.main)));
  }
  for (const auto& c : config.classes) {
    if (std::ranges::find(exports, c.class_name) == exports.end()) {
      return fail(Error::invalid(fmt::format(
          "{}: the Durable Object class '{}' of {} is not exported: add `export class {} extends "
          "DurableObject {{ ... }}`",
          config.main, c.class_name, config.file.filename().string(), c.class_name)));
    }
  }
  return {};
}

Result<void> check_main(const WorkerConfig& config) {
  std::error_code ec;
  fs::path main = config.project_dir / config.main;
  if (!fs::is_regular_file(main, ec)) {
    return fail(Error::invalid(fmt::format("{}: 'main' names {}, which is not there",
                                           config.file.filename().string(), main.string())));
  }
  return {};
}

Result<Bundle> bundle_with_esbuild(const WorkerConfig& config, const BundleOptions& options) {
  auto copied = copied_extensions(config);
  if (!copied) return fail(std::move(copied).error());
  fs::path esbuild = options.esbuild;
  if (esbuild.empty()) {
    TRY_ASSIGN(esbuild, find_esbuild());
  }
  auto scratch = ScratchDir::make();
  if (!scratch) return fail(std::move(scratch).error());
  const fs::path out_dir = scratch->path() / "out";
  std::error_code ec;
  const fs::path project = fs::canonical(config.project_dir, ec);
  if (ec) {
    return fail(Error::invalid(fmt::format("{}: {}", config.project_dir.string(), ec.message())));
  }

  SubprocessCall call;
  call.program = esbuild;
  call.arguments = esbuild_arguments(config, options.mode, *copied, out_dir);
  call.working_dir = project;
  call.timeout = options.timeout;
  auto ran = run_subprocess(call);
  if (!ran) return fail(std::move(ran).error());
  if (ran->exit_status != 0) {
    std::string text = explain(std::move(ran->output), config);
    if (text.empty()) text = fmt::format("esbuild ended with status {}", ran->exit_status);
    return fail(Error::invalid(fmt::format("{} cannot be bundled:\n{}", config.main, text)));
  }

  auto outputs = read_metafile(out_dir);
  if (!outputs) return fail(std::move(outputs).error());
  TRY(check_exports(config, outputs->exports));
  ModuleSet modules;
  auto code = read_whole(out_dir / "index.js", kBundleBytesMax);
  if (!code) return fail(std::move(code).error());
  TRY(modules.add("index.js", BundledKind::kEsm, *code));
  auto map = read_whole(out_dir / "index.js.map", kBundleBytesMax);
  if (!map) return fail(std::move(map).error());
  TRY(modules.add("index.js.map", BundledKind::kSourceMap,
                  portable_source_map(std::move(*map), out_dir, project)));
  for (const auto& [name, from] : outputs->copied) {
    std::string file = from.substr(0, from.find('?'));
    auto* rule = matching_rule(config.rules, file);
    auto kind = rule ? kind_of(rule->type) : std::nullopt;
    if (!kind || *kind == BundledKind::kEsm) {
      return fail(Error::invalid(fmt::format(
          "{}: is imported, but no rule in {} says what it is (Text, Data or CompiledWasm)", file,
          config.file.filename().string())));
    }
    TRY(modules.add(name, *kind, out_dir / name));
    // A query such as ?module stays in the import, so the module has that name too.
    std::set<std::string> queries;
    const std::string with_query = "\"./" + name + "?";
    for (size_t at = code->find(with_query); at != code->npos; at = code->find(with_query, at + 1)) {
      size_t begin = at + with_query.size() - 1;
      queries.insert(code->substr(begin, code->find('"', begin) - begin));
    }
    for (const auto& query : queries) TRY(modules.add(name + query, *kind, out_dir / name));
  }
  Bundle bundle;
  bundle.modules = modules.take();
  bundle.main = "index.js";
  bundle.exports = std::move(outputs->exports);
  bundle.warnings = std::move(ran->output);
  return bundle;
}

bool is_skipped_folder(const fs::path& folder) {
  std::string name = folder.filename().string();
  return name == "node_modules" || name.starts_with('.');
}

// no_bundle: the main module and the files around it that match the rules, as they are.
Result<Bundle> take_as_is(const WorkerConfig& config) {
  static constexpr std::array<std::string_view, 6> kTypeScript = {".ts", ".mts", ".cts",
                                                                  ".tsx", ".jsx", ".cjs"};
  const fs::path main = config.project_dir / config.main;
  if (std::ranges::find(kTypeScript, main.extension().string()) != kTypeScript.end()) {
    return fail(Error::invalid(fmt::format(
        "{}: with no_bundle the main module is taken as it is, so it must be a JavaScript ES module",
        config.main)));
  }
  std::vector<ModuleRule> rules = config.rules;
  if (!config.user_has_esm_rule) rules.push_back({RuleType::kEsModule, {"**/*.js", "**/*.mjs"}});

  const fs::path base = main.parent_path();
  const std::string main_name = main.filename().string();
  ModuleSet modules;
  TRY(modules.add(main_name, BundledKind::kEsm, main));

  std::set<std::string> maps;
  std::set<std::string> code{main_name};
  std::error_code ec;
  size_t entries = 0;
  fs::recursive_directory_iterator it(base, fs::directory_options::skip_permission_denied, ec), end;
  for (; !ec && it != end; it.increment(ec)) {
    if (++entries > kDirectoryEntriesMax) {
      return fail(Error::invalid(fmt::format("{}: more than {} files", base.string(),
                                             kDirectoryEntriesMax)));
    }
    if (it->is_directory(ec)) {
      if (is_skipped_folder(it->path())) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file(ec)) continue;
    std::string name = it->path().lexically_relative(base).generic_string();
    if (name == main_name || it->path() == config.file) continue;
    if (name.ends_with(".map")) {
      maps.insert(name);
      continue;
    }
    auto* rule = matching_rule(rules, name);
    if (!rule) continue;
    auto kind = kind_of(rule->type);
    if (!kind) {
      return fail(Error::unsupported(
          fmt::format("{}: CommonJS modules are not supported yet", it->path().string())));
    }
    if (*kind == BundledKind::kEsm) code.insert(name);
    TRY(modules.add(name, *kind, it->path()));
  }
  if (ec) return fail(Error::invalid(fmt::format("{}: {}", base.string(), ec.message())));
  for (const auto& name : maps) {
    if (code.contains(name.substr(0, name.size() - 4))) {
      TRY(modules.add(name, BundledKind::kSourceMap, base / name));
    }
  }
  Bundle bundle;
  bundle.modules = modules.take();
  bundle.main = main_name;
  return bundle;
}

bool is_program(const fs::path& file) {
  std::error_code ec;
  return fs::is_regular_file(file, ec) && ::access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::string_view to_string(BundledKind kind) {
  for (const auto& [k, name] : kKindNames) {
    if (k == kind) return name;
  }
  return "unknown";
}

std::optional<BundledKind> parse_bundled_kind(std::string_view text) {
  for (const auto& [kind, name] : kKindNames) {
    if (name == text) return kind;
  }
  return std::nullopt;
}

Result<fs::path> find_esbuild() {
  if (const char* chosen = ::getenv("CELLD_ESBUILD"); chosen != nullptr && *chosen != '\0') {
    // A plain name is looked for on $PATH below.
    if (std::string_view(chosen).contains('/')) {
      if (is_program(chosen)) return fs::path(chosen);
      return fail(Error::not_found(fmt::format("CELLD_ESBUILD: {} is not a program", chosen)));
    }
  }
  std::vector<fs::path> places;
  std::error_code ec;
  fs::path self = fs::read_symlink("/proc/self/exe", ec);
  if (!ec) places.push_back(self.parent_path() / "esbuild");
#ifdef CELLD_SOURCE_ESBUILD
  places.emplace_back(CELLD_SOURCE_ESBUILD);
#endif
  const char* chosen = ::getenv("CELLD_ESBUILD");
  std::string name = chosen != nullptr && *chosen != '\0' ? chosen : "esbuild";
  std::string_view path = ::getenv("PATH") ? ::getenv("PATH") : "";
  while (!path.empty()) {
    auto folder = path.substr(0, path.find(':'));
    if (!folder.empty()) places.push_back(fs::path(std::string(folder)) / name);
    path.remove_prefix(std::min(folder.size() + 1, path.size()));
  }
  for (const auto& place : places) {
    if (is_program(place)) return place;
  }
  return fail(Error::not_found(
      "esbuild, which bundles projects, is not installed: put the program beside celld or on PATH, or "
      "name it in CELLD_ESBUILD (npm install esbuild)"));
}

Result<Bundle> bundle_project(const WorkerConfig& config, const BundleOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  TRY(check_main(config));
  auto bundle = config.no_bundle ? take_as_is(config) : bundle_with_esbuild(config, options);
  if (bundle) {
    bundle->took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
  }
  return bundle;
}

}  // namespace celld
