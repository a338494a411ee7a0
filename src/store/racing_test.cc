// Many processes swap one record: the final counter is the number of outcomes that said "applied".
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "net/curl_transport.h"
#include "store/azure/azurite_testing.h"
#include "store/file_temp_dir.h"
#include "store/gcs/gcs_server_testing.h"
#include "store/open_store.h"
#include "store/s3_server_testing.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using testing::RealWorld;
using Variables = std::map<std::string, std::string>;

Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

struct Client {
  RealWorld real;
  std::unique_ptr<ObjectStore> store;

  Client(const std::string& spec, const Environment& environment) {
    StoreOptions options;
    options.environment = environment;
    options.file.fsync = Fsync::kOff;
    options.file.threads = 1;
    HttpTransportFactory transports = [this] {
      return std::make_unique<CurlTransport>(real.io(), real.world());
    };
    auto opened = open_store(real.world(), transports, spec, std::move(options));
    CHECK(opened) << opened.error().message;
    store = std::move(*opened);
  }
  Deadline soon() { return real.world().deadline_in(std::chrono::seconds(60)); }

  // One read and one swap.
  SwapOutcome increment() {
    auto object = real.run(store->get("counter", soon()));
    CHECK(object) << object.error().message;
    const int value = std::stoi(std::string(object->body.view()));
    SwapResult result = real.run(store->put_if("counter", Blob(std::to_string(value + 1)),
                                               Condition::swap(object->version), soon()));
    return result.outcome;
  }
};

// Each of `processes` makes `swaps` attempts; nothing is repeated. Answers how many were applied.
void race(const std::string& spec, const Environment& environment, int processes, int swaps) {
  {
    Client first(spec, environment);
    SwapResult created = first.real.run(
        first.store->put_if("counter", Blob("0"), Condition::create(), first.soon()));
    ASSERT_EQ(created.outcome, SwapOutcome::kApplied) << created.error.message;
  }
  int results[2];
  ASSERT_EQ(::pipe2(results, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Client client(spec, environment);
      int counts[2] = {0, 0};  // applied, ambiguous
      for (int n = 0; n < swaps; ++n) {
        const SwapOutcome outcome = client.increment();
        counts[0] += outcome == SwapOutcome::kApplied;
        counts[1] += outcome == SwapOutcome::kAmbiguous;
      }
      ::_exit(::write(results[1], counts, sizeof counts) == sizeof counts ? 0 : 1);
    }
    children.push_back(pid);
  }
  ::close(results[1]);
  int applied = 0, ambiguous = 0, counts[2];
  while (::read(results[0], counts, sizeof counts) == sizeof counts) {
    applied += counts[0];
    ambiguous += counts[1];
  }
  ::close(results[0]);
  for (pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  Client last(spec, environment);
  auto object = last.real.run(last.store->get("counter", last.soon()));
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->body.view(), std::to_string(applied));
  EXPECT_EQ(ambiguous, 0);
  EXPECT_GE(applied, swaps);  // somebody wins every round
  ::testing::Test::RecordProperty("applied", applied);
  std::printf("%d of %d swaps by %d processes were applied\n", applied, processes * swaps,
              processes);
}

TEST(Racing, fifty_processes_on_a_directory) {
  testing::TempDir dir;
  race("file://" + dir.path() + "/store", environment_of({}), 50, 200);
}

TEST(Racing, processes_on_s3) {
  testing::S3Server server;
  race("s3://bucket/prefix",
       environment_of({{"AWS_ACCESS_KEY_ID", "test"},
                       {"AWS_SECRET_ACCESS_KEY", "secret"},
                       {"AWS_ENDPOINT_URL_S3", server.endpoint()}}),
       10, 40);
}

TEST(Racing, processes_on_azure) {
  testing::Azurite azurite;
  race("az://" + azurite.next_container() + "/prefix", azurite.environment(), 6, 25);
}

TEST(Racing, processes_on_google) {
  testing::GcsServer server;
  race("gs://open-bucket/prefix", environment_of({{"STORAGE_EMULATOR_HOST", server.host()}}), 10,
       40);
}

// --- claims ---

constexpr int kClaimProcesses = 20;
constexpr int kClaimantsEach = 25;
constexpr int kClaimsEach = 11;  // 5,500 in all
constexpr int kCells = 5;

