#include "deploy/wrangler_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace celld {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

Result<WorkerConfig> jsonc(std::string_view text) {
  return parse_wrangler_config(text, ConfigFormat::kJsonc, "wrangler.jsonc");
}
Result<WorkerConfig> toml(std::string_view text) {
  return parse_wrangler_config(text, ConfigFormat::kToml, "wrangler.toml");
}
std::string error_of(const Result<WorkerConfig>& r) { return r ? "no error" : r.error().message; }

// A folder that is gone at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (fs::temp_directory_path() / "celld-config-XXXXXX").string();
    path_ = fs::canonical(mkdtemp(pattern.data()));
  }
  ~TempDir() { fs::remove_all(path_); }
  fs::path operator/(std::string_view name) const { return path_ / name; }
  void write(std::string_view name, std::string_view text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  fs::path path_;
};

constexpr std::string_view kFull = R"(// a Worker
{
  "$schema": "node_modules/wrangler/config-schema.json",
  "name": "counter", /* the name */
  "main": "./src/index.ts",
  "compatibility_date": "2026-01-31",
  "compatibility_flags": ["nodejs_compat"],
  "durable_objects": { "bindings": [
    { "name": "COUNTER", "class_name": "Counter" },
    { "name": "OLD", "class_name": "Old", "script_name": "counter" },
  ] },
  "migrations": [
    { "tag": "v1", "new_sqlite_classes": ["Counter"] },
    { "tag": "v2", "new_classes": ["Old"] },
  ],
  "vars": { "GREETING": "hi", "LIMITS": { "a": [1, 2.5, null] }, "DEBUG": true },
  "rules": [{ "type": "Text", "globs": ["**/*.md"], "fallthrough": true }],
  "define": { "VERSION": "\"1\"" },
  "alias": { "lodash": "./lodash.ts" },
  "triggers": { "crons": ["*/5 * * * *"] },
  "observability": { "enabled": true },
  "dev": { "port": 9000, "ip": "0.0.0.0" },
}
// the end
)";

TEST(WranglerConfig, reads_every_supported_key) {
  auto config = jsonc(kFull);
  ASSERT_TRUE(config) << error_of(config);
  EXPECT_EQ(config->name, "counter");
  EXPECT_EQ(config->main, "src/index.ts");
  EXPECT_EQ(config->compatibility_date, "2026-01-31");
  EXPECT_TRUE(config->has_compatibility_flag("nodejs_compat"));
  ASSERT_EQ(config->durable_objects.size(), 2u);
  EXPECT_EQ(config->durable_objects[1].class_name, "Old");
  ASSERT_EQ(config->classes.size(), 2u);
  EXPECT_EQ(config->classes[0].storage, ClassStorage::kSqlite);
  EXPECT_EQ(config->classes[1].storage, ClassStorage::kKeyValue);
  EXPECT_EQ(config->classes[1].migration_tag, "v2");
  std::vector<Var> vars = {{"GREETING", VarKind::kText, "hi"},
                           {"LIMITS", VarKind::kJson, R"({"a":[1,2.5E0,null]})"},
                           {"DEBUG", VarKind::kJson, "true"}};
  EXPECT_EQ(config->vars, vars);
  ASSERT_EQ(config->rules.size(), 4u) << "a rule with fallthrough keeps the default ones";
  EXPECT_EQ(config->define[0].second, "\"1\"");
  EXPECT_EQ(config->crons[0], "*/5 * * * *");
  EXPECT_EQ(config->dev_port, 9000);
  EXPECT_EQ(config->dev_ip, "0.0.0.0");
}

TEST(WranglerConfig, toml_says_the_same_as_jsonc) {
  auto config = toml(R"(
name = "counter"
main = "src/index.ts"
compatibility_date = "2026-01-31"
[vars]
GREETING = "hi"
LIMITS = { a = [1, 2.5] }
[[durable_objects.bindings]]
name = "COUNTER"
class_name = "Counter"
[[migrations]]
tag = "v1"
new_sqlite_classes = ["Counter"]
[[rules]]
type = "Data"
globs = ["**/*.dat"]
)");
  ASSERT_TRUE(config) << error_of(config);
  EXPECT_EQ(config->durable_objects[0].name, "COUNTER");
  EXPECT_EQ(config->classes[0].class_name, "Counter");
  EXPECT_EQ(config->vars[1].value, R"({"a":[1,2.5E0]})");
  // A Data rule without fallthrough ends the default Data rule, and only that.
  ASSERT_EQ(config->rules.size(), 3u);
  EXPECT_EQ(config->rules[0].globs[0], "**/*.dat");
}

