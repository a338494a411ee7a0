// What every store promises, as one parameterised suite. A test program defines backends, includes
// this file once and instantiates StoreConformance with them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/object_store.h"
#include "store/store_testing.h"

namespace celld::testing {

// One store, empty at first, and the world it lives in.
struct StoreUnderTest {
  virtual ~StoreUnderTest() = default;
  virtual World& world() = 0;
  virtual ObjectStore& store() = 0;
  // Runs the world until the condition holds.
  virtual void run_until(const std::function<bool()>& condition) = 0;
};

struct StoreBackend {
  std::string name;
  std::function<std::unique_ptr<StoreUnderTest>()> make;
};
inline void PrintTo(const StoreBackend& backend, std::ostream* out) { *out << backend.name; }

class StoreConformance : public ::testing::TestWithParam<StoreBackend> {
 protected:
  void SetUp() override {
    under_test_ = GetParam().make();
    ASSERT_NE(under_test_, nullptr);
  }

  template <class T>
  T wait(Task<T> task) {
    std::optional<T> out;
    under_test_->world().spawn(keep_result(std::move(task), out));
    under_test_->run_until([&] { return out.has_value(); });
    return std::move(*out);
  }
  Deadline soon() { return under_test_->world().deadline_in(std::chrono::seconds(30)); }
  ObjectStore& store() { return under_test_->store(); }

  SwapResult create(std::string key, std::string body) {
    return wait(store().put_if(std::move(key), Blob(std::move(body)), Condition::create(), soon()));
  }
  SwapResult swap(std::string key, std::string body, Version version) {
    return wait(store().put_if(std::move(key), Blob(std::move(body)),
                               Condition::swap(std::move(version)), soon()));
  }
  Result<Version> put(std::string key, std::string body) {
    return wait(store().put(std::move(key), Blob(std::move(body)), soon()));
  }
  Result<StoredObject> get(std::string key) { return wait(store().get(std::move(key), soon())); }
  Result<StoredObject> get_range(std::string key, uint64_t offset, uint64_t length) {
    return wait(store().get_range(std::move(key), ByteRange{offset, length}, soon()));
  }
  Result<void> remove(std::string key) { return wait(store().remove(std::move(key), soon())); }
  ListPage list(ListRequest request) {
    auto page = wait(store().list(std::move(request), soon()));
    EXPECT_TRUE(page.has_value()) << page.error().message;
    return page ? std::move(*page) : ListPage{};
  }
  // All pages in one.
  ListPage list_whole(ListRequest request) {
    ListPage all = list(request);
    while (all.more) {
      request.start_after = all.next_start_after;
      ListPage page = list(request);
      all.objects.insert(all.objects.end(), page.objects.begin(), page.objects.end());
      all.common_prefixes.insert(all.common_prefixes.end(), page.common_prefixes.begin(),
                                 page.common_prefixes.end());
      all.more = page.more;
      all.next_start_after = page.next_start_after;
    }
    return all;
  }
  std::string body_of(std::string key) {
    auto object = get(std::move(key));
    return object ? std::string(object->body.view()) : "<" + object.error().message + ">";
  }
  static std::vector<std::string> keys(const ListPage& page) {
    std::vector<std::string> out;
    for (const auto& object : page.objects) out.push_back(object.key);
    return out;
  }
  // Everything under `request`, page by page: keys and prefixes in the order they came.
  std::vector<std::string> walk(ListRequest request) {
    std::vector<std::string> out;
    for (int pages = 0; pages < 10'000; ++pages) {
      ListPage page = list(request);
      std::vector<std::string> shown = keys(page);
      shown.insert(shown.end(), page.common_prefixes.begin(), page.common_prefixes.end());
      EXPECT_LE(shown.size(), request.keys_max);
      std::sort(shown.begin(), shown.end());
      out.insert(out.end(), shown.begin(), shown.end());
      if (!page.more) return out;
      EXPECT_FALSE(page.next_start_after.empty());
      request.start_after = page.next_start_after;
    }
    ADD_FAILURE() << "paging does not end";
    return out;
  }

