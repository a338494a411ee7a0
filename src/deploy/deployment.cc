#include "deploy/deployment.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "deploy/digest.h"

namespace celld {
namespace {

using namespace std::chrono_literals;

constexpr size_t kParallelRequestsMax = 16;
constexpr int kAttemptsMax = 6;          // of a write whose reply was lost: 3 s in all
constexpr Duration kFirstPause = 100ms;  // doubles

struct Stored {
  bool found = false;
  Blob body;
  Version version;
};

// The object, or found = false.
Task<Result<Stored>> get_if_there(ObjectStore& store, std::string key, Deadline deadline) {
  auto read = co_await store.get(key, deadline);
  Stored out;
  if (!read) {
    if (read.error().code == ErrorCode::kNotFound) co_return out;
    co_return fail(read.error());
  }
  out.found = true;
  out.body = std::move(read->body);
  out.version = std::move(read->version);
  co_return out;
}

enum class Ensured : uint8_t { kWritten, kWasThere };

// Makes sure that `key`, whose content is a function of the key, holds `body`. An object that is
// there with other bytes is damage, and is repaired.
Task<Result<Ensured>> ensure_object(World& world, ObjectStore& store, std::string key, Blob body,
                                    Deadline deadline) {
  Duration pause = kFirstPause;
  Error last;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    Condition create = Condition::create();
    SwapResult written = co_await store.put_if(key, body, std::move(create), deadline);
    if (written.outcome == SwapOutcome::kApplied) co_return Ensured::kWritten;
    if (written.outcome == SwapOutcome::kRejected) {
      auto there = co_await get_if_there(store, key, deadline);
      if (!there) co_return fail(std::move(there).error());
      if (there->found && there->body == body) co_return Ensured::kWasThere;
      auto repaired = co_await store.put(key, body, deadline);
      if (!repaired) co_return fail(repaired.error());
      co_return Ensured::kWritten;
    }
    last = std::move(written.error);
    if (last.retry == Retry::kNever || world.now() >= deadline.at) break;
    co_await sleep_for(world, pause);
    pause *= 2;
  }
  co_return fail(std::move(last));
}

// Replaces a small record from `before` to `body`; a lost reply is resolved by reading. kExists when
// somebody else changed it meanwhile.
Task<Result<void>> swap_record(World& world, ObjectStore& store, std::string key, Stored before,
                               Blob body, Deadline deadline) {
  Duration pause = kFirstPause;
  Error last;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    Condition condition =
        before.found ? Condition::swap(before.version) : Condition::create();
    SwapResult swapped = co_await store.put_if(key, body, std::move(condition), deadline);
    if (swapped.outcome == SwapOutcome::kApplied) co_return Result<void>{};
    if (swapped.outcome == SwapOutcome::kAmbiguous) {
      last = std::move(swapped.error);
      if (last.retry == Retry::kNever || world.now() >= deadline.at) break;
      co_await sleep_for(world, pause);
      pause *= 2;
    }
    // Also after a refusal: an earlier attempt of ours may have been applied late.
    auto now = co_await get_if_there(store, key, deadline);
    if (!now) co_return fail(std::move(now).error());
    if (now->found && now->body == body) co_return Result<void>{};
    bool untouched = now->found == before.found && now->version == before.version;
    if (!untouched) {
      co_return fail(Error::make(
          ErrorCode::kExists,
          fmt::format("{}: another deployment changed it meanwhile; see what it did, then deploy again",
                      key)));
    }
  }
  co_return fail(std::move(last));
}

