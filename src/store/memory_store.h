// A bucket in memory, on the world's thread: for tests and the simulator.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "store/object_store.h"

namespace celld {

class MemoryStore final : public ObjectStore {
 public:
  enum class Tokens : uint8_t {
    kUnique,   // every write has its own version
    kContent,  // equal bytes have equal versions, as S3's ETags: ABA is possible
  };
  struct Options {
    Tokens tokens = Tokens::kUnique;
    std::string name = "memory://";
  };

  // `world` outlives the store.
  MemoryStore(World& world, Options options);
  explicit MemoryStore(World& world);

  // The effect of an operation happens at once, its reply comes after World::post.
  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override;
  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return options_.name; }

  // For checkers: everything, without a reply to wait for.
  struct Object {
    Blob body;
    Version version;
    WallMs modified;
  };
  const std::map<std::string, Object>& objects() const { return objects_; }
  // For tests: puts bytes there behind everybody's back.
  void set(const std::string& key, Blob body);

 private:
  Version store(const std::string& key, Blob body);
  Result<ListPage> list_now(const ListRequest& request) const;
  Error where(std::string_view verb, std::string_view key, const Error& e) const;

  World& world_;
  const Options options_;
  std::map<std::string, Object> objects_;
  uint64_t writes_ = 0;
};

}  // namespace celld
