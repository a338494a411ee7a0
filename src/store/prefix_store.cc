#include "store/prefix_store.h"

#include <utility>

#include "base/check.h"
#include "store/key.h"

namespace celld {

PrefixStore::PrefixStore(std::shared_ptr<ObjectStore> inner, std::string prefix)
    : inner_(std::move(inner)), prefix_(std::move(prefix)) {
  CHECK(prefix_.ends_with('/') && prefix_.size() <= 512) << prefix_;
}

std::string PrefixStore::describe() const {
  std::string inner = inner_->describe();
  if (!inner.ends_with('/')) inner += '/';
  return inner + prefix_.substr(0, prefix_.size() - 1);
}

// An empty key is the inner store's to refuse, not to take for the prefix itself.
Task<Result<StoredObject>> PrefixStore::get(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->get(std::move(full), deadline);
}

Task<Result<StoredObject>> PrefixStore::get_range(std::string key, ByteRange range,
                                                  Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->get_range(std::move(full), range, deadline);
}

Task<Result<ObjectInfo>> PrefixStore::head(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->head(std::move(full), deadline);
}

Task<SwapResult> PrefixStore::put_if(std::string key, Blob body, Condition condition,
                                     Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return SwapResult::ambiguous(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->put_if(std::move(full), std::move(body), std::move(condition),
                                    deadline);
}

Task<Result<Version>> PrefixStore::put(std::string key, Blob body, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->put(std::move(full), std::move(body), deadline);
}

Task<Result<std::unique_ptr<Upload>>> PrefixStore::begin_upload(std::string key,
                                                                uint64_t part_bytes,
                                                                Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->begin_upload(std::move(full), part_bytes, deadline);
}

Task<Result<void>> PrefixStore::remove(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string full = prefix_ + key;
  co_return co_await inner_->remove(std::move(full), deadline);
}

Task<std::vector<Result<void>>> PrefixStore::remove_many(std::vector<std::string> keys,
                                                         Deadline deadline) {
  std::vector<Result<void>> outcomes;
  std::vector<std::string> full;
  for (const std::string& key : keys) {
    Result<void> ok = check_key(key);
    if (ok) full.push_back(prefix_ + key);
    outcomes.push_back(ok ? Result<void>() : fail(ok.error().at(describe())));
  }
  std::vector<Result<void>> removed = co_await inner_->remove_many(std::move(full), deadline);
  auto next = removed.begin();
  for (Result<void>& outcome : outcomes) {
    if (outcome) outcome = std::move(*next++);
  }
  co_return outcomes;
}

Task<Result<ListPage>> PrefixStore::list(ListRequest request, Deadline deadline) {
  request.prefix = prefix_ + request.prefix;
  if (!request.start_after.empty()) request.start_after = prefix_ + request.start_after;
  Result<ListPage> page = co_await inner_->list(std::move(request), deadline);
  if (!page) co_return page;
  auto strip = [&](std::string& key) {
    if (!key.starts_with(prefix_)) return false;
    key.erase(0, prefix_.size());
    return true;
  };
  bool all_inside = !page->more || strip(page->next_start_after);
  for (auto& object : page->objects) all_inside &= strip(object.key);
  for (auto& common : page->common_prefixes) all_inside &= strip(common);
  if (!all_inside) {
    co_return fail(Error::corrupt(describe() + ": list: the store gave keys of another prefix"));
  }
  co_return page;
}

}  // namespace celld
