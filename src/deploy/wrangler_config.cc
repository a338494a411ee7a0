#include "deploy/wrangler_config.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <span>
#include <system_error>

#include "deploy/cron.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kNameBytesMax = 63;
constexpr size_t kBindingNameBytesMax = 128;
constexpr size_t kListMax = 1000;      // elements of any list in the configuration
constexpr size_t kFaultsShownMax = 20;

// Keys of Wrangler that celld does not have. Others are most likely typing errors.
constexpr std::array<std::string_view, 55> kWranglerKeys = {
    "ai", "ai_search", "ai_search_namespaces", "analytics_engine_datasets", "artifacts", "assets",
    "base_dir", "browser", "build", "cache", "cloudchamber", "compliance_region", "containers",
    "d1_databases", "data_blobs", "dispatch_namespaces", "env", "exports", "find_additional_modules",
    "first_party_worker", "flagship", "hyperdrive", "images", "kv_namespaces", "legacy_env",
    "limits", "logfwdr", "logpush", "media", "mtls_certificates", "node_compat", "pages_build_output_dir",
    "pipelines", "placement", "preserve_file_names", "previews", "python_modules", "queues",
    "r2_buckets", "ratelimits", "route", "routes", "secrets", "secrets_store_secrets", "send_email",
    "services", "site", "streaming_tail_consumers", "tail_consumers", "text_blobs", "unsafe",
    "vectorize", "version_metadata", "vpc_services", "workflows"};

// Keys that are read below, and keys whose value changes nothing here.
constexpr std::array<std::string_view, 16> kReadKeys = {
    "name", "main", "compatibility_date", "compatibility_flags", "durable_objects", "migrations",
    "vars", "rules", "define", "alias", "tsconfig", "no_bundle", "minify", "keep_names", "triggers",
    "dev"};
constexpr std::array<std::string_view, 7> kIgnoredKeys = {
    "$schema", "account_id", "workers_dev", "observability", "upload_source_maps", "preview_urls",
    "send_metrics"};

bool contains(std::span<const std::string_view> set, std::string_view key) {
  return std::ranges::find(set, key) != set.end();
}

// Levenshtein distance, for "did you mean".
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = row[j];
      row[j] = next;
    }
  }
  return row[b.size()];
}

bool is_script_name(std::string_view text) {
  if (text.empty() || text.size() > kNameBytesMax || text[0] == '-') return false;
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i != 4 && i != 7 && (text[i] < '0' || text[i] > '9')) return false;
  }
  auto digits = [&](size_t at, size_t n) {
    int v = 0;
    for (size_t i = 0; i < n; ++i) v = v * 10 + (text[at + i] - '0');
    return v;
  };
  using namespace std::chrono;
  return year_month_day(year(digits(0, 4)), month(digits(5, 2)), day(digits(8, 2))).ok();
}

// A path inside the project: relative, without "..", without NUL.
bool is_inner_path(std::string_view text) {
  if (text.empty() || text.size() > 1024 || text.contains('\0')) return false;
  fs::path p{std::string(text)};
  return !p.is_absolute() && std::ranges::find(p, "..") == p.end();
}

// Reads one configuration and gathers its faults, so that a person sees all of them at once.
class ConfigReader {
 public:
  ConfigReader(const ConfigTree& tree, std::string_view file) : tree_(tree), file_(file) {}

  Result<WorkerConfig> read() {
    out_.file = std::string(file_);
    check_top_level_keys();
    read_identity();
    read_build_options();
    read_rules();
    read_migrations();
    read_durable_objects();
    read_vars();
    read_triggers();
    read_dev();
    if (faults_.empty()) return std::move(out_);
    std::string message;
    for (size_t i = 0; i < faults_.size() && i < kFaultsShownMax; ++i) {
      if (i > 0) message += '\n';
      message += faults_[i];
    }
    if (faults_.size() > kFaultsShownMax) {
      message += fmt::format("\nand {} more", faults_.size() - kFaultsShownMax);
    }
    return fail(Error::make(only_unsupported_ ? ErrorCode::kUnsupported : ErrorCode::kInvalid,
                            std::move(message)));
  }

 private:
  std::string where(std::string_view path) const {
    auto line = tree_.lines.find(path);
    if (line == tree_.lines.end()) return std::string(file_);
    return fmt::format("{}:{}", file_, line->second);
  }
  void invalid(std::string_view path, std::string_view why) {
    only_unsupported_ = false;
    faults_.push_back(fmt::format("{}: key '{}' {}", where(path), path, why));
  }
  void unsupported(std::string_view path, std::string_view why = "is not supported yet") {
    faults_.push_back(fmt::format("{}: key '{}' {}", where(path), path, why));
  }

