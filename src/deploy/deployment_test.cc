#include "deploy/deployment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>

#include "world/asio_world.h"

namespace celld {
namespace {

using ::testing::HasSubstr;

// A bucket in memory that counts and can be told to misbehave.
class FakeStore final : public ObjectStore {
 public:
  struct Object {
    Blob body;
    uint64_t version = 0;
  };
  // What becomes of a conditional write: applied or not, its reply lost or not.
  enum class Fate { kNormal, kAppliedReplyLost, kLost };

  std::map<std::string, Object> objects;
  std::map<std::string, int> gets;
  std::function<Fate(const std::string&)> fate = [](const std::string&) { return Fate::kNormal; };
  int puts = 0;

  Task<Result<StoredObject>> get(std::string key, Deadline) override {
    ++gets[key];
    auto it = objects.find(key);
    if (it == objects.end()) co_return fail(Error::not_found("no object"));
    StoredObject out;
    out.body = it->second.body;
    out.version.token = std::to_string(it->second.version);
    co_return out;
  }
  Task<Result<StoredObject>> get_range(std::string, ByteRange, Deadline) override {
    co_return fail(Error::unsupported("get_range"));
  }
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition, Deadline) override {
    Fate f = fate(key);
    if (f == Fate::kLost) co_return SwapResult::ambiguous(Error::unavailable("put " + key + ": lost"));
    ++puts;
    auto it = objects.find(key);
    bool holds = condition.version ? it != objects.end() && condition.version->token ==
                                                                std::to_string(it->second.version)
                                   : it == objects.end();
    if (!holds) co_return SwapResult::rejected();
    objects[key] = {body, ++versions_};
    if (f == Fate::kAppliedReplyLost) {
      co_return SwapResult::ambiguous(Error::unavailable("put " + key + ": reply lost"));
    }
    Version version{std::to_string(versions_)};
    co_return SwapResult::applied(std::move(version));
  }
  Task<Result<Version>> put(std::string key, Blob body, Deadline) override {
    ++puts;
    objects[key] = {body, ++versions_};
    Version version{std::to_string(versions_)};
    co_return version;
  }
  Task<Result<void>> remove(std::string key, Deadline) override {
    objects.erase(key);
    co_return Result<void>{};
  }
  Task<Result<ListPage>> list(ListRequest, Deadline) override {
    co_return fail(Error::unsupported("list"));
  }
  std::string describe() const override { return "memory://test"; }

 private:
  uint64_t versions_ = 0;
};

class Deployment : public ::testing::Test {
 protected:
  template <class T>
  T run(Task<T> task) {
    std::optional<T> out;
    auto body = [](Task<T> t, std::optional<T>& o) -> Task<void> { o.emplace(co_await std::move(t)); };
    world_.spawn(body(std::move(task), out));
    io_.restart();
    io_.run();
    return std::move(out.value());
  }
  static WorkerConfig config(std::string name = "worker") {
    WorkerConfig c;
    c.file = "wrangler.jsonc";
    c.name = std::move(name);
    c.classes = {{"Counter", ClassStorage::kSqlite, "v1"}};
    c.durable_objects = {{"COUNTER", "Counter"}};
    return c;
  }
  static Bundle bundle(std::string code) {
    Bundle b;
    b.main = "index.js";
    b.modules = {{"index.js", BundledKind::kEsm, Blob(std::move(code))},
                 {"t.txt", BundledKind::kText, Blob("text")}};
    return b;
  }
  Result<DeployedVersion> deploy_code(std::string code, std::string name = "worker") {
    return run(deploy(world_, store_, config(std::move(name)), bundle(std::move(code)),
                      world_.deadline_in(std::chrono::seconds(60))));
  }
  Result<std::optional<LoadedDeployment>> load(std::string known = "") {
    return run(load_current(world_, store_, std::move(known),
                            world_.deadline_in(std::chrono::seconds(60))));
  }

  boost::asio::io_context io_;
  AsioWorld world_{io_};
  FakeStore store_;
};

TEST_F(Deployment, what_is_deployed_is_loaded) {
  auto deployed = deploy_code("one");
  ASSERT_TRUE(deployed) << deployed.error().message;
  EXPECT_EQ(deployed->outcome, DeployOutcome::kDeployed);
  EXPECT_FALSE(deployed->replaced);
  auto loaded = load();
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_TRUE(loaded->has_value());
  EXPECT_EQ((*loaded)->version, deployed->version);
  EXPECT_EQ((*loaded)->find_module("index.js")->content.view(), "one");
  EXPECT_EQ((*loaded)->find_module("t.txt")->kind, BundledKind::kText);
  EXPECT_EQ((*loaded)->manifest.bindings[0].name, "COUNTER");
}

TEST_F(Deployment, a_poll_that_finds_nothing_new_costs_one_get) {
  auto version = deploy_code("one")->version;
  store_.gets.clear();
  auto loaded = load(version);
  ASSERT_TRUE(loaded);
  EXPECT_FALSE(loaded->has_value());
  EXPECT_EQ(store_.gets.size(), 1u);
  EXPECT_EQ(store_.gets["deploy/current.json"], 1);
}

TEST_F(Deployment, the_same_content_is_the_same_version_and_uploads_nothing) {
  auto first = deploy_code("one");
  auto second = deploy_code("one");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->version, first->version);
  EXPECT_EQ(second->outcome, DeployOutcome::kUnchanged);
  EXPECT_EQ(second->bytes_uploaded, 0u);
  auto third = deploy_code("two");
  EXPECT_NE(third->version, first->version);
  EXPECT_EQ(third->replaced, first->version);
  EXPECT_EQ(third->bytes_uploaded, 3u) << "the text module is there already";
}

