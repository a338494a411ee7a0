// Tasks of V8: FinalizationRegistry, Atomics.waitAsync, WebAssembly.
#include "js/isolate_host_testing.h"

namespace celld::js {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Tasks : public HostTest {};

TEST_F(Tasks, finalization_callbacks_are_called) {
  load(R"(let seen = [];
  const registry = new FinalizationRegistry((name) => seen.push(name));
  function forget() { registry.register({}, 'one'); registry.register([], 'two'); }
  export default { fetch(r) {
    if (r.url.endsWith('/forget')) forget();
    return new Response(seen.sort().join());
  } };)");
  fetch("/forget");
  collect_garbage();
  settle();
  EXPECT_EQ(fetch("/")->body, "one,two");
}

TEST_F(Tasks, a_finalization_callback_belongs_to_nobody_and_what_it_throws_is_logged) {
  load(R"(let seen = 'nothing';
  const registry = new FinalizationRegistry((cell) => {
    try { cell.ctx.storage.kv.put('n', 1); } catch (error) { seen = error.message; }
    throw new Error('from a callback');
  });
  export class C extends DurableObject { fetch(r) {
    if (r.url.endsWith('/forget')) registry.register({}, this);
    return new Response(seen + ' ' + this.ctx.storage.kv.get('n'));
  } }
  export default { fetch() { return new Response(''); } };)");
  cell().proven_at_once = true;
  fetch(cell(), "/forget");
  collect_garbage();
  settle();
  EXPECT_EQ(fetch(cell(), "/")->body, "Cannot perform I/O on behalf of a different Durable Object. undefined");
  EXPECT_NE(logged().find("Uncaught Error: from a callback"), std::string::npos) << logged();
}

TEST_F(Tasks, an_endless_finalization_callback_ends_with_the_limit) {
  IsolateLimits limits;
  limits.cpu_per_event = milliseconds(40);
  load(R"(const registry = new FinalizationRegistry(() => { for (;;); });
  export default { fetch(r) {
    if (r.url.endsWith('/forget')) registry.register({}, 1);
    return new Response('ok');
  } };)",
       limits);
  fetch("/forget");
  collect_garbage();
  settle();
  EXPECT_EQ(fetch("/")->body, "ok");
}

TEST_F(Tasks, Atomics_waitAsync_is_notified_and_times_out) {
  load(R"(const memory = new Int32Array(new SharedArrayBuffer(8));
  export class C extends DurableObject { async fetch(r) {
    if (r.url.endsWith('/notify')) return new Response(String(Atomics.notify(memory, 0)));
    const timeout = r.url.endsWith('/timeout') ? 50 : undefined;
    return new Response(await Atomics.waitAsync(memory, 0, 0, timeout).value);
  } }
  export default {};)");
  cell().proven_at_once = true;
  auto waits = fetch(cell(), "/wait");
  auto times_out = fetch(cell("b"), "/timeout");
  EXPECT_FALSE(waits->here);
  world_.run_for(seconds(1));
  EXPECT_EQ(times_out->body, "timed-out");
  EXPECT_EQ(fetch(cell("c"), "/notify")->body, "1");
  settle();
  EXPECT_EQ(waits->body, "ok");
}

// (module (func (export "f") (result i32) i32.const 7))
TEST_F(Tasks, asynchronous_functions_of_WebAssembly_answer) {
  load(R"(const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1,
    102, 0, 0, 10, 6, 1, 4, 0, 65, 7, 11]);
  export default { async fetch(r) {
    const refused = await WebAssembly.compile(bytes).then(() => 'compiled', (error) => error.name);
    const instantiated = await WebAssembly.instantiate(bytes).then(() => 'instantiated', (error) => error.name);
    return new Response(refused + ' ' + instantiated);
  } };)");
  EXPECT_EQ(fetch("/")->body, "CompileError CompileError");
}

TEST_F(Tasks, tasks_of_an_isolate_that_has_ended_do_not_run) {
  load(R"(const memory = new Int32Array(new SharedArrayBuffer(8));
  export class C extends DurableObject { async fetch(r) {
    return new Response(await Atomics.waitAsync(memory, 0, 0, 50).value);
  } }
  export default {};)");
  auto waits = fetch(cell(), "/");
  host_->detach(cell().cell, JsError{"Error", "ended", {}, 0});
  host_.reset();
  world_.run_for(seconds(1));
  EXPECT_EQ(waits->error, "ended");
}

}  // namespace
}  // namespace celld::js
