// What a conditional create costs in a directory: the floor under an acknowledged write on file://.
// Creates go to one directory, as the slots of a journal do; the argument is how many are under way
// at once.
//
// links: store
#include "store/file_store.h"

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "world/asio_world.h"

namespace celld {
namespace {

Task<void> create_slots(FileStore& store, uint64_t& next, uint64_t& left, uint64_t& running) {
  while (left > 0) {
    --left;
    std::string key = "journal/n/" + std::to_string(++next);
    Blob body(std::string(4096, 'x'));
    Condition condition = Condition::create();
    SwapResult result = co_await store.put_if(std::move(key), std::move(body), std::move(condition),
                                              Deadline::never());
    CHECK(result.outcome == SwapOutcome::kApplied) << result.error.message;
  }
  --running;
}

void create(benchmark::State& state, Fsync fsync) {
  std::string dir = std::filesystem::current_path() / "bench-file-store-XXXXXX";
  CHECK(::mkdtemp(dir.data()) != nullptr);
  {
    boost::asio::io_context io;
    AsioWorld world(io);
    auto work = boost::asio::make_work_guard(io);
    FileStore::Options options;
    options.fsync = fsync;
    auto store = FileStore::open(world, dir, options);
    CHECK(store) << store.error().message;
    constexpr uint64_t kBatch = 200;
    uint64_t next = 0;
    for (auto _ : state) {
      uint64_t left = kBatch;
      uint64_t running = static_cast<uint64_t>(state.range(0));
      for (int64_t i = 0; i < state.range(0); ++i) {
        world.spawn(create_slots(**store, next, left, running));
      }
      while (running > 0) io.run_one();
    }
    state.counters["create"] =
        benchmark::Counter(static_cast<double>(state.iterations() * kBatch),
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kBatch));
  }
  std::filesystem::remove_all(dir);
}

BENCHMARK_CAPTURE(create, fsync_on, Fsync::kOn)->Arg(1)->Arg(4)->Arg(16)->UseRealTime();
BENCHMARK_CAPTURE(create, fsync_off, Fsync::kOff)->Arg(1)->Arg(4)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace celld

BENCHMARK_MAIN();
