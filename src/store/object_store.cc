#include "store/object_store.h"

#include <iterator>

#include "store/key.h"
#include "store/upload.h"

namespace celld {

Task<Result<ObjectInfo>> ObjectStore::head(std::string key, Deadline deadline) {
  ByteRange first_byte{0, 1};
  Result<StoredObject> object = co_await get_range(key, first_byte, deadline);
  // A range of an empty object is kInvalid, as a malformed key is.
  if (!object && object.error().code == ErrorCode::kInvalid) {
    object = co_await get(std::move(key), deadline);
  }
  if (!object) co_return fail(std::move(object).error());
  ObjectInfo info;
  info.version = std::move(object->version);
  info.bytes = object->object_bytes;
  co_return info;
}

Task<Result<std::unique_ptr<Upload>>> ObjectStore::begin_upload(std::string key,
                                                                uint64_t part_bytes, Deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  if (auto ok = check_part_bytes(part_bytes); !ok) co_return fail(ok.error().at(describe()));
  co_return buffered_upload(*this, std::move(key), part_bytes);
}

Task<std::vector<Result<void>>> ObjectStore::remove_many(std::vector<std::string> keys,
                                                         Deadline deadline) {
  std::vector<Result<void>> outcomes;
  outcomes.reserve(keys.size());
  for (std::string& key : keys) {
    Result<void> removed = co_await remove(std::move(key), deadline);
    outcomes.push_back(std::move(removed));
  }
  co_return outcomes;
}

Task<Result<std::vector<ListedObject>>> list_all(ObjectStore& store, std::string prefix,
                                                 Deadline deadline) {
  std::vector<ListedObject> all;
  ListRequest request;
  request.prefix = std::move(prefix);
  while (true) {
    ListRequest page_request = request;
    CO_TRY_ASSIGN(ListPage page, co_await store.list(std::move(page_request), deadline));
    std::move(page.objects.begin(), page.objects.end(), std::back_inserter(all));
    if (!page.more) co_return all;
    request.start_after = std::move(page.next_start_after);
  }
}

}  // namespace celld
