#include "store/probe_steps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "store/key.h"

namespace celld {

namespace {

constexpr std::string_view kFirst = "celld probe 1";
constexpr std::string_view kOther = "celld probe 2, refused";
constexpr std::string_view kSecond = "celld probe 3, after the swap";
constexpr std::string_view kStale = "celld probe 4, stale";
constexpr int kRacers = 30;
constexpr uint64_t kLargePartBytes = kPartBytesMin;
constexpr uint64_t kLargeTailBytes = 12'345;
constexpr uint64_t kReadBytesMax = 1 << 20;

Unexpected broken(std::string what) { return fail(Error::unsupported(std::move(what))); }

// "No such object" as an answer to a write, or a feature that is missing, is the store's fault;
// the rest may pass.
Unexpected judge(const Error& error) {
  if (error.code == ErrorCode::kNotFound) return broken(error.message);
  return fail(error);
}

// Bytes that differ everywhere.
std::string pattern(uint64_t bytes, uint32_t seed) {
  std::string out(bytes, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& c : out) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

}  // namespace

std::span<const ProbeRun::Step> ProbeRun::steps() {
  using P = ProbeRun;
  static constexpr std::array kSteps = {
      Step{"create", "no cell can be claimed", true, true, &P::create},
      Step{"reject-create", "two nodes create one slot or one owner: lost writes", true, true,
           &P::reject_create},
      Step{"update", "no lease can be renewed", true, true, &P::update},
      Step{"reject-stale", "two nodes own one cell: lost writes", true, true, &P::reject_stale},
      Step{"read-after-write", "a node acts on what was true before: lost writes", true, true,
           &P::read_after_write},
      Step{"ranged-read", "large databases cannot be opened", true, true, &P::ranged_read},
      Step{"list-after-write", "a recovery misses what was acknowledged: lost writes", true, true,
           &P::list_after_write},
      Step{"list-order", "a recovery misses what was acknowledged: lost writes", false, true,
           &P::list_order},
      Step{"list-after-delete", "recoveries look for objects that are gone", false, true,
           &P::list_after_delete},
      Step{"racing-creates", "two nodes create one slot or one owner: lost writes", false, true,
           &P::racing_creates},
      Step{"racing-swaps", "two nodes own one cell: lost writes", false, true, &P::racing_swaps},
      Step{"large-object", "large databases cannot be kept", false, true, &P::large_object},
      Step{"list", "nothing can be recovered", false, false, &P::read_only_list},
      Step{"read", "nothing can be read", false, false, &P::read_only_read},
  };
  return kSteps;
}

bool ProbeRun::possible(const Step& step) const {
  if (step.run == &ProbeRun::reject_create || step.run == &ProbeRun::update)
    return first_.has_value();
  if (step.run == &ProbeRun::reject_stale || step.run == &ProbeRun::read_after_write ||
      step.run == &ProbeRun::ranged_read || step.run == &ProbeRun::list_after_write) {
    return second_.has_value();
  }
  return true;
}

Task<Result<void>> ProbeRun::clean_up() {
  std::vector<std::string> keys = std::exchange(written_, {});
  std::vector<Result<void>> removed = co_await store_.remove_many(std::move(keys), deadline_);
  for (Result<void>& one : removed) {
    if (!one) co_return one;
  }
  co_return Result<void>{};
}

Task<SwapResult> ProbeRun::write(std::string_view text, Condition condition) {
  std::string key = key_;
  Blob body{std::string(text)};
  co_return co_await store_.put_if(std::move(key), std::move(body), std::move(condition),
                                   deadline_);
}

// The object holds `text` at `version`.
Task<Result<void>> ProbeRun::expect(std::string_view text, Version version) {
  std::string key = key_;
  Result<StoredObject> object = co_await store_.get(std::move(key), deadline_);
  if (!object) co_return judge(object.error());
  if (object->body.view() != text) {
    co_return broken("a refused write is there all the same, or an applied one is not");
  }
  if (object->version != version)
    co_return broken("a read gives another version than the write did");
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::create() {
  written_.push_back(key_);
  Condition condition = Condition::create();
  SwapResult created = co_await write(kFirst, std::move(condition));
  if (created.outcome == SwapOutcome::kAmbiguous) co_return judge(created.error);
  if (created.outcome == SwapOutcome::kRejected) {
    co_return broken("a create of a key that does not exist was refused");
  }
  first_ = created.version;
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::reject_create() {
  Condition condition = Condition::create();
  SwapResult again = co_await write(kOther, std::move(condition));
  if (again.outcome == SwapOutcome::kAmbiguous) co_return judge(again.error);
  if (again.outcome == SwapOutcome::kApplied) {
    first_ = again.version;  // so that the next steps can still be judged
    co_return broken("a create of a key that exists was applied (If-None-Match is ignored)");
  }
  Version first = *first_;
  co_return co_await expect(kFirst, std::move(first));
}

Task<Result<void>> ProbeRun::update() {
  for (bool other_dialect_tried = false;; other_dialect_tried = true) {
    Condition condition = Condition::swap(*first_);
    SwapResult updated = co_await write(kSecond, std::move(condition));
    if (updated.outcome == SwapOutcome::kAmbiguous) co_return judge(updated.error);
    if (updated.outcome == SwapOutcome::kApplied) {
      if (updated.version == *first_) co_return broken("a swap left the version as it was");
      second_ = updated.version;
      co_return Result<void>{};
    }
    // Perhaps for the way the version was quoted.
    if (dialect_) {
      dialect_->etag_quotes =
          dialect_->etag_quotes == EtagQuotes::kQuoted ? EtagQuotes::kBare : EtagQuotes::kQuoted;
    }
    if (!dialect_ || other_dialect_tried)
      co_return broken("a swap on the current version was refused");
  }
}

Task<Result<void>> ProbeRun::reject_stale() {
  Condition condition = Condition::swap(*first_);
  SwapResult stale = co_await write(kStale, std::move(condition));
  if (stale.outcome == SwapOutcome::kAmbiguous) co_return judge(stale.error);
  if (stale.outcome == SwapOutcome::kApplied) {
    second_.reset();
    co_return broken("a swap on an old version was applied (If-Match is ignored)");
  }
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::read_after_write() {
  Version second = *second_;
  co_return co_await expect(kSecond, std::move(second));
}

Task<Result<void>> ProbeRun::ranged_read() {
  std::string key = key_;
  ByteRange range{6, 5};
  Result<StoredObject> part = co_await store_.get_range(std::move(key), range, deadline_);
  if (!part) co_return judge(part.error());
  if (part->body.view() != kSecond.substr(6, 5) || part->object_bytes != kSecond.size() ||
      part->version != *second_) {
    co_return broken("the store answered another range than asked");
  }
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::list_after_write() {
  ListRequest request;
  request.prefix = key_;
  Result<ListPage> page = co_await store_.list(std::move(request), deadline_);
  if (!page) co_return judge(page.error());
  if (page->objects.size() != 1 || page->more || page->objects[0].key != key_) {
    co_return broken("a list does not show what was written just before");
  }
  if (page->objects[0].bytes != kSecond.size()) co_return broken("a list shows an old size");
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::list_order() {
  const std::string base = key_ + "/order/";
  std::vector<std::string> all;
  for (const char* name : {"a", "a!", "a-b", "a.b", "a/1", "a/2", "a0", "ab", "b/1"}) {
    all.push_back(base + name);
  }
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    std::string key = *it;
    Blob body("x");
    written_.push_back(*it);
    CO_TRY(co_await store_.put(std::move(key), std::move(body), deadline_));
  }
  std::vector<std::string> seen;
  ListRequest request;
  request.prefix = base;
  request.keys_max = 4;
  while (true) {
    ListRequest page_request = request;
    Result<ListPage> page = co_await store_.list(std::move(page_request), deadline_);
    if (!page) co_return judge(page.error());
    for (ListedObject& object : page->objects) seen.push_back(std::move(object.key));
    if (!page->more || seen.size() > all.size()) break;
    request.start_after = std::move(page->next_start_after);
  }
  if (seen != all)
    co_return broken("a list is not complete, page by page, in byte order of the keys");
  ListRequest folded;
  folded.prefix = base;
  folded.delimiter = "/";
  folded.start_after = base + "a-b";
  Result<ListPage> page = co_await store_.list(std::move(folded), deadline_);
  if (!page) co_return judge(page.error());
  const std::vector<std::string> prefixes = {base + "a/", base + "b/"};
  if (page->common_prefixes != prefixes || page->objects.size() != 3) {
    co_return broken("a list with a delimiter or a start is wrong");
  }
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::list_after_delete() {
  const std::string name = key_ + "/deleted";
  std::string key = name;
  Blob body("x");
  written_.push_back(name);
  CO_TRY(co_await store_.put(std::move(key), std::move(body), deadline_));
  key = name;
  CO_TRY(co_await store_.remove(std::move(key), deadline_));
  ListRequest request;
  request.prefix = name;
  Result<ListPage> page = co_await store_.list(std::move(request), deadline_);
  if (!page) co_return judge(page.error());
  if (!page->objects.empty()) co_return broken("a list shows what was deleted just before");
  key = name;
  Result<StoredObject> gone = co_await store_.get(std::move(key), deadline_);
  if (gone) co_return broken("a read gives what was deleted just before");
  if (gone.error().code != ErrorCode::kNotFound) co_return fail(gone.error());
  co_return Result<void>{};
}

// Of writers on one condition exactly one is applied, and its content is what stays.
Task<Result<void>> ProbeRun::race(std::string key, Condition condition) {
  std::vector<Task<SwapResult>> tasks;
  for (int i = 0; i < kRacers; ++i) {
    tasks.push_back(store_.put_if(key, Blob("racer " + std::to_string(i)), condition, deadline_));
  }
  std::vector<SwapResult> results = co_await join_all(world_, std::move(tasks));
  int applied = 0;
  std::vector<std::string> possible;  // what may be there
  std::string winner;
  std::optional<Error> unsure;
  for (int i = 0; i < kRacers; ++i) {
    if (results[i].outcome == SwapOutcome::kRejected) continue;
    possible.push_back("racer " + std::to_string(i));
    if (results[i].outcome == SwapOutcome::kAmbiguous) {
      unsure = results[i].error;
      continue;
    }
    ++applied;
    winner = possible.back();
  }
  if (applied > 1)
    co_return broken(std::to_string(applied) + " of " + std::to_string(kRacers) +
                     " racing writes were applied");
  if (possible.empty())
    co_return broken("all of " + std::to_string(kRacers) + " racing writes were refused");
  Result<StoredObject> object = co_await store_.get(std::move(key), deadline_);
  if (!object && unsure) co_return fail(*unsure);
  if (!object) co_return judge(object.error());
  const std::string_view stays = object->body.view();
  if (applied == 1 && stays != winner)
    co_return broken("another of the racing writes stays than the one that was applied");
  if (applied == 0 && std::find(possible.begin(), possible.end(), stays) == possible.end())
    co_return fail(*unsure);
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::racing_creates() {
  std::string key = key_ + "/create";
  written_.push_back(key);
  Condition condition = Condition::create();
  co_return co_await race(std::move(key), std::move(condition));
}

Task<Result<void>> ProbeRun::racing_swaps() {
  const std::string name = key_ + "/swap";
  std::string key = name;
  Blob body("start");
  written_.push_back(name);
  Condition create = Condition::create();
  SwapResult begun =
      co_await store_.put_if(std::move(key), std::move(body), std::move(create), deadline_);
  if (begun.outcome == SwapOutcome::kRejected)
    co_return broken("a create of a key that does not exist was refused");
  if (begun.outcome == SwapOutcome::kAmbiguous) co_return judge(begun.error);
  Condition condition = Condition::swap(begun.version);
  key = name;
  co_return co_await race(std::move(key), std::move(condition));
}

Task<Result<void>> ProbeRun::large_object() {
  const std::string name = key_ + "/large";
  written_.push_back(name);
  std::string key = name;
  CO_TRY_ASSIGN(std::unique_ptr<Upload> upload,
                co_await store_.begin_upload(std::move(key), kLargePartBytes, deadline_));
  const std::string whole = pattern(2 * kLargePartBytes + kLargeTailBytes, 7);
  std::optional<Error> failed;
  for (uint32_t part = 3; part >= 1 && !failed; --part) {
    Blob body(whole.substr((part - 1) * kLargePartBytes, kLargePartBytes));
    Result<void> sent = co_await upload->put_part(part, std::move(body), deadline_);
    if (!sent) failed = sent.error();
  }
  if (!failed) {
    Result<Version> finished = co_await upload->finish(deadline_);
    if (!finished) failed = finished.error();
  }
  if (failed) {
    Result<void> aborted = co_await upload->abort(deadline_);
    co_return judge(*failed);
  }
  key = name;
  Result<StoredObject> object = co_await store_.get(std::move(key), deadline_);
  if (!object) co_return judge(object.error());
  if (object->body.view() != whole)
    co_return broken("an object sent in parts reads back otherwise");
  for (uint64_t offset :
       {uint64_t{0}, kLargePartBytes - 100, 2 * kLargePartBytes + kLargeTailBytes - 200}) {
    key = name;
    ByteRange range{offset, 200};
    Result<StoredObject> part = co_await store_.get_range(std::move(key), range, deadline_);
    if (!part) co_return judge(part.error());
    if (part->body.view() != std::string_view(whole).substr(offset, 200) ||
        part->object_bytes != whole.size()) {
      co_return broken("the store answered another range than asked, at " + std::to_string(offset));
    }
  }
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::read_only_list() {
  ListRequest request;
  request.keys_max = 100;
  for (int i = 0; i < 3; ++i) {
    ListRequest page_request = request;
    Result<ListPage> page = co_await store_.list(std::move(page_request), deadline_);
    if (!page) co_return judge(page.error());
    if (!page->more) break;
    request.start_after = std::move(page->next_start_after);
  }
  co_return Result<void>{};
}

Task<Result<void>> ProbeRun::read_only_read() {
  ListRequest request;
  request.keys_max = 100;
  CO_TRY_ASSIGN(ListPage page, co_await store_.list(std::move(request), deadline_));
  for (const ListedObject& listed : page.objects) {
    if (listed.bytes < 2 || listed.bytes > kReadBytesMax) continue;
    std::string key = listed.key;
    Result<StoredObject> object = co_await store_.get(std::move(key), deadline_);
    if (!object && object.error().code == ErrorCode::kNotFound) continue;  // deleted meanwhile
    if (!object) co_return judge(object.error());
    key = listed.key;
    ByteRange range{1, listed.bytes - 1};
    Result<StoredObject> part = co_await store_.get_range(std::move(key), range, deadline_);
    if (!part && part.error().code == ErrorCode::kNotFound) continue;
    if (!part) co_return judge(part.error());
    if (part->version != object->version) continue;  // rewritten meanwhile
    if (part->body.view() != object->body.view().substr(1)) {
      co_return broken("the store answered another range than asked of '" +
                       printable_key(listed.key) + "'");
    }
    co_return Result<void>{};
  }
  co_return Result<void>{};
}

}  // namespace celld
