// Events, the input gate, timers, limits, resets and callers that go away.
#include "js/isolate_host.h"

#include <algorithm>

#include "js/isolate_host_testing.h"

namespace celld::js {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Host : public HostTest {};

IsolateLimits short_cpu() {
  IsolateLimits limits;
  limits.cpu_per_event = milliseconds(40);
  return limits;
}

// --- events ---

TEST_F(Host, a_worker_calls_an_object_and_answers) {
  load(R"(export class C extends DurableObject {
    n = 0;
    add(x) { return this.n += x; }
  }
  export default { async fetch(r, env) { return new Response(String(await env.C.getByName('a').add(2))); } };)");
  EXPECT_EQ(fetch("/")->body, "2");
  EXPECT_EQ(fetch("/")->body, "4");
  EXPECT_EQ(host_->active_events(), 0u);
}

TEST_F(Host, a_module_that_does_not_load_says_why) {
  auto code = std::make_shared<WorkerCode>();
  code->main = "main.js";
  code->modules.push_back(CodeModule{"main.js", CodeModule::Kind::kEsm, Blob(std::string("export default {\n"))});
  auto host = IsolateHost::create(world_, *this, code, {});
  ASSERT_FALSE(host);
  EXPECT_NE(host.error().message.find("main.js"), std::string::npos) << host.error().message;
}

TEST_F(Host, endless_start_up_code_is_an_error) {
  for (const char* source : {"for(;;);", "const a=[]; for(;;) a.push(new Array(1000).fill(1));"}) {
    auto code = std::make_shared<WorkerCode>();
    code->main = "main.js";
    code->modules.push_back(CodeModule{"main.js", CodeModule::Kind::kEsm, Blob(std::string(source))});
    IsolateLimits limits;
    limits.cpu_per_event = milliseconds(500);
    limits.heap_bytes = 16 << 20;
    auto host = IsolateHost::create(world_, *this, code, limits);
    ASSERT_FALSE(host);
    EXPECT_NE(host.error().message.find("limit"), std::string::npos) << host.error().message;
  }
}

TEST_F(Host, a_constructor_that_throws_fails_what_waits_and_undoes_its_writes) {
  load(R"(let tries = 0;
  export class C extends DurableObject {
    constructor(ctx, env) {
      super(ctx, env);
      this.before = ctx.storage.kv.get('n');
      ctx.storage.kv.put('n', ++tries);
      setInterval(() => console.log('still here'), 10);
      if (tries < 3) throw new Error('try ' + tries);
    }
    fetch() { return new Response('before: ' + this.before); }
  }
  export default {};)");
  cell().proven_at_once = true;
  EXPECT_EQ(fetch(cell(), "/")->error, "try 1");
  EXPECT_EQ(fetch(cell(), "/")->error, "try 2");
  world_.run_for(seconds(1));
  EXPECT_EQ(logged(), "") << "a timer of an instance that never was";
  EXPECT_EQ(fetch(cell(), "/")->body, "before: undefined");
}

// The symptom was a loop of constructors that never answered.
TEST_F(Host, a_constructor_whose_critical_section_fails_runs_once_for_what_waits) {
  load(R"(export class C extends DurableObject {
    constructor(ctx, env) {
      super(ctx, env);
      console.log('made');
      ctx.blockConcurrencyWhile(async () => { await scheduler.wait(10); throw new Error('not today'); });
    }
    fetch() { return new Response('ok'); }
  }
  export default {};)");
  auto first = fetch(cell(), "/");
  auto second = fetch(cell(), "/");
  world_.run_for(seconds(1));
  EXPECT_EQ(first->error, "not today");
  EXPECT_EQ(second->error, "not today");
  EXPECT_EQ(std::ranges::count(log_, "made"), 1);
}

