// A whole node in one process on a bucket in memory: what no part of it can show alone. All of it is
// taken apart again at the end, so that sanitizers see what is left.
#include "node/node.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "js/watchdog.h"
#include "net/loop_testing.h"
#include "store/memory_store.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using net_testing::Raw;

std::shared_ptr<const js::WorkerCode> code_of(const std::string& source) {
  auto code = std::make_shared<js::WorkerCode>();
  code->script_name = "test";
  code->main = "main.js";
  code->compatibility_date = "2026-01-01";
  code->vars_json = "{}";
  code->modules.push_back(js::CodeModule{
      "main.js", js::CodeModule::Kind::kEsm, Blob("import { DurableObject } from 'cloudflare:workers';\n" + source)});
  code->namespaces.push_back(js::NamespaceSpec{"C", "C", std::string(32, 'k'), true});
  return code;
}

// The Worker of most tests: /NAME/WHAT goes to the object NAME.
const std::string kWorker = R"(
export default { fetch(r, env) {
  if (r.url.endsWith('/error')) return Response.error();
  return env.C.getByName(new URL(r.url).pathname.split('/')[1]).fetch(r);
} };)";
const std::string kCounter = R"(
export class C extends DurableObject {
  async fetch(r) {
    const what = new URL(r.url).pathname.split('/')[2];
    if (what === 'loop') for (;;);
    if (what === 'long') Array.prototype.indexOf.call({ length: 2 ** 36 }, 1);
    if (what === 'memory') 'xyz,'.repeat(3e7).split(',');
    if (what === 'fatal') ('x'.repeat(2e8) + 1).split('');
    if (what === 'hang') return new Promise(() => {});
    if (what === 'stream') {
      const { readable, writable } = new TransformStream();
      const w = writable.getWriter();
      (async () => {
        for (;;) { await w.write(new TextEncoder().encode('tick ')); await scheduler.wait(20); }
      })().catch(() => {});
      return new Response(readable);
    }
    if (what === 'big') this.ctx.storage.kv.put('big' + Math.random(), 'x'.repeat(100_000));
    if (what === 'alarm') await this.ctx.storage.setAlarm(Date.now() + 10);
    const n = (this.ctx.storage.kv.get('n') ?? 0) + 1;
    this.ctx.storage.kv.put('n', n);
    return new Response('n=' + n + (this.alarms ? ' alarms=' + this.alarms : ''));
  }
  alarm() { this.alarms = (this.alarms ?? 0) + 1; }
})" + kWorker;

class NodeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "celld-node-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    config_.listen_port = 0;
    config_.front_loops = 1;
    config_.cell_loops = 2;
  }
  void TearDown() override {
    if (node_) {
      auto left = run(node_->leave());
      EXPECT_TRUE(left) << left.error().message;
      node_.reset();
    }
    fs::remove_all(folder_);
  }

  // Runs the task on the control thread, which is this one.
  template <class T>
  Result<T> run(Task<Result<T>> task) {
    std::optional<Result<T>> result;
    auto keep = [](Task<Result<T>> t, std::optional<Result<T>>* out) -> Task<void> {
      out->emplace(co_await std::move(t));
    };
    world_.spawn(keep(std::move(task), &result));
    EXPECT_TRUE(loop_.run_until([&] { return result.has_value(); }, 60s));
    return std::move(*result);
  }

  void start(std::shared_ptr<const js::WorkerCode> code) {
    auto dir = DataDir::open(folder_ / "data");
    ASSERT_TRUE(dir);
    node_ = std::make_unique<Node>(loop_.io, world_, config_, std::move(*dir),
                                   [this](js::LogLevel, const std::string& text) {
                                     std::lock_guard lock(log_mutex_);
                                     log_ += text + "\n";
                                   });
    auto joined = run(node_->join(store_, store_));
    ASSERT_TRUE(joined) << joined.error().message;
    auto adopted = run(node_->adopt(std::move(code), {}));
    ASSERT_TRUE(adopted) << adopted.error().message;
    auto port = node_->listen();
    ASSERT_TRUE(port) << port.error().message;
    port_ = *port;
  }

  Raw ask(const std::string& path) {
    Raw client = Raw::connect(port_);
    EXPECT_TRUE(client.send(loop_, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    return client;
  }
  // "200 body".
  std::string get(const std::string& path) {
    Raw client = ask(path);
    EXPECT_TRUE(client.receive_to_end(loop_)) << path;
    return answer_of(client);
  }
  static std::string answer_of(const Raw& client) {
    size_t body = client.received.find("\r\n\r\n");
    if (client.received.size() < 12 || body == std::string::npos) return "no answer";
    return client.received.substr(9, 3) + " " + client.received.substr(body + 4);
  }
  std::string log() {
    std::lock_guard lock(log_mutex_);
    return log_;
  }

  net_testing::Loop loop_;
  AsioWorld world_{loop_.io};
  MemoryStore store_{world_};
  NodeConfig config_;
  fs::path folder_;
  uint16_t port_ = 0;
  std::mutex log_mutex_;
  std::string log_;
  std::unique_ptr<Node> node_;
};

TEST_F(NodeTest, what_was_acknowledged_is_there_after_a_stop_and_a_start) {
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=1");
  EXPECT_EQ(get("/b/count"), "200 n=1");
  EXPECT_EQ(get("/a/count"), "200 n=2");
  ASSERT_TRUE(run(node_->leave()));
  node_.reset();
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=3");
  EXPECT_EQ(get("/b/count"), "200 n=2");
}

TEST_F(NodeTest, new_code_runs_for_the_next_request_and_keeps_the_data) {
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=1");
  ASSERT_TRUE(run(node_->adopt(code_of(R"(
    export class C extends DurableObject { fetch() { return new Response('new ' + this.ctx.storage.kv.get('n')); } })" +
                                       kWorker), {})));
  EXPECT_EQ(get("/a/count"), "200 new 1");
  auto broken = run(node_->adopt(code_of("export class C {\n" + kWorker), {}));
  EXPECT_FALSE(broken);
  EXPECT_EQ(get("/a/count"), "200 new 1");
}

TEST_F(NodeTest, an_answer_without_a_status_is_an_error_and_not_the_end) {
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/error").substr(0, 4), "500 ");
  EXPECT_EQ(get("/a/count"), "200 n=1");
}

TEST_F(NodeTest, alarms_fire) {
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/alarm"), "200 n=1");
  EXPECT_TRUE(loop_.run_until([&] { return get("/a/count").ends_with("alarms=1"); }, 30s));
}

