// The records of a deployment, as docs/formats/deployment.md describes them.
//
// Encoding and decoding are pure. A decoder accepts only what it understands completely: a newer
// schema or a feature it does not know is kUnsupported by name, anything else wrong is kCorrupt
// naming the key and the field. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "deploy/bundle.h"
#include "deploy/wrangler_config.h"

namespace celld {

inline constexpr int kDeploymentSchemaVersion = 1;
inline constexpr size_t kManifestBytesMax = 4 << 20;

// "deploy/current.json": which deployment the fleet runs.
struct DeploymentPointer {
  std::string script_name;
  std::string version;          // 16 hex digits: the first of manifest_hash
  std::string manifest_hash;    // content_hash() of the manifest's bytes
  bool operator==(const DeploymentPointer&) const = default;
};

struct DeployedClass {
  std::string class_name;
  ClassStorage storage = ClassStorage::kSqlite;
  std::string namespace_key;    // 64 hex digits: the HMAC key of the ids of this class
  bool operator==(const DeployedClass&) const = default;
};

struct DeployedBinding {
  std::string name;             // env.<name> is a Durable Object namespace over class_name
  std::string class_name;
  bool operator==(const DeployedBinding&) const = default;
};

struct DeployedModule {
  std::string name;
  BundledKind kind = BundledKind::kEsm;
  uint64_t bytes = 0;
  std::string hash;             // content_hash(), which is also its key
  bool operator==(const DeployedModule&) const = default;
};

// "deploy/<script>/<version>/manifest.json". Immutable: the version is the hash of its bytes.
struct DeploymentManifest {
  std::string script_name;
  std::string main_module;
  std::string compatibility_date;  // may be empty
  std::vector<std::string> compatibility_flags;
  std::vector<DeployedClass> classes;
  std::vector<DeployedBinding> bindings;
  std::vector<Var> vars;
  std::vector<std::string> crons;
  std::vector<DeployedModule> modules;  // sorted by name
  bool operator==(const DeploymentManifest&) const = default;

  const DeployedClass* find_class(std::string_view class_name) const;
};

// "deploy/classes.json": the namespace key of every class that was ever deployed to the bucket.
// Keys are adopted once and kept, whatever the Worker is called later.
struct ClassRegistry {
  struct Entry {
    std::string namespace_key;
    ClassStorage storage = ClassStorage::kSqlite;
    bool operator==(const Entry&) const = default;
  };
  std::map<std::string, Entry> classes;
  bool operator==(const ClassRegistry&) const = default;
};

// Where things are.
inline constexpr std::string_view kPointerKey = "deploy/current.json";
inline constexpr std::string_view kClassRegistryKey = "deploy/classes.json";
std::string manifest_key(std::string_view script_name, std::string_view version);
std::string module_blob_key(std::string_view hash);
// The version that a manifest with these bytes has.
std::string version_of_manifest(std::string_view manifest_hash);

// Features that this build knows; a manifest names those it needs.
inline constexpr std::string_view kFeatureCron = "cron-v1";
inline constexpr std::string_view kFeatureWasm = "wasm-v1";

// The same value always gives the same bytes.
std::string encode_pointer(const DeploymentPointer& pointer);
Result<DeploymentPointer> decode_pointer(std::string_view text);
std::string encode_manifest(const DeploymentManifest& manifest);
Result<DeploymentManifest> decode_manifest(std::string_view text, std::string_view key);
std::string encode_class_registry(const ClassRegistry& registry);
Result<ClassRegistry> decode_class_registry(std::string_view text);

// The key that a class gets when it is first deployed by this Worker; a fact of the two names, so
// that a fresh bucket gives the same ids: SHA-256 of "cells:v1:<bytes of script>:<script>:<Class>".
std::string first_namespace_key(std::string_view script_name, std::string_view class_name);

// `registry` with the classes of `config` added. kInvalid when a class that has SQLite storage is
// declared under new_classes now; the other direction is an upgrade and is taken over.
Result<ClassRegistry> adopt_classes(ClassRegistry registry, const WorkerConfig& config);

// The manifest of a bundle; `registry` has all classes of `config`.
DeploymentManifest make_manifest(const WorkerConfig& config, const Bundle& bundle,
                                 const ClassRegistry& registry);

}  // namespace celld