TEST_F(Host, an_overloaded_object_refuses) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/block')) await this.ctx.blockConcurrencyWhile(() => scheduler.wait(1000));
      return new Response('ok');
    }
  }
  export default {};)");
  auto block = fetch(cell(), "/block");
  int overloaded = 0, answered = 0;
  for (size_t i = 0; i < Cell::kEventsMax + 5; ++i) {
    host_->deliver(cell().cell, CellRpc{"nothing", Blob(), [&](Outcome<Blob> outcome) {
                                          ++answered;
                                          if (outcome.error().flags & kOverloaded) ++overloaded;
                                        }});
  }
  EXPECT_EQ(overloaded, 6);
  world_.run_for(seconds(2));
  EXPECT_EQ(answered, static_cast<int>(Cell::kEventsMax) + 5);
  EXPECT_EQ(block->body, "ok");
}

TEST_F(Host, what_waits_for_an_object_is_bounded_in_bytes) {
  load(R"(export class C extends DurableObject {
    async fetch(r) { await this.ctx.blockConcurrencyWhile(() => scheduler.wait(1000)); return new Response('ok'); }
    size(x) { return x.byteLength; }
  }
  export default {};)");
  fetch(cell(), "/block");
  int overloaded = 0;
  for (int i = 0; i < 20; ++i) {
    host_->deliver(cell().cell, CellRpc{"size", Blob(std::string((8 << 20) - 4, 'x')), [&](Outcome<Blob> outcome) {
                                          if (!outcome && outcome.error().flags & kOverloaded) ++overloaded;
                                        }});
  }
  EXPECT_EQ(overloaded, 12);
}

// --- the input gate ---

TEST_F(Host, a_critical_section_keeps_events_timers_and_completions_out) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      const path = new URL(r.url).pathname;
      if (path === '/out') { await fetch('http://out/'); console.log('out is back'); }
      if (path === '/timer') setTimeout(() => console.log('timer'), 50);
      if (path === '/section') {
        await this.ctx.blockConcurrencyWhile(async () => {
          console.log('in');
          await scheduler.wait(100);
          console.log('out');
        });
      }
      console.log(path);
      return new Response('ok');
    }
  }
  export default {};)");
  fetch(cell(), "/out");
  fetch(cell(), "/timer");
  fetch(cell(), "/section");
  fetched_.at(0).reply(HttpResponseMessage{200, "", "", {}});
  fetch(cell(), "/event");
  world_.run_for(milliseconds(80));
  EXPECT_EQ(logged(), "/timer\nin\n");
  world_.run_for(seconds(1));
  EXPECT_EQ(logged(), "/timer\nin\nout\n/section\nout is back\n/out\ntimer\n/event\n");
}

// The symptom was a reset after 30 s: the outer section waited for a call that the inner one held
// back for ever.
TEST_F(Host, calls_of_an_outer_section_go_on_when_the_inner_one_ends) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      return this.ctx.blockConcurrencyWhile(async () => {
        const outer = fetch('http://outer/');
        let inner;
        await this.ctx.storage.transaction(async () => {
          inner = fetch('http://inner/');
          await scheduler.wait(10);
        });
        await outer;
        console.log('outer');
        await inner;
        console.log('inner');
        return new Response('ok');
      });
    }
  }
  export default {};)");
  cell().proven_at_once = true;
  auto answer = fetch(cell(), "/");
  ASSERT_EQ(fetched_.size(), 2u);
  fetched_[0].reply(HttpResponseMessage{200, "", "", {}});
  settle();
  EXPECT_EQ(logged(), "");
  world_.run_for(milliseconds(20));
  EXPECT_EQ(logged(), "outer\n");
  // Its own section has ended, but the outer one waits for it.
  fetched_[1].reply(HttpResponseMessage{200, "", "", {}});
  settle();
  EXPECT_EQ(logged(), "outer\ninner\n");
  EXPECT_EQ(answer->body, "ok") << answer->error;
  EXPECT_FALSE(cell().cell.in_section());
}