  const json::value* find(const json::object& object, std::string_view key) const {
    auto it = object.find(key);
    return it == object.end() ? nullptr : &it->value();
  }
  const json::value* find(std::string_view key) const { return find(tree_.root, key); }

  // Each reader below returns nothing when the key is absent or has been reported.
  std::optional<std::string> text(const json::object& object, std::string_view prefix,
                                  std::string_view key) {
    auto* v = find(object, key);
    if (!v) return std::nullopt;
    if (!v->is_string()) {
      invalid(join(prefix, key), "must be a string");
      return std::nullopt;
    }
    return std::string(std::string_view(v->get_string()));
  }
  std::optional<bool> flag(std::string_view key) {
    auto* v = find(key);
    if (!v) return std::nullopt;
    if (!v->is_bool()) {
      invalid(key, "must be true or false");
      return std::nullopt;
    }
    return v->get_bool();
  }
  const json::object* object(const json::value& v, std::string_view path) {
    if (v.is_object()) return &v.get_object();
    invalid(path, "must be an object");
    return nullptr;
  }
  const json::array* array(const json::value& v, std::string_view path) {
    if (!v.is_array()) {
      invalid(path, "must be a list");
      return nullptr;
    }
    if (v.get_array().size() > kListMax) {
      invalid(path, fmt::format("has more than {} elements", kListMax));
      return nullptr;
    }
    return &v.get_array();
  }
  std::vector<std::string> texts(const json::value& v, std::string_view path) {
    std::vector<std::string> out;
    if (auto* list = array(v, path)) {
      for (size_t i = 0; i < list->size(); ++i) {
        if (auto* s = (*list)[i].if_string()) {
          out.emplace_back(std::string_view(*s));
        } else {
          invalid(fmt::format("{}[{}]", path, i), "must be a string");
        }
      }
    }
    return out;
  }
  std::vector<std::pair<std::string, std::string>> text_map(std::string_view key) {
    std::vector<std::pair<std::string, std::string>> out;
    auto* v = find(key);
    if (!v) return out;
    auto* members = object(*v, key);
    if (!members) return out;
    for (const auto& member : *members) {
      std::string name(std::string_view(member.key()));
      if (auto value = text(*members, key, name)) out.emplace_back(std::move(name), *value);
    }
    return out;
  }
  static std::string join(std::string_view prefix, std::string_view key) {
    return prefix.empty() ? std::string(key) : fmt::format("{}.{}", prefix, key);
  }
  void only_keys(const json::object& object, std::string_view prefix,
                 std::initializer_list<std::string_view> known) {
    for (const auto& member : object) {
      std::string_view key = member.key();
      if (std::ranges::find(known, key) == known.end()) unsupported(join(prefix, key));
    }
  }

  void check_top_level_keys() {
    for (const auto& member : tree_.root) {
      std::string_view key = member.key();
      if (contains(kReadKeys, key) || contains(kIgnoredKeys, key)) continue;
      if (key == "env") {
        unsupported(key, "is not supported yet: celld has no named environments, so use one "
                         "configuration file for each and choose it with --config");
      } else if (key == "build") {
        unsupported(key, "is not supported yet: run the build command before celld and let 'main' "
                         "name its output");
      } else if (contains(kWranglerKeys, key)) {
        unsupported(key);
      } else {
        auto closest = std::ranges::min(kReadKeys, {}, [&](std::string_view known) {
          return key.size() > 64 ? size_t{64} : distance(key, known);
        });
        if (key.size() <= 64 && distance(key, closest) <= 2) {
          invalid(key, fmt::format("is not known; did you mean '{}'?", closest));
        } else {
          unsupported(key);
        }
      }
    }
  }

  void read_identity() {
    if (auto name = text(tree_.root, "", "name")) {
      if (!is_script_name(*name)) {
        invalid("name", fmt::format("must be 1 to {} of a-z, 0-9, '-' and '_', and not begin with '-'",
                                    kNameBytesMax));
      }
      out_.name = *name;
    } else if (!find("name")) {
      missing("name", "every Worker needs a name, as in \"name\": \"my-worker\"");
    }
    if (auto main = text(tree_.root, "", "main")) {
      if (!is_inner_path(*main)) invalid("main", "must be a path inside the project");
      out_.main = fs::path(*main).lexically_normal().generic_string();
    } else if (!find("main")) {
      missing("main", "it names the file to start from, as in \"main\": \"src/index.ts\"");
    }
    if (auto date = text(tree_.root, "", "compatibility_date")) {
      if (!is_date(*date)) invalid("compatibility_date", "must be a date such as 2026-01-31");
      out_.compatibility_date = *date;
    }
    if (auto* flags = find("compatibility_flags")) {
      out_.compatibility_flags = texts(*flags, "compatibility_flags");
      for (const auto& f : out_.compatibility_flags) {
        if (f.empty() || f.size() > 128) {
          invalid("compatibility_flags", "has an element that is empty or longer than 128 bytes");
        }
      }
    }
  }

