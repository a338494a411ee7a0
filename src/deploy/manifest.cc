#include "deploy/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "base/check.h"
#include "base/json.h"
#include "deploy/cron.h"
#include "deploy/digest.h"

namespace celld {
namespace {

namespace json = boost::json;

constexpr size_t kSmallRecordBytesMax = 64 << 10;
constexpr size_t kRegistryBytesMax = 1 << 20;
constexpr size_t kNameBytesMax = 255;
constexpr size_t kModuleNameBytesMax = 1024;
constexpr size_t kCountMax = 1000;
constexpr size_t kVersionDigits = 16;
constexpr size_t kClassNameBytesMax = 128;

json::array to_array(const std::vector<std::string>& texts) {
  json::array out;
  for (const auto& t : texts) out.emplace_back(t);
  return out;
}

std::string_view to_string(ClassStorage storage) {
  return storage == ClassStorage::kSqlite ? "sqlite" : "key_value";
}

ClassStorage storage_field(JsonFields& f) {
  std::string text = f.text("storage", kNameBytesMax);
  if (text != "sqlite" && text != "key_value") f.reject("storage", "is not sqlite or key_value");
  return text == "key_value" ? ClassStorage::kKeyValue : ClassStorage::kSqlite;
}

std::string hash_field(JsonFields& f, std::string_view name) {
  std::string text = f.text(name, 64);
  if (!is_content_hash(text)) f.reject(name, "is not 64 hex digits");
  return text;
}

std::string identifier_field(JsonFields& f, std::string_view name) {
  std::string text = f.text(name, kClassNameBytesMax);
  if (!is_binding_name(text)) f.reject(name, "is not a JavaScript identifier");
  return text;
}

// A name that becomes a part of a key.
std::string script_field(JsonFields& f) {
  std::string text = f.text("script_name", kNameBytesMax);
  bool ok = !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (!ok) f.reject("script_name", "is not the name of a Worker");
  return text;
}

// A newer schema or an unknown feature, before anything else is looked at.
Result<void> check_understood(JsonFields& f, std::string_view key) {
  uint64_t schema = f.number("schema_version", 1, UINT64_MAX);
  auto features = f.texts_or_empty("required_features", kCountMax, kNameBytesMax);
  TRY(f.done());
  if (schema > kDeploymentSchemaVersion) {
    return fail(Error::unsupported(
        fmt::format("{}: has schema version {}, this celld knows {} and older: upgrade celld", key,
                    schema, kDeploymentSchemaVersion)));
  }
  for (const auto& feature : features) {
    if (feature != kFeatureCron && feature != kFeatureWasm) {
      return fail(Error::unsupported(
          fmt::format("{}: needs the feature '{}', which this celld does not know: upgrade celld",
                      key, feature)));
    }
  }
  return {};
}

// What a manifest says must fit together.
Result<void> check_consistent(const DeploymentManifest& m, std::string_view key) {
  auto corrupt = [&](std::string what) {
    return fail(Error::corrupt(fmt::format("{}: {}", key, what)));
  };
  std::set<std::string_view> names;
  bool has_main = false;
  for (const auto& module : m.modules) {
    if (!names.insert(module.name).second) return corrupt("repeats module '" + module.name + "'");
    has_main |= module.name == m.main_module && module.kind == BundledKind::kEsm;
  }
  if (!has_main) return corrupt("has no JavaScript module '" + m.main_module + "', its main module");
  for (const auto& b : m.bindings) {
    if (!m.find_class(b.class_name)) return corrupt("binds the unknown class '" + b.class_name + "'");
  }
  for (const auto& var : m.vars) {
    json::error_code ec;
    if (var.kind == VarKind::kJson) json::parse(var.value, ec);
    if (ec) return corrupt("var '" + var.name + "' is not JSON");
  }
  for (const auto& cron : m.crons) {
    if (!CronSchedule::parse(cron)) return corrupt("has the malformed cron expression '" + cron + "'");
  }
  return {};
}

}  // namespace

const DeployedClass* DeploymentManifest::find_class(std::string_view class_name) const {
  auto it = std::ranges::find(classes, class_name, &DeployedClass::class_name);
  return it == classes.end() ? nullptr : &*it;
}

std::string manifest_key(std::string_view script_name, std::string_view version) {
  return fmt::format("deploy/{}/{}/manifest.json", script_name, version);
}

std::string module_blob_key(std::string_view hash) {
  CHECK(is_content_hash(hash)) << hash;
  return fmt::format("deploy-blobs/sha256/{}/{}", hash.substr(0, 2), hash);
}

std::string version_of_manifest(std::string_view manifest_hash) {
  CHECK(is_content_hash(manifest_hash)) << manifest_hash;
  return std::string(manifest_hash.substr(0, kVersionDigits));
}

std::string encode_pointer(const DeploymentPointer& pointer) {
  json::object out;
  out["schema_version"] = kDeploymentSchemaVersion;
  out["script_name"] = pointer.script_name;
  out["version"] = pointer.version;
  out["manifest_sha256"] = pointer.manifest_hash;
  return json::serialize(out);
}

Result<DeploymentPointer> decode_pointer(std::string_view text) {
  auto document = JsonDocument::parse(text, kPointerKey, ErrorCode::kCorrupt,
                                      JsonLimits{.bytes_max = kSmallRecordBytesMax});
  if (!document) return fail(std::move(document).error());
  JsonFields f = document->fields();
  TRY(check_understood(f, kPointerKey));
  DeploymentPointer out;
  out.script_name = script_field(f);
  out.manifest_hash = hash_field(f, "manifest_sha256");
  out.version = f.text("version", kVersionDigits);
  TRY(f.done());
  if (out.version != version_of_manifest(out.manifest_hash)) {
    return fail(Error::corrupt(
        fmt::format("{}: version and manifest_sha256 do not belong together", kPointerKey)));
  }
  return out;
}

std::string encode_manifest(const DeploymentManifest& manifest) {
  bool has_wasm = std::ranges::any_of(
      manifest.modules, [](const DeployedModule& m) { return m.kind == BundledKind::kWasm; });
  json::array features, classes, bindings, vars, modules;
  if (!manifest.crons.empty()) features.emplace_back(kFeatureCron);
  if (has_wasm) features.emplace_back(kFeatureWasm);
  for (const auto& c : manifest.classes) {
    classes.push_back(json::object{{"class_name", c.class_name},
                                   {"storage", to_string(c.storage)},
                                   {"namespace_key", c.namespace_key}});
  }
  for (const auto& b : manifest.bindings) {
    bindings.push_back(json::object{
        {"type", "durable_object_namespace"}, {"name", b.name}, {"class_name", b.class_name}});
  }
  for (const auto& v : manifest.vars) {
    vars.push_back(json::object{
        {"name", v.name}, {"kind", v.kind == VarKind::kJson ? "json" : "text"}, {"value", v.value}});
  }
  for (const auto& m : manifest.modules) {
    modules.push_back(json::object{{"name", m.name},
                                   {"kind", to_string(m.kind)},
                                   {"bytes", m.bytes},
                                   {"sha256", m.hash}});
  }
  json::object out;
  out["schema_version"] = kDeploymentSchemaVersion;
  out["required_features"] = std::move(features);
  out["script_name"] = manifest.script_name;
  out["main_module"] = manifest.main_module;
  out["compatibility_date"] = manifest.compatibility_date;
  out["compatibility_flags"] = to_array(manifest.compatibility_flags);
  out["do_classes"] = std::move(classes);
  out["bindings"] = std::move(bindings);
  out["vars"] = std::move(vars);
  out["crons"] = to_array(manifest.crons);
  out["modules"] = std::move(modules);
  return json::serialize(out);
}

Result<DeploymentManifest> decode_manifest(std::string_view text, std::string_view key) {
  auto document = JsonDocument::parse(text, key, ErrorCode::kCorrupt,
                                      JsonLimits{.bytes_max = kManifestBytesMax});
  if (!document) return fail(std::move(document).error());
  JsonFields f = document->fields();
  TRY(check_understood(f, key));
  DeploymentManifest out;
  out.script_name = script_field(f);
  out.main_module = f.text("main_module", kModuleNameBytesMax);
  out.compatibility_date = f.text("compatibility_date", kNameBytesMax);
  out.compatibility_flags = f.texts_or_empty("compatibility_flags", kCountMax, kNameBytesMax);
  out.crons = f.texts_or_empty("crons", kCountMax, kNameBytesMax + 1);
  f.each("do_classes", kCountMax, [&](JsonFields& c) {
    DeployedClass entry;
    entry.class_name = identifier_field(c, "class_name");
    entry.storage = storage_field(c);
    entry.namespace_key = hash_field(c, "namespace_key");
    out.classes.push_back(std::move(entry));
  });
  f.each("bindings", kCountMax, [&](JsonFields& b) {
    if (b.text("type", kNameBytesMax) != "durable_object_namespace") {
      b.reject("type", "is a kind of binding that this celld does not know");
    }
    DeployedBinding entry;
    entry.name = identifier_field(b, "name");
    entry.class_name = identifier_field(b, "class_name");
    out.bindings.push_back(std::move(entry));
  });
  f.each("vars", kCountMax, [&](JsonFields& v) {
    Var var;
    var.name = identifier_field(v, "name");
    std::string kind = v.text("kind", kNameBytesMax);
    if (kind != "text" && kind != "json") v.reject("kind", "is not text or json");
    var.kind = kind == "json" ? VarKind::kJson : VarKind::kText;
    var.value = v.text("value", kManifestBytesMax);
    out.vars.push_back(std::move(var));
  });
  f.each("modules", kBundleModulesMax, [&](JsonFields& m) {
    DeployedModule module;
    module.name = m.text("name", kModuleNameBytesMax);
    auto kind = parse_bundled_kind(m.text("kind", kNameBytesMax));
    if (!kind) m.reject("kind", "is a kind of module that this celld does not know");
    module.kind = kind.value_or(BundledKind::kEsm);
    module.bytes = m.number("bytes", 0, kBundleBytesMax);
    module.hash = hash_field(m, "sha256");
    out.modules.push_back(std::move(module));
  });
  TRY(f.done());
  TRY(check_consistent(out, key));
  return out;
}

std::string encode_class_registry(const ClassRegistry& registry) {
  json::array classes;
  for (const auto& [name, entry] : registry.classes) {
    classes.push_back(json::object{{"class_name", name},
                                   {"namespace_key", entry.namespace_key},
                                   {"storage", to_string(entry.storage)}});
  }
  json::object out;
  out["schema_version"] = kDeploymentSchemaVersion;
  out["classes"] = std::move(classes);
  return json::serialize(out);
}

Result<ClassRegistry> decode_class_registry(std::string_view text) {
  auto document = JsonDocument::parse(text, kClassRegistryKey, ErrorCode::kCorrupt,
                                      JsonLimits{.bytes_max = kRegistryBytesMax});
  if (!document) return fail(std::move(document).error());
  JsonFields f = document->fields();
  TRY(check_understood(f, kClassRegistryKey));
  ClassRegistry out;
  f.each("classes", kCountMax, [&](JsonFields& c) {
    ClassRegistry::Entry entry;
    std::string name = identifier_field(c, "class_name");
    entry.namespace_key = hash_field(c, "namespace_key");
    entry.storage = storage_field(c);
    if (!out.classes.emplace(std::move(name), std::move(entry)).second) {
      c.reject("class_name", "is repeated");
    }
  });
  TRY(f.done());
  return out;
}

std::string first_namespace_key(std::string_view script_name, std::string_view class_name) {
  return content_hash(
      fmt::format("cells:v1:{}:{}:{}", script_name.size(), script_name, class_name));
}

Result<ClassRegistry> adopt_classes(ClassRegistry registry, const WorkerConfig& config) {
  for (const auto& c : config.classes) {
    auto [it, added] = registry.classes.try_emplace(c.class_name);
    if (added) {
      it->second = {first_namespace_key(config.name, c.class_name), c.storage};
      continue;
    }
    if (it->second.storage == ClassStorage::kSqlite && c.storage == ClassStorage::kKeyValue) {
      return fail(Error::invalid(fmt::format(
          "{}: class '{}' is under new_classes, but it is deployed with SQLite storage: put it back "
          "under new_sqlite_classes", config.file.filename().string(), c.class_name)));
    }
    it->second.storage = c.storage;
  }
  return registry;
}

DeploymentManifest make_manifest(const WorkerConfig& config, const Bundle& bundle,
                                 const ClassRegistry& registry) {
  DeploymentManifest out;
  out.script_name = config.name;
  out.main_module = bundle.main;
  out.compatibility_date =
      config.compatibility_date.empty() ? std::string(kCompatibilityDateDefault) : config.compatibility_date;
  out.compatibility_flags = config.compatibility_flags;
  for (const auto& c : config.classes) {
    auto entry = registry.classes.find(c.class_name);
    CHECK(entry != registry.classes.end()) << c.class_name;
    out.classes.push_back({c.class_name, c.storage, entry->second.namespace_key});
  }
  for (const auto& b : config.durable_objects) out.bindings.push_back({b.name, b.class_name});
  out.vars = config.vars;
  out.crons = config.crons;
  for (const auto& m : bundle.modules) {
    out.modules.push_back({m.name, m.kind, m.content.size(), content_hash(m.content.view())});
  }
  std::ranges::sort(out.modules, {}, &DeployedModule::name);
  return out;
}

}  // namespace celld
