// For tests of the host: an isolate in virtual time, cells whose commits are proven by hand, and
// services that write down what is asked of them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "js/isolate_host.h"
#include "js/pipe.h"
#include "world/test_world.h"

namespace celld::js {

// A cell with storage in memory.
struct TestCell final : CellStorage::Sink {
  explicit TestCell(std::string id) : cell(CellId(std::move(id))) {
    cell.storage = std::make_unique<CellStorage>(this, CellStorageOptions{});
    cell.state = Cell::State::kCold;
  }

  bool may_commit() override { return commits_allowed; }
  void commit(std::vector<NumberedPage>, uint32_t, std::optional<std::optional<int64_t>>) override {
    cell.committed = cell.committed.next();
    if (proven_at_once) cell.proven = cell.committed;
  }
  // What the journal would say by and by.
  void prove() { cell.on_proven(cell.committed); }

  bool commits_allowed = true;
  bool proven_at_once = false;
  Cell cell;
};

class HostTest : public testing::Test, public IsolateServices {
 protected:
  struct Fetched {
    HttpRequestMessage request;
    Reply<HttpResponseMessage> reply;
  };
  // What became of an event.
  struct Answer {
    bool here = false;
    int status = 0;
    std::string body;
    std::string error;  // its message
    PipeReader stream;
  };

  // Loads `source` as the main module, with the class C bound as C, and D as D when it is there.
  void load(const std::string& source, IsolateLimits limits = {}) {
    auto code = std::make_shared<WorkerCode>();
    code->script_name = "test";
    code->main = "main.js";
    code->compatibility_date = "2026-01-01";
    code->vars_json = "{}";
    code->modules.push_back(CodeModule{"main.js", CodeModule::Kind::kEsm,
                                       Blob("import { DurableObject } from 'cloudflare:workers';\n" + source)});
    for (std::string name : {"C", "D"}) {
      if (source.find("class " + name + " ") == source.npos) continue;
      code->namespaces.push_back(NamespaceSpec{name, name, std::string(32, 'k'), true});
    }
    auto host = IsolateHost::create(world_, *this, code, limits);
    ASSERT_TRUE(host) << host.error().message;
    host_ = std::move(*host);
  }

  TestCell& cell(const std::string& name = "a", const std::string& class_name = "C") {
    auto& slot = cells_[class_name + ":" + name];
    if (!slot) {
      slot = std::make_unique<TestCell>(class_name + ":" + name);
      host_->attach(slot->cell);
    }
    return *slot;
  }

  Reply<HttpResponseMessage> into(std::shared_ptr<Answer> answer) {
    return [answer](Outcome<HttpResponseMessage> outcome) {
      EXPECT_FALSE(answer->here) << "answered twice";
      answer->here = true;
      if (!outcome) {
        answer->error = outcome.error().message;
        return;
      }
      answer->status = outcome->status;
      if (auto* blob = std::get_if<Blob>(&outcome->body)) answer->body = blob->view();
      if (auto* pipe = std::get_if<PipeReader>(&outcome->body)) answer->stream = std::move(*pipe);
    };
  }

  std::shared_ptr<Answer> fetch(const std::string& path) {
    auto answer = std::make_shared<Answer>();
    last_io_ = host_->fetch(HttpRequestMessage{"GET", "http://x" + path, {}, {}, {}}, into(answer));
    settle();
    return answer;
  }

  std::shared_ptr<Answer> fetch(TestCell& to, const std::string& path,
                                std::shared_ptr<CallerLink> caller = nullptr) {
    auto answer = std::make_shared<Answer>();
    host_->deliver(to.cell, CellFetch{HttpRequestMessage{"GET", "http://x" + path, {}, {}, {}},
                                      into(answer), std::move(caller)});
    settle();
    return answer;
  }

  // Runs what can run without time passing.
  void settle() { world_.run_for(Duration(0)); }

  // Whether next to nothing happens in a minute: V8 itself looks every eight seconds whether to collect.
  bool is_at_rest() {
    MonoTime end = world_.now() + std::chrono::minutes(1);
    int steps = 0;
    while (world_.now() < end && world_.step()) ++steps;
    return steps < 20;
  }

  // What nobody holds any more is found.
  void collect_garbage() {
    {
      v8::Isolate::Scope isolate_scope(host_->isolate());
      v8::HandleScope handles(host_->isolate());
      host_->isolate()->LowMemoryNotification();
    }
    fetch("/garbage");  // any turn
  }

  // What can be read now; "|end" and "|error" mark how it goes on.
  static std::string read(Answer& answer) {
    std::string text;
    while (true) {
      Pipe::Read r = answer.stream->read();
      switch (r.state) {
        case Pipe::Read::State::kData: text += r.data.view(); continue;
        case Pipe::Read::State::kEnd: return text + "|end";
        case Pipe::Read::State::kError: return text + "|error: " + r.error.message;
        case Pipe::Read::State::kPending: return text;
      }
    }
  }

  // --- IsolateServices ---
  void call_cell(CellAddress to, CellEvent event) override {
    world_.post([this, to = std::move(to), event = std::move(event)]() mutable {
      size_t colon = to.cell.value.find(':');
      TestCell& c = cell(to.cell.value.substr(colon + 1), to.cell.value.substr(0, colon));
      host_->deliver(c.cell, std::move(event));
    });
  }
  uint64_t fetch(HttpRequestMessage request, Reply<HttpResponseMessage> reply) override {
    fetched_.push_back(Fetched{std::move(request), std::move(reply)});
    return fetched_.size();
  }
  void cancel_fetch(uint64_t handle) override { cancelled_.push_back(handle); }
  void log(LogLevel, std::string text) override { log_.push_back(std::move(text)); }
  void isolate_condemned(IsolateHost&) override { ++condemned_; }

  std::string logged() const {
    std::string all;
    for (const std::string& line : log_) all += line + "\n";
    return all;
  }

  TestWorld world_{7};
  std::map<std::string, std::unique_ptr<TestCell>> cells_;
  std::unique_ptr<IsolateHost> host_;
  std::vector<Fetched> fetched_;
  std::vector<uint64_t> cancelled_;
  std::vector<std::string> log_;
  int condemned_ = 0;
  uint32_t last_io_ = 0;
};

}  // namespace celld::js
