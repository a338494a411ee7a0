// Nothing that could tell of a commit leaves a cell before the commit is proven, and nothing of a
// turn that failed ever does.
#include "js/isolate_host_testing.h"

namespace celld::js {
namespace {

class OutputGate : public HostTest {};

TEST_F(OutputGate, an_answer_waits_for_the_proof_of_the_write_before_it) {
  load(R"(export class C extends DurableObject {
    async fetch() { await this.ctx.storage.put('n', 1); return new Response('written'); }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  EXPECT_FALSE(answer->here);
  cell().prove();
  EXPECT_EQ(answer->body, "written");
}

TEST_F(OutputGate, a_read_waits_for_the_unproven_write_that_it_could_tell_of) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/write')) await this.ctx.storage.put('n', 7);
      return new Response(String(await this.ctx.storage.get('n')));
    }
  }
  export default {};)");
  auto write = fetch(cell(), "/write");
  auto read = fetch(cell(), "/read");
  auto other = fetch(cell("b"), "/read");
  EXPECT_FALSE(write->here);
  EXPECT_FALSE(read->here);
  EXPECT_EQ(other->body, "undefined") << "other cells do not wait";
  cell().prove();
  EXPECT_EQ(read->body, "7");
}

TEST_F(OutputGate, chunks_of_a_stream_wait_each_for_its_commit) {
  load(R"(export class C extends DurableObject {
    fetch() {
      const { readable, writable } = new TransformStream();
      const writer = writable.getWriter();
      (async () => {
        await writer.write(new TextEncoder().encode('a'));
        await scheduler.wait(10);
        await this.ctx.storage.put('n', 1);
        await writer.write(new TextEncoder().encode('b'));
        await writer.close();
      })();
      return new Response(readable);
    }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  ASSERT_TRUE(answer->stream);
  EXPECT_EQ(read(*answer), "a");
  world_.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(read(*answer), "");
  cell().prove();
  settle();
  EXPECT_EQ(read(*answer), "b|end");
}

TEST_F(OutputGate, the_error_of_a_handler_waits_too) {
  load(R"(export class C extends DurableObject {
    async fetch() { await this.ctx.storage.put('n', 1); throw new Error('n is 1'); }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  EXPECT_FALSE(answer->here);
  cell().prove();
  EXPECT_EQ(answer->error, "n is 1");
}

TEST_F(OutputGate, the_reason_of_an_abort_waits_for_earlier_commits) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/write')) { await this.ctx.storage.put('n', 1); return new Response(''); }
      if (r.url.endsWith('/wait')) return new Promise(() => {});
      this.ctx.abort('n is ' + await this.ctx.storage.get('n'));
    }
  }
  export default {};)");
  fetch(cell(), "/write");
  auto bystander = fetch(cell(), "/wait");
  auto aborting = fetch(cell(), "/abort");
  EXPECT_FALSE(bystander->here);
  EXPECT_FALSE(aborting->here);
  cell().prove();
  EXPECT_EQ(bystander->error, "n is 1");
  EXPECT_EQ(aborting->error, "n is 1");
}

TEST_F(OutputGate, outgoing_requests_and_calls_wait) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      await this.ctx.storage.put('n', 1);
      const out = fetch('http://out/');
      const call = this.env.D.getByName('d').m(1);
      await Promise.all([out, call]);
      return new Response('done');
    }
  }
  export class D extends DurableObject { m(x) { return x; } }
  export default {};)");
  auto answer = fetch(cell(), "/");
  EXPECT_TRUE(fetched_.empty());
  EXPECT_EQ(cells_.size(), 1u) << "the other object has been called";
  cell().prove();
  settle();
  ASSERT_EQ(fetched_.size(), 1u);
  EXPECT_EQ(cells_.size(), 2u);
  fetched_[0].reply(HttpResponseMessage{200, "", "", {}});
  settle();
  EXPECT_EQ(answer->body, "done");
}

// The frame of an event is lost in the then() of a foreign thenable.
TEST_F(OutputGate, a_request_from_inside_a_foreign_thenable_waits_too) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      await this.ctx.storage.put('n', 1);
      await { then(go) { fetch('http://out/').then(go); } };
      return new Response(String(await this.ctx.storage.get('n')));
    }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  EXPECT_TRUE(fetched_.empty());
  cell().prove();
  settle();
  ASSERT_EQ(fetched_.size(), 1u);
  fetched_[0].reply(HttpResponseMessage{200, "", "", {}});
  settle();
  EXPECT_EQ(answer->body, "1");
}

TEST_F(OutputGate, a_request_whose_caller_was_reset_meanwhile_is_not_sent) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/abort')) this.ctx.abort('bye');
      await this.ctx.storage.put('n', 1);
      await fetch('http://out/');
      return new Response('');
    }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  fetch(cell(), "/abort");
  cell().prove();
  settle();
  EXPECT_TRUE(fetched_.empty());
  EXPECT_EQ(answer->error, "bye");
}