TEST_F(Host, a_section_that_takes_too_long_resets_the_object) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/hang')) await this.ctx.blockConcurrencyWhile(() => new Promise(() => {}));
      return new Response('ok');
    }
  }
  export default {};)");
  auto hanging = fetch(cell(), "/hang");
  auto waiting = fetch(cell(), "/");
  world_.run_for(seconds(29));
  EXPECT_FALSE(waiting->here);
  world_.run_for(seconds(2));
  EXPECT_NE(hanging->error.find("waited for too long"), std::string::npos) << hanging->error;
  EXPECT_NE(waiting->error.find("waited for too long"), std::string::npos) << waiting->error;
  EXPECT_EQ(fetch(cell(), "/")->body, "ok");
}

TEST_F(Host, a_section_that_ended_leaves_no_timer_behind) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      for (let i = 0; i < 100; ++i) await this.ctx.storage.transaction(async () => {});
      return new Response('ok');
    }
  }
  export default {};)");
  cell().proven_at_once = true;
  EXPECT_EQ(fetch(cell(), "/")->body, "ok");
  EXPECT_TRUE(is_at_rest()) << "something waits for time to pass";
}

TEST_F(Host, a_section_ends_when_its_callback_throws_at_once) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      try {
        await this.ctx.storage.transaction(() => { throw new Error('no'); });
      } catch (e) { console.log(e.message); }
      return new Response('ok');
    }
  }
  export default {};)");
  cell().proven_at_once = true;
  EXPECT_EQ(fetch(cell(), "/")->body, "ok");
  EXPECT_EQ(logged(), "no\n");
  EXPECT_FALSE(cell().cell.in_section());
}

// --- timers ---

TEST_F(Host, timers_fire_in_order_repeat_and_stop) {
  load(R"(export class C extends DurableObject {
    fetch() {
      let n = 0;
      const id = setInterval(() => { console.log('tick'); if (++n === 3) clearInterval(id); }, 100);
      const never = setTimeout(() => console.log('never'), 50);
      setTimeout(() => console.log('late'), 250);
      clearTimeout(never);
      return new Response('ok');
    }
  }
  export default {};)");
  fetch(cell(), "/");
  EXPECT_FALSE(cell().cell.idle());
  world_.run_for(seconds(2));
  EXPECT_EQ(logged(), "tick\ntick\nlate\ntick\n");
  EXPECT_TRUE(cell().cell.idle());
}

TEST_F(Host, timers_of_a_request_end_with_it_and_those_of_an_object_with_its_instance) {
  load(R"(export class C extends DurableObject {
    fetch() { setInterval(() => console.log('object'), 10); return new Response('ok'); }
  }
  export default { fetch() { setInterval(() => console.log('request'), 10); return new Response('ok'); } };)");
  fetch("/");
  fetch(cell(), "/");
  world_.run_for(milliseconds(15));
  EXPECT_EQ(logged(), "object\n");
  host_->detach(cell().cell, JsError{"Error", "moved", {}, 0});
  world_.run_for(seconds(1));
  EXPECT_EQ(logged(), "object\n");
}

TEST_F(Host, one_object_cannot_use_up_the_timers_of_others) {
  load(R"(export class C extends DurableObject {
    fetch(r) {
      try { for (let i = 0; i < 20000; ++i) setTimeout(() => {}, 1000); return new Response('all'); }
      catch (e) { return new Response(e.message); }
    }
  }
  export class D extends DurableObject {
    fetch() { setTimeout(() => {}, 1); return new Response('ok'); }
  }
  export default {};)");
  EXPECT_EQ(fetch(cell(), "/")->body, "You have exceeded the number of timeouts you may set.");
  EXPECT_EQ(fetch(cell("d", "D"), "/")->body, "ok");
}

// --- limits ---