Task<Result<ClassRegistry>> register_classes(World& world, ObjectStore& store,
                                             const WorkerConfig& config, Deadline deadline) {
  const std::string key(kClassRegistryKey);
  auto before = co_await get_if_there(store, key, deadline);
  if (!before) co_return fail(std::move(before).error());
  ClassRegistry known;
  if (before->found) {
    auto decoded = decode_class_registry(before->body.view());
    if (!decoded) co_return fail(std::move(decoded).error());
    known = std::move(*decoded);
  }
  auto adopted = adopt_classes(known, config);
  if (!adopted) co_return fail(std::move(adopted).error());
  if (*adopted == known && before->found) co_return std::move(*adopted);
  Blob body(encode_class_registry(*adopted));
  Stored from = std::move(*before);
  auto swapped = co_await swap_record(world, store, key, std::move(from), std::move(body), deadline);
  if (!swapped) co_return fail(std::move(swapped).error());
  co_return std::move(*adopted);
}

Task<Result<uint64_t>> upload_module(World& world, ObjectStore& store, std::string key, Blob body,
                                     Deadline deadline) {
  uint64_t bytes = body.size();
  auto ensured = co_await ensure_object(world, store, std::move(key), std::move(body), deadline);
  if (!ensured) co_return fail(std::move(ensured).error());
  co_return *ensured == Ensured::kWritten ? bytes : 0;
}

Task<Result<uint64_t>> upload_modules(World& world, ObjectStore& store, const Bundle& bundle,
                                      Deadline deadline) {
  std::set<std::string> keys;
  std::vector<std::pair<std::string, Blob>> wanted;
  for (const auto& m : bundle.modules) {
    std::string key = module_blob_key(content_hash(m.content.view()));
    if (keys.insert(key).second) wanted.emplace_back(std::move(key), m.content);
  }
  uint64_t bytes = 0;
  for (size_t begin = 0; begin < wanted.size(); begin += kParallelRequestsMax) {
    size_t end = std::min(wanted.size(), begin + kParallelRequestsMax);
    std::vector<Task<Result<uint64_t>>> tasks;
    for (size_t i = begin; i < end; ++i) {
      tasks.push_back(upload_module(world, store, wanted[i].first, wanted[i].second, deadline));
    }
    auto results = co_await join_all(world, std::move(tasks));
    for (auto& r : results) {
      if (!r) co_return fail(std::move(r).error());
      bytes += *r;
    }
  }
  co_return bytes;
}

Task<Result<BundledModule>> load_module(ObjectStore& store, DeployedModule module,
                                        Deadline deadline) {
  std::string key = module_blob_key(module.hash);
  auto read = co_await store.get(key, deadline);
  if (!read) {
    if (read.error().code == ErrorCode::kNotFound) {
      co_return fail(Error::corrupt(fmt::format(
          "{}: is missing, but the current deployment needs it as '{}'", key, module.name)));
    }
    co_return fail(read.error());
  }
  if (read->body.size() != module.bytes || content_hash(read->body.view()) != module.hash) {
    co_return fail(Error::corrupt(
        fmt::format("{}: does not hold the bytes that its name promises", key)));
  }
  BundledModule out;
  out.name = std::move(module.name);
  out.kind = module.kind;
  out.content = std::move(read->body);
  co_return out;
}

}  // namespace

