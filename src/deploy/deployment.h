// Deployments in the bucket: writing one, and reading the one that the fleet runs.
//
// Everything here is a task on the world's thread; nothing blocks. See docs/formats/deployment.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/blob.h"
#include "deploy/bundle.h"
#include "deploy/manifest.h"
#include "store/object_store.h"

namespace celld {

enum class DeployOutcome : uint8_t {
  kDeployed,   // the fleet's pointer names this version now
  kUnchanged,  // it did already
};

struct DeployedVersion {
  std::string version;
  DeployOutcome outcome = DeployOutcome::kDeployed;
  std::optional<std::string> replaced;  // the version that the pointer named before
  uint64_t bytes_uploaded = 0;          // of modules that were not in the bucket yet
};

// Uploads the modules that are missing, adopts the classes, writes the manifest and swaps the
// pointer, in this order: a failure at any point leaves the old version running.
//
//   kInvalid      a class changed in a way that is not possible
//   kExists       another deployment won the race for the pointer: look, then deploy again
//   kUnavailable, kDeadline, kForbidden, kCorrupt   of the store, naming the key
Task<Result<DeployedVersion>> deploy(World& world, ObjectStore& store, WorkerConfig config,
                                     Bundle bundle, Deadline deadline);

// A deployment with the bytes of all its modules.
struct LoadedDeployment {
  std::string version;
  DeploymentManifest manifest;
  std::vector<BundledModule> modules;  // in the order of manifest.modules

  // The module of that exact name, or null.
  const BundledModule* find_module(std::string_view name) const;
};

// The current deployment, unless it is `known_version` (empty: none is known): then nothing, at the
// cost of one GET. Every byte is verified against the hash that names it.
//
//   kNotFound     nothing is deployed to this bucket
//   kUnsupported  written by a newer celld; the message names what is missing here
//   kCorrupt      names the key
Task<Result<std::optional<LoadedDeployment>>> load_current(World& world, ObjectStore& store,
                                                           std::string known_version,
                                                           Deadline deadline);

}  // namespace celld