struct Claim {
  int cell;
  int epoch;
  int claimant;
};

// Reads the record of one cell after the other and swaps it to its own name and the next epoch,
// whoever has it: the race is about the condition alone. What was applied goes to `out`.
Task<Result<void>> claim_in_turn(Client& client, int claimant, int out) {
  for (int n = 0; n < kClaimsEach; ++n) {
    Claim claim{(claimant + n) % kCells, 1, claimant};
    std::string key = "own-" + std::to_string(claim.cell);
    Deadline deadline = client.soon();
    Result<StoredObject> record = co_await client.store->get(key, deadline);
    Condition condition = Condition::create();
    if (record) {
      claim.epoch = std::stoi(std::string(record->body.view())) + 1;
      condition = Condition::swap(record->version);
    } else if (record.error().code != ErrorCode::kNotFound) {
      co_return fail(record.error());
    }
    Blob body(std::to_string(claim.epoch) + " " + std::to_string(claimant));
    SwapResult result = co_await client.store->put_if(key, body, condition, deadline);
    if (result.outcome == SwapOutcome::kAmbiguous) co_return fail(std::move(result.error));
    if (result.outcome == SwapOutcome::kApplied) {
      CHECK(::write(out, &claim, sizeof claim) == sizeof claim);
    }
  }
  co_return Result<void>{};
}

void race_for_claims(const std::string& spec, const Environment& environment) {
  int results[2];
  ASSERT_EQ(::pipe2(results, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kClaimProcesses; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Client client(spec, environment);
      std::vector<Task<Result<void>>> claimants;
      for (int n = 0; n < kClaimantsEach; ++n) {
        claimants.push_back(claim_in_turn(client, i * kClaimantsEach + n, results[1]));
      }
      auto all = join_all(client.real.world(), std::move(claimants));
      int failed = 0;
      for (Result<void>& r : client.real.run(std::move(all))) {
        if (!r) std::fprintf(stderr, "%s\n", r.error().message.c_str());
        failed += !r;
      }
      ::_exit(failed == 0 ? 0 : 1);
    }
    children.push_back(pid);
  }
  ::close(results[1]);
  std::map<std::pair<int, int>, int> owners;  // by cell and epoch
  Claim claim;
  while (::read(results[0], &claim, sizeof claim) == sizeof claim) {
    auto [it, first] = owners.try_emplace({claim.cell, claim.epoch}, claim.claimant);
    EXPECT_TRUE(first) << "cell " << claim.cell << " has two owners in epoch " << claim.epoch
                       << ": " << it->second << " and " << claim.claimant;
  }
  ::close(results[0]);
  for (pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  Client last(spec, environment);
  size_t epochs = 0;
  for (int cell = 0; cell < kCells; ++cell) {
    auto record = last.real.run(last.store->get("own-" + std::to_string(cell), last.soon()));
    ASSERT_TRUE(record) << record.error().message;
    int epoch = std::stoi(std::string(record->body.view()));
    for (int e = 1; e <= epoch; ++e)
      EXPECT_TRUE(owners.contains({cell, e})) << "epoch " << e << " has no owner";
    EXPECT_EQ(record->body.view(),
              std::to_string(epoch) + " " + std::to_string(owners[{cell, epoch}]));
    epochs += static_cast<size_t>(epoch);
  }
  EXPECT_EQ(owners.size(), epochs);
  std::printf("%zu of %d claims by %d claimants were applied\n", epochs,
              kClaimProcesses * kClaimantsEach * kClaimsEach, kClaimProcesses * kClaimantsEach);
}

TEST(Racing, five_hundred_claimants_on_a_directory) {
  testing::TempDir dir;
  race_for_claims("file://" + dir.path() + "/store", environment_of({}));
}

TEST(Racing, five_hundred_claimants_on_s3) {
  testing::S3Server server;
  race_for_claims("s3://bucket/prefix",
                  environment_of({{"AWS_ACCESS_KEY_ID", "test"},
                                  {"AWS_SECRET_ACCESS_KEY", "secret"},
                                  {"AWS_ENDPOINT_URL_S3", server.endpoint()}}));
}

}  // namespace
}  // namespace celld
