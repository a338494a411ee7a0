#include "core/restore.h"

#include <algorithm>

#include "base/marks.h"
#include "ltx/merge.h"

namespace celld {

namespace {

// A chain this long was never compacted; to list it would take a thousand requests.
constexpr size_t kListedObjectsMax = 1'000'000;

// Work on so few bytes of LTX or pages takes less than a trip to another thread.
constexpr size_t kDecodedInPlaceMax = 8 << 10;
constexpr size_t kPagesInPlaceMax = 16;

Result<LtxFile> decode_object(const std::string& key, const RestoreObject& object, const Blob& body) {
  Result<LtxFile> file = decode_ltx(body.view());
  if (!file) return fail(file.error().at(key));
  if (file->info.min != object.min || file->info.max != object.max) {
    return fail(Error::corrupt(key + ": holds TXIDs " + std::to_string(file->info.min.value) + " to " +
                               std::to_string(file->info.max.value)));
  }
  return file;
}

Task<Result<LtxFile>> fetch_one(Bucket& bucket, CellId cell, RestoreObject object, Urgency urgency,
                                Deadline deadline) {
  std::string key = ltx_key(cell, object.epoch, object.level, object.min, object.max);
  Result<StoredObject> got = co_await bucket.get(key, deadline, object.bytes);
  if (!got) {
    if (got.error().code != ErrorCode::kNotFound) co_return fail(std::move(got).error());
    Error e = Error::corrupt(key + ": is missing, but the database of the cell needs it");
    co_return fail(std::move(e));
  }
  if (got->body.size() <= kDecodedInPlaceMax) co_return decode_object(key, object, got->body);
  std::move_only_function<Result<LtxFile>()> work = [key, object, body = std::move(got->body)] {
    return decode_object(key, object, body);
  };
  co_return co_await compute<Result<LtxFile>>(bucket.world(), urgency, std::move(work));
}

Task<Result<LtxFile>> merge_aside(World& world, Urgency urgency, std::vector<LtxFile> files) {
  size_t pages = 0;
  for (const LtxFile& file : files) pages += file.pages.size();
  if (pages <= kPagesInPlaceMax) co_return merge(files);
  std::move_only_function<Result<LtxFile>()> work = [files = std::move(files)] { return merge(files); };
  co_return co_await compute<Result<LtxFile>>(world, urgency, std::move(work));
}

}  // namespace

Task<Result<Chain>> list_chain(Bucket& bucket, CellId cell, Manifest manifest, Deadline deadline) {
  std::vector<RestoreObject> objects = manifest.objects;
  std::string prefix = ltx_prefix(cell);
  std::string from_start;
  Result<std::vector<ListedObject>> list =
      co_await bucket.list_all(prefix, from_start, kListedObjectsMax, deadline);
  if (!list && MUTANT("take-a-failed-list-for-empty")) list = std::vector<ListedObject>();
  CO_TRY_ASSIGN(std::vector<ListedObject> listed, std::move(list));
  for (const ListedObject& object : listed) {
    std::optional<LtxName> name = parse_ltx_key(object.key);
    if (!name) {
      Error e = Error::corrupt(object.key + ": is not the key of an LTX object");
      co_return fail(std::move(e));
    }
    if (MUTANT("restore-from-the-manifest-alone")) continue;
    if (MUTANT("restore-from-one-epoch") && name->epoch > manifest.epoch.next()) continue;
    if (name->epoch < manifest.epoch || name->max <= manifest.txid) {
      COVERAGE_MARK("listed-object-below-the-manifest");
      if (!MUTANT("take-up-a-replaced-object")) continue;
    }
    objects.push_back({name->epoch, name->level, name->min, name->max, object.bytes});
  }
  Chain chain;
  Result<RestorePlan> plan = plan_restore(objects);
  if (!plan) co_return fail(plan.error().at(prefix));
  chain.plan = std::move(*plan);
  if (chain.plan.max < manifest.txid) {
    Error e = Error::corrupt(prefix + ": leads to TXID " + std::to_string(chain.plan.max.value) +
                             ", the manifest to " + std::to_string(manifest.txid.value));
    co_return fail(std::move(e));
  }
  for (const RestoreObject& object : objects) {
    bool used = std::any_of(chain.plan.objects.begin(), chain.plan.objects.end(),
                            [&](const RestoreObject& o) { return o == object; });
    if (!used) chain.unused.push_back(object);
  }
  co_return chain;
}

Task<Result<LtxFile>> fetch_merged(Bucket& bucket, CellId cell, std::vector<RestoreObject> objects,
                                   Urgency urgency, Deadline deadline) {
  CHECK(!objects.empty()) << "nothing to fetch of " << cell;
  std::vector<LtxFile> files;
  for (size_t begin = 0; begin < objects.size(); begin += kFetchesInFlight) {
    size_t end = std::min(objects.size(), begin + kFetchesInFlight);
    std::vector<Task<Result<LtxFile>>> fetches;
    for (size_t i = begin; i < end; ++i) {
      fetches.push_back(fetch_one(bucket, cell, objects[i], urgency, deadline));
    }
    std::vector<Result<LtxFile>> fetched = co_await join_all(bucket.world(), std::move(fetches));
    for (Result<LtxFile>& file : fetched) {
      if (!file) co_return fail(std::move(file).error());
      files.push_back(std::move(*file));
    }
    if (files.size() == 1) continue;
    Result<LtxFile> merged = co_await merge_aside(bucket.world(), urgency, std::move(files));
    if (!merged) co_return fail(merged.error().at(ltx_prefix(cell)));
    files.clear();
    files.push_back(std::move(*merged));
  }
  co_return std::move(files[0]);
}

LtxFile to_ltx_file(Commit commit) {
  LtxFile file;
  file.info.min = file.info.max = commit.txid;
  file.info.page_count = commit.page_count;
  file.info.timestamp = commit.time;
  file.pages = std::move(commit.pages);
  return file;
}

Result<LtxFile> merge_commits(std::span<const Commit* const> commits) {
  std::vector<LtxFile> files;
  files.reserve(commits.size());
  for (const Commit* commit : commits) files.push_back(to_ltx_file(*commit));
  return merge(files);
}

Task<Result<EncodedFile>> merge_and_encode(World& world, Urgency urgency, CellId cell,
                                           std::vector<const Commit*> commits) {
  std::move_only_function<Result<EncodedFile>()> work =
      [cell = std::move(cell), commits = std::move(commits)]() -> Result<EncodedFile> {
    Result<LtxFile> file = merge_commits(commits);
    if (!file) return fail(file.error().at("commits of cell " + cell.value));
    return EncodedFile{file->info, encode_ltx(file->info, file->pages)};
  };
  co_return co_await compute<Result<EncodedFile>>(world, urgency, std::move(work));
}

Task<Result<LtxFile>> apply_commits(World& world, std::optional<LtxFile> base,
                                    std::vector<Commit> commits) {
  std::vector<LtxFile> files;
  if (base) files.push_back(std::move(*base));
  for (Commit& commit : commits) files.push_back(to_ltx_file(std::move(commit)));
  if (files.size() == 1 && base) co_return std::move(files[0]);
  co_return co_await merge_aside(world, Urgency::kForeground, std::move(files));
}

DatabaseImage to_image(LtxFile file) {
  return DatabaseImage{file.info.page_count, std::move(file.pages)};
}

}  // namespace celld
