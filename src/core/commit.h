// One committed transaction of one cell, between the VFS, the journal and recovery.
#pragma once

#include <optional>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/page.h"
#include "base/result.h"

namespace celld {

// What a commit did to the alarm of its cell: moved it, or removed it (nothing inside).
struct AlarmChange {
  std::optional<WallMs> at;
  friend bool operator==(const AlarmChange&, const AlarmChange&) = default;
};

struct Commit {
  CellId cell;
  Epoch epoch;                      // >= 1
  Txid txid;                        // >= 1
  std::vector<NumberedPage> pages;  // those that changed; sorted, unique, without the lock page
  uint32_t page_count = 0;          // size of the database afterwards, in pages
  std::optional<AlarmChange> alarm;
  WallMs time;  // when it was committed, by the owner's clock; 0 = not known
};

// A commit whose pages are encoded: what waits in the journal buffer.
struct EncodedCommit {
  CellId cell;
  Epoch epoch;
  Txid txid;
  std::optional<AlarmChange> alarm;
  Blob ltx;  // an LTX file from `txid` to `txid`
};

// Costs 5 to 10 us a page; any thread. CHECKs what encode_ltx does.
EncodedCommit encode_commit(const Commit& commit);

// Error::corrupt when the LTX file is damaged or of another TXID; names the cell.
Result<Commit> decode_commit(const EncodedCommit& encoded);

}  // namespace celld