TEST_F(Host, an_endless_loop_costs_its_object_and_nobody_else) {
  load(R"(export class C extends DurableObject {
    n = 0;
    async fetch(r) {
      const path = new URL(r.url).pathname;
      if (path === '/loop') { this.ctx.storage.kv.put('n', 1); for (;;); }
      if (path === '/micro') { this.ctx.storage.kv.put('n', 1); for (;;) await 0; }
      if (path === '/sql') this.ctx.storage.sql.exec(
        'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c');
      return new Response(`${++this.n} ${this.ctx.storage.kv.get('n')}`);
    }
  }
  export default {};)",
       short_cpu());
  cell().proven_at_once = true;
  EXPECT_EQ(fetch(cell("b"), "/")->body, "1 undefined");
  for (const char* path : {"/loop", "/micro", "/sql"}) {
    auto answer = fetch(cell(), path);
    EXPECT_NE(answer->error.find("CPU time limit"), std::string::npos) << path << answer->error;
    EXPECT_EQ(fetch(cell(), "/")->body, "1 undefined") << path;
  }
  EXPECT_EQ(fetch(cell("b"), "/")->body, "2 undefined");
  EXPECT_EQ(cell().cell.committed, Txid(0));
}

TEST_F(Host, an_endless_loop_of_a_worker_ends_its_request) {
  load(R"(export default { async fetch(r) {
    if (r.url.endsWith('/stream')) {
      const { readable, writable } = new TransformStream();
      const w = writable.getWriter();
      scheduler.wait(10).then(() => { for (;;); });
      return new Response(readable);
    }
    if (r.url.endsWith('/loop')) for (;;);
    return new Response('ok');
  } };)",
       short_cpu());
  EXPECT_NE(fetch("/loop")->error.find("CPU time limit"), std::string::npos);
  auto streaming = fetch("/stream");
  ASSERT_TRUE(streaming->stream);
  world_.run_for(seconds(1));
  EXPECT_NE(read(*streaming).find("|error"), std::string::npos) << "its reader must not wait for ever";
  EXPECT_EQ(host_->active_events(), 0u);
  EXPECT_EQ(fetch("/")->body, "ok");
}

// All of it is code of the user: the message of a rejection that nobody handles, a getter, a Proxy.
TEST_F(Host, user_code_in_errors_is_on_the_budget_of_the_turn) {
  load(R"(export default { async fetch(r) {
    const evil = { get message() { for (;;); } };
    if (r.url.endsWith('/unhandled')) { Promise.reject(evil); return new Response('answered'); }
    if (r.url.endsWith('/throw')) throw evil;
    return new Response('ok');
  } };)",
       short_cpu());
  fetch("/unhandled");
  auto thrown = fetch("/throw");
  EXPECT_TRUE(thrown->here);
  EXPECT_EQ(thrown->body, "") << thrown->error;
  EXPECT_EQ(fetch("/")->body, "ok");
  EXPECT_EQ(host_->active_events(), 0u);
}

IsolateLimits small_heap() {
  IsolateLimits limits;
  limits.heap_bytes = 24 << 20;
  return limits;
}

// The symptom was an acknowledged write that was not there.
TEST_F(Host, an_answer_of_the_turn_that_broke_the_memory_limit_is_not_given) {
  load(R"(export class C extends DurableObject {
    fetch(r) {
      if (r.url.endsWith('/quiet')) return new Promise(() => {});
      this.ctx.storage.kv.put('n', 1);
      Promise.resolve().then(() => 0).then(() => 0).then(() => 0).then(() => 0).then(() => {
        const a = []; for (;;) a.push(new Array(1000).fill(Math.random()));
      });
      return new Response('written');
    }
  }
  export default { fetch() { return scheduler.wait(1e9); } };)",
       small_heap());
  auto stateless = fetch("/");
  auto quiet = fetch(cell("b"), "/quiet");
  auto answer = fetch(cell(), "/");
  EXPECT_EQ(condemned_, 1);
  EXPECT_TRUE(host_->condemned());
  EXPECT_EQ(answer->body, "");
  EXPECT_NE(answer->error.find("memory limit"), std::string::npos) << answer->error;
  EXPECT_EQ(cell().cell.committed, Txid(0));
  EXPECT_NE(quiet->error.find("memory limit"), std::string::npos);
  EXPECT_NE(stateless->error.find("memory limit"), std::string::npos);
  EXPECT_EQ(host_->cells(), 0u);
  EXPECT_EQ(host_->active_events(), 0u);
  EXPECT_NE(fetch("/")->error, "") << "a condemned isolate takes nothing new";
}