TEST_F(Deployment, an_empty_bucket_says_how_to_deploy) {
  auto loaded = load();
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(loaded.error().message, HasSubstr("celld deploy"));
  EXPECT_THAT(loaded.error().message, HasSubstr("memory://test"));
}

// OBJ-14: script rename changes all ids, old data unreachable.
TEST_F(Deployment, data_follows_the_class_when_the_script_is_renamed) {
  deploy_code("one", "old-name").value();
  auto before = load().value()->manifest.find_class("Counter")->namespace_key;
  deploy_code("one", "new-name").value();
  auto after = load().value();
  EXPECT_EQ(after->manifest.script_name, "new-name");
  EXPECT_EQ(after->manifest.find_class("Counter")->namespace_key, before);
}

TEST_F(Deployment, every_object_that_is_damaged_is_named) {
  deploy_code("one").value();
  auto good = store_.objects;
  for (const auto& [key, object] : good) {
    if (key == kClassRegistryKey) continue;  // not read by nodes
    store_.objects = good;
    std::string bytes(object.body.view());
    bytes[bytes.size() / 2] ^= 1;
    store_.objects[key].body = Blob(bytes);
    auto loaded = load();
    ASSERT_FALSE(loaded) << key;
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt) << key;
    EXPECT_THAT(loaded.error().message, HasSubstr(key));
    if (key == kPointerKey) continue;
    store_.objects.erase(key);
    loaded = load();
    ASSERT_FALSE(loaded) << key;
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt) << key;
    EXPECT_THAT(loaded.error().message, HasSubstr(key));
  }
}

TEST_F(Deployment, deploying_again_repairs_damaged_modules_and_manifests) {
  deploy_code("one").value();
  for (auto& [key, object] : store_.objects) {
    if (key != kPointerKey && key != kClassRegistryKey) object.body = Blob("damaged");
  }
  ASSERT_TRUE(deploy_code("one"));
  EXPECT_TRUE(load());
}

TEST_F(Deployment, lost_replies_do_not_fail_a_deployment) {
  std::map<std::string, int> tries;
  store_.fate = [&](const std::string& key) {
    return tries[key]++ == 0 ? FakeStore::Fate::kAppliedReplyLost : FakeStore::Fate::kNormal;
  };
  auto first = deploy_code("one");
  ASSERT_TRUE(first) << first.error().message;
  tries.clear();
  store_.fate = [&](const std::string& key) {
    return tries[key]++ == 0 ? FakeStore::Fate::kLost : FakeStore::Fate::kNormal;
  };
  auto second = deploy_code("two");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(load().value()->version, second->version);
}

TEST_F(Deployment, of_two_deployments_at_once_one_is_told) {
  deploy_code("one").value();
  bool once = false;
  store_.fate = [&](const std::string& key) {
    if (key == kPointerKey && !std::exchange(once, true)) {
      // Somebody else's swap comes first.
      store_.objects[key].version += 1000;
    }
    return FakeStore::Fate::kNormal;
  };
  auto lost = deploy_code("two");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kExists);
  EXPECT_THAT(lost.error().message, HasSubstr("deploy/current.json"));
}

TEST_F(Deployment, a_failure_anywhere_leaves_the_old_version_running) {
  auto first = deploy_code("one").value();
  for (std::string_view part : {"deploy-blobs/", "manifest.json", "current.json"}) {
    store_.fate = [&](const std::string& key) {
      return key.contains(part) ? FakeStore::Fate::kLost : FakeStore::Fate::kNormal;
    };
    auto failed = run(deploy(world_, store_, config(), bundle("two"), world_.deadline_in(Duration(1))));
    ASSERT_FALSE(failed) << part;
    EXPECT_THAT(failed.error().message, HasSubstr(part));
    EXPECT_EQ(load().value()->version, first.version);
    EXPECT_EQ(load().value()->find_module("index.js")->content.view(), "one");
  }
}

}  // namespace
}  // namespace celld