  void missing(std::string_view key, std::string_view why) {
    only_unsupported_ = false;
    faults_.push_back(fmt::format("{}: key '{}' is missing: {}", file_, key, why));
  }

  void read_build_options() {
    out_.define = text_map("define");
    out_.alias = text_map("alias");
    if (auto path = text(tree_.root, "", "tsconfig")) {
      if (!is_inner_path(*path)) invalid("tsconfig", "must be a path inside the project");
      out_.tsconfig = *path;
    }
    out_.no_bundle = flag("no_bundle").value_or(false);
    out_.minify = flag("minify").value_or(false);
    out_.keep_names = flag("keep_names").value_or(true);
  }

  void read_rules() {
    std::vector<ModuleRule> rules;
    if (auto* v = find("rules")) {
      if (auto* list = array(*v, "rules")) {
        for (size_t i = 0; i < list->size(); ++i) read_rule((*list)[i], i, rules);
      }
    }
    out_.user_has_esm_rule = std::ranges::any_of(
        rules, [](const ModuleRule& r) { return r.type == RuleType::kEsModule; });
    for (auto& rule : default_module_rules()) rules.push_back(std::move(rule));
    // As Wrangler: the first rule of a type ends that type unless it says fallthrough.
    std::set<RuleType> closed;
    for (auto& rule : rules) {
      if (closed.contains(rule.type)) continue;
      if (!rule.fallthrough) closed.insert(rule.type);
      out_.rules.push_back(std::move(rule));
    }
  }

  void read_rule(const json::value& v, size_t index, std::vector<ModuleRule>& rules) {
    std::string path = fmt::format("rules[{}]", index);
    auto* members = object(v, path);
    if (!members) return;
    only_keys(*members, path, {"type", "globs", "fallthrough"});
    ModuleRule rule;
    auto type = text(*members, path, "type");
    if (!type) {
      if (!find(*members, "type")) invalid(path, "needs a 'type'");
      return;
    }
    if (*type == "ESModule") rule.type = RuleType::kEsModule;
    else if (*type == "CommonJS") rule.type = RuleType::kCommonJs;
    else if (*type == "Text") rule.type = RuleType::kText;
    else if (*type == "Data") rule.type = RuleType::kData;
    else if (*type == "CompiledWasm") rule.type = RuleType::kCompiledWasm;
    else {
      unsupported(path + ".type", fmt::format("has the value '{}', but only ESModule, CommonJS, "
                                              "Text, Data and CompiledWasm are supported", *type));
      return;
    }
    auto* globs = find(*members, "globs");
    if (!globs) {
      invalid(path, "needs 'globs'");
      return;
    }
    rule.globs = texts(*globs, path + ".globs");
    for (const auto& g : rule.globs) {
      if (g.empty() || g.size() > 1024) invalid(path + ".globs", "has an empty or overlong pattern");
    }
    if (auto* f = find(*members, "fallthrough")) {
      if (!f->is_bool()) {
        invalid(path + ".fallthrough", "must be true or false");
      } else {
        rule.fallthrough = f->get_bool();
      }
    }
    rules.push_back(std::move(rule));
  }

  void read_migrations() {
    auto* v = find("migrations");
    if (!v) return;
    auto* list = array(*v, "migrations");
    if (!list) return;
    std::set<std::string> tags;
    for (size_t i = 0; i < list->size(); ++i) {
      std::string path = fmt::format("migrations[{}]", i);
      auto* members = object((*list)[i], path);
      if (!members) continue;
      for (const auto& member : *members) {
        std::string_view key = member.key();
        if (key != "tag" && key != "new_sqlite_classes" && key != "new_classes") {
          unsupported(join(path, key));
        }
      }
      auto tag = text(*members, path, "tag");
      if (!tag && !find(*members, "tag")) invalid(path, "needs a 'tag'");
      if (tag && !tags.insert(*tag).second) {
        invalid(path + ".tag", fmt::format("repeats the tag '{}' of an earlier migration", *tag));
      }
      read_new_classes(*members, path, "new_sqlite_classes", ClassStorage::kSqlite,
                       tag.value_or(""));
      read_new_classes(*members, path, "new_classes", ClassStorage::kKeyValue, tag.value_or(""));
    }
  }

