// From LTX objects in the bucket to the image of a database.
#pragma once

#include <span>
#include <vector>

#include "core/bucket.h"
#include "core/commit.h"
#include "core/core.h"
#include "core/records.h"
#include "ltx/ltx.h"
#include "ltx/restore_plan.h"

namespace celld {

// What a restore of a cell reads.
struct Chain {
  RestorePlan plan;
  std::vector<RestoreObject> unused;  // listed, but covered by others
};

// LISTs all epoch prefixes of the cell from the manifest's epoch up and plans a restore of the
// manifest's objects and of those listed whose last TXID is above the manifest's: an object that a
// durable manifest once left out is never taken up again, since its deletion may be under way.
// kCorrupt when TXIDs are missing.
Task<Result<Chain>> list_chain(Bucket& bucket, CellId cell, Manifest manifest, Deadline deadline);

// Fetches objects, given in the order of a RestorePlan, and merges them: newest page wins. Decodes and
// merges aside. At most `kFetchesInFlight` objects are in memory beside the result. kCorrupt names an object that is
// missing, damaged or not what its name says. `objects` is not empty.
inline constexpr size_t kFetchesInFlight = 32;
Task<Result<LtxFile>> fetch_merged(Bucket& bucket, CellId cell, std::vector<RestoreObject> objects,
                                   Urgency urgency, Deadline deadline);

// One LTX file of one or more commits of a cell, oldest first, TXIDs dense.
Result<LtxFile> merge_commits(std::span<const Commit* const> commits);
LtxFile to_ltx_file(Commit commit);

// The same, encoded. Made aside: the commits stay as they are until the end. The error names the cell.
struct EncodedFile {
  LtxInfo info;
  Blob body;
};
Task<Result<EncodedFile>> merge_and_encode(World& world, Urgency urgency, CellId cell,
                                           std::vector<const Commit*> commits);

// Commits (oldest first) applied to what `base` holds; those that it contains already add nothing.
// Made aside. There is a base or a commit.
Task<Result<LtxFile>> apply_commits(World& world, std::optional<LtxFile> base,
                                    std::vector<Commit> commits);

DatabaseImage to_image(LtxFile file);

}  // namespace celld
