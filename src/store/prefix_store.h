// A part of a bucket as a bucket of its own.
#pragma once

#include <memory>
#include <string>

#include "store/object_store.h"

namespace celld {

// Every key gets `prefix` put before it, and loses it again in lists. Same threads and promises as
// the inner store.
class PrefixStore final : public ObjectStore {
 public:
  // `prefix` ends with '/' and is at most 512 bytes.
  PrefixStore(std::shared_ptr<ObjectStore> inner, std::string prefix);

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override;
  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override;

 private:
  const std::shared_ptr<ObjectStore> inner_;
  const std::string prefix_;
};

}  // namespace celld