Task<Result<DeployedVersion>> deploy(World& world, ObjectStore& store, WorkerConfig config,
                                     Bundle bundle, Deadline deadline) {
  const std::string pointer_key(kPointerKey);
  auto before = co_await get_if_there(store, pointer_key, deadline);
  if (!before) co_return fail(std::move(before).error());
  std::optional<DeploymentPointer> current;
  if (before->found) {
    auto decoded = decode_pointer(before->body.view());
    if (!decoded) co_return fail(std::move(decoded).error());
    current = std::move(*decoded);
  }
  auto registry = co_await register_classes(world, store, config, deadline);
  if (!registry) co_return fail(std::move(registry).error());

  std::string manifest = encode_manifest(make_manifest(config, bundle, *registry));
  if (manifest.size() > kManifestBytesMax) {
    co_return fail(Error::invalid(fmt::format("the manifest has {} bytes, the limit is {}: too many "
                                              "or too long vars", manifest.size(), kManifestBytesMax)));
  }
  // What a node would refuse is not written.
  auto readable = decode_manifest(manifest, "manifest.json");
  if (!readable) co_return fail(Error::internal(readable.error().message));

  auto uploaded = co_await upload_modules(world, store, bundle, deadline);
  if (!uploaded) co_return fail(std::move(uploaded).error());

  DeploymentPointer next;
  next.script_name = config.name;
  next.manifest_hash = content_hash(manifest);
  next.version = version_of_manifest(next.manifest_hash);
  Blob manifest_body(std::move(manifest));
  std::string key = manifest_key(next.script_name, next.version);
  auto written = co_await ensure_object(world, store, key, manifest_body, deadline);
  if (!written) co_return fail(std::move(written).error());

  DeployedVersion out;
  out.version = next.version;
  out.bytes_uploaded = *uploaded;
  if (current) out.replaced = current->version;
  if (current && *current == next) {
    out.outcome = DeployOutcome::kUnchanged;
    co_return out;
  }
  Blob body(encode_pointer(next));
  Stored from = std::move(*before);
  auto swapped =
      co_await swap_record(world, store, pointer_key, std::move(from), std::move(body), deadline);
  if (!swapped) co_return fail(std::move(swapped).error());
  co_return out;
}

const BundledModule* LoadedDeployment::find_module(std::string_view name) const {
  auto it = std::ranges::find(modules, name, &BundledModule::name);
  return it == modules.end() ? nullptr : &*it;
}

Task<Result<std::optional<LoadedDeployment>>> load_current(World& world, ObjectStore& store,
                                                           std::string known_version,
                                                           Deadline deadline) {
  const std::string pointer_key(kPointerKey);
  auto found = co_await get_if_there(store, pointer_key, deadline);
  if (!found) co_return fail(std::move(found).error());
  if (!found->found) {
    co_return fail(Error::not_found(fmt::format(
        "nothing is deployed to {}: run `celld deploy PROJECT --bucket {}`", store.describe(),
        store.describe())));
  }
  auto pointer = decode_pointer(found->body.view());
  if (!pointer) co_return fail(std::move(pointer).error());
  if (pointer->version == known_version) co_return std::optional<LoadedDeployment>();

  const std::string key = manifest_key(pointer->script_name, pointer->version);
  auto manifest_object = co_await get_if_there(store, key, deadline);
  if (!manifest_object) co_return fail(std::move(manifest_object).error());
  if (!manifest_object->found) {
    co_return fail(Error::corrupt(fmt::format("{}: is missing, but {} names it", key, kPointerKey)));
  }
  if (content_hash(manifest_object->body.view()) != pointer->manifest_hash) {
    co_return fail(Error::corrupt(
        fmt::format("{}: does not hold the bytes that {} promises", key, kPointerKey)));
  }
  auto manifest = decode_manifest(manifest_object->body.view(), key);
  if (!manifest) co_return fail(std::move(manifest).error());
  uint64_t bytes = 0;
  for (const auto& m : manifest->modules) bytes += m.bytes;
  if (bytes > kBundleBytesMax) {
    co_return fail(Error::corrupt(
        fmt::format("{}: its modules have {} bytes, the limit is {}", key, bytes, kBundleBytesMax)));
  }

  LoadedDeployment out;
  out.version = pointer->version;
  out.manifest = std::move(*manifest);
  const auto& wanted = out.manifest.modules;
  for (size_t begin = 0; begin < wanted.size(); begin += kParallelRequestsMax) {
    size_t end = std::min(wanted.size(), begin + kParallelRequestsMax);
    std::vector<Task<Result<BundledModule>>> tasks;
    for (size_t i = begin; i < end; ++i) tasks.push_back(load_module(store, wanted[i], deadline));
    auto results = co_await join_all(world, std::move(tasks));
    for (auto& r : results) {
      if (!r) co_return fail(std::move(r).error());
      out.modules.push_back(std::move(*r));
    }
  }
  std::optional<LoadedDeployment> loaded(std::move(out));
  co_return loaded;
}

}  // namespace celld