TEST_F(Host, buffers_beyond_the_quota_are_a_range_error) {
  load(R"(export default { async fetch(r) {
    try { const a = []; for (;;) a.push(new Uint8Array(1e7)); } catch (e) { return new Response(e.name); }
  } };)");
  EXPECT_EQ(fetch("/")->body, "RangeError");
  EXPECT_EQ(condemned_, 0);
}

TEST_F(Host, calls_that_wait_are_bounded_in_bytes) {
  load(R"(export default { async fetch(r) {
    const body = 'x'.repeat(16 << 20);
    const calls = [];
    try {
      for (let i = 0; i < 100; ++i) calls.push(fetch('http://out/', { method: 'POST', body }));
      await Promise.all(calls);
    } catch (e) { return new Response(e.message); }
  } };)");
  auto answer = fetch("/");
  EXPECT_NE(answer->body.find("Too many calls"), std::string::npos) << answer->body << answer->error;
  EXPECT_LE(fetched_.size(), 8u);
}

// --- resets ---

// The symptom was a client that waited for ever for the rest of a body.
TEST_F(Host, a_reset_breaks_off_the_streams_of_the_object) {
  load(R"(export class C extends DurableObject {
    fetch(r) {
      if (r.url.endsWith('/abort')) this.ctx.abort('bye');
      const { readable, writable } = new TransformStream();
      this.w = writable.getWriter();
      this.w.write(new TextEncoder().encode('part'));
      return new Response(readable);
    }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  EXPECT_EQ(read(*answer), "part");
  fetch(cell(), "/abort");
  EXPECT_EQ(read(*answer), "|error: bye");
  EXPECT_EQ(host_->active_events(), 0u);
}

TEST_F(Host, code_of_an_instance_that_was_reset_can_do_nothing) {
  load(R"(let shared, resolve;
  export class C extends DurableObject {
    async fetch(r) {
      const path = new URL(r.url).pathname;
      if (path === '/abort') this.ctx.abort('bye');
      if (path === '/resolve') { resolve(); return new Response('ok'); }
      shared = new Promise((r) => { resolve = r; });
      const secret = ++this.ctx.n;
      await shared;
      for (const attempt of [
        () => fetch('http://out/'), () => this.ctx.storage.put('n', 1), () => scheduler.wait(1),
        () => this.env.C.getByName('x').fetch('http://x/'), () => this.ctx.storage.sync(),
        () => this.ctx.blockConcurrencyWhile(() => console.log('section')),
      ]) {
        try { await attempt(); console.log('done: ' + attempt); } catch (e) { console.log('refused'); }
      }
      return new Response('late');
    }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  fetch(cell(), "/abort");
  EXPECT_EQ(answer->error, "bye");
  EXPECT_EQ(fetch(cell("b"), "/resolve")->body, "ok");
  settle();
  EXPECT_EQ(logged(), "refused\nrefused\nrefused\nrefused\nrefused\nrefused\n");
  EXPECT_TRUE(fetched_.empty());
  EXPECT_EQ(cell().cell.committed, Txid(0));
}

TEST_F(Host, an_object_that_moves_keeps_what_waits_and_starts_anew_elsewhere) {
  load(R"(export class C extends DurableObject {
    n = 0;
    async fetch(r) {
      if (r.url.endsWith('/out')) await fetch('http://out/');
      return new Response(String(++this.n));
    }
  }
  export default {};)");
  EXPECT_EQ(fetch(cell(), "/")->body, "1");
  auto active = fetch(cell(), "/out");
  host_->detach(cell().cell, JsError{"Error", "moved", {}, kRetryable});
  EXPECT_EQ(active->error, "moved");
  EXPECT_EQ(cancelled_.size(), 1u);
  EXPECT_EQ(cell().cell.state, Cell::State::kCold);
  EXPECT_EQ(host_->cells(), 0u);
  auto first = std::move(host_);
  load("export class C extends DurableObject { fetch() { return new Response('new code'); } } export default {};");
  host_->attach(cell().cell);
  EXPECT_EQ(fetch(cell(), "/")->body, "new code");
  first.reset();
  // The storage knows nothing of the isolate that is gone.
  EXPECT_EQ(fetch(cell(), "/")->body, "new code");
  host_->detach(cell().cell, JsError{"Error", "moved", {}, 0});
  host_.reset();
  ASSERT_TRUE(cell().cell.storage->exec(
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 100000) SELECT count(*) FROM c", {}));
}

TEST_F(Host, an_object_cannot_use_the_storage_of_another) {
  load(R"(let first;
  export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/first')) { first = this.ctx; return new Response('ok'); }
      try { return new Response(String(await first.storage.get('n'))); } catch (e) { return new Response(e.message); }
    }
  }
  export default {};)");
  fetch(cell("a"), "/first");
  EXPECT_NE(fetch(cell("b"), "/")->body.find("different Durable Object"), std::string::npos);
}

TEST_F(Host, an_alarm_handler_that_hangs_is_ended_after_a_quarter_of_an_hour) {
  load(R"(export class C extends DurableObject {
    alarm() { return new Promise(() => {}); }
    fetch() { return new Response('ok'); }
  }
  export default {};)");
  std::string error;
  host_->deliver(cell().cell, CellAlarm{0, world_.wall_now(), [&](Outcome<bool> outcome) {
                                          error = outcome ? "none" : outcome.error().message;
                                        }});
  world_.run_for(std::chrono::minutes(14));
  host_->sweep();
  EXPECT_EQ(error, "");
  world_.run_for(std::chrono::minutes(2));
  host_->sweep();
  EXPECT_EQ(error, "The handler did not end within 15 minutes.");
  EXPECT_EQ(fetch(cell(), "/")->body, "ok");
}

