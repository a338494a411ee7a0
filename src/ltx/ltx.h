// LTX files: the pages that a range of commits left behind, as one immutable object.
//
// The layout is that of LTX v3 as Litestream writes it, with raw LZ4 blocks;
// docs/formats/ltx.md has the table. Pure functions over bytes; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/page.h"
#include "base/result.h"

namespace celld {

// Grows whenever the bytes that encode_ltx makes of the same input change, a new LZ4 included.
inline constexpr uint32_t kLtxEncoderVersion = 1;

inline constexpr size_t kLtxHeaderSize = 100;
inline constexpr size_t kLtxTrailerSize = 16;

// Databases of more than 64 GiB are refused.
inline constexpr uint32_t kPageCountMax = 1u << 24;

// The largest epoch, TXID or slot that any decoder takes, so that next() never overflows.
inline constexpr uint64_t kCounterMax = INT64_MAX;

struct LtxInfo {
  Txid min;  // the first and the last commit inside; 1 <= min <= max
  Txid max;
  uint32_t page_count = 0;  // size of the database after `max`, in pages
  WallMs timestamp;         // when `max` was committed, by its owner's clock; 0 = not known
  uint32_t encoder_version = kLtxEncoderVersion;
  friend bool operator==(const LtxInfo&, const LtxInfo&) = default;
};

struct LtxFile {
  LtxInfo info;
  std::vector<NumberedPage> pages;  // sorted by page number, unique
};

// A file that starts at the first commit needs nothing below it: it is a snapshot.
inline bool is_snapshot(const LtxInfo& info) { return info.min == Txid(1); }

// The bytes are a function of the arguments and of kLtxEncoderVersion, which is written whatever
// `info.encoder_version` says.
//
// `pages`: sorted, unique, 1 <= pgno <= page_count, the lock page left out; all that is CHECKed.
// A snapshot always holds every page: those that are missing in `pages` are written as zeros, and
// it carries the checksum of the whole database. Costs 5 to 10 us a page.
Blob encode_ltx(const LtxInfo& info, std::span<const NumberedPage> pages);

// Verifies everything: magic, sizes, order, bounds, page index, checksums. What comes back is
// what went into encode_ltx; anything else is Error::corrupt, which names the offset and the
// reason, or Error::unsupported for LTX that others may write (other page sizes, LZ4 frames).
// (Bytes that differ within a compressed block but give the same page go unnoticed.)
// Needs up to 150 times the memory of `bytes`: bound those, or use read_ltx.
Result<LtxFile> decode_ltx(std::string_view bytes);

// As decode_ltx, but hands over one page after the other, in order. A page that was handed over
// counts only once the call has returned the info: the file checksum is the last thing checked.
using PageVisitor = std::function<void(Pgno, std::span<const uint8_t, kPageSize>)>;
Result<LtxInfo> read_ltx(std::string_view bytes, const PageVisitor& visit);

// The header alone: the first kLtxHeaderSize bytes or more. Not protected by a checksum here.
Result<LtxInfo> decode_ltx_header(std::string_view bytes);

// Where the frame of one page is.
struct PageIndexEntry {
  Pgno pgno = 0;
  uint64_t offset = 0;  // from the beginning of the file
  uint32_t bytes = 0;   // of the frame, its header included
  friend bool operator==(const PageIndexEntry&, const PageIndexEntry&) = default;
};

// How many bytes from the end of a file hold page index and trailer. `tail` is the end of a file
// of `file_bytes` bytes; its last 24 bytes are enough. Error::corrupt if that cannot be.
Result<uint64_t> page_index_tail_bytes(std::string_view tail, uint64_t file_bytes);

// The index out of at least page_index_tail_bytes() bytes of the end of a file (Error::invalid if
// they are fewer). Checks order and that the frames tile the file; the checksum covers the file as
// a whole and is not checked here.
Result<std::vector<PageIndexEntry>> decode_page_index(std::string_view tail, uint64_t file_bytes);

// One frame, as an index entry names it.
Result<PageRef> decode_page_frame(std::string_view frame, Pgno pgno);

// The checksum of a whole database, independent of the order in which pages are added: start with
// 0, xor in each page but the lock page. Files store it with the top bit set.
uint64_t page_checksum(Pgno pgno, std::span<const uint8_t, kPageSize> page);
inline constexpr uint64_t kLtxChecksumFlag = uint64_t{1} << 63;

// The parts of an object's key.
struct LtxName {
  CellId cell;
  Epoch epoch;         // >= 1
  unsigned level = 0;  // 0 = drained from the journal, higher = merged; <= 0xffff
  Txid min;            // >= 1
  Txid max;            // >= min
  friend bool operator==(const LtxName&, const LtxName&) = default;
};

// cells/<cell>/ltx/e<epoch>/<level, 4 hex>/<min, 16 hex>-<max, 16 hex>.ltx
std::string ltx_key(const CellId& cell, Epoch epoch, unsigned level, Txid min, Txid max);
std::string ltx_key(const LtxName& name);
// Only the keys that ltx_key makes; anything else is nothing.
std::optional<LtxName> parse_ltx_key(std::string_view key);
// cells/<cell>/ltx/ : lists every epoch. Epochs are decimal, so LIST order is not their order.
std::string ltx_prefix(const CellId& cell);

}  // namespace celld
