#include "store/file_store.h"

#include <atomic>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "store/file_disk.h"
#include "store/key.h"
#include "store/upload.h"

namespace celld {

namespace {

template <class R>
R failure(Error e) {
  if constexpr (std::is_same_v<R, SwapResult>) {
    return SwapResult::ambiguous(std::move(e));
  } else {
    return fail(std::move(e));
  }
}

template <class R>
R with_context(R result, const std::string& where) {
  if constexpr (std::is_same_v<R, SwapResult>) {
    if (result.outcome == SwapOutcome::kAmbiguous) result.error = result.error.at(where);
  } else {
    if (!result) return fail(result.error().at(where));
  }
  return result;
}

// What the world's thread and a thread of the pool share about one operation.
template <class R>
struct Pending {
  explicit Pending(World& w) : world(w), done(w) {}
  World& world;
  OneShot<R> done;  // on the world's thread
  Abandoned abandoned{false};
  TimerId timer = 0;
};

}  // namespace

Result<std::unique_ptr<FileStore>> FileStore::open(World& world, std::string dir, Options options) {
  CHECK(options.threads >= 1 && options.threads <= 64) << options.threads;
  std::shared_ptr<FileDisk> disk;
  if (options.share) {
    TRY_ASSIGN(disk, FileDisk::share(dir, options.fsync));
  } else {
    TRY_ASSIGN(disk, FileDisk::open(dir, options.fsync));
  }
  return std::unique_ptr<FileStore>(new FileStore(world, std::move(disk), options));
}

FileStore::FileStore(World& world, std::shared_ptr<FileDisk> disk, Options options)
    : world_(world),
      options_(options),
      disk_(std::move(disk)),
      pool_(std::make_unique<FilePool>(options.threads, options.queue_max)) {}

FileStore::~FileStore() = default;

std::string FileStore::describe() const { return "file://" + disk_->path(); }

// Runs `work(disk, abandoned)` on the pool. Touches nothing of this object after the first
// suspension, so that the store may go away meanwhile.
template <class R, class Work>
Task<R> FileStore::on_disk(std::string what, Deadline deadline, Work work) {
  const std::string where = describe() + ": " + what;
  if (deadline.passed(world_.now())) co_return failure<R>(deadline.error(where));
  auto pending = std::make_shared<Pending<R>>(world_);
  FilePool::Job job = [pending, disk = disk_, work = std::move(work)](FilePool::Fate fate) mutable {
    R result = failure<R>(Error::cancelled("the store was closed"));
    if (pending->abandoned.load(std::memory_order_relaxed)) {
      result = failure<R>(Error::deadline("the deadline passed"));
    } else if (fate == FilePool::Fate::kRun) {
      result = work(*disk, pending->abandoned);
    }
    World& world = pending->world;
    world.post_from_any_thread(
        [pending = std::move(pending), result = std::move(result)]() mutable {
          if (pending->timer != 0) pending->world.cancel(pending->timer);
          pending->timer = 0;
          pending->done.set(std::move(result));
        });
  };
  if (!pool_->submit(job)) {
    co_return failure<R>(Error::overloaded(where + ": " + std::to_string(options_.queue_max) +
                                           " operations wait for the disk already"));
  }
  if (deadline.at != MonoTime::max()) {
    pending->timer = world_.call_at(deadline.at, [pending] {
      pending->timer = 0;
      pending->abandoned.store(true, std::memory_order_relaxed);
      pending->done.set(failure<R>(Error::deadline("the deadline passed")));
    });
  }
  Cancellation::Listener cancelled;
  cancelled.attach(deadline.cancellation, [pending, deadline] {
    pending->abandoned.store(true, std::memory_order_relaxed);
    pending->done.set(failure<R>(deadline.error("on its way to the disk")));
  });
  R result = co_await pending->done.take();
  co_return with_context(std::move(result), where);
}

Result<void> FileStore::check_write(const std::string& key, const Blob& body) const {
  if (auto ok = check_key(key); !ok) return fail(ok.error().at(describe()));
  if (body.size() > options_.object_bytes_max) {
    return fail(Error::invalid(describe() + ": put '" + printable_key(key) +
                               "': " + std::to_string(body.size()) + " bytes; the limit is " +
                               std::to_string(options_.object_bytes_max)));
  }
  return {};
}

Task<Result<StoredObject>> FileStore::get(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string what = "get '" + printable_key(key) + "'";
  auto work = [key = std::move(key)](FileDisk& disk, const Abandoned&) {
    return disk.read(key, nullptr);
  };
  auto task = on_disk<Result<StoredObject>>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

Task<Result<StoredObject>> FileStore::get_range(std::string key, ByteRange range,
                                                Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string what = "get '" + printable_key(key) + "'";
  auto work = [key = std::move(key), range](FileDisk& disk, const Abandoned&) {
    return disk.read(key, &range);
  };
  auto task = on_disk<Result<StoredObject>>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

Task<Result<ObjectInfo>> FileStore::head(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string what = "head '" + printable_key(key) + "'";
  auto work = [key = std::move(key)](FileDisk& disk, const Abandoned&) { return disk.stat(key); };
  auto task = on_disk<Result<ObjectInfo>>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

Task<SwapResult> FileStore::put_if(std::string key, Blob body, Condition condition,
                                   Deadline deadline) {
  if (auto ok = check_write(key, body); !ok) co_return SwapResult::ambiguous(ok.error());
  std::string what = "put '" + printable_key(key) + "'";
  auto work = [key = std::move(key), body = std::move(body), condition = std::move(condition)](
                  FileDisk& disk, const Abandoned& abandoned) {
    return condition.version ? disk.swap(key, body, *condition.version, abandoned)
                             : disk.create(key, body, abandoned);
  };
  auto task = on_disk<SwapResult>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

Task<Result<Version>> FileStore::put(std::string key, Blob body, Deadline deadline) {
  if (auto ok = check_write(key, body); !ok) co_return fail(ok.error());
  std::string what = "put '" + printable_key(key) + "'";
  auto work = [key = std::move(key), body = std::move(body)](FileDisk& disk,
                                                             const Abandoned& abandoned) {
    return disk.replace(key, body, abandoned);
  };
  auto task = on_disk<Result<Version>>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

class FileStore::FileUpload final : public Upload {
 public:
  FileUpload(FileStore& store, std::string key, std::shared_ptr<FileDisk::Growing> file,
             uint64_t part_bytes)
      : store_(store),
        key_(std::move(key)),
        file_(std::move(file)),
        part_bytes_(part_bytes),
        sizes_(part_bytes) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    const uint64_t bytes = body.size();
    if (auto ok = sizes_.check(number, bytes); !ok) {
      co_return fail(ok.error().at(store_.describe() + ": " + what()));
    }
    auto work = [file = file_, offset = (number - 1) * part_bytes_, body = std::move(body)](
                    FileDisk& disk, const Abandoned&) {
      return disk.write_at(*file, offset, body);
    };
    auto task = store_.on_disk<Result<void>>(what(), deadline, std::move(work));
    Result<void> written = co_await std::move(task);
    if (written) sizes_.sent(number, bytes);
    co_return written;
  }

  Task<Result<Version>> finish(Deadline deadline) override {
    if (auto ok = sizes_.complete(); !ok) {
      co_return fail(ok.error().at(store_.describe() + ": " + what()));
    }
    auto work = [file = file_, key = key_, bytes = sizes_.total_bytes()](
                    FileDisk& disk, const Abandoned& abandoned) {
      return disk.publish(*file, key, bytes, abandoned);
    };
    auto task = store_.on_disk<Result<Version>>(what(), deadline, std::move(work));
    co_return co_await std::move(task);
  }

  Task<Result<void>> abort(Deadline) override {
    file_.reset();
    co_return Result<void>{};
  }

 private:
  std::string what() const { return "upload '" + printable_key(key_) + "'"; }

  FileStore& store_;
  const std::string key_;
  std::shared_ptr<FileDisk::Growing> file_;
  const uint64_t part_bytes_;
  PartSizes sizes_;
};

Task<Result<std::unique_ptr<Upload>>> FileStore::begin_upload(std::string key, uint64_t part_bytes,
                                                              Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  if (auto ok = check_part_bytes(part_bytes); !ok) co_return fail(ok.error().at(describe()));
  using File = std::shared_ptr<FileDisk::Growing>;
  std::string what = "upload '" + printable_key(key) + "'";
  auto work = [](FileDisk& disk, const Abandoned&) { return disk.grow(); };
  auto task = on_disk<Result<File>>(std::move(what), deadline, std::move(work));
  Result<File> file = co_await std::move(task);
  if (!file) co_return fail(std::move(file).error());
  co_return std::make_unique<FileUpload>(*this, std::move(key), std::move(*file), part_bytes);
}

Task<Result<void>> FileStore::remove(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  std::string what = "delete '" + printable_key(key) + "'";
  auto work = [key = std::move(key)](FileDisk& disk, const Abandoned& abandoned) {
    return disk.remove(key, abandoned);
  };
  auto task = on_disk<Result<void>>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

Task<std::vector<Result<void>>> FileStore::remove_many(std::vector<std::string> keys,
                                                       Deadline deadline) {
  constexpr size_t kTogether = 256;  // one thread of the pool is busy with them
  std::vector<Result<void>> outcomes(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (auto ok = check_key(keys[i]); !ok) outcomes[i] = fail(ok.error().at(describe()));
  }
  for (size_t at = 0; at < keys.size();) {
    std::vector<std::string> some;
    std::vector<size_t> places;
    for (; at < keys.size() && some.size() < kTogether; ++at) {
      if (!outcomes[at]) continue;
      some.push_back(std::move(keys[at]));
      places.push_back(at);
    }
    if (some.empty()) break;
    using Outcomes = Result<std::vector<Result<void>>>;
    std::string what = "delete '" + printable_key(some.front()) + "'";
    if (some.size() > 1) what += " and " + std::to_string(some.size() - 1) + " more";
    auto work = [some = std::move(some)](FileDisk& disk, const Abandoned& abandoned) -> Outcomes {
      return disk.remove_many(some, abandoned);
    };
    auto task = on_disk<Outcomes>(what, deadline, std::move(work));
    Outcomes done = co_await std::move(task);
    for (size_t i = 0; i < places.size(); ++i) {
      if (!done) {
        outcomes[places[i]] = fail(done.error());
      } else if (!(*done)[i]) {
        outcomes[places[i]] = fail((*done)[i].error().at(describe() + ": " + what));
      }
    }
  }
  co_return outcomes;
}

Task<Result<ListPage>> FileStore::list(ListRequest request, Deadline deadline) {
  if (auto ok = check_list(request); !ok) co_return fail(ok.error().at(describe()));
  std::string what = "list '" + printable_key(request.prefix) + "'";
  auto work = [request = std::move(request)](FileDisk& disk, const Abandoned&) {
    return disk.list(request);
  };
  auto task = on_disk<Result<ListPage>>(std::move(what), deadline, std::move(work));
  co_return co_await std::move(task);
}

}  // namespace celld