TEST(WranglerConfig, a_key_that_is_not_supported_is_named_with_file_and_line) {
  EXPECT_EQ(error_of(jsonc("{\n\"name\": \"a\", \"main\": \"a.js\",\n\"kv_namespaces\": []\n}")),
            "wrangler.jsonc:3: key 'kv_namespaces' is not supported yet");
  EXPECT_EQ(error_of(toml("name = 'a'\nmain = 'a.js'\n[[d1_databases]]\nbinding = 'DB'\n")),
            "wrangler.toml:3: key 'd1_databases' is not supported yet");
  auto unsupported = jsonc(R"({"name": "a", "main": "a.js", "queues": {}})");
  EXPECT_EQ(unsupported.error().code, ErrorCode::kUnsupported);
}

TEST(WranglerConfig, nested_keys_are_named_by_their_path) {
  EXPECT_EQ(error_of(jsonc(R"({"name": "a", "main": "a.js",
      "migrations": [{"tag": "v1", "renamed_classes": []}]})")),
            "wrangler.jsonc:2: key 'migrations[0].renamed_classes' is not supported yet");
  EXPECT_THAT(error_of(jsonc(R"({"name": "a", "main": "a.js", "triggers": {"cron": []}})")),
              HasSubstr("'triggers.cron'"));
  EXPECT_THAT(error_of(jsonc(R"({"name": "a", "main": "a.js", "dev": {"host": "x"}})")),
              HasSubstr("'dev.host'"));
}

TEST(WranglerConfig, all_faults_are_shown_at_once) {
  auto message = error_of(jsonc(R"({"name": "A B", "main": "a.js", "env": {}, "vars": {"x-y": ""}})"));
  EXPECT_THAT(message, HasSubstr("key 'env'"));
  EXPECT_THAT(message, HasSubstr("key 'name'"));
  EXPECT_THAT(message, HasSubstr("key 'vars.x-y'"));
}

TEST(WranglerConfig, a_typing_error_is_met_with_a_suggestion) {
  EXPECT_THAT(error_of(jsonc(R"({"name": "a", "mian": "a.js", "main": "b.js"})")),
              HasSubstr("did you mean 'main'?"));
}

TEST(WranglerConfig, a_bound_class_needs_a_migration) {
  auto message = error_of(jsonc(R"({"name": "a", "main": "a.js",
    "durable_objects": {"bindings": [{"name": "C", "class_name": "Counter"}]}})"));
  EXPECT_THAT(message, HasSubstr("no migration creates it"));
  EXPECT_THAT(message, HasSubstr(R"("new_sqlite_classes": ["Counter"])"));
}

TEST(WranglerConfig, a_class_of_another_worker_is_refused_by_name) {
  auto message = error_of(jsonc(R"({"name": "a", "main": "a.js",
    "durable_objects": {"bindings": [{"name": "C", "class_name": "K", "script_name": "other"}]}})"));
  EXPECT_THAT(message, HasSubstr("script_name"));
  EXPECT_THAT(message, HasSubstr("'other'"));
}