  void read_new_classes(const json::object& members, const std::string& prefix,
                        std::string_view key, ClassStorage storage, const std::string& tag) {
    auto* v = find(members, key);
    if (!v) return;
    std::string path = join(prefix, key);
    for (auto& name : texts(*v, path)) {
      if (!is_binding_name(name)) {
        invalid(path, fmt::format("has '{}', which cannot be the name of a class", name));
      } else if (find_class(name)) {
        invalid(path, fmt::format("creates class '{}' a second time", name));
      } else {
        out_.classes.push_back({std::move(name), storage, tag});
      }
    }
  }

  const DurableObjectClass* find_class(std::string_view name) const {
    auto it = std::ranges::find(out_.classes, name, &DurableObjectClass::class_name);
    return it == out_.classes.end() ? nullptr : &*it;
  }

  void read_durable_objects() {
    auto* v = find("durable_objects");
    if (!v) return;
    auto* members = object(*v, "durable_objects");
    if (!members) return;
    only_keys(*members, "durable_objects", {"bindings"});
    auto* bindings = find(*members, "bindings");
    if (!bindings) return;
    auto* list = array(*bindings, "durable_objects.bindings");
    if (!list) return;
    for (size_t i = 0; i < list->size(); ++i) {
      std::string path = fmt::format("durable_objects.bindings[{}]", i);
      if (auto* binding = object((*list)[i], path)) read_durable_object(*binding, path);
    }
  }

  void read_durable_object(const json::object& members, const std::string& path) {
    only_keys(members, path, {"name", "class_name", "script_name"});
    auto name = text(members, path, "name");
    auto class_name = text(members, path, "class_name");
    auto script_name = text(members, path, "script_name");
    if (!name || !class_name) {
      if (!find(members, "name")) invalid(path, "needs a 'name'");
      if (!find(members, "class_name")) invalid(path, "needs a 'class_name'");
      return;
    }
    if (script_name && *script_name != out_.name) {
      unsupported(path + ".script_name",
                  fmt::format("names another Worker ('{}'), which is not supported yet: the class "
                              "must be in this Worker", *script_name));
      return;
    }
    claim_name(*name, path + ".name");
    if (!is_binding_name(*class_name)) {
      invalid(path + ".class_name", "must be the name of a class");
    } else if (!find_class(*class_name)) {
      invalid(path + ".class_name",
              fmt::format("binds class '{}', but no migration creates it: add {{\"tag\": \"v1\", "
                          "\"new_sqlite_classes\": [\"{}\"]}} to 'migrations'",
                          *class_name, *class_name));
    }
    out_.durable_objects.push_back({*name, *class_name});
  }

  void claim_name(const std::string& name, std::string_view path) {
    if (!is_binding_name(name)) {
      invalid(path, "must be a JavaScript identifier of at most 128 bytes");
    } else if (!names_.insert(name).second) {
      invalid(path, fmt::format("repeats '{}': env can have it only once", name));
    }
  }

  void read_vars() {
    auto* v = find("vars");
    if (!v) return;
    auto* members = object(*v, "vars");
    if (!members) return;
    for (const auto& member : *members) {
      std::string name(std::string_view(member.key()));
      claim_name(name, join("vars", name));
      if (auto* s = member.value().if_string()) {
        out_.vars.push_back({std::move(name), VarKind::kText, std::string(std::string_view(*s))});
      } else {
        out_.vars.push_back({std::move(name), VarKind::kJson, json::serialize(member.value())});
      }
    }
  }

  void read_triggers() {
    auto* v = find("triggers");
    if (!v) return;
    auto* members = object(*v, "triggers");
    if (!members) return;
    only_keys(*members, "triggers", {"crons"});
    auto* crons = find(*members, "crons");
    if (!crons) return;
    auto list = texts(*crons, "triggers.crons");
    std::set<std::string> seen;
    for (size_t i = 0; i < list.size(); ++i) {
      std::string path = fmt::format("triggers.crons[{}]", i);
      auto parsed = CronSchedule::parse(list[i]);
      if (!parsed) {
        invalid(path, fmt::format("('{}') is not a cron expression: {}", list[i],
                                  parsed.error().message));
      } else if (!seen.insert(list[i]).second) {
        invalid(path, fmt::format("repeats '{}'", list[i]));
      } else {
        out_.crons.push_back(list[i]);
      }
    }
  }