// --- what is forgotten ---

// The symptom was an object that called others all day, looked at their status only, and grew.
TEST_F(Host, the_body_of_a_reply_that_an_object_forgets_is_given_up) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      const reply = await fetch('http://out/');
      if (r.url.endsWith('/keep')) this.kept = reply;
      if (r.url.endsWith('/half')) { const reader = reply.body.getReader(); await reader.read(); this.reader = reader; }
      if (r.url.endsWith('/text')) return new Response(await reply.text());
      return new Response(String(reply.status));
    }
  }
  export default {};)");
  std::vector<PipeWriter> writers;
  std::vector<int> gone(4);
  std::shared_ptr<Answer> text;
  for (const char* path : {"/", "/keep", "/half", "/text"}) {
    auto answer = fetch(cell(), path);
    if (path == std::string("/text")) text = answer;
    auto [writer, reader] = make_pipe();
    writer->on_cancelled([&gone, i = writers.size()] { ++gone[i]; });
    writer->write(Blob(std::string("part")));
    fetched_.back().reply(HttpResponseMessage{200, "", "", std::move(reader)});
    settle();
    writers.push_back(std::move(writer));
  }
  collect_garbage();
  EXPECT_EQ(gone, (std::vector<int>{1, 0, 0, 0}));
  writers[3]->write(Blob(std::string(" and more")));
  writers[3]->close();
  settle();
  EXPECT_EQ(text->body, "part and more");
  host_->detach(cell().cell, JsError{"Error", "moved", {}, 0});
  EXPECT_EQ(gone, (std::vector<int>{1, 1, 1, 0}));
}

