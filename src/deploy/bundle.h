// From a project's sources to the modules that a node loads.
//
// Code is bundled by esbuild, run as a program of its own, with the options that Wrangler gives it,
// lowered to ES2022. Files that match a module rule (text, data, WebAssembly) stay modules beside the
// bundle and are imported by it as "./<name>". Blocks for as long as esbuild runs (tens of
// milliseconds, see Bundle::took), so call it away from threads that must answer. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/blob.h"
#include "base/result.h"
#include "deploy/wrangler_config.h"

namespace celld {

enum class BundledKind : uint8_t {
  kEsm,        // JavaScript, an ES module
  kText,       // default export: a string
  kData,       // default export: an ArrayBuffer
  kWasm,       // default export: a compiled WebAssembly.Module
  kSourceMap,  // "<module>.map": version 3, for the module of that name; not importable
};

// "esm", "text", "data", "wasm", "sourcemap".
std::string_view to_string(BundledKind kind);
std::optional<BundledKind> parse_bundled_kind(std::string_view text);

struct BundledModule {
  std::string name;  // relative, '/' between its parts; imports are "./<name>" or relative to the importer
  BundledKind kind = BundledKind::kEsm;
  Blob content;
};

struct Bundle {
  std::vector<BundledModule> modules;  // sorted by name
  std::string main;             // the name of the module to start with
  // What the main module exports; absent when it was taken as it is (no_bundle).
  std::optional<std::vector<std::string>> exports;
  std::string warnings;         // of esbuild, for a person; may be empty
  std::chrono::milliseconds took{0};
};

inline constexpr size_t kBundleBytesMax = 64 << 20;    // of all modules together
inline constexpr size_t kBundleModulesMax = 2'000;

enum class BundleMode : uint8_t {
  kDevelopment,
  kProduction,
};  // process.env.NODE_ENV

struct BundleOptions {
  BundleMode mode = BundleMode::kProduction;
  std::filesystem::path esbuild;  // empty: find_esbuild()
  std::chrono::milliseconds timeout{60'000};
};

// The program: $CELLD_ESBUILD, else `esbuild` beside this executable, else that of the source tree
// this was built in, else the first on $PATH. kNotFound says where it was looked for.
Result<std::filesystem::path> find_esbuild();

// Errors of the user's code (kInvalid) are esbuild's own text with file, line and column. Also
// kInvalid: a class of the configuration that the main module does not export, a bundle beyond the
// limits, a rule that cannot be applied.
Result<Bundle> bundle_project(const WorkerConfig& config, const BundleOptions& options);

}  // namespace celld
