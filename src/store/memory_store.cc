#include "store/memory_store.h"

#include <coroutine>
#include <utility>

#include "store/key.h"
#include "store/list_map.h"

namespace celld {

namespace {

auto next_turn(World& world) {
  struct Awaiter {
    World& world;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> h) {
      world.post([h] { h.resume(); });
    }
    void await_resume() const {}
  };
  return Awaiter{world};
}

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : bytes) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

}  // namespace

MemoryStore::MemoryStore(World& world, Options options)
    : world_(world), options_(std::move(options)) {}
MemoryStore::MemoryStore(World& world) : MemoryStore(world, Options()) {}

Error MemoryStore::where(std::string_view verb, std::string_view key, const Error& e) const {
  return e.at(options_.name + ": " + std::string(verb) + " '" + printable_key(key) + "'");
}

Version MemoryStore::store(const std::string& key, Blob body) {
  Version version;
  if (options_.tokens == Tokens::kContent) {
    version.token = "c" + std::to_string(fnv1a(body.view())) + "-" + std::to_string(body.size());
  } else {
    version.token = "w" + std::to_string(++writes_);
  }
  objects_[key] = Object{std::move(body), version, world_.wall_now()};
  return version;
}

void MemoryStore::set(const std::string& key, Blob body) { store(key, std::move(body)); }

Task<Result<StoredObject>> MemoryStore::get(std::string key, Deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(where("get", key, ok.error()));
  Result<StoredObject> result = fail(where("get", key, Error::not_found("no such object")));
  if (auto it = objects_.find(key); it != objects_.end()) {
    result = StoredObject{it->second.body, it->second.version, it->second.body.size()};
  }
  co_await next_turn(world_);
  co_return result;
}

Task<Result<StoredObject>> MemoryStore::get_range(std::string key, ByteRange range, Deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(where("get", key, ok.error()));
  Result<StoredObject> result = fail(where("get", key, Error::not_found("no such object")));
  if (auto it = objects_.find(key); it != objects_.end()) {
    const Object& object = it->second;
    if (auto cut = clip_range(range, object.body.size()); cut) {
      Blob part(std::string(object.body.view().substr(cut->offset, cut->length)));
      result = StoredObject{std::move(part), object.version, object.body.size()};
    } else {
      result = fail(where("get", key, cut.error()));
    }
  }
  co_await next_turn(world_);
  co_return result;
}

Task<Result<ObjectInfo>> MemoryStore::head(std::string key, Deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(where("head", key, ok.error()));
  Result<ObjectInfo> result = fail(where("head", key, Error::not_found("no such object")));
  if (auto it = objects_.find(key); it != objects_.end()) {
    result = ObjectInfo{it->second.version, it->second.body.size()};
  }
  co_await next_turn(world_);
  co_return result;
}

Task<SwapResult> MemoryStore::put_if(std::string key, Blob body, Condition condition, Deadline) {
  if (auto ok = check_key(key); !ok) {
    co_return SwapResult::ambiguous(where("put", key, ok.error()));
  }
  auto it = objects_.find(key);
  bool holds = condition.version ? it != objects_.end() && it->second.version == *condition.version
                                 : it == objects_.end();
  SwapResult result = SwapResult::rejected();
  if (holds) result = SwapResult::applied(store(key, std::move(body)));
  co_await next_turn(world_);
  co_return result;
}

Task<Result<Version>> MemoryStore::put(std::string key, Blob body, Deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(where("put", key, ok.error()));
  Version version = store(key, std::move(body));
  co_await next_turn(world_);
  co_return version;
}

Task<Result<void>> MemoryStore::remove(std::string key, Deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(where("delete", key, ok.error()));
  objects_.erase(key);
  co_await next_turn(world_);
  co_return Result<void>{};
}

Task<Result<ListPage>> MemoryStore::list(ListRequest request, Deadline) {
  Result<ListPage> page = list_now(request);
  co_await next_turn(world_);
  co_return page;
}

Result<ListPage> MemoryStore::list_now(const ListRequest& request) const {
  if (auto ok = check_list(request); !ok) return fail(where("list", request.prefix, ok.error()));
  return list_map(objects_, request);
}

}  // namespace celld
