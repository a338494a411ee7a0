// What a Worker project says about itself: wrangler.jsonc, wrangler.json or wrangler.toml.
//
// A key that would change what a program does and is not supported here is an error that names the
// key, the file and the line; it is never ignored. All errors are kInvalid or kUnsupported with
// one line per fault. Parsing is pure; reading blocks on the disk. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "deploy/config_text.h"

namespace celld {

// env.NAME is a Durable Object namespace over `class_name`.
struct DurableObjectBinding {
  std::string name;
  std::string class_name;
};

// What a class may use of ctx.storage. The data is in SQLite either way.
enum class ClassStorage : uint8_t {
  kSqlite,    // new_sqlite_classes: everything
  kKeyValue,  // new_classes: ctx.storage.sql is refused, as on Cloudflare
};

struct DurableObjectClass {
  std::string class_name;
  ClassStorage storage = ClassStorage::kSqlite;
  std::string migration_tag;  // of the migration that created it
};

// env.NAME is a string, or a value parsed from JSON.
enum class VarKind : uint8_t { kText, kJson };

struct Var {
  std::string name;
  VarKind kind = VarKind::kText;
  std::string value;  // the text itself, or JSON
  bool operator==(const Var&) const = default;
};

enum class RuleType : uint8_t { kEsModule, kCommonJs, kText, kData, kCompiledWasm };

// Files that match one of `globs` are modules of this type, not code to bundle.
struct ModuleRule {
  RuleType type = RuleType::kText;
  std::vector<std::string> globs;
  // False: later rules of the same type, the default ones included, do not apply.
  bool fallthrough = false;
};

// The behaviour of a Worker that does not say since when it is compatible: that of Cloudflare's first date.
inline constexpr std::string_view kCompatibilityDateDefault = "2021-11-02";

struct WorkerConfig {
  std::filesystem::path file;         // the configuration file; only its name after a pure parse
  std::filesystem::path project_dir;  // its folder; paths in the configuration start here
  std::string name;                   // [a-z0-9_][a-z0-9-_]*, at most 63
  std::string main;                   // relative to project_dir
  std::string compatibility_date;     // YYYY-MM-DD; empty = not given, kCompatibilityDateDefault is used
  std::vector<std::string> compatibility_flags;
  std::vector<DurableObjectBinding> durable_objects;
  std::vector<DurableObjectClass> classes;  // all that the migrations create, in their order
  std::vector<Var> vars;
  std::vector<ModuleRule> rules;  // the user's, then the default ones that still apply
  bool user_has_esm_rule = false;
  std::vector<std::pair<std::string, std::string>> define;
  std::vector<std::pair<std::string, std::string>> alias;
  std::string tsconfig;  // relative to project_dir; empty = the nearest tsconfig.json
  bool no_bundle = false;
  bool minify = false;
  bool keep_names = true;
  std::vector<std::string> crons;
  std::optional<uint16_t> dev_port;
  std::optional<std::string> dev_ip;

  bool has_compatibility_flag(std::string_view flag) const;
};

// The rules that apply when a project has none.
std::vector<ModuleRule> default_module_rules();

// `file` is for messages and is copied to the result.
Result<WorkerConfig> parse_wrangler_config(std::string_view text, ConfigFormat format,
                                           std::string_view file);

// Reads exactly this file. The format follows its extension: .toml, or .json and .jsonc.
Result<WorkerConfig> read_wrangler_config(const std::filesystem::path& file);

// The configuration file of a project, found as Wrangler finds it: wrangler.json, in `dir` or the
// nearest folder above; else wrangler.jsonc, in the same way; else wrangler.toml.
// kNotFound names the folder.
Result<std::filesystem::path> find_wrangler_config(const std::filesystem::path& dir);

// True when `text` can be the name of a binding or a class: an ASCII JavaScript identifier of at
// most 128 bytes.
bool is_binding_name(std::string_view text);

}  // namespace celld