TEST_F(OutputGate, sync_waits_for_the_proof) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      await this.ctx.storage.put('n', 1);
      await this.ctx.storage.sync();
      console.log('synced');
      return new Response('');
    }
  }
  export default {};)");
  fetch(cell(), "/");
  EXPECT_EQ(logged(), "");
  cell().prove();
  settle();
  EXPECT_EQ(logged(), "synced\n");
}

TEST_F(OutputGate, a_turn_whose_commit_fails_tells_nothing) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/read')) return new Response(String(await this.ctx.storage.get('n')));
      await this.ctx.storage.put('n', 1);
      fetch('http://out/').catch(() => {});
      return new Response('written');
    }
  }
  export default {};)");
  cell().commits_allowed = false;
  auto answer = fetch(cell(), "/write");
  EXPECT_TRUE(answer->here);
  EXPECT_NE(answer->error, "");
  EXPECT_TRUE(fetched_.empty());
  cell().commits_allowed = true;
  EXPECT_EQ(fetch(cell(), "/read")->body, "undefined");
}

TEST_F(OutputGate, when_nothing_will_be_proven_everything_held_fails) {
  load(R"(export class C extends DurableObject {
    async fetch(r) { await this.ctx.storage.put('n', 1); return new Response('written'); }
  }
  export default {};)");
  auto answer = fetch(cell(), "/");
  cell().cell.fail_gate(JsError{"Error", "fenced", {}, 0});
  EXPECT_EQ(answer->error, "fenced");
}

TEST_F(OutputGate, what_waits_too_long_fails_and_what_comes_later_still_waits) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/write')) await this.ctx.storage.put('n', 7);
      return new Response(String(await this.ctx.storage.get('n')));
    }
  }
  export default {};)");
  const JsError late{"Error", "not confirmed", {}, kRetryable | kUnconfirmed};
  auto at = [](int s) { return MonoTime{std::chrono::seconds(s)}; };
  auto write = fetch(cell(), "/write");
  EXPECT_EQ(cell().cell.expire_gate(at(100), at(70), late), 0u) << "seen for the first time";
  auto read = fetch(cell(), "/read");
  EXPECT_EQ(cell().cell.expire_gate(at(110), at(80), late), 0u);
  EXPECT_EQ(cell().cell.expire_gate(at(130), at(100), late), 1u);
  EXPECT_EQ(write->error, "not confirmed");
  EXPECT_FALSE(read->here) << "the write may still be proven";
  cell().prove();
  EXPECT_EQ(read->body, "7") << "nothing was taken back";
}

TEST_F(OutputGate, a_cell_that_writes_waits_while_the_journal_is_full_and_readers_go_on) {
  load(R"(export class C extends DurableObject {
    async fetch(r) {
      if (r.url.endsWith('/read')) { await scheduler.wait(1); return new Response('read'); }
      for (let i = 0; i < 100; ++i) {
        this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS t(x)');
        this.ctx.storage.sql.exec('INSERT INTO t VALUES(1)');
        await scheduler.wait(1);
      }
      return new Response('written');
    }
  }
  export default {};)");
  std::atomic<bool> full{false};
  for (const char* name : {"a", "b"}) cell(name).cell.journal_full = &full;
  auto write = fetch(cell("a"), "/write");
  world_.run_for(std::chrono::milliseconds(10));
  Txid before = cell("a").cell.committed;
  EXPECT_GT(before, Txid(3));
  full = true;
  auto read = fetch(cell("b"), "/read");
  world_.run_for(std::chrono::milliseconds(500));
  EXPECT_EQ(read->body, "read");
  EXPECT_EQ(cell("a").cell.committed, before) << "it waits";
  // What it wrote is proven: it may write once more.
  cell("a").prove();
  host_->pump(cell("a").cell);
  world_.run_for(std::chrono::milliseconds(500));
  EXPECT_EQ(cell("a").cell.committed, before.next());
  full = false;
  host_->pump(cell("a").cell);
  world_.run_for(std::chrono::milliseconds(500));
  cell("a").prove();
  EXPECT_EQ(write->body, "written");
}

TEST_F(OutputGate, without_authority_nothing_leaves) {
  load(R"(export class C extends DurableObject {
    async fetch(r) { return new Response('secret'); }
  }
  export default {};)");
  std::atomic<int64_t> until{INT64_MAX};
  cell().cell.authority_until_ns = &until;
  EXPECT_EQ(fetch(cell(), "/")->body, "secret");
  until = 0;
  auto answer = fetch(cell(), "/");
  EXPECT_EQ(answer->body, "");
  EXPECT_NE(answer->error.find("lease"), answer->error.npos) << answer->error;
}

}  // namespace
}  // namespace celld::js
