// How long the control thread is held up by data: the longest of its turns, in CPU time, which other
// programs do not disturb, while 100 MB of commits are made durable, drained, compacted and restored. The
// bucket speaks S3 and is in memory, so that hashing and signing count and a network does not.
//
//   control_stall [MEGABYTES]
//
// links: core store
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "core/commit.h"
#include "core/core.h"
#include "store/s3_credentials.h"
#include "store/s3_store.h"
#include "world/asio_world.h"

namespace celld {
namespace {

using std::chrono::milliseconds;

double cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

double bucket_ms = 0;  // that the bucket itself took of the thread

class MemoryTransport final : public HttpTransport {
 public:
  explicit MemoryTransport(World& world) : world_(world) {}

  Task<Result<HttpReply>> perform(HttpCall call) override {
    Duration trip = milliseconds(2);
    co_await sleep_for(world_, trip);
    double begin = cpu_ms();
    HttpReply reply = answer(call);
    bucket_ms += cpu_ms() - begin;
    co_return reply;
  }

 private:
  HttpReply answer(const HttpCall& call) {
    HttpReply reply;
    reply.status = 200;
    std::string path = call.url.substr(0, call.url.find('?'));
    auto at = objects_.find(path);
    if (call.method == "PUT") {
      std::string match;
      bool create = false;
      for (auto& [name, value] : call.headers) {
        if (name == "if-match") match = value;
        if (name == "if-none-match") create = true;
      }
      bool there = at != objects_.end();
      if ((create && there) || (!match.empty() && (!there || at->second.second != match))) {
        reply.status = 412;
        return reply;
      }
      std::string tag = "\"" + std::to_string(++writes_) + "\"";
      objects_[path] = {call.body, tag};
      reply.headers.emplace_back("etag", tag);
    } else if (call.method == "DELETE") {
      objects_.erase(path);
      reply.status = 204;
    } else if (call.url != path) {
      reply.body = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    } else if (at == objects_.end()) {
      reply.status = 404;
      reply.body = "<Error><Code>NoSuchKey</Code></Error>";
    } else {
      reply.body = at->second.first.view();
      reply.headers.emplace_back("etag", at->second.second);
    }
    return reply;
  }

  World& world_;
  std::map<std::string, std::pair<Blob, std::string>> objects_;
  uint64_t writes_ = 0;
};

struct Host final : CoreHost {
  void on_proven(std::span<const Proven> list) override { proven += list.size(); }
  void on_fenced(FenceReason reason, std::string detail) override {
    std::fprintf(stderr, "FENCED %s: %s\n", std::string(to_string(reason)).c_str(), detail.c_str());
    std::exit(1);
  }
  void on_alarm_due(CellId, WallMs) override {}
  Task<Result<DatabaseImage>> snapshot(CellId, Txid*) override {
    Error e = Error::not_found("not resident");
    co_return fail(std::move(e));
  }
  size_t proven = 0;
};

int run(size_t megabytes) {
  boost::asio::io_context io;
  AsioWorld world(io);
  auto transport = std::make_shared<MemoryTransport>(world);
  S3Options s3;
  s3.bucket = "bench";
  s3.endpoint = "http://localhost";
  s3.credentials = fixed_credentials(S3Credentials{"k", "s", ""});
  auto store = S3Store::make(world, transport, s3);
  CHECK(store) << store.error().message;
  Host host;
  CoreOptions options;
  options.node = NodeId("n1");
  options.drain_interval = std::chrono::hours(1);
  options.undrained_bytes_max = megabytes << 22;  // all is there before a drain begins
  Core core(world, **store, **store, host, options);

  double longest_ms = 0;
  auto wait = [&](auto condition) {
    while (!condition()) {
      double begin = cpu_ms() - bucket_ms;
      io.run_one();
      longest_ms = std::max(longest_ms, cpu_ms() - bucket_ms - begin);
    }
  };
  auto keep = []<class T>(Task<T> task, std::optional<T>& out) -> Task<void> {
    out.emplace(co_await std::move(task));
  };
  std::optional<Result<void>> started;
  world.spawn(keep(core.start(), started));
  wait([&] { return started.has_value(); });
  CHECK(*started) << started->error().message;

  constexpr size_t kCells = 10;
  constexpr size_t kPagesOfCommit = 256;
  std::vector<CellId> cells;
  std::vector<Activation> activations;
  for (size_t i = 0; i < kCells; ++i) {
    CellId cell("C:" + std::string(63, 'a') + std::to_string(i));
    std::optional<Result<Activation>> got;
    world.spawn(keep(core.activate(cell, Deadline::never()), got));
    wait([&] { return got.has_value(); });
    CHECK(*got) << got->error().message;
    core.set_alarm(cell, std::nullopt);
    cells.push_back(cell);
    activations.push_back(std::move(**got));
  }

  // Pages that compress to about half. Encoded beforehand, as the loops of a node do.
  std::mt19937_64 random(1);
  std::vector<std::pair<Commit, EncodedCommit>> commits;
  size_t rounds = megabytes / kCells;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < kCells; ++i) {
      Commit commit;
      commit.cell = cells[i];
      commit.epoch = activations[i].epoch;
      commit.txid = Txid(round + 1);
      commit.page_count = static_cast<uint32_t>((round + 1) * kPagesOfCommit);
      for (size_t p = 0; p < kPagesOfCommit; ++p) {
        PageRef page = PageRef::allocate();
        std::memset(page.mutable_data(), 0, kPageSize);
        for (size_t b = 0; b < kPageSize / 2; b += 8) {
          uint64_t r = random();
          std::memcpy(page.mutable_data() + b, &r, 8);
        }
        commit.pages.push_back({static_cast<Pgno>(round * kPagesOfCommit + p + 1), std::move(page)});
      }
      EncodedCommit encoded = encode_commit(commit);
      commits.emplace_back(std::move(commit), std::move(encoded));
    }
  }

  auto report = [&](const char* what) {
    std::printf("%-20s longest turn %8.1f ms\n", what, longest_ms);
    longest_ms = 0;
  };
  for (auto& [commit, encoded] : commits) core.commit(std::move(commit), std::move(encoded));
  commits.clear();
  longest_ms = 0;
  wait([&] { return core.proven(cells.back()) == Txid(rounds); });
  report("made durable");
  for (const CellId& cell : cells) {
    std::optional<Result<void>> done;
    world.spawn(keep(core.release(cell), done));
    wait([&] { return done.has_value(); });
    CHECK(*done) << done->error().message;
  }
  CHECK(core.undrained_bytes() == 0) << core.undrained_bytes();
  report("drained, released");
  for (const CellId& cell : cells) {
    std::optional<Result<Activation>> got;
    world.spawn(keep(core.activate(cell, Deadline::never()), got));
    wait([&] { return got.has_value(); });
    CHECK(*got && (*got)->txid == Txid(rounds)) << cell;
  }
  report("restored");
  std::fflush(stdout);
  std::_Exit(0);  // the leases and the world go with the process
}

}  // namespace
}  // namespace celld

int main(int argc, char** argv) {
  return celld::run(argc > 1 ? static_cast<size_t>(std::max(20, std::atoi(argv[1]))) : 100);
}
