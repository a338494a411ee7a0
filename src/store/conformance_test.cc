#include "store/file_store.h"
#include "store/file_temp_dir.h"
#include "store/memory_store.h"
#include "store/prefix_store.h"
#include "store/store_conformance.h"

namespace celld::testing {
namespace {

struct MemoryUnderTest : StoreUnderTest {
  explicit MemoryUnderTest(MemoryStore::Tokens tokens) : memory(virtual_world, {tokens}) {}
  World& world() override { return virtual_world; }
  ObjectStore& store() override { return memory; }
  void run_until(const std::function<bool()>& condition) override {
    while (!condition()) CHECK(virtual_world.step()) << "nothing left to do";
  }
  VirtualWorld virtual_world;
  MemoryStore memory;
};

struct FileUnderTest : StoreUnderTest {
  FileUnderTest() {
    FileStore::Options options;
    options.fsync = Fsync::kOff;
    auto opened = FileStore::open(real.world(), dir.path(), options);
    CHECK(opened) << opened.error().message;
    file = std::move(*opened);
  }
  World& world() override { return real.world(); }
  ObjectStore& store() override { return *file; }
  void run_until(const std::function<bool()>& condition) override { real.run_until(condition); }
  TempDir dir;
  RealWorld real;
  std::shared_ptr<FileStore> file;
};

struct PrefixUnderTest final : MemoryUnderTest {
  PrefixUnderTest() : MemoryUnderTest(MemoryStore::Tokens::kUnique) {
    shared = std::make_shared<MemoryStore>(virtual_world);
    for (const char* key : {"pre", "pre/", "prefiw", "prefix", "prefiy/a"}) {
      shared->set(key, Blob("foreign"));
    }
    prefix = std::make_unique<PrefixStore>(shared, "prefix/");
  }
  ObjectStore& store() override { return *prefix; }
  std::shared_ptr<MemoryStore> shared;
  std::unique_ptr<PrefixStore> prefix;
};

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(
        StoreBackend{"memory",
                     [] { return std::make_unique<MemoryUnderTest>(MemoryStore::Tokens::kUnique); }},
        StoreBackend{"memory_content",
                     [] { return std::make_unique<MemoryUnderTest>(MemoryStore::Tokens::kContent); }},
        StoreBackend{"prefix", [] { return std::make_unique<PrefixUnderTest>(); }},
        StoreBackend{"file", [] { return std::make_unique<FileUnderTest>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace celld::testing