TEST(WranglerConfig, malformed_text_is_located) {
  EXPECT_THAT(error_of(jsonc("{\n  \"name\": oops\n}")), HasSubstr("wrangler.jsonc:2: not valid JSON"));
  EXPECT_THAT(error_of(jsonc("{} x")), HasSubstr("unexpected text"));
  EXPECT_THAT(error_of(jsonc("{")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(jsonc("")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(jsonc("[]")), HasSubstr("one JSON object"));
  EXPECT_THAT(error_of(toml("name = 'a'\nname = 'b'")), HasSubstr("wrangler.toml:2: not valid TOML"));
  EXPECT_THAT(error_of(toml("name = 1979-05-27")), HasSubstr("cannot express"));
}

// The symptom was a binding that was silently not there.
TEST(WranglerConfig, a_key_that_is_there_twice_is_named) {
  EXPECT_THAT(error_of(jsonc("{\n  \"name\": \"a\",\n  // again\n  \"name\": \"b\"\n}")),
              HasSubstr("wrangler.jsonc:4: key 'name' is there twice, first in line 2"));
  EXPECT_THAT(error_of(jsonc("{\"name\": \"a\", \"vars\": {\"X\": [\n"
                             "{\"y\": 1,\n\"z\": {\"y\": 1},\n\"\\u0079\": 2}]}}")),
              HasSubstr("wrangler.jsonc:4: key 'y' of 'vars.X[0]' is there twice, first in line 2"));
  EXPECT_THAT(error_of(jsonc(R"({"main": "a.js", "vars": {"a.b": 1, "a": {"b": 2}}})")),
              HasSubstr("key 'name' is missing"));
}

TEST(WranglerConfig, wrong_values_say_what_is_wanted) {
  auto with = [](std::string_view member) {
    return error_of(jsonc(R"({"name": "a", "main": "a.js", )" + std::string(member) + "}"));
  };
  EXPECT_THAT(with(R"("compatibility_date": "2026-02-30")"), HasSubstr("must be a date"));
  EXPECT_THAT(with(R"("no_bundle": "yes")"), HasSubstr("true or false"));
  EXPECT_THAT(with(R"("rules": [{"type": "PythonModule", "globs": ["*"]}])"),
              HasSubstr("'PythonModule'"));
  EXPECT_THAT(with(R"("triggers": {"crons": ["* * * *"]})"), HasSubstr("4 fields"));
  EXPECT_THAT(with(R"("triggers": {"crons": ["61 * * * *"]})"), HasSubstr("minute field"));
  EXPECT_THAT(with(R"("define": {"A": 1})"), HasSubstr("'define.A' must be a string"));
  EXPECT_THAT(with(R"("vars": {"A": 1, "B": 2}, "durable_objects": {"bindings": [
      {"name": "A", "class_name": "C"}]}, "migrations": [{"tag": "1", "new_classes": ["C"]}])"),
              HasSubstr("repeats 'A'"));
  EXPECT_THAT(error_of(jsonc(R"({"name": "a", "main": "../a.js"})")), HasSubstr("inside the project"));
  EXPECT_THAT(error_of(jsonc("{}")), HasSubstr("key 'name' is missing"));
}

TEST(WranglerConfig, migrations_may_not_repeat_a_tag_or_a_class) {
  auto message = error_of(jsonc(R"({"name": "a", "main": "a.js", "migrations": [
    {"tag": "v1", "new_classes": ["C"]}, {"tag": "v1", "new_sqlite_classes": ["C"]}]})"));
  EXPECT_THAT(message, HasSubstr("repeats the tag 'v1'"));
  EXPECT_THAT(message, HasSubstr("creates class 'C' a second time"));
}

TEST(WranglerConfig, the_file_is_found_in_the_folder_or_above) {
  TempDir dir;
  dir.write("wrangler.toml", "");
  dir.write("a/b/x.txt", "");
  EXPECT_EQ(find_wrangler_config(dir / "a/b").value(), dir / "wrangler.toml");
  dir.write("wrangler.jsonc", "");
  EXPECT_EQ(find_wrangler_config(dir / "a/b").value(), dir / "wrangler.jsonc");
  dir.write("wrangler.json", "");
  EXPECT_EQ(find_wrangler_config(dir / "a/b").value(), dir / "wrangler.json");
}

TEST(WranglerConfig, a_folder_without_a_file_is_named) {
  TempDir dir;
  dir.write("a/x.txt", "");
  auto missing = find_wrangler_config(dir / "a");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr((dir / "a").string()));
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_wrangler_config(dir / "wrangler.json").error().code, ErrorCode::kNotFound);
}

TEST(WranglerConfig, the_file_read_and_its_folder_are_reported) {
  TempDir dir;
  dir.write("deep/wrangler.jsonc", R"({"name": "a", "main": "a.js"})");
  auto config = read_wrangler_config(dir / "deep/wrangler.jsonc");
  ASSERT_TRUE(config) << error_of(config);
  EXPECT_EQ(config->file, dir / "deep/wrangler.jsonc");
  EXPECT_EQ(config->project_dir, dir / "deep");
}

}  // namespace
}  // namespace celld
