#include "net/curl_transport.h"
#include "store/aws/chain.h"
#include "store/azure/azure_open.h"
#include "store/azure/azurite_testing.h"
#include "store/fault_store.h"
#include "store/file_store.h"
#include "store/file_temp_dir.h"
#include "store/gcs/gcs_server_testing.h"
#include "store/gcs/gcs_store.h"
#include "store/memory_store.h"
#include "store/metered_store.h"
#include "store/prefix_store.h"
#include "store/retry_store.h"
#include "store/s3_server_testing.h"
#include "store/s3_store.h"
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

// Everything that wraps a store, one around the other.
struct DecoratedUnderTest final : MemoryUnderTest {
  DecoratedUnderTest() : MemoryUnderTest(MemoryStore::Tokens::kUnique) {
    auto inner = std::make_shared<MemoryStore>(virtual_world);
    auto faults = std::make_shared<FaultStore>(virtual_world, inner, std::chrono::milliseconds(2));
    auto metered = std::make_shared<MeteredStore>(faults);
    auto prefix = std::make_shared<PrefixStore>(metered, "prefix/");
    retry = std::make_unique<RetryStore>(virtual_world, prefix, RetryStore::Options());
  }
  ObjectStore& store() override { return *retry; }
  std::unique_ptr<RetryStore> retry;
};

// A bucket of its own for each test, on a server of its own for each kind.
struct S3UnderTest final : StoreUnderTest {
  explicit S3UnderTest(const S3Server& server) {
    static int buckets = 0;
    auto made =
        S3Store::make(real.world(), std::make_shared<CurlTransport>(real.io(), real.world()),
                      server.options("bucket-" + std::to_string(++buckets)));
    CHECK(made) << made.error().message;
    s3 = std::make_unique<RetryStore>(real.world(), std::move(*made), RetryStore::Options());
  }
  World& world() override { return real.world(); }
  ObjectStore& store() override { return *s3; }
  void run_until(const std::function<bool()>& condition) override { real.run_until(condition); }
  RealWorld real;
  std::unique_ptr<ObjectStore> s3;
};

template <int kKind>
std::unique_ptr<StoreUnderTest> make_s3(std::vector<std::string> options) {
  static S3Server server(std::move(options));
  return std::make_unique<S3UnderTest>(server);
}

struct AzureUnderTest final : StoreUnderTest {
  AzureUnderTest() {
    static Azurite azurite;
    auto made = open_azure(real.world(), std::make_shared<CurlTransport>(real.io(), real.world()),
                           azurite.next_container(), "", azurite.environment());
    CHECK(made) << made.error().message;
    azure = std::move(*made);
  }
  World& world() override { return real.world(); }
  ObjectStore& store() override { return *azure; }
  void run_until(const std::function<bool()>& condition) override { real.run_until(condition); }
  RealWorld real;
  std::unique_ptr<AzureStore> azure;
};

// Every bucket that begins with "open" takes requests without a token.
struct GcsUnderTest final : StoreUnderTest {
  explicit GcsUnderTest(const GcsServer& server) {
    static int buckets = 0;
    GcsOptions options;
    options.bucket = "open-" + std::to_string(++buckets);
    options.endpoint = server.endpoint();
    auto made = GcsStore::make(real.world(),
                               std::make_shared<CurlTransport>(real.io(), real.world()), options);
    CHECK(made) << made.error().message;
    gcs = std::move(*made);
  }
  World& world() override { return real.world(); }
  ObjectStore& store() override { return *gcs; }
  void run_until(const std::function<bool()>& condition) override { real.run_until(condition); }
  RealWorld real;
  std::unique_ptr<GcsStore> gcs;
};

template <int kKind>
std::unique_ptr<StoreUnderTest> make_gcs(std::vector<std::string> options) {
  static GcsServer server(std::move(options));
  return std::make_unique<GcsUnderTest>(server);
}

// A real store, in a prefix of its own for each test:
// CELLD_TEST_S3_ENDPOINT, CELLD_TEST_S3_BUCKET, CELLD_TEST_S3_BARE_ETAGS=1 and the AWS_ keys.
struct ExternalS3UnderTest final : StoreUnderTest {
  ExternalS3UnderTest() {
    Environment environment = process_environment();
    S3Options options;
    options.endpoint = *environment("CELLD_TEST_S3_ENDPOINT");
    options.bucket = environment("CELLD_TEST_S3_BUCKET").value_or("celld-test");
    options.region = environment("AWS_REGION").value_or("us-east-1");
    options.credentials =
        aws_credentials(real.world(), std::make_shared<CurlTransport>(real.io(), real.world()),
                        aws_host(real.world(), environment));
    options.dialect = std::make_shared<StoreDialect>();
    if (environment("CELLD_TEST_S3_BARE_ETAGS")) options.dialect->etag_quotes = EtagQuotes::kBare;
    auto made = S3Store::make(
        real.world(), std::make_shared<CurlTransport>(real.io(), real.world()), std::move(options));
    CHECK(made) << made.error().message;
    std::shared_ptr<ObjectStore> bucket = std::move(*made);
    std::string prefix = "t" + std::to_string(real.world().random_u64()) + "/";
    s3 = std::make_unique<PrefixStore>(std::move(bucket), std::move(prefix));
  }
  World& world() override { return real.world(); }
  ObjectStore& store() override { return *s3; }
  void run_until(const std::function<bool()>& condition) override { real.run_until(condition); }
  RealWorld real;
  std::unique_ptr<PrefixStore> s3;
};

std::vector<StoreBackend> external_stores() {
  if (!process_environment()("CELLD_TEST_S3_ENDPOINT")) return {};
  return {StoreBackend{"external", [] { return std::make_unique<ExternalS3UnderTest>(); }}};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);
INSTANTIATE_TEST_SUITE_P(External, StoreConformance, ::testing::ValuesIn(external_stores()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(
        StoreBackend{
            "memory",
            [] { return std::make_unique<MemoryUnderTest>(MemoryStore::Tokens::kUnique); }},
        StoreBackend{
            "memory_content",
            [] { return std::make_unique<MemoryUnderTest>(MemoryStore::Tokens::kContent); }},
        StoreBackend{"prefix", [] { return std::make_unique<PrefixUnderTest>(); }},
        StoreBackend{"decorated", [] { return std::make_unique<DecoratedUnderTest>(); }},
        StoreBackend{"file", [] { return std::make_unique<FileUnderTest>(); }},
        StoreBackend{"azurite", [] { return std::make_unique<AzureUnderTest>(); }},
        StoreBackend{"gcs", [] { return make_gcs<1>({}); }},
        StoreBackend{"gcs_small_pages", [] { return make_gcs<2>({"--list-max=3"}); }},
        StoreBackend{"s3", [] { return make_s3<1>({}); }},
        StoreBackend{"s3_poor",
                     [] {
                       return make_s3<3>({"--no-batch-delete", "--late-error"});
                     }},
        StoreBackend{"s3_small_pages",
                     [] {
                       return make_s3<2>({"--list-max=3", "--etags=unique"});
                     }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace celld::testing