  void read_dev() {
    auto* v = find("dev");
    if (!v) return;
    auto* members = object(*v, "dev");
    if (!members) return;
    only_keys(*members, "dev", {"port", "ip", "inspector_port", "inspector_ip", "local_protocol"});
    if (auto* port = find(*members, "port")) {
      if (!port->is_int64() || port->get_int64() < 0 || port->get_int64() > 65535) {
        invalid("dev.port", "must be a number from 0 to 65535");
      } else {
        out_.dev_port = static_cast<uint16_t>(port->get_int64());
      }
    }
    if (auto ip = text(*members, "dev", "ip")) out_.dev_ip = *ip;
    if (auto protocol = text(*members, "dev", "local_protocol"); protocol && *protocol != "http") {
      unsupported("dev.local_protocol", "has a value other than \"http\", which is not supported yet");
    }
  }

  const ConfigTree& tree_;
  std::string_view file_;
  WorkerConfig out_;
  std::set<std::string> names_;
  std::vector<std::string> faults_;
  bool only_unsupported_ = true;
};

}  // namespace

bool is_binding_name(std::string_view text) {
  if (text.empty() || text.size() > kBindingNameBytesMax) return false;
  if (text[0] >= '0' && text[0] <= '9') return false;
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$';
  });
}

bool WorkerConfig::has_compatibility_flag(std::string_view flag) const {
  return std::ranges::find(compatibility_flags, flag) != compatibility_flags.end();
}

std::vector<ModuleRule> default_module_rules() {
  return {
      {RuleType::kText, {"**/*.txt", "**/*.html", "**/*.sql"}},
      {RuleType::kData, {"**/*.bin"}},
      {RuleType::kCompiledWasm, {"**/*.wasm", "**/*.wasm?module"}},
  };
}

Result<WorkerConfig> parse_wrangler_config(std::string_view text, ConfigFormat format,
                                           std::string_view file) {
  auto tree = parse_config_text(text, format, file);
  if (!tree) return fail(std::move(tree).error());
  return ConfigReader(*tree, file).read();
}

Result<WorkerConfig> read_wrangler_config(const fs::path& file) {
  auto extension = file.extension();
  if (extension != ".toml" && extension != ".json" && extension != ".jsonc") {
    return fail(Error::invalid(fmt::format(
        "{}: a configuration file ends in .jsonc, .json or .toml", file.string())));
  }
  std::error_code ec;
  auto bytes = fs::file_size(file, ec);
  if (ec) {
    auto code = ec == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound
                                                           : ErrorCode::kInvalid;
    return fail(Error::make(code, fmt::format("{}: {}", file.string(), ec.message())));
  }
  if (bytes > kConfigBytesMax) {
    return fail(Error::invalid(
        fmt::format("{}: {} bytes, the limit is {}", file.string(), bytes, kConfigBytesMax)));
  }
  std::ifstream in(file, std::ios::binary);
  std::string text(bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!in) return fail(Error::invalid(fmt::format("{}: cannot be read", file.string())));

  auto config = parse_wrangler_config(
      text, extension == ".toml" ? ConfigFormat::kToml : ConfigFormat::kJsonc,
      file.filename().string());
  if (!config) return config;
  config->file = fs::absolute(file, ec).lexically_normal();
  config->project_dir = config->file.parent_path();
  return config;
}

Result<fs::path> find_wrangler_config(const fs::path& dir) {
  std::error_code ec;
  fs::path start = fs::canonical(dir, ec);
  if (ec) return fail(Error::not_found(fmt::format("{}: {}", dir.string(), ec.message())));
  if (!fs::is_directory(start, ec)) {
    return fail(Error::invalid(fmt::format(
        "{}: a project is a folder; name a configuration file with --config", dir.string())));
  }
  for (std::string_view name : {"wrangler.json", "wrangler.jsonc", "wrangler.toml"}) {
    for (fs::path at = start;; at = at.parent_path()) {
      if (fs::path candidate = at / name; fs::is_regular_file(candidate, ec)) return candidate;
      if (at == at.root_path()) break;
    }
  }
  return fail(Error::not_found(fmt::format(
      "{}: no wrangler.jsonc, wrangler.json or wrangler.toml here or in a folder above; every "
      "project needs one with at least \"name\" and \"main\"",
      start.string())));
}

}  // namespace celld