// The symptom was an isolate that was ended for memory that it had given back.
TEST_F(Host, cursors_that_are_forgotten_hold_nothing) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      const sql = this.ctx.storage.sql;
      sql.exec('CREATE TABLE IF NOT EXISTS t (n)');
      for (let i = 0; i < 200; ++i) sql.exec('INSERT INTO t VALUES (?)', i);
      for (let i = 0; i < 30000; ++i) sql.exec('SELECT n FROM t').next();
      return new Response('ok');
    }
  }
  export default {};)",
       [] {
         IsolateLimits limits;
         limits.array_buffer_bytes = 32 << 20;
         limits.heap_bytes = 64 << 20;
         return limits;
       }());
  cell().proven_at_once = true;
  for (int i = 0; i < 3; ++i) {
    auto answer = fetch(cell(), "/");
    EXPECT_EQ(answer->body, "ok") << answer->error;
  }
  collect_garbage();
  EXPECT_EQ(condemned_, 0);
}

TEST_F(Host, two_aborts_in_one_turn_are_one_reset) {
  load(R"(export class C extends DurableObject {
    fetch() { try { this.ctx.abort('one'); } catch {} this.ctx.abort('two'); }
  }
  export default {};)");
  EXPECT_EQ(fetch(cell(), "/")->error, "one");
  EXPECT_EQ(host_->cells(), 1u);
}

// --- callers ---

TEST_F(Host, a_caller_that_hangs_up_ends_the_event) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      r.signal.addEventListener('abort', () => console.log('gone'));
      await new Promise(() => {});
    }
  }
  export default {};)");
  auto caller = std::make_shared<CallerLink>();
  auto answer = fetch(cell(), "/", caller);
  EXPECT_EQ(cell().cell.active.size(), 1u);
  caller->hang_up();
  settle();
  EXPECT_TRUE(cell().cell.idle());
  EXPECT_FALSE(answer->here);
  auto late = std::make_shared<CallerLink>();
  late->hang_up();
  fetch(cell(), "/", late);
  EXPECT_TRUE(cell().cell.idle()) << "hung up before the event started";
}

TEST_F(Host, a_request_that_ends_hangs_up_on_the_objects_it_called) {
  load(R"(export class C extends DurableObject {
    fetch() { return new Promise(() => {}); }
    hang() { return new Promise(() => {}); }
  }
  export default { fetch(r, env) {
    env.C.getByName('a').fetch('http://x/');
    env.C.getByName('a').hang();
    return new Response('ok');
  } };)");
  EXPECT_EQ(fetch("/")->body, "ok");
  ASSERT_EQ(cells_.size(), 1u);
  EXPECT_EQ(cells_.begin()->second->cell.active.size(), 0u);
  EXPECT_EQ(host_->active_events(), 0u);
}

TEST_F(Host, an_answer_that_nobody_takes_frees_whoever_writes_it) {
  load(R"(export class C extends DurableObject {
    async fetch() {
      const { readable, writable } = new TransformStream();
      const w = writable.getWriter();
      (async () => { try { for (;;) await w.write(new Uint8Array(100000)); } catch { console.log('stopped'); } })();
      await scheduler.wait(10);
      return new Response(readable);
    }
  }
  export default {};)");
  auto caller = std::make_shared<CallerLink>();
  fetch(cell(), "/", caller);
  caller->hang_up();
  world_.run_for(seconds(1));
  EXPECT_EQ(logged(), "stopped\n");
  EXPECT_TRUE(cell().cell.idle());

  auto reader_leaves = fetch(cell(), "/");
  world_.run_for(milliseconds(20));
  ASSERT_TRUE(reader_leaves->stream);
  reader_leaves->stream.reset();
  world_.run_for(seconds(1));
  EXPECT_TRUE(cell().cell.idle());
}

