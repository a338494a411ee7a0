#include "deploy/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/digest.h"

namespace celld {
namespace {

using ::testing::HasSubstr;

WorkerConfig config_of(std::string_view name, std::vector<DurableObjectClass> classes) {
  WorkerConfig config;
  config.file = "wrangler.jsonc";
  config.name = name;
  config.compatibility_date = "2026-01-31";
  config.classes = std::move(classes);
  for (const auto& c : config.classes) config.durable_objects.push_back({"B_" + c.class_name, c.class_name});
  config.vars = {{"TEXT", VarKind::kText, "a\"b"}, {"JSON", VarKind::kJson, "[1,{\"a\":null}]"}};
  config.crons = {"*/5 * * * *"};
  return config;
}

Bundle small_bundle() {
  Bundle bundle;
  bundle.main = "index.js";
  bundle.modules = {{"index.js", BundledKind::kEsm, Blob("export default {}")},
                    {"a.wasm", BundledKind::kWasm, Blob("wasm")}};
  return bundle;
}

DeploymentManifest small_manifest() {
  auto config = config_of("worker", {{"Counter", ClassStorage::kSqlite, "v1"},
                                     {"Old", ClassStorage::kKeyValue, "v1"}});
  return make_manifest(config, small_bundle(), adopt_classes({}, config).value());
}

TEST(Manifest, what_is_encoded_is_decoded) {
  auto manifest = small_manifest();
  auto text = encode_manifest(manifest);
  auto decoded = decode_manifest(text, "m");
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, manifest);
  EXPECT_EQ(encode_manifest(*decoded), text);
  EXPECT_EQ(decoded->modules[0].name, "a.wasm");
  EXPECT_EQ(decoded->find_class("Old")->storage, ClassStorage::kKeyValue);
}

TEST(Manifest, a_newer_schema_or_feature_is_refused_by_name) {
  auto text = encode_manifest(small_manifest());
  auto replaced = [&](std::string_view from, std::string_view to) {
    std::string out = text;
    out.replace(out.find(from), from.size(), to);
    return decode_manifest(out, "deploy/w/1/manifest.json").error();
  };
  auto schema = replaced("\"schema_version\":1", "\"schema_version\":2");
  EXPECT_EQ(schema.code, ErrorCode::kUnsupported);
  EXPECT_THAT(schema.message, HasSubstr("deploy/w/1/manifest.json"));
  EXPECT_THAT(schema.message, HasSubstr("schema version 2"));
  auto feature = replaced("\"cron-v1\"", "\"teleport-v1\"");
  EXPECT_EQ(feature.code, ErrorCode::kUnsupported);
  EXPECT_THAT(feature.message, HasSubstr("'teleport-v1'"));
}

TEST(Manifest, contradictions_are_found) {
  auto broken = [](auto change) {
    auto m = small_manifest();
    change(m);
    auto decoded = decode_manifest(encode_manifest(m), "key");
    EXPECT_FALSE(decoded);
    return decoded ? "" : decoded.error().message;
  };
  EXPECT_THAT(broken([](auto& m) { m.main_module = "no.js"; }), HasSubstr("key: has no JavaScript module 'no.js'"));
  EXPECT_THAT(broken([](auto& m) { m.modules.push_back(m.modules[0]); }), HasSubstr("repeats module"));
  EXPECT_THAT(broken([](auto& m) { m.bindings[0].class_name = "X"; }), HasSubstr("unknown class 'X'"));
  EXPECT_THAT(broken([](auto& m) { m.vars[1].value = "{"; }), HasSubstr("'JSON' is not JSON"));
  EXPECT_THAT(broken([](auto& m) { m.crons[0] = "x"; }), HasSubstr("malformed cron"));
  EXPECT_THAT(broken([](auto& m) { m.modules[0].hash = "00"; }), HasSubstr("modules[0].sha256"));
  EXPECT_THAT(broken([](auto& m) { m.script_name = "../x"; }), HasSubstr("script_name"));
  EXPECT_FALSE(decode_manifest("", "key"));
  EXPECT_FALSE(decode_manifest("{}", "key"));
}

TEST(Manifest, pointer_and_registry_survive_the_trip) {
  DeploymentPointer pointer;
  pointer.script_name = "worker";
  pointer.manifest_hash = content_hash("x");
  pointer.version = version_of_manifest(pointer.manifest_hash);
  EXPECT_EQ(decode_pointer(encode_pointer(pointer)).value(), pointer);
  pointer.version[0] = pointer.version[0] == '0' ? '1' : '0';
  EXPECT_EQ(decode_pointer(encode_pointer(pointer)).error().code, ErrorCode::kCorrupt);

  auto registry = adopt_classes({}, config_of("w", {{"A", ClassStorage::kSqlite, "v1"}})).value();
  EXPECT_EQ(decode_class_registry(encode_class_registry(registry)).value(), registry);
}

// OBJ-14: script rename changes all ids, old data unreachable.
TEST(Manifest, the_namespace_key_of_a_class_outlives_a_rename_of_the_script) {
  DurableObjectClass counter{"Counter", ClassStorage::kSqlite, "v1"};
  auto first = adopt_classes({}, config_of("old-name", {counter})).value();
  auto second = adopt_classes(first, config_of("new-name", {counter, {"Extra", ClassStorage::kSqlite, "v2"}})).value();
  EXPECT_EQ(second.classes["Counter"], first.classes["Counter"]);
  EXPECT_NE(second.classes["Extra"].namespace_key, second.classes["Counter"].namespace_key);
  EXPECT_NE(first_namespace_key("new-name", "Counter"), first.classes["Counter"].namespace_key);
}

TEST(Manifest, a_class_does_not_lose_its_sqlite_storage) {
  auto first = adopt_classes({}, config_of("w", {{"A", ClassStorage::kSqlite, "v1"}})).value();
  auto second = adopt_classes(first, config_of("w", {{"A", ClassStorage::kKeyValue, "v1"}}));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("class 'A'"));
}

TEST(Manifest, ids_of_a_fresh_bucket_depend_only_on_the_names) {
  // Text and hash as in the facts about existing deployments of celld.
  EXPECT_EQ(first_namespace_key("chat", "Room"), content_hash("cells:v1:4:chat:Room"));
}

}  // namespace
}  // namespace celld
