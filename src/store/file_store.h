// file:///dir: a bucket in a directory, safe between the processes of one machine.
//
// An acknowledged write survives a crash at any instruction and, with Fsync::kOn, a power failure.
// A version names one write, never a content: equal bytes get different versions. The format is
// described in docs/formats/file-store.md.
#pragma once

#include <memory>
#include <string>

#include "store/file_dirs.h"
#include "store/file_pool.h"
#include "store/object_store.h"

namespace celld {

class FileDisk;

class FileStore final : public ObjectStore {
 public:
  struct Options {
    Fsync fsync = Fsync::kOn;
    size_t threads = 4;       // that wait for the disk; 1 to 64
    size_t queue_max = 4096;  // operations that wait for a thread; more are kOverloaded
    uint64_t object_bytes_max = 1ull << 30;
    // With other stores of this process that say the same and name the directory alike: they are
    // one process to others. See FileDisk::share.
    bool share = false;
  };

  // `dir` is an absolute path: an empty directory, a missing one whose parent exists, or one that a
  // FileStore made. Blocks on the disk for a moment. Errors name the directory and the reason.
  // `world` outlives the store.
  static Result<std::unique_ptr<FileStore>> open(World& world, std::string dir, Options options);

  // Finishes what a thread has begun; what still waits ends with kCancelled.
  ~FileStore() override;

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override;
  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  // The parts go to a file of their own: memory is what is under way.
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  // Together they cost about what one costs.
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override;

 private:
  class FileUpload;
  FileStore(World& world, std::shared_ptr<FileDisk> disk, Options options);

  template <class R, class Work>
  Task<R> on_disk(std::string what, Deadline deadline, Work work);
  Result<void> check_write(const std::string& key, const Blob& body) const;

  World& world_;
  const Options options_;
  // Shared with the jobs, which may outlive this object by a moment.
  const std::shared_ptr<FileDisk> disk_;
  std::unique_ptr<FilePool> pool_;
};

}  // namespace celld