TEST_F(Host, a_client_that_is_gone_ends_its_request) {
  load(R"(export default { async fetch(r) {
    r.signal.addEventListener('abort', () => console.log('gone'));
    await fetch('http://out/');
  } };)");
  fetch("/");
  host_->disconnect(last_io_);
  EXPECT_EQ(logged(), "gone\n");
  EXPECT_EQ(host_->active_events(), 1u) << "a client that closed its sending side may still read";
  host_->caller_gone(last_io_);
  EXPECT_EQ(host_->active_events(), 0u);
  EXPECT_EQ(cancelled_.size(), 1u);
}

TEST_F(Host, what_a_request_left_running_ends_after_a_while) {
  load(R"(export default { fetch(r, env, ctx) {
    ctx.waitUntil(scheduler.wait(1e9));
    if (r.url.endsWith('/stream')) {
      const t = new TransformStream();
      globalThis.w = t.writable.getWriter();
      return new Response(t.readable);
    }
    return new Response('ok');
  } };)");
  EXPECT_EQ(fetch("/")->body, "ok");
  auto streaming = fetch("/stream");
  world_.run_for(seconds(29));
  host_->sweep();
  EXPECT_EQ(host_->active_events(), 2u);
  world_.run_for(seconds(2));
  host_->sweep();
  EXPECT_EQ(host_->active_events(), 1u) << "a stream that is read goes on";
  EXPECT_NE(logged().find("waitUntil"), std::string::npos);
}

TEST_F(Host, a_request_that_waits_for_nothing_ends) {
  load(R"(
  export default { fetch(r, env, ctx) {
    if (r.url.endsWith('/never')) return new Promise(() => {});
    if (r.url.endsWith('/stream')) {
      return new Response(new ReadableStream({ pull() { return new Promise(() => {}); } }));
    }
    ctx.waitUntil(new Promise(() => {}));
    return new Response('ok');
  } };)");
  EXPECT_NE(fetch("/never")->error.find("hung"), std::string::npos);
  EXPECT_EQ(fetch("/")->body, "ok");
  fetch("/stream");
  EXPECT_EQ(host_->active_events(), 0u);
}

TEST_F(Host, code_of_a_request_that_has_ended_starts_nothing) {
  load(R"(let resolve; const shared = new Promise((r) => { resolve = r; });
  export default { fetch(r) {
    if (r.url.endsWith('/resolve')) { resolve(); return new Response('ok'); }
    shared.then(() => fetch('http://out/')).catch((e) => console.log(e.message));
    shared.then(() => setInterval(() => {}, 1)).catch((e) => console.log(e.message));
    return new Response('ok');
  } };)");
  fetch("/");
  fetch("/resolve");
  EXPECT_EQ(log_.size(), 2u) << logged();
  EXPECT_TRUE(fetched_.empty());
  EXPECT_TRUE(is_at_rest());
}

TEST_F(Host, an_isolate_may_end_at_any_moment) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      setInterval(() => {}, 10);
      const { readable, writable } = new TransformStream();
      const w = writable.getWriter();
      this.ctx.waitUntil(fetch('http://out/', { method: 'POST', body: readable, duplex: 'half' }));
      await w.write(new Uint8Array(10));
      return new Response(r.body ?? 'x');
    }
  }
  export default { fetch(r, env) { return env.C.getByName('a').fetch(r); } };)");
  auto answer = fetch("/");
  auto [writer, reader] = make_pipe();
  host_->fetch(HttpRequestMessage{"POST", "http://x/", "", std::move(reader), ""}, into(std::make_shared<Answer>()));
  settle();
  int gone = 0;
  writer->on_cancelled([&] { ++gone; });
  host_.reset();
  EXPECT_EQ(gone, 1);
  for (Fetched& f : fetched_) f.reply(HttpResponseMessage{200, "", "", {}});
  world_.run_for(seconds(1));
}

}  // namespace
}  // namespace celld::js
