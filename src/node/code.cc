#include "node/code.h"

#include <boost/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "deploy/source_map.h"

namespace celld {

namespace {

js::CodeModule::Kind kind_of(BundledKind kind) {
  switch (kind) {
    case BundledKind::kText: return js::CodeModule::Kind::kText;
    case BundledKind::kData: return js::CodeModule::Kind::kData;
    case BundledKind::kWasm: return js::CodeModule::Kind::kWasm;
    default: return js::CodeModule::Kind::kEsm;
  }
}

std::optional<std::string> from_hex(std::string_view hex) {
  std::string bytes;
  if (hex.size() % 2) return std::nullopt;
  auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (size_t i = 0; i < hex.size(); i += 2) {
    int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace

Result<std::shared_ptr<const js::WorkerCode>> worker_code(LoadedDeployment deployment) {
  auto code = std::make_shared<js::WorkerCode>();
  DeploymentManifest& manifest = deployment.manifest;
  code->version = deployment.version;
  code->script_name = manifest.script_name;
  code->main = manifest.main_module;
  code->compatibility_date = manifest.compatibility_date;
  code->compatibility_flags = manifest.compatibility_flags;

  boost::json::object vars;
  for (const Var& var : manifest.vars) {
    if (var.kind == VarKind::kText) {
      vars[var.name] = var.value;
      continue;
    }
    boost::system::error_code ec;
    boost::json::value value = boost::json::parse(var.value, ec);
    if (ec) return fail(Error::corrupt("deployment " + deployment.version + ": the var " + var.name + " is not JSON"));
    vars[var.name] = std::move(value);
  }
  code->vars_json = boost::json::serialize(vars);

  for (const DeployedBinding& binding : manifest.bindings) {
    const DeployedClass* bound = manifest.find_class(binding.class_name);
    std::optional<std::string> key = bound ? from_hex(bound->namespace_key) : std::nullopt;
    if (!key) {
      return fail(Error::corrupt("deployment " + deployment.version + ": the binding " + binding.name +
                                 " has no class with a key"));
    }
    code->namespaces.push_back(js::NamespaceSpec{binding.name, binding.class_name, std::move(*key),
                                                 bound->storage == ClassStorage::kSqlite});
  }

  auto maps = std::make_shared<SourceMaps>();
  for (BundledModule& m : deployment.modules) {
    if (m.kind == BundledKind::kSourceMap) {
      std::string module = m.name.substr(0, m.name.size() - std::string_view(".map").size());
      // Stacks of a module whose map is unreadable stay as they are.
      if (auto map = SourceMap::parse(m.content.view())) {
        maps->emplace(module, std::make_shared<const SourceMap>(std::move(*map)));
      }
      continue;
    }
    code->modules.push_back(js::CodeModule{m.name, kind_of(m.kind), std::move(m.content)});
  }
  if (!maps->empty()) {
    code->remap_stack = [maps](std::string_view stack) { return remap_stack(stack, *maps); };
  }
  return code;
}

std::shared_ptr<const js::WorkerCode> code_that_fails(const js::WorkerCode& like, const std::string& message) {
  auto code = std::make_shared<js::WorkerCode>(like);
  std::string text = "import { DurableObject } from \"cloudflare:workers\";\n"
                     "const fail = () => { throw new Error(" + boost::json::serialize(boost::json::value(message)) +
                     "); };\n"
                     "class Fails extends DurableObject { constructor(ctx, env) { super(ctx, env); fail(); } }\n"
                     "export default { fetch: fail, scheduled: fail };\n";
  std::unordered_set<std::string> exported;
  for (const js::NamespaceSpec& ns : like.namespaces) {
    if (exported.insert(ns.class_name).second) text += "export { Fails as " + ns.class_name + " };\n";
  }
  code->modules = {js::CodeModule{code->main, js::CodeModule::Kind::kEsm, Blob(std::move(text))}};
  code->remap_stack = {};
  return code;
}

}  // namespace celld
