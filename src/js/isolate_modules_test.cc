// Modules, what may run while they are loaded, and what is logged of what nobody handles.
#include "js/isolate_host_testing.h"

namespace celld::js {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Modules : public HostTest {
 protected:
  using Files = std::vector<std::pair<std::string, std::string>>;
  // The first file is the main module.
  static Result<std::unique_ptr<IsolateHost>> make(HostTest& test, World& world, const Files& files) {
    auto code = std::make_shared<WorkerCode>();
    code->main = files[0].first;
    code->compatibility_date = "2026-01-01";
    for (auto& [name, text] : files) code->modules.push_back(CodeModule{name, CodeModule::Kind::kEsm, Blob(text)});
    return IsolateHost::create(world, test, code, {});
  }
  void load_files(const Files& files) {
    auto host = make(*this, world_, files);
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
  }
  std::string refusal(const Files& files) {
    auto host = make(*this, world_, files);
    return host ? "loaded" : host.error().message;
  }
};

TEST_F(Modules, a_module_that_is_missing_is_named_with_who_imports_it) {
  std::string text = refusal({{"src/main.js", "import './lib/a.js'; export default {};"},
                              {"src/lib/a.js", "import '../nope.js';"}});
  EXPECT_NE(text.find("No such module \"src/nope.js\", imported by \"src/lib/a.js\""), text.npos) << text;
  text = refusal({{"src/main.js", "import fs from 'node:fs'; export default {};"}});
  EXPECT_NE(text.find("\"node:fs\" (imported by \"src/main.js\") is not supported"), text.npos) << text;
}

TEST_F(Modules, an_export_that_is_missing_is_named_with_both_modules) {
  std::string text = refusal({{"src/main.js", "import { nope } from './a.js'; export default { nope };"},
                              {"src/a.js", "export const other = 1;"}});
  EXPECT_NE(text.find("'./a.js' does not provide an export named 'nope'"), text.npos) << text;
  EXPECT_NE(text.find("src/main.js:1"), text.npos) << text;
  text = refusal({{"main.js", "import { Nope } from 'cloudflare:workers'; export default { Nope };"}});
  EXPECT_NE(text.find("'cloudflare:workers' does not provide an export named 'Nope'"), text.npos) << text;
  EXPECT_NE(text.find("main.js:1"), text.npos) << text;
}

TEST_F(Modules, import_gives_modules_and_names_what_is_missing) {
  load_files({{"src/main.js", R"(const seen = [];
    export default { async fetch(r) {
      const name = decodeURIComponent(new URL(r.url).pathname.slice(1));
      try { return new Response(JSON.stringify({ ...(await import(name)) })); } catch (error) {
        return new Response(error.name + ': ' + error.message);
      }
    } };)"},
              {"src/a.js", "globalThis.ran = (globalThis.ran ?? 0) + 1; export const ran = globalThis.ran;"},
              {"src/slow.js", "export const waited = await new Promise((r) => queueMicrotask(() => r('yes')));"},
              {"src/throws.js", "throw new TypeError('at the top');"},
              {"src/links.js", "import { nope } from './a.js'; export { nope };"},
              {"src/deep.js", "import './missing.js';"},
              {"src/broken.js", "export const = 1;"}});
  EXPECT_EQ(fetch("/.%2Fa.js")->body, "{\"ran\":1}");
  EXPECT_EQ(fetch("/.%2Fa.js")->body, "{\"ran\":1}") << "a module runs once";
  EXPECT_EQ(fetch("/.%2Fslow.js")->body, "{\"waited\":\"yes\"}");
  EXPECT_EQ(fetch("/.%2Fthrows.js")->body, "TypeError: at the top");
  EXPECT_EQ(fetch("/.%2Flinks.js")->body,
            "SyntaxError: The requested module './a.js' does not provide an export named 'nope'");
  EXPECT_EQ(fetch("/.%2Fdeep.js")->body, "Error: No such module \"src/missing.js\", imported by \"src/deep.js\"");
  EXPECT_EQ(fetch("/.%2Fbroken.js")->body.substr(0, 11), "SyntaxError");
  EXPECT_EQ(fetch("/.%2Fnope.js")->body, "Error: No such module \"src/nope.js\", imported by \"src/main.js\"");
  EXPECT_EQ(fetch("/nope")->body, "Error: No such module \"nope\", imported by \"src/main.js\"");
  EXPECT_EQ(fetch("/node:fs")->body,
            "Error: the built-in module \"node:fs\" (imported by \"src/main.js\") is not supported by celld yet");
}

TEST_F(Modules, chance_timers_and_requests_are_for_handlers) {
  load(R"(const said = [];
  const ask = async (what) => {
    try { await what(); said.push('done'); } catch (e) { said.push(e.message.slice(0, 50)); }
  };
  const all = [() => crypto.randomUUID(), () => crypto.getRandomValues(new Uint8Array(1)),
    () => setTimeout(() => {}, 1), () => setInterval(() => {}, 1), () => clearTimeout(1), () => scheduler.wait(1), () => fetch('http://x/'),
    () => AbortSignal.timeout(1)];
  for (const what of all) ask(what);
  const registry = new FinalizationRegistry(() => { said.length = 0; ask(() => setTimeout(() => {}, 1)); });
  export default { async fetch(r) {
    if (r.url.endsWith('/forget')) registry.register({}, 1);
    if (r.url.endsWith('/allowed')) for (const what of all.slice(0, 5)) what();
    return new Response(said.join('|'));
  } };)");
  std::string one = "Disallowed operation called within global scope. A";
  std::string wanted = one;
  for (int i = 0; i < 7; ++i) wanted += "|" + one.substr(0, 50);
  EXPECT_EQ(fetch("/")->body, wanted);
  EXPECT_EQ(fetch("/allowed")->body, wanted);
  fetch("/forget");
  collect_garbage();
  settle();
  EXPECT_EQ(fetch("/")->body, one) << "a callback of the collector is no handler";
}

// Each is one line at least, none throws, none is long.
TEST_F(Modules, what_nobody_handles_is_logged_as_what_it_is) {
  load(R"(class Thing { x = 1; }
  class Mine extends Error { name = 'Mine'; code = 7; }
  const hostile = { get message() { throw new Error('hostile'); }, get stack() { throw 1; } };
  const unreadable = new Error('u');
  Object.defineProperty(unreadable, 'stack', {
    get() { throw { get message() { throw 2; }, toString() { throw 3; } }; } });
  const loop = new Error('loop'); loop.cause = loop;
  const values = [null, undefined, 'text', 5n, Symbol('s'), { a: 1 }, new Proxy({}, { get() { throw 1; } }), hostile,
    new Error('outer', { cause: new TypeError('inner') }), new AggregateError([new Error('one')], 'many'), new Thing(),
    new Mine('mine'), Object.create(null), unreadable, loop, 'x'.repeat(1e6), new Error('y'.repeat(1e6))];
  export default { fetch(r) {
    const i = Number(new URL(r.url).pathname.slice(1));
    if (i < values.length) Promise.reject(values[i]);
    return new Response('ok');
  } };)");
  std::vector<std::string> wanted = {
      "null", "undefined", "text", "5n", "Symbol(s)", "{ a: 1 }", "Proxy({})", "{ message: [Getter], stack: [Getter] }",
      "Error: outer", "AggregateError: many", "Thing { x: 1 }", "Mine: mine", "[Object: null prototype] {}",
      "[unprintable: its error cannot be read]", "Error: loop", "xxxx", "Error: yyyy"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    log_.clear();
    EXPECT_EQ(fetch("/" + std::to_string(i))->body, "ok");
    ASSERT_EQ(log_.size(), 1u) << wanted[i];
    EXPECT_EQ(log_[0].substr(0, 22 + wanted[i].size()), "Uncaught (in promise) " + wanted[i]);
    EXPECT_LT(log_[0].size(), 20000u);
    auto also = [&](const char* text) { EXPECT_NE(log_[0].find(text), std::string::npos) << log_[0]; };
    EXPECT_EQ(log_[0].find("celld:prelude"), std::string::npos) << log_[0];
    if (wanted[i] == "Error: outer") also("[cause]: TypeError: inner");
    if (wanted[i] == "AggregateError: many") also("Error: one");
    if (wanted[i] == "Mine: mine") also("code: 7");
    if (wanted[i] == "Error: loop") also("[Circular");
  }
}

TEST_F(Modules, a_reset_by_a_limit_is_logged_with_class_id_and_reason) {
  IsolateLimits limits;
  limits.cpu_per_event = milliseconds(40);
  limits.heap_bytes = 24 << 20;
  load(R"(export class C extends DurableObject { fetch(r) {
    if (r.url.endsWith('/cpu')) for (;;);
    if (r.url.endsWith('/memory')) { const a = []; for (;;) a.push(new Array(1000).fill(1.5)); }
    return new Response('ok');
  } }
  export default { fetch() { for (;;); } };)",
       limits);
  fetch(cell("abc"), "/cpu");
  EXPECT_EQ(logged(), "object_reset class=C id=abc reason=cpu_limit\n");
  log_.clear();
  fetch("/");
  EXPECT_EQ(logged(), "") << "no object was reset";
}

TEST_F(Modules, a_reset_by_the_memory_limit_is_logged_for_each_object) {
  IsolateLimits limits;
  limits.heap_bytes = 24 << 20;
  load(R"(export class C extends DurableObject { fetch(r) {
    if (r.url.endsWith('/memory')) { const a = []; for (;;) a.push(new Array(1000).fill(1.5)); }
    return new Response('ok');
  } }
  export default {};)",
       limits);
  cell("bystander").proven_at_once = true;
  fetch(cell("bystander"), "/");
  fetch(cell("abc"), "/memory");
  EXPECT_NE(logged().find("object_reset class=C id=abc reason=memory_limit\n"), std::string::npos) << logged();
  EXPECT_NE(logged().find("object_reset class=C id=bystander reason=memory_limit\n"), std::string::npos) << logged();
}

}  // namespace
}  // namespace celld::js
