#include "core/commit.h"

#include "base/check.h"
#include "ltx/ltx.h"

namespace celld {

EncodedCommit encode_commit(const Commit& commit) {
  CHECK(!commit.cell.empty() && commit.epoch.value >= 1) << commit.cell << " " << commit.epoch;
  LtxInfo info{.min = commit.txid,
               .max = commit.txid,
               .page_count = commit.page_count,
               .timestamp = commit.time};
  return EncodedCommit{commit.cell, commit.epoch, commit.txid, commit.alarm,
                       encode_ltx(info, commit.pages)};
}

Result<Commit> decode_commit(const EncodedCommit& encoded) {
  std::string where =
      "commit " + std::to_string(encoded.txid.value) + " of cell " + encoded.cell.value;
  auto file = decode_ltx(encoded.ltx.view());
  if (!file) return fail(file.error().at(where));
  if (file->info.min != encoded.txid || file->info.max != encoded.txid) {
    return fail(Error::corrupt(where + ": its pages are of TXIDs " +
                               std::to_string(file->info.min.value) + " to " +
                               std::to_string(file->info.max.value)));
  }
  Commit commit;
  commit.cell = encoded.cell;
  commit.epoch = encoded.epoch;
  commit.txid = encoded.txid;
  commit.pages = std::move(file->pages);
  commit.page_count = file->info.page_count;
  commit.alarm = encoded.alarm;
  commit.time = file->info.timestamp;
  return commit;
}

}  // namespace celld
