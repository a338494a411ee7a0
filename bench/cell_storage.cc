// Speed of one cell's storage and memory of many.
// links: sqlite
//
//   build/release/bench/cell_storage
//
// The memory benchmarks report bytes of the process per database as counters.
#include "sqlite/cell_storage.h"

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <memory>
#include <string>
#include <vector>

namespace celld {
namespace {

struct NullSink final : CellStorage::Sink {
  bool may_commit() override { return true; }
  void commit(std::vector<NumberedPage> changed, uint32_t,
              std::optional<std::optional<int64_t>>) override {
    pages += changed.size();
  }
  uint64_t pages = 0;
};

void check(bool good) {
  if (!good) std::abort();
}

void exec(CellStorage& storage, std::string_view sql) { check(storage.exec(sql, {}).has_value()); }

void put_and_commit(benchmark::State& state) {
  NullSink sink;
  CellStorage storage(&sink, {});
  std::string value(100, 'v');
  for (int i = 0; i < 100; ++i) check(storage.put("key" + std::to_string(i), value).has_value());
  int i = 0;
  for (auto _ : state) {
    value[0] = static_cast<char>(++i);
    check(storage.put("key50", value).has_value());
    check(storage.end_turn().has_value());
  }
  state.counters["pages/commit"] = double(sink.pages) / double(state.iterations());
}
BENCHMARK(put_and_commit);

void update_and_commit(benchmark::State& state) {
  NullSink sink;
  CellStorage storage(&sink, {});
  exec(storage, "CREATE TABLE t(id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES(1, 0)");
  check(storage.end_turn().has_value());
  for (auto _ : state) {
    exec(storage, "UPDATE t SET n = n + 1 WHERE id = 1");
    check(storage.end_turn().has_value());
  }
}
BENCHMARK(update_and_commit);

void get(benchmark::State& state) {
  NullSink sink;
  CellStorage storage(&sink, {});
  for (int i = 0; i < 1000; ++i) {
    check(storage.put("key" + std::to_string(i), std::string(100, 'v')).has_value());
  }
  check(storage.end_turn().has_value());
  for (auto _ : state) benchmark::DoNotOptimize(storage.get("key500"));
}
BENCHMARK(get);

void select_point(benchmark::State& state) {
  NullSink sink;
  CellStorage storage(&sink, {});
  exec(storage,
       "CREATE TABLE t(id INTEGER PRIMARY KEY, n);"
       "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c LIMIT 10000)"
       "INSERT INTO t SELECT i, i FROM c");
  check(storage.end_turn().has_value());
  SqlValueView id = int64_t{5000};
  for (auto _ : state) {
    auto cursor = storage.exec("SELECT n FROM t WHERE id = ?", {&id, 1});
    check(cursor.has_value() && (*cursor)->has_row());
    benchmark::DoNotOptimize((*cursor)->value(0));
  }
}
BENCHMARK(select_point);

void insert_10000_rows(benchmark::State& state) {
  for (auto _ : state) {
    NullSink sink;
    CellStorage storage(&sink, {});
    exec(storage, "CREATE TABLE t(id INTEGER PRIMARY KEY, n)");
    for (int64_t i = 0; i < 10000; ++i) {
      SqlValueView n = i;
      check(storage.exec("INSERT INTO t(n) VALUES(?)", {&n, 1}).has_value());
    }
    check(storage.end_turn().has_value());
  }
}
BENCHMARK(insert_10000_rows)->Unit(benchmark::kMillisecond);

// 1,000 databases, each with the two tables of the host and one of its own, a few rows in each.
void memory_of_1000(benchmark::State& state) {
  bool idle = state.range(0) != 0;
  for (auto _ : state) {
    std::vector<std::unique_ptr<CellStorage>> cells;
    NullSink sink;
    auto used = [] { return double(mallinfo2().uordblks + mallinfo2().hblkhd); };
    double before = used();
    for (int i = 0; i < 1000; ++i) {
      auto& cell = cells.emplace_back(std::make_unique<CellStorage>(&sink, CellStorageOptions{}));
      check(cell->put("name", "some value").has_value());
      check(cell->set_alarm(1'700'000'000'000).has_value());
      exec(*cell, "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES(1, 2, 3)");
      check(cell->end_turn().has_value());
      check(cell->get("name").has_value());
      exec(*cell, "SELECT * FROM t");
      check(cell->end_turn().has_value());
      if (idle) cell->close_idle();
    }
    state.counters["bytes/cell"] = (used() - before) / 1000;
    state.counters["of it pages"] = double(cells[0]->pages().memory_bytes());
  }
}
BENCHMARK(memory_of_1000)
    ->ArgName("idle")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace celld

BENCHMARK_MAIN();
