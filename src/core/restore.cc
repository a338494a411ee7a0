#include "core/restore.h"

#include <algorithm>

#include "base/marks.h"
#include "ltx/merge.h"

namespace celld {

namespace {

// A chain this long was never compacted; to list it would take a thousand requests.
constexpr size_t kListedObjectsMax = 1'000'000;

Task<Result<LtxFile>> fetch_one(Bucket& bucket, CellId cell, RestoreObject object, Deadline deadline) {
  std::string key = ltx_key(cell, object.epoch, object.level, object.min, object.max);
  Result<StoredObject> got = co_await bucket.get(key, deadline);
  if (!got) {
    if (got.error().code != ErrorCode::kNotFound) co_return fail(std::move(got).error());
    Error e = Error::corrupt(key + ": is missing, but the database of the cell needs it");
    co_return fail(std::move(e));
  }
  Result<LtxFile> file = decode_ltx(got->body.view());
  if (!file) co_return fail(file.error().at(key));
  if (file->info.min != object.min || file->info.max != object.max) {
    Error e = Error::corrupt(key + ": holds TXIDs " + std::to_string(file->info.min.value) + " to " +
                             std::to_string(file->info.max.value));
    co_return fail(std::move(e));
  }
  co_return file;
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
                                   Deadline deadline) {
  CHECK(!objects.empty()) << "nothing to fetch of " << cell;
  std::vector<LtxFile> files;
  for (size_t begin = 0; begin < objects.size(); begin += kFetchesInFlight) {
    size_t end = std::min(objects.size(), begin + kFetchesInFlight);
    std::vector<Task<Result<LtxFile>>> fetches;
    for (size_t i = begin; i < end; ++i) {
      fetches.push_back(fetch_one(bucket, cell, objects[i], deadline));
    }
    std::vector<Result<LtxFile>> fetched = co_await join_all(bucket.world(), std::move(fetches));
    for (Result<LtxFile>& file : fetched) {
      if (!file) co_return fail(std::move(file).error());
      files.push_back(std::move(*file));
    }
    if (files.size() == 1) continue;
    Result<LtxFile> merged = merge(files);
    if (!merged) co_return fail(merged.error().at(ltx_prefix(cell)));
    files.clear();
    files.push_back(std::move(*merged));
  }
  co_return std::move(files[0]);
}

LtxFile to_ltx_file(const Commit& commit) {
  LtxFile file;
  file.info.min = file.info.max = commit.txid;
  file.info.page_count = commit.page_count;
  file.info.timestamp = commit.time;
  file.pages = commit.pages;
  return file;
}

Result<LtxFile> merge_commits(std::span<const Commit* const> commits) {
  std::vector<LtxFile> files;
  files.reserve(commits.size());
  for (const Commit* commit : commits) files.push_back(to_ltx_file(*commit));
  return merge(files);
}

Result<LtxFile> apply_commits(std::optional<LtxFile> base, std::span<const Commit> commits) {
  std::vector<LtxFile> files;
  if (base) files.push_back(std::move(*base));
  for (const Commit& commit : commits) files.push_back(to_ltx_file(commit));
  return merge(files);
}

DatabaseImage to_image(LtxFile file) {
  return DatabaseImage{file.info.page_count, std::move(file.pages)};
}

}  // namespace celld
