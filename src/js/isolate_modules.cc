// Loading a deployment: ES modules, text, data, WebAssembly, and the built-in modules.
#include <unordered_map>

#include "base/check.h"
#include "js/isolate_internal.h"
#include "js/tenure.h"

namespace celld::js {

namespace {

// "./x.js" seen from "lib/main.js" is "lib/x.js"; other specifiers stand for themselves.
std::string resolve_specifier(const std::string& specifier, const std::string& referrer) {
  if (!specifier.starts_with("./") && !specifier.starts_with("../")) return specifier;
  std::vector<std::string> parts;
  auto add = [&](std::string_view path) {
    size_t at = 0;
    while (at <= path.size()) {
      size_t slash = std::min(path.find('/', at), path.size());
      std::string_view part = path.substr(at, slash - at);
      if (part == "..") {
        if (!parts.empty()) parts.pop_back();
      } else if (!part.empty() && part != ".") {
        parts.emplace_back(part);
      }
      at = slash + 1;
    }
  };
  size_t slash = referrer.rfind('/');
  if (slash != std::string::npos) add(std::string_view(referrer).substr(0, slash));
  add(specifier);
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

v8::MaybeLocal<v8::Value> evaluate(v8::Local<v8::Module> module, v8::Local<v8::Context> context) {
  JavaScriptScope javascript;
  return module->Evaluate(context);
}

bool is_builtin(std::string_view name) {
  return name.starts_with("cloudflare:") || name.starts_with("node:");
}

}  // namespace

// Sets the exports of a synthetic module from the object kept for it.
static v8::MaybeLocal<v8::Value> fill_synthetic(v8::Local<v8::Context> context,
                                                v8::Local<v8::Module> module) {
  HostScope host;
  v8::Isolate* isolate = v8::Isolate::GetCurrent();
  v8::Local<v8::Object> exports = isolate_host(isolate).synthetic_exports(module);
  v8::Local<v8::Array> names;
  if (!exports->GetOwnPropertyNames(context).ToLocal(&names)) return {};
  for (uint32_t i = 0; i < names->Length(); ++i) {
    v8::Local<v8::Value> name, value;
    if (!names->Get(context, i).ToLocal(&name) || !exports->Get(context, name).ToLocal(&value) ||
        module->SetSyntheticModuleExport(isolate, name.As<v8::String>(), value).IsNothing()) {
      return {};
    }
  }
  v8::Local<v8::Promise::Resolver> resolver;
  if (!v8::Promise::Resolver::New(context).ToLocal(&resolver)) return {};
  resolver->Resolve(context, v8::Undefined(isolate)).Check();
  return resolver->GetPromise();
}

v8::Local<v8::Object> IsolateHost::synthetic_exports(v8::Local<v8::Module> module) {
  return modules_->synthetic_exports.at(modules_->name_of(isolate_, module)).Get(isolate_);
}

v8::MaybeLocal<v8::Module> IsolateHost::add_synthetic(const std::string& name,
                                                      v8::Local<v8::Object> exports) {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::Local<v8::Array> keys;
  if (!exports->GetOwnPropertyNames(context).ToLocal(&keys)) return {};
  std::vector<v8::Local<v8::String>> names;
  for (uint32_t i = 0; i < keys->Length(); ++i) {
    v8::Local<v8::Value> key;
    if (!keys->Get(context, i).ToLocal(&key)) return {};
    names.push_back(key.As<v8::String>());
  }
  v8::Local<v8::Module> module = v8::Module::CreateSyntheticModule(
      isolate_, to_v8(isolate_, name), names, fill_synthetic);
  modules_->add(isolate_, name, module);
  modules_->synthetic_exports[name].Reset(isolate_, exports);
  return module;
}

v8::MaybeLocal<v8::Module> IsolateHost::find_module(const std::string& name,
                                                    const std::string& referrer) {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  if (auto it = modules_->by_name.find(name); it != modules_->by_name.end()) {
    return it->second.Get(isolate_);
  }
  if (is_builtin(name)) {
    v8::Local<v8::Value> exports;
    if (builtin_modules_.Get(isolate_)->Get(context, to_v8(isolate_, name)).ToLocal(&exports) &&
        exports->IsObject()) {
      return add_synthetic(name, exports.As<v8::Object>());
    }
    throw_error(isolate_, "Error",
                "the built-in module \"" + name + "\" (imported by \"" + referrer +
                    "\") is not supported by celld yet");
    return {};
  }
  for (const CodeModule& m : code_->modules) {
    if (m.name == name) return compile_module(m);
  }
  throw_error(isolate_, "Error", "No such module \"" + name + "\", imported by \"" + referrer + "\"");
  return {};
}

v8::MaybeLocal<v8::Module> IsolateHost::compile_module(const CodeModule& m) {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  if (m.kind == CodeModule::Kind::kEsm) {
    v8::ScriptOrigin origin = module_origin(isolate_, to_v8(isolate_, m.name), true);
    v8::ScriptCompiler::Source source(to_v8(isolate_, m.content.view()), origin);
    v8::Local<v8::Module> module;
    if (!v8::ScriptCompiler::CompileModule(isolate_, &source).ToLocal(&module)) return {};
    modules_->add(isolate_, m.name, module);
    return module;
  }
  v8::Local<v8::Value> value;
  switch (m.kind) {
    case CodeModule::Kind::kText: value = to_v8(isolate_, m.content.view()); break;
    case CodeModule::Kind::kData:
      value = to_uint8array(isolate_, m.content.view())->Buffer();
      break;
    default: {
      v8::MemorySpan<const uint8_t> bytes(
          reinterpret_cast<const uint8_t*>(m.content.view().data()), m.content.size());
      v8::Local<v8::WasmModuleObject> wasm;
      if (!v8::WasmModuleObject::Compile(isolate_, bytes).ToLocal(&wasm)) return {};
      value = wasm;
    }
  }
  v8::Local<v8::Object> exports = v8::Object::New(isolate_);
  exports->CreateDataProperty(context, to_v8(isolate_, "default"), value).Check();
  return add_synthetic(m.name, exports);
}

v8::MaybeLocal<v8::Module> IsolateHost::resolve_module(v8::Local<v8::Context>,
                                                       v8::Local<v8::String> specifier,
                                                       v8::Local<v8::FixedArray>,
                                                       v8::Local<v8::Module> referrer) {
  HostScope scope;
  v8::Isolate* isolate = v8::Isolate::GetCurrent();
  IsolateHost& host = isolate_host(isolate);
  std::string from = host.modules_->name_of(isolate, referrer);
  return host.find_module(resolve_specifier(to_utf8(isolate, specifier), from), from);
}

// `data` of the functions below: the promise of an import() and what it is to give.
static void settle_import(const v8::FunctionCallbackInfo<v8::Value>& args, bool failed) {
  v8::Local<v8::Context> context = args.GetIsolate()->GetCurrentContext();
  v8::Local<v8::Array> data = args.Data().As<v8::Array>();
  v8::Local<v8::Value> promise, exports;
  if (!data->Get(context, 0).ToLocal(&promise) || !data->Get(context, 1).ToLocal(&exports)) return;
  auto resolver = promise.As<v8::Promise::Resolver>();
  (failed ? resolver->Reject(context, args[0]) : resolver->Resolve(context, exports)).FromMaybe(false);
}
static void import_done(const v8::FunctionCallbackInfo<v8::Value>& args) { settle_import(args, false); }
static void import_failed(const v8::FunctionCallbackInfo<v8::Value>& args) { settle_import(args, true); }

// import(): the module is there already or is loaded now; errors reject the promise.
v8::MaybeLocal<v8::Promise> IsolateHost::import_dynamically(v8::Local<v8::Context> context,
                                                            v8::Local<v8::Data>,
                                                            v8::Local<v8::Value> referrer,
                                                            v8::Local<v8::String> specifier,
                                                            v8::Local<v8::FixedArray>) {
  HostScope scope;
  v8::Isolate* isolate = v8::Isolate::GetCurrent();
  IsolateHost& host = isolate_host(isolate);
  v8::EscapableHandleScope handles(isolate);
  v8::Local<v8::Promise::Resolver> resolver;
  if (!v8::Promise::Resolver::New(context).ToLocal(&resolver)) return {};
  v8::TryCatch caught(isolate);
  std::string from = to_utf8(isolate, referrer);
  v8::Local<v8::Module> module;
  v8::Local<v8::Value> evaluated;
  bool ok = host.find_module(resolve_specifier(to_utf8(isolate, specifier), from), from).ToLocal(&module) &&
            module->InstantiateModule(context, resolve_module).FromMaybe(false) &&
            evaluate(module, context).ToLocal(&evaluated);
  if (!ok) {
    if (caught.HasTerminated() || !caught.HasCaught()) {
      caught.ReThrow();
      return {};
    }
    if (resolver->Reject(context, caught.Exception()).IsNothing()) return {};
    return handles.Escape(resolver->GetPromise());
  }
  // What came out of the module is promised when its top level has ended.
  v8::Local<v8::Value> ends[] = {resolver, module->GetModuleNamespace()};
  v8::Local<v8::Array> data = v8::Array::New(isolate, ends, 2);
  v8::Local<v8::Function> on_done, on_failed;
  if (!v8::Function::New(context, import_done, data).ToLocal(&on_done) ||
      !v8::Function::New(context, import_failed, data).ToLocal(&on_failed) || !evaluated->IsPromise() ||
      evaluated.As<v8::Promise>()->Then(context, on_done, on_failed).IsEmpty()) {
    return {};
  }
  return handles.Escape(resolver->GetPromise());
}

Result<void> IsolateHost::load_modules() {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  modules_ = std::make_unique<Modules>();
  v8::TryCatch caught(isolate_);
  // Modules may read the env while they are evaluated.
  TRY(install_worker(v8::Undefined(isolate_)));
  v8::Local<v8::Module> main;
  v8::Local<v8::Value> evaluated;
  if (!find_module(code_->main, "the configuration").ToLocal(&main) ||
      !main->InstantiateModule(context, resolve_module).FromMaybe(false) ||
      !evaluate(main, context).ToLocal(&evaluated)) {
    return fail(Error::invalid("the Worker does not start: " + describe_exception(caught)));
  }
  run_microtasks();
  if (evaluated->IsPromise()) {
    v8::Local<v8::Promise> promise = evaluated.As<v8::Promise>();
    if (promise->State() == v8::Promise::kPending) {
      return fail(Error::invalid("the Worker does not start: top-level await in \"" + code_->main +
                                 "\" did not settle"));
    }
    if (promise->State() == v8::Promise::kRejected) {
      promise->MarkAsHandled();
      JsError error = to_js_error(promise->Result());
      return fail(Error::invalid("the Worker does not start: " +
                                 (error.stack.empty() ? error.name + ": " + error.message
                                                      : error.stack)));
    }
  }
  return install_worker(main->GetModuleNamespace());
}

Result<void> IsolateHost::install_worker(v8::Local<v8::Value> module_namespace) {
  v8::Local<v8::Context> context = context_.Get(isolate_);
  v8::Local<v8::Object> spec = v8::Object::New(isolate_);
  auto set = [&](v8::Local<v8::Object> object, const char* key, v8::Local<v8::Value> value) {
    object->CreateDataProperty(context, to_v8(isolate_, key), value).Check();
  };
  v8::Local<v8::Value> vars;
  std::string_view vars_json = code_->vars_json;
  if (vars_json.empty()) vars_json = "{}";
  if (!v8::JSON::Parse(context, to_v8(isolate_, vars_json)).ToLocal(&vars)) {
    return fail(Error::corrupt("the deployment's vars are not JSON"));
  }
  set(spec, "vars", vars);
  v8::Local<v8::Array> namespaces = v8::Array::New(isolate_);
  for (uint32_t i = 0; i < code_->namespaces.size(); ++i) {
    const NamespaceSpec& ns = code_->namespaces[i];
    v8::Local<v8::Object> entry = v8::Object::New(isolate_);
    set(entry, "binding", to_v8(isolate_, ns.binding));
    set(entry, "className", to_v8(isolate_, ns.class_name));
    set(entry, "sql", v8::Boolean::New(isolate_, ns.sql));
    namespaces->CreateDataProperty(context, i, entry).Check();
  }
  set(spec, "namespaces", namespaces);
  set(spec, "compatibilityDate", to_v8(isolate_, code_->compatibility_date));
  v8::Local<v8::Array> flags = v8::Array::New(isolate_);
  for (uint32_t i = 0; i < code_->compatibility_flags.size(); ++i) {
    flags->CreateDataProperty(context, i, to_v8(isolate_, code_->compatibility_flags[i])).Check();
  }
  set(spec, "compatibilityFlags", flags);

  v8::Local<v8::Value> arguments[] = {module_namespace, spec};
  v8::Local<v8::Value> problem;
  if (!call_hook(kSetWorker, arguments, &problem)) {
    return fail(Error::internal("the Worker could not be installed"));
  }
  std::string text = to_utf8(isolate_, problem);
  if (!text.empty()) return fail(Error::invalid(text));
  return {};
}

}  // namespace celld::js