  Result<ObjectInfo> head(std::string key) { return wait(store().head(std::move(key), soon())); }
  std::unique_ptr<Upload> begin_upload(std::string key) {
    auto begun = wait(store().begin_upload(std::move(key), kPartBytesMin, soon()));
    EXPECT_TRUE(begun) << begun.error().message;
    return begun ? std::move(*begun) : nullptr;
  }
  Result<void> put_part(Upload& upload, uint32_t number, std::string body) {
    return wait(upload.put_part(number, Blob(std::move(body)), soon()));
  }

  std::unique_ptr<StoreUnderTest> under_test_;
};

// Bytes that differ everywhere.
inline std::string pattern(size_t bytes, uint32_t seed) {
  std::string out(bytes, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& c : out) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

// Yields `content` in pieces of `piece_bytes`, then fails if told to.
class TestSource final : public BlobSource {
 public:
  TestSource(std::string content, size_t piece_bytes) : content_(std::move(content)), piece_(piece_bytes) {}
  std::optional<Error> error_at_end;
  std::function<void(size_t offset)> on_next = [](size_t) {};

  Task<Result<Blob>> next(Deadline) override {
    on_next(at_);
    if (at_ >= content_.size() && error_at_end) co_return fail(*error_at_end);
    Blob piece(content_.substr(std::min(at_, content_.size()), piece_));
    at_ += piece.size();
    co_return piece;
  }

 private:
  const std::string content_;
  const size_t piece_;
  size_t at_ = 0;
};

TEST_P(StoreConformance, get_returns_what_was_put) {
  auto version = put("a/b", "hello");
  ASSERT_TRUE(version) << version.error().message;
  auto object = get("a/b");
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->body.view(), "hello");
  EXPECT_EQ(object->object_bytes, 5u);
  EXPECT_EQ(object->version, *version);
  EXPECT_FALSE(version->token.empty());
}

TEST_P(StoreConformance, get_of_nothing_is_not_found) {
  auto object = get("nothing/here");
  ASSERT_FALSE(object);
  EXPECT_EQ(object.error().code, ErrorCode::kNotFound);
  EXPECT_NE(object.error().message.find("nothing/here"), std::string::npos)
      << object.error().message;
}

TEST_P(StoreConformance, bodies_may_be_empty_binary_and_large) {
  std::string binary;
  for (int i = 0; i < 256; ++i) binary += static_cast<char>(i);
  std::string large(3 << 20, 'x');
  large[1234567] = 'y';
  EXPECT_TRUE(put("empty", ""));
  EXPECT_TRUE(put("binary", binary));
  EXPECT_TRUE(put("large", large));
  auto empty = get("empty");
  ASSERT_TRUE(empty) << empty.error().message;
  EXPECT_EQ(empty->body.view(), "");
  EXPECT_EQ(empty->object_bytes, 0u);
  EXPECT_EQ(body_of("binary"), binary);
  EXPECT_TRUE(body_of("large") == large);
}

TEST_P(StoreConformance, create_succeeds_once) {
  SwapResult first = create("k", "one");
  ASSERT_EQ(first.outcome, SwapOutcome::kApplied) << first.error.message;
  EXPECT_EQ(create("k", "two").outcome, SwapOutcome::kRejected);
  EXPECT_EQ(create("k", "one").outcome, SwapOutcome::kRejected);
  auto object = get("k");
  ASSERT_TRUE(object);
  EXPECT_EQ(object->body.view(), "one");
  EXPECT_EQ(object->version, first.version);
}

TEST_P(StoreConformance, create_succeeds_again_after_delete) {
  EXPECT_EQ(create("k", "one").outcome, SwapOutcome::kApplied);
  EXPECT_TRUE(remove("k"));
  EXPECT_EQ(create("k", "two").outcome, SwapOutcome::kApplied);
  EXPECT_EQ(body_of("k"), "two");
}

TEST_P(StoreConformance, swap_needs_the_current_version) {
  Version v1 = create("k", "one").version;
  SwapResult second = swap("k", "two", v1);
  ASSERT_EQ(second.outcome, SwapOutcome::kApplied) << second.error.message;
  EXPECT_NE(second.version, v1);
  EXPECT_EQ(swap("k", "stale", v1).outcome, SwapOutcome::kRejected);
  EXPECT_EQ(body_of("k"), "two");
  EXPECT_EQ(swap("k", "three", second.version).outcome, SwapOutcome::kApplied);
  EXPECT_EQ(body_of("k"), "three");
}

TEST_P(StoreConformance, swap_on_the_version_that_a_get_or_a_put_gave) {
  ASSERT_TRUE(put("k", "one"));
  Version seen = get("k")->version;
  EXPECT_EQ(swap("k", "two", seen).outcome, SwapOutcome::kApplied);
  auto rewritten = put("k", "three");
  ASSERT_TRUE(rewritten);
  EXPECT_EQ(swap("k", "four", seen).outcome, SwapOutcome::kRejected);
  EXPECT_EQ(swap("k", "four", *rewritten).outcome, SwapOutcome::kApplied);
  EXPECT_EQ(body_of("k"), "four");
}

TEST_P(StoreConformance, swap_of_nothing_is_never_applied) {
  Version version = create("k", "one").version;
  EXPECT_TRUE(remove("k"));
  EXPECT_NE(swap("k", "two", version).outcome, SwapOutcome::kApplied);
  EXPECT_FALSE(get("k"));
}

TEST_P(StoreConformance, one_of_many_racing_creates_wins) {
  std::vector<Task<SwapResult>> tasks;
  for (int i = 0; i < 20; ++i) {
    tasks.push_back(
        store().put_if("race", Blob("racer " + std::to_string(i)), Condition::create(), soon()));
  }
  auto results = wait(join_all(under_test_->world(), std::move(tasks)));
  std::string winner;
  int applied = 0;
  for (int i = 0; i < 20; ++i) {
    if (results[i].outcome != SwapOutcome::kApplied) continue;
    ++applied;
    winner = "racer " + std::to_string(i);
  }
  EXPECT_EQ(applied, 1);
  EXPECT_EQ(body_of("race"), winner);
}

TEST_P(StoreConformance, one_of_many_racing_swaps_wins) {
  Version version = create("race", "start").version;
  for (int round = 0; round < 5; ++round) {
    std::vector<Task<SwapResult>> tasks;
    for (int i = 0; i < 10; ++i) {
      std::string body = std::to_string(round) + " racer " + std::to_string(i);
      tasks.push_back(
          store().put_if("race", Blob(std::move(body)), Condition::swap(version), soon()));
    }
    auto results = wait(join_all(under_test_->world(), std::move(tasks)));
    int applied = 0;
    for (const auto& result : results) {
      if (result.outcome != SwapOutcome::kApplied) continue;
      ++applied;
      version = result.version;
    }
    EXPECT_EQ(applied, 1);
    EXPECT_EQ(get("race")->version, version);
  }
}

TEST_P(StoreConformance, ranges_are_cut_at_the_end) {
  Version version = *put("k", "0123456789");
  auto middle = get_range("k", 2, 3);
  ASSERT_TRUE(middle) << middle.error().message;
  EXPECT_EQ(middle->body.view(), "234");
  EXPECT_EQ(middle->object_bytes, 10u);
  EXPECT_EQ(middle->version, version);
  EXPECT_EQ(get_range("k", 7, 100)->body.view(), "789");
  EXPECT_EQ(get_range("k", 9, 1)->body.view(), "9");
  EXPECT_EQ(get_range("k", 0, 10)->body.view(), "0123456789");
  EXPECT_EQ(get_range("k", 0, uint64_t(1) << 60)->body.view(), "0123456789");
}

TEST_P(StoreConformance, ranges_past_the_end_and_of_nothing_are_errors) {
  ASSERT_TRUE(put("k", "0123456789"));
  ASSERT_TRUE(put("empty", ""));
  EXPECT_EQ(get_range("k", 10, 1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(get_range("k", 1000, 1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(get_range("k", 0, 0).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(get_range("empty", 0, 1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(get_range("none", 0, 1).error().code, ErrorCode::kNotFound);
}

TEST_P(StoreConformance, delete_is_idempotent_and_complete) {
  ASSERT_TRUE(put("d/k", "x"));
  EXPECT_TRUE(remove("d/k"));
  EXPECT_TRUE(remove("d/k"));
  EXPECT_TRUE(remove("never/there"));
  EXPECT_EQ(get("d/k").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(walk({}), ::testing::IsEmpty());
}

TEST_P(StoreConformance, list_shows_keys_in_byte_order_with_sizes_and_times) {
  const std::vector<std::string> all = {"a",  "a!", "a-b", "a.json", "a/b", "a/b!", "a/b/c",
                                        "a0", "ab", "b/1", "b/2",    "é/x", "日本"};
  std::vector<std::string> shuffled = all;
  std::reverse(shuffled.begin(), shuffled.end());
  for (const auto& key : shuffled) ASSERT_TRUE(put(key, key));
  ListPage page = list_whole({});
  EXPECT_THAT(keys(page), ::testing::ElementsAreArray(all));
  WallMs now = under_test_->world().wall_now();
  for (const auto& object : page.objects) {
    EXPECT_EQ(object.bytes, object.key.size());
    EXPECT_NEAR(static_cast<double>(object.modified.value), static_cast<double>(now.value), 60'000);
  }
  ListRequest under_a;
  under_a.prefix = "a/b";
  EXPECT_THAT(keys(list_whole(under_a)), ::testing::ElementsAre("a/b", "a/b!", "a/b/c"));
}

TEST_P(StoreConformance, list_starts_after_a_key_that_need_not_exist) {
  for (const char* key : {"p/1", "p/2", "p/3", "q/1"}) ASSERT_TRUE(put(key, "x"));
  ListRequest request;
  request.prefix = "p/";
  request.start_after = "p/1";
  EXPECT_THAT(keys(list_whole(request)), ::testing::ElementsAre("p/2", "p/3"));
  request.start_after = "p/2zzz";
  EXPECT_THAT(keys(list_whole(request)), ::testing::ElementsAre("p/3"));
  request.start_after = "a";
  EXPECT_THAT(keys(list_whole(request)), ::testing::ElementsAre("p/1", "p/2", "p/3"));
  request.start_after = "z";
  EXPECT_THAT(keys(list_whole(request)), ::testing::IsEmpty());
}

TEST_P(StoreConformance, list_folds_at_the_delimiter) {
  for (const char* key : {"n/a.json", "n/a/1", "n/a/2", "n/b/1/2", "n/c", "n", "o/1"}) {
    ASSERT_TRUE(put(key, "x"));
  }
  ListRequest request;
  request.prefix = "n/";
  request.delimiter = "/";
  ListPage page = list_whole(request);
  EXPECT_THAT(keys(page), ::testing::ElementsAre("n/a.json", "n/c"));
  EXPECT_THAT(page.common_prefixes, ::testing::ElementsAre("n/a/", "n/b/"));
  request.prefix = "";
  page = list_whole(request);
  EXPECT_THAT(keys(page), ::testing::ElementsAre("n"));
  EXPECT_THAT(page.common_prefixes, ::testing::ElementsAre("n/", "o/"));
  request.prefix = "n/a";
  page = list_whole(request);
  EXPECT_THAT(keys(page), ::testing::ElementsAre("n/a.json"));
  EXPECT_THAT(page.common_prefixes, ::testing::ElementsAre("n/a/"));
}

TEST_P(StoreConformance, list_forgets_prefixes_whose_last_object_is_gone) {
  ASSERT_TRUE(put("n/x/y/1", "x"));
  ASSERT_TRUE(put("n/z/1", "x"));
  ASSERT_TRUE(remove("n/x/y/1"));
  ListRequest request;
  request.prefix = "n/";
  request.delimiter = "/";
  EXPECT_THAT(list_whole(request).common_prefixes, ::testing::ElementsAre("n/z/"));
}

TEST_P(StoreConformance, list_pages_meet_without_gap_or_overlap) {
  std::vector<std::string> all;
  std::vector<std::string> folded;
  for (int i = 0; i < 23; ++i) {
    std::string name = "p/" + std::string(1, static_cast<char>('a' + i));
    all.push_back(name);
    folded.push_back(name);
    for (const char* leaf : {"/1", "/2", "/3/4"}) all.push_back(name + leaf);
    folded.push_back(name + "/");
  }
  for (const auto& key : all) ASSERT_TRUE(put(key, "x"));
  for (uint32_t keys_max : {1u, 2u, 7u, 1000u}) {
    ListRequest request;
    request.prefix = "p/";
    request.keys_max = keys_max;
    EXPECT_THAT(walk(request), ::testing::ElementsAreArray(all)) << keys_max;
    request.delimiter = "/";
    EXPECT_THAT(walk(request), ::testing::ElementsAreArray(folded)) << keys_max;
  }
}

TEST_P(StoreConformance, list_after_a_folded_prefix_does_not_show_it_again) {
  for (const char* key : {"a/1", "a/2", "b/1"}) ASSERT_TRUE(put(key, "x"));
  ListRequest request;
  request.delimiter = "/";
  request.start_after = "a/";
  EXPECT_THAT(list(request).common_prefixes, ::testing::ElementsAre("b/"));
  request.start_after = "a/1";
  EXPECT_THAT(list(request).common_prefixes, ::testing::ElementsAre("b/"));
}

TEST_P(StoreConformance, list_refuses_what_it_cannot_do) {
  ListRequest request;
  request.keys_max = 0;
  EXPECT_EQ(wait(store().list(request, soon())).error().code, ErrorCode::kInvalid);
  request.keys_max = 1001;
  EXPECT_EQ(wait(store().list(request, soon())).error().code, ErrorCode::kInvalid);
  request.keys_max = 10;
  request.delimiter = "-";
  EXPECT_EQ(wait(store().list(request, soon())).error().code, ErrorCode::kInvalid);
}

// A key that ends in a slash was readable but missing from the list of one store.
TEST_P(StoreConformance, keys_with_odd_slashes_are_listed_and_exact) {
  std::vector<std::string> all = {"case/a/b", "case/a//b",  "case/a/b/",
                                  "case/λ/%", "case/a/%2F", "/case/a/b"};
  for (const auto& key : all) ASSERT_TRUE(put(key, "body of " + key)) << key;
  std::sort(all.begin(), all.end());
  EXPECT_THAT(walk({}), ::testing::ElementsAreArray(all));
  for (const auto& key : all) EXPECT_EQ(body_of(key), "body of " + key);
  for (uint32_t keys_max : {1u, 2u}) {
    ListRequest request;
    request.keys_max = keys_max;
    EXPECT_THAT(walk(request), ::testing::ElementsAreArray(all));
  }
}

TEST_P(StoreConformance, keys_with_odd_characters_are_kept_apart) {
  std::vector<std::string> all = {"k/ blank ", "k/+plus",  "k/a&b=c",   "k/a?b#c", "k/'quote\"",
                                  "k/()*@:,;", "k/[x]{y}", "k/~tilde^", "k/%41",   "k/A",
                                  "k/back\\",  "k/<x>",    "k/$|`",     "k/%zz",   "k/ÿ€𝄞",
                                  "K/A",       "k/.hid",   "k/a..b",    "k/-"};
  for (const auto& key : all) ASSERT_TRUE(put(key, "body of " + key)) << key;
  std::sort(all.begin(), all.end());
  EXPECT_THAT(walk({}), ::testing::ElementsAreArray(all));
  for (const auto& key : all) EXPECT_EQ(body_of(key), "body of " + key);
  for (const auto& key : all) {
    ASSERT_EQ(create(key, "x").outcome, SwapOutcome::kRejected) << key;
    ASSERT_TRUE(remove(key)) << key;
  }
  EXPECT_THAT(walk({}), ::testing::IsEmpty());
}

TEST_P(StoreConformance, a_key_may_be_a_prefix_of_another_key) {
  for (const char* key : {"a", "a/b", "a/b/c", "a/", "a/b/"}) {
    ASSERT_EQ(create(key, key).outcome, SwapOutcome::kApplied) << key;
  }
  EXPECT_THAT(walk({}), ::testing::ElementsAre("a", "a/", "a/b", "a/b/", "a/b/c"));
  ASSERT_TRUE(remove("a/b"));
  EXPECT_THAT(walk({}), ::testing::ElementsAre("a", "a/", "a/b/", "a/b/c"));
  EXPECT_EQ(body_of("a/b/c"), "a/b/c");
}

TEST_P(StoreConformance, long_keys_work_up_to_the_limit) {
  std::vector<std::string> all;
  for (size_t n : {83u, 84u, 85u, 167u, 168u, 169u, 254u, 255u, 256u, 512u, 1000u}) {
    all.push_back("p/" + std::string(n, 'n'));
    if (n < 1000) all.push_back("p/" + std::string(n, 'n') + "/x");
    if (n < 1000) all.push_back("p/" + std::string(n, 'n') + "!");
  }
  for (const auto& key : all) ASSERT_TRUE(put(key, std::to_string(key.size()))) << key.size();
  std::sort(all.begin(), all.end());
  EXPECT_THAT(walk({}), ::testing::ElementsAreArray(all));
  ListRequest by_one;
  by_one.keys_max = 1;
  EXPECT_THAT(walk(by_one), ::testing::ElementsAreArray(all));
  for (const auto& key : all) EXPECT_EQ(body_of(key), std::to_string(key.size()));
}

TEST_P(StoreConformance, empty_and_too_long_keys_are_refused) {
  for (const std::string& key : {std::string(), std::string(1025, 'k')}) {
    EXPECT_EQ(put(key, "x").error().code, ErrorCode::kInvalid);
    EXPECT_EQ(get(key).error().code, ErrorCode::kInvalid);
    EXPECT_EQ(remove(key).error().code, ErrorCode::kInvalid);
    SwapResult result = create(key, "x");
    EXPECT_EQ(result.outcome, SwapOutcome::kAmbiguous);
    EXPECT_EQ(result.error.code, ErrorCode::kInvalid);
  }
}

TEST_P(StoreConformance, head_gives_size_and_version_alone) {
  auto version = put("h/k", "hello");
  ASSERT_TRUE(version);
  auto info = head("h/k");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->bytes, 5u);
  EXPECT_EQ(info->version, *version);
  ASSERT_TRUE(put("h/empty", ""));
  info = head("h/empty");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->bytes, 0u);
  EXPECT_EQ(head("h/none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(head("h").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(head("").error().code, ErrorCode::kInvalid);
}

TEST_P(StoreConformance, remove_many_gives_an_outcome_for_each_key) {
  std::vector<std::string> all = {"m/1", "m/<&>", "m/ b", "m/é%", "m/a//b", "m/'\"+"};
  for (const auto& key : all) ASSERT_TRUE(put(key, "x")) << key;
  ASSERT_TRUE(put("m/stays", "x"));
  std::vector<std::string> asked = all;
  asked.push_back("m/was/never/there");
  asked.insert(asked.begin() + 2, std::string());
  asked.push_back(all[0]);
  auto outcomes = wait(store().remove_many(asked, soon()));
  ASSERT_EQ(outcomes.size(), asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].empty()) {
      ASSERT_FALSE(outcomes[i]);
      EXPECT_EQ(outcomes[i].error().code, ErrorCode::kInvalid);
    } else {
      EXPECT_TRUE(outcomes[i]) << asked[i] << ": " << outcomes[i].error().message;
    }
  }
  EXPECT_THAT(walk({}), ::testing::ElementsAre("m/stays"));
  EXPECT_THAT(wait(store().remove_many({}, soon())), ::testing::IsEmpty());
}

TEST_P(StoreConformance, remove_many_takes_more_keys_than_one_request_can) {
  std::vector<std::string> all;
  for (int i = 0; i < 1102; ++i) all.push_back("m/" + std::to_string(i));
  for (int i = 0; i < 1102; i += 100) ASSERT_TRUE(put(all[i], "x"));
  ASSERT_TRUE(put(all.back(), "x"));
  auto outcomes = wait(store().remove_many(all, soon()));
  ASSERT_EQ(outcomes.size(), all.size());
  for (const auto& outcome : outcomes) ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_THAT(walk({}), ::testing::IsEmpty());
}

TEST_P(StoreConformance, an_upload_is_one_object_once_it_is_finished) {
  const std::string one = pattern(kPartBytesMin, 1), two = pattern(kPartBytesMin, 2);
  const std::string old = "what was there", last = pattern(1234, 3);
  ASSERT_TRUE(put("u/k", old));
  auto upload = begin_upload("u/k");
  ASSERT_NE(upload, nullptr);
  ASSERT_TRUE(put_part(*upload, 3, last + "of a longer attempt"));
  ASSERT_TRUE(put_part(*upload, 3, last));
  ASSERT_TRUE(put_part(*upload, 2, one));
  ASSERT_TRUE(put_part(*upload, 1, one));
  ASSERT_TRUE(put_part(*upload, 2, two)) << "a part that is sent again replaces the first";
  EXPECT_EQ(body_of("u/k"), old);
  EXPECT_THAT(walk({}), ::testing::ElementsAre("u/k"));
  auto version = wait(upload->finish(soon()));
  ASSERT_TRUE(version) << version.error().message;
  auto object = get("u/k");
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_TRUE(object->body.view() == one + two + last);
  EXPECT_EQ(object->version, *version);
  EXPECT_EQ(head("u/k")->bytes, 2 * kPartBytesMin + 1234);
  EXPECT_TRUE(get_range("u/k", kPartBytesMin - 2, 4)->body.view() ==
              one.substr(kPartBytesMin - 2) + two.substr(0, 2));
}

TEST_P(StoreConformance, an_upload_that_is_aborted_leaves_nothing) {
  auto upload = begin_upload("u/k");
  ASSERT_NE(upload, nullptr);
  ASSERT_TRUE(put_part(*upload, 1, pattern(kPartBytesMin, 1)));
  auto aborted = wait(upload->abort(soon()));
  EXPECT_TRUE(aborted) << aborted.error().message;
  EXPECT_EQ(get("u/k").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(walk({}), ::testing::IsEmpty());
}

TEST_P(StoreConformance, uploads_refuse_parts_that_a_store_would_not_take) {
  EXPECT_EQ(wait(store().begin_upload("", kPartBytesMin, soon())).error().code, ErrorCode::kInvalid);
  for (uint64_t bytes : {kPartBytesMin - 1, kPartBytesMax + 1}) {
    EXPECT_EQ(wait(store().begin_upload("k", bytes, soon())).error().code, ErrorCode::kInvalid);
  }
  auto upload = begin_upload("u/k");
  ASSERT_NE(upload, nullptr);
  EXPECT_EQ(wait(upload->finish(soon())).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(put_part(*upload, 0, "x").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(put_part(*upload, kPartsMax + 1, "x").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(put_part(*upload, 1, "").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(put_part(*upload, 1, std::string(kPartBytesMin + 1, 'x')).error().code,
            ErrorCode::kInvalid);
  ASSERT_TRUE(put_part(*upload, 2, "short"));
  EXPECT_EQ(wait(upload->finish(soon())).error().code, ErrorCode::kInvalid) << "part 1 is missing";
  EXPECT_EQ(put_part(*upload, 1, "short, but not the last").error().code, ErrorCode::kInvalid);
  ASSERT_TRUE(put_part(*upload, 1, std::string(kPartBytesMin, 'x')));
  EXPECT_TRUE(wait(upload->finish(soon())));
}

TEST_P(StoreConformance, a_stream_of_any_size_is_put) {
  StreamOptions options;
  options.part_bytes = kPartBytesMin;
  for (size_t bytes : {size_t(0), size_t(1), size_t(kPartBytesMin - 1), size_t(kPartBytesMin),
                       size_t(kPartBytesMin + 1), size_t(2 * kPartBytesMin),
                       size_t(4 * kPartBytesMin + 7)}) {
    for (size_t piece : {size_t(777'777), size_t(kPartBytesMin), size_t(3 * kPartBytesMin)}) {
      if (piece != kPartBytesMin && bytes % 2 == 0) continue;  // enough of them
      const std::string content = pattern(bytes, static_cast<uint32_t>(bytes));
      TestSource source(content, piece);
      auto version = wait(put_stream(under_test_->world(), store(), "s/k", source, options, soon()));
      ASSERT_TRUE(version) << bytes << ": " << version.error().message;
      auto object = get("s/k");
      ASSERT_TRUE(object) << object.error().message;
      EXPECT_TRUE(object->body.view() == content) << bytes << " in pieces of " << piece;
      EXPECT_EQ(object->version, *version);
    }
  }
}

TEST_P(StoreConformance, a_stream_that_breaks_off_leaves_nothing) {
  StreamOptions options;
  options.part_bytes = kPartBytesMin;
  for (size_t bytes : {size_t(10), size_t(3 * kPartBytesMin)}) {
    TestSource source(pattern(bytes, 1), 1'000'000);
    source.error_at_end = Error::corrupt("the source broke off");
    auto version = wait(put_stream(under_test_->world(), store(), "s/k", source, options, soon()));
    ASSERT_FALSE(version);
    EXPECT_EQ(version.error().message, "the source broke off");
    EXPECT_EQ(get("s/k").error().code, ErrorCode::kNotFound);
  }
}

// Whatever a call was doing, it ends, and the store goes on.
TEST_P(StoreConformance, calls_end_when_they_are_cancelled) {
  ASSERT_TRUE(put("c/old", "old"));
  for (bool before : {true, false}) {
    Cancellation cancellation;
    if (before) cancellation.cancel();
    Deadline deadline = soon().cancelled_by(cancellation);
    int ended = 0;
    auto code_ok = [&](const Error& error) {
      ++ended;
      EXPECT_EQ(error.code, ErrorCode::kCancelled) << error.message;
    };
    auto watch = [&](auto task) -> Task<void> {
      auto result = co_await std::move(task);
      if (result) ++ended;
      if (!result) code_ok(result.error());
    };
    auto watch_swap = [&](Task<SwapResult> task) -> Task<void> {
      SwapResult result = co_await std::move(task);
      if (result.outcome != SwapOutcome::kAmbiguous) ++ended;
      if (result.outcome == SwapOutcome::kAmbiguous) code_ok(result.error);
    };
    World& world = under_test_->world();
    world.spawn(watch(store().get("c/old", deadline)));
    world.spawn(watch(store().get_range("c/old", ByteRange{0, 2}, deadline)));
    world.spawn(watch(store().head("c/old", deadline)));
    world.spawn(watch(store().put("c/new", Blob("new"), deadline)));
    world.spawn(watch(store().remove("c/none", deadline)));
    world.spawn(watch(store().list(ListRequest{}, deadline)));
    world.spawn(watch_swap(store().put_if("c/made", Blob("x"), Condition::create(), deadline)));
    cancellation.cancel();
    under_test_->run_until([&] { return ended == 7; });
  }
  EXPECT_EQ(body_of("c/old"), "old");
}

TEST_P(StoreConformance, a_stream_that_is_cancelled_leaves_nothing) {
  StreamOptions options;
  options.part_bytes = kPartBytesMin;
  for (size_t at : {size_t(0), size_t(2 * kPartBytesMin)}) {
    Cancellation cancellation;
    TestSource source(pattern(6 * kPartBytesMin, 1), kPartBytesMin);
    source.on_next = [&](size_t offset) {
      if (offset == at) cancellation.cancel();
    };
    Deadline deadline = soon().cancelled_by(cancellation);
    auto version =
        wait(put_stream(under_test_->world(), store(), "s/k", source, options, deadline));
    if (version) continue;  // a store at whose deadlines nobody looks
    EXPECT_EQ(version.error().code, ErrorCode::kCancelled) << version.error().message;
    EXPECT_EQ(get("s/k").error().code, ErrorCode::kNotFound);
  }
}

TEST_P(StoreConformance, list_all_gathers_every_page) {
  for (int i = 0; i < 1203; ++i) {
    char key[32];
    snprintf(key, sizeof key, "many/%016x", i);
    ASSERT_TRUE(put(key, "x"));
  }
  auto all = wait(list_all(store(), "many/", soon()));
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 1203u);
  EXPECT_EQ(all->front().key, "many/0000000000000000");
  EXPECT_EQ(all->back().key, "many/00000000000004b2");
}

}  // namespace celld::testing