// The symptom was a node that refused everything until it was restarted: while it refuses there is
// no commit, and only commits brought news of the journal.
TEST_F(NodeTest, a_full_journal_refuses_events_until_a_drain_made_room) {
  config_.core.undrained_bytes_max = 60'000;
  start(code_of(kCounter));
  bool refused = false;
  for (int round = 0; round < 100 && !refused; ++round) {
    std::vector<Raw> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(ask("/" + std::to_string(i) + "/big"));
    for (Raw& client : clients) {
      ASSERT_TRUE(client.receive_to_end(loop_));
      refused |= answer_of(client).starts_with("503 ");
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(loop_.run_until([&] { return get("/b/count").starts_with("200 "); }, 30s));
}

TEST_F(NodeTest, a_stop_ends_endless_loops_streams_and_requests_that_hang) {
  config_.shutdown_deadline = 4s;
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=1");
  Raw loops = ask("/loop/loop");
  Raw hangs = ask("/hang/hang");
  Raw streams = ask("/stream/stream");
  ASSERT_TRUE(streams.receive_until(loop_, "tick"));
  auto start_of_stop = std::chrono::steady_clock::now();
  auto left = run(node_->leave());
  EXPECT_TRUE(left) << left.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - start_of_stop, 20s);
  EXPECT_FALSE(node_->stuck());
  node_.reset();
  js::Watchdog::limit_all(Duration::max(), Duration::max());
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=2");
}

TEST_F(NodeTest, clients_that_vanish_leave_nothing_behind) {
  config_.loop.http.half_closed_timeout = 200ms;
  config_.loop.idle_evict = 300ms;
  start(code_of(kCounter));
  for (int round = 0; round < 3; ++round) {
    std::vector<Raw> clients;
    for (int i = 0; i < 30; ++i) {
      clients.push_back(ask(i % 3 == 0   ? "/hang/hang"
                            : i % 3 == 1 ? "/stream/stream"
                                         : "/" + std::to_string(i) + "/big"));
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      if (i % 4 == 0 && i % 3 == 1) {
        ASSERT_TRUE(clients[i].receive_until(loop_, "tick"));
      }
      i % 2 ? clients[i].close() : clients[i].close_with_reset();
    }
  }
  // An object that still had somebody to answer would stay in memory.
  EXPECT_TRUE(loop_.run_until([&] { return node_->work() > 0; }, 30s));
  EXPECT_TRUE(loop_.run_until([&] { return node_->work() == 0; }, 30s)) << node_->work();
}

TEST_F(NodeTest, a_thread_that_is_lost_costs_what_ran_on_it_and_nothing_else) {
  config_.loop.isolate.cpu_per_event = 300ms;
  config_.turn_grace = 200ms;
  config_.lost_threads_max = 2;
  start(code_of(kCounter));
  std::string worn_out;
  node_->on_worn_out([&](const std::string& why) { worn_out = why; });
  EXPECT_EQ(get("/a/count"), "200 n=1");
  EXPECT_EQ(get("/b/count"), "200 n=1");
  // In a call that V8 cannot end, and in one that it ends the process for.
  EXPECT_TRUE(get("/a/long").starts_with("500 "));
  EXPECT_EQ(node_->lost_threads(), 1u);
  EXPECT_EQ(worn_out, "");
  EXPECT_EQ(get("/a/count"), "200 n=2");
  EXPECT_EQ(get("/b/count"), "200 n=2");
  EXPECT_TRUE(get("/b/fatal").starts_with("500 "));
  EXPECT_TRUE(loop_.run_until([&] { return !worn_out.empty(); }, 30s));
  EXPECT_EQ(node_->lost_threads(), 2u);
  EXPECT_EQ(get("/a/count"), "200 n=3");
  EXPECT_EQ(get("/b/count"), "200 n=3");
}

TEST_F(NodeTest, a_heap_that_outgrows_its_bounds_within_one_call_costs_the_thread) {
  config_.loop.isolate.heap_bytes = 64 << 20;
  config_.loop.isolate.heap_bytes_hard = 192 << 20;
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=1");
  std::string answer = get("/a/memory");
  EXPECT_TRUE(answer.starts_with("500 ")) << answer;
  EXPECT_EQ(node_->lost_threads(), 1u);
  EXPECT_EQ(get("/a/count"), "200 n=2");
}

TEST_F(NodeTest, a_deployment_whose_start_loses_the_thread_is_refused) {
  config_.loop.isolate.cpu_per_event = 300ms;
  config_.turn_grace = 200ms;
  start(code_of(kCounter));
  EXPECT_EQ(get("/a/count"), "200 n=1");
  auto adopted = run(node_->adopt(code_of("const n = ('x'.repeat(2e8) + 1).split('').length;" + kCounter), {}));
  ASSERT_FALSE(adopted);
  EXPECT_NE(adopted.error().message.find("start-up"), std::string::npos) << adopted.error().message;
  EXPECT_EQ(get("/a/count"), "200 n=2");
}

}  // namespace
}  // namespace celld
