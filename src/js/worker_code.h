// One deployment, as isolates load it. Immutable; shared by all threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/blob.h"

namespace celld::js {

struct CodeModule {
  enum class Kind : uint8_t { kEsm, kText, kData, kWasm };
  std::string name;  // as the import specifier resolves: "worker.js", "lib/x.js", "a.txt"
  Kind kind = Kind::kEsm;
  Blob content;
};

// A Durable Object class that the environment binds.
struct NamespaceSpec {
  std::string binding;
  std::string class_name;
  std::string key;  // 32 secret bytes that ids are derived from; never changes for a class
  bool sql = true;  // false: declared with new_classes, ctx.storage.sql is refused
};

struct WorkerCode {
  std::string version;
  std::string script_name;
  std::vector<CodeModule> modules;
  std::string main;       // name of the main module
  std::string vars_json;  // a JSON object
  std::vector<NamespaceSpec> namespaces;
  std::string compatibility_date;
  std::vector<std::string> compatibility_flags;
  // Rewrites the positions of a V8 stack to the sources; may be empty. Any thread.
  std::function<std::string(std::string_view)> remap_stack;
};

}  // namespace celld::js
