#include "ltx/ltx.h"

#include <lz4.h>

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "ltx/crc64.h"

namespace celld {

namespace {

constexpr std::string_view kMagic = "LTX1";
constexpr uint32_t kFlagNoChecksum = 1u << 1;  // pre- and post-apply checksum are absent
constexpr uint16_t kFrameSizedBlock = 1;       // u32 size and a raw LZ4 block follow
constexpr size_t kFrameHeaderSize = 10;        // page number, flags, block size
constexpr size_t kBlockEndSize = 6;            // an all-zero page number and flags
constexpr size_t kPageBlockMax = LZ4_COMPRESSBOUND(kPageSize);
constexpr size_t kIndexLengthSize = 8;

constexpr uint8_t kZeroPage[kPageSize] = {};

Error corrupt_at(uint64_t offset, const std::string& reason) {
  return Error::corrupt("LTX file, offset " + std::to_string(offset) + ": " + reason);
}

uint64_t crc_of(uint64_t previous, std::string_view bytes) {
  return crc64(previous, as_bytes(bytes));
}

// Pages that a file must hold if it is a snapshot.
uint64_t snapshot_pages(uint32_t page_count) {
  return page_count - (page_count >= kLockPage ? 1 : 0);
}

class Encoder {
 public:
  explicit Encoder(const LtxInfo& info) : info_(info) {}

  Blob encode(std::span<const NumberedPage> pages) {
    out_.reserve(kLtxHeaderSize + pages.size() * 1024 + 64);
    put_header();
    Pgno written = 0;
    for (const NumberedPage& page : pages) {
      CHECK(page.pgno > written) << "pages out of order: " << page.pgno << " after " << written;
      CHECK(page.pgno <= info_.page_count) << "page " << page.pgno << " of " << info_.page_count;
      CHECK(page.pgno != kLockPage) << "the lock page is never stored";
      CHECK(page.page) << "page " << page.pgno << " has no content";
      fill_up_to(page.pgno, written);
      put_page(page.pgno, page.page.bytes());
      written = page.pgno;
    }
    fill_up_to(info_.page_count + 1, written);
    put_end();
    return Blob(std::move(out_));
  }

 private:
  void put_header() {
    out_ += kMagic;
    put_be(out_, is_snapshot(info_) ? 0 : kFlagNoChecksum, 4);
    put_be(out_, kPageSize, 4);
    put_be(out_, info_.page_count, 4);
    put_be(out_, info_.min.value, 8);
    put_be(out_, info_.max.value, 8);
    put_be(out_, static_cast<uint64_t>(info_.timestamp.value), 8);
    put_be(out_, 0, 8);  // pre-apply checksum: of nothing, or absent
    out_.append(32, 0);  // position in a WAL file: there is none
    put_be(out_, kLtxEncoderVersion, 4);
    out_.append(16, 0);
    CHECK(out_.size() == kLtxHeaderSize) << out_.size();
    crc_ = crc_of(crc_, out_);
  }

  // In a snapshot, the pages between `written` and `next` are zeros.
  void fill_up_to(Pgno next, Pgno written) {
    if (!is_snapshot(info_)) return;
    for (Pgno pgno = written + 1; pgno < next; ++pgno) {
      if (pgno != kLockPage) put_page(pgno, std::span(kZeroPage));
    }
  }

  void put_page(Pgno pgno, std::span<const uint8_t, kPageSize> page) {
    size_t offset = out_.size();
    char block[kPageBlockMax];
    int size = LZ4_compress_default(reinterpret_cast<const char*>(page.data()), block, kPageSize,
                                    kPageBlockMax);
    CHECK(size > 0) << "LZ4 failed on page " << pgno;
    put_be(out_, pgno, 4);
    put_be(out_, kFrameSizedBlock, 2);
    put_be(out_, static_cast<uint64_t>(size), 4);
    crc_ = crc_of(crc_, std::string_view(out_).substr(offset));
    crc_ = crc64(crc_, page);
    out_.append(block, static_cast<size_t>(size));
    if (is_snapshot(info_)) database_ ^= page_checksum(pgno, page);
    put_uvarint(index_, pgno);
    put_uvarint(index_, offset);
    put_uvarint(index_, out_.size() - offset);
  }

  void put_end() {
    size_t from = out_.size();
    out_.append(kBlockEndSize, 0);
    put_uvarint(index_, 0);
    out_ += index_;
    put_be(out_, index_.size(), 8);
    put_be(out_, is_snapshot(info_) ? database_ | kLtxChecksumFlag : 0, 8);
    crc_ = crc_of(crc_, std::string_view(out_).substr(from));
    put_be(out_, crc_ | kLtxChecksumFlag, 8);
  }

  const LtxInfo info_;
  std::string out_;
  std::string index_;
  uint64_t crc_ = 0;
  uint64_t database_ = 0;
};

struct Header {
  LtxInfo info;
  uint32_t flags = 0;
};

Result<Header> parse_header(std::string_view bytes) {
  if (bytes.size() < kLtxHeaderSize) {
    return fail(corrupt_at(bytes.size(), "ends inside the header"));
  }
  ByteReader in(bytes.substr(0, kLtxHeaderSize));
  if (in.take(4) != kMagic) return fail(corrupt_at(0, "magic is not LTX1"));
  Header h;
  h.flags = in.u32();
  uint32_t page_size = in.u32();
  h.info.page_count = in.u32();
  h.info.min = Txid(in.u64());
  h.info.max = Txid(in.u64());
  h.info.timestamp = WallMs{static_cast<int64_t>(in.u64())};
  uint64_t pre_apply = in.u64();
  std::string_view wal = in.take(32);
  h.info.encoder_version = in.u32();
  std::string_view reserved = in.take(16);

  if (page_size != kPageSize) {
    return fail(Error::unsupported("LTX file, offset 8: page size " + std::to_string(page_size) +
                                   ", only 4096 is supported"));
  }
  if (h.info.page_count > kPageCountMax) {
    return fail(corrupt_at(12, "database of " + std::to_string(h.info.page_count) + " pages"));
  }
  if (h.info.min.value < 1 || h.info.min > h.info.max || h.info.max.value > kCounterMax) {
    return fail(corrupt_at(16, "TXID range " + std::to_string(h.info.min.value) + " to " +
                                   std::to_string(h.info.max.value)));
  }
  uint32_t flags_due = is_snapshot(h.info) ? 0 : kFlagNoChecksum;
  if (h.flags != flags_due) {
    return fail(corrupt_at(
        4, "flags " + std::to_string(h.flags) + ", expected " + std::to_string(flags_due)));
  }
  if (pre_apply != 0) return fail(corrupt_at(40, "unexpected pre-apply checksum"));
  if (wal.find_first_not_of('\0') != std::string_view::npos) {
    return fail(Error::unsupported("LTX file, offset 48: names a position in a WAL"));
  }
  if (h.info.encoder_version < 1) return fail(corrupt_at(80, "no encoder version"));
  if (reserved.find_first_not_of('\0') != std::string_view::npos) {
    return fail(corrupt_at(84, "reserved bytes are not zero"));
  }
  return h;
}

// The compressed block of a frame at `offset`, cut from `in`; `crc` takes in the frame header.
struct Frame {
  Pgno pgno = 0;  // 0: the end of the page block
  std::string_view block;
};

Result<Frame> parse_frame(ByteReader& in, uint64_t& crc, std::string_view bytes) {
  size_t at = in.offset();
  Frame frame;
  frame.pgno = in.u32();
  uint16_t flags = in.u16();
  if (!in.ok()) return fail(corrupt_at(at, "ends inside the page block"));
  if (frame.pgno == 0) {
    if (flags != 0) return fail(corrupt_at(at + 4, "flags at the end of the page block"));
    crc = crc_of(crc, bytes.substr(at, kBlockEndSize));
    return frame;
  }
  if (flags == 0) {
    return fail(
        Error::unsupported("LTX file, offset " + std::to_string(at + 4) + ": pages as LZ4 frames"));
  }
  if (flags != kFrameSizedBlock) return fail(corrupt_at(at + 4, "page flags"));
  uint32_t size = in.u32();
  if (!in.ok() || size < 1 || size > kPageBlockMax || size > in.left()) {
    return fail(corrupt_at(at + 6, "compressed size " + std::to_string(size) + " of page " +
                                       std::to_string(frame.pgno)));
  }
  crc = crc_of(crc, bytes.substr(at, kFrameHeaderSize));
  frame.block = in.take(size);
  return frame;
}

bool decompress(std::string_view block, uint8_t* page) {
  int n = LZ4_decompress_safe(block.data(), reinterpret_cast<char*>(page),
                              static_cast<int>(block.size()), kPageSize);
  return n == static_cast<int>(kPageSize);
}

// Walks a file; `buffer_for(pgno)` gives the memory for a page, `done(pgno)` takes it over.
template <class BufferFor, class Done>
Result<LtxInfo> walk(std::string_view bytes, BufferFor buffer_for, Done done) {
  TRY_ASSIGN(Header header, parse_header(bytes));
  const LtxInfo& info = header.info;
  if (bytes.size() < kLtxHeaderSize + kBlockEndSize + 1 + kIndexLengthSize + kLtxTrailerSize) {
    return fail(corrupt_at(bytes.size(), "ends too early"));
  }
  ByteReader in(bytes.substr(0, bytes.size() - kLtxTrailerSize));
  in.take(kLtxHeaderSize);
  uint64_t crc = crc_of(0, bytes.substr(0, kLtxHeaderSize));
  uint64_t database = 0;
  uint64_t count = 0;
  Pgno last = 0;
  std::string index;
  for (;;) {
    size_t at = in.offset();
    TRY_ASSIGN(Frame frame, parse_frame(in, crc, bytes));
    if (frame.pgno == 0) break;
    if (frame.pgno <= last || frame.pgno > info.page_count || frame.pgno == kLockPage) {
      return fail(corrupt_at(at, "page " + std::to_string(frame.pgno) + " after page " +
                                     std::to_string(last) + " of " +
                                     std::to_string(info.page_count)));
    }
    uint8_t* page = buffer_for(frame.pgno);
    if (!decompress(frame.block, page)) {
      return fail(corrupt_at(at, "page " + std::to_string(frame.pgno) + " does not decompress"));
    }
    std::span<const uint8_t, kPageSize> content(page, kPageSize);
    crc = crc64(crc, content);
    if (is_snapshot(info)) database ^= page_checksum(frame.pgno, content);
    put_uvarint(index, frame.pgno);
    put_uvarint(index, at);
    put_uvarint(index, in.offset() - at);
    done(frame.pgno);
    last = frame.pgno;
    ++count;
  }
  if (is_snapshot(info) && count != snapshot_pages(info.page_count)) {
    return fail(corrupt_at(in.offset(), "a snapshot of " + std::to_string(info.page_count) +
                                            " pages holds " + std::to_string(count)));
  }
  put_uvarint(index, 0);
  size_t index_at = in.offset();
  if (in.take(index.size()) != index) {
    return fail(corrupt_at(index_at, "the page index differs from the pages"));
  }
  if (in.u64() != index.size() || !in.ok()) {
    return fail(corrupt_at(index_at + index.size(), "length of the page index"));
  }
  if (in.left() != 0) return fail(corrupt_at(in.offset(), "bytes after the page index"));

  size_t trailer_at = bytes.size() - kLtxTrailerSize;
  ByteReader trailer(bytes.substr(trailer_at));
  uint64_t post_apply = trailer.u64();
  uint64_t file_checksum = trailer.u64();
  crc = crc_of(crc, bytes.substr(index_at, trailer_at + 8 - index_at));
  if (file_checksum != (crc | kLtxChecksumFlag)) {
    return fail(corrupt_at(trailer_at + 8, "file checksum"));
  }
  if (post_apply != (is_snapshot(info) ? database | kLtxChecksumFlag : 0)) {
    return fail(corrupt_at(trailer_at, "database checksum"));
  }
  return info;
}

}  // namespace

uint64_t page_checksum(Pgno pgno, std::span<const uint8_t, kPageSize> page) {
  uint8_t number[4] = {static_cast<uint8_t>(pgno >> 24), static_cast<uint8_t>(pgno >> 16),
                       static_cast<uint8_t>(pgno >> 8), static_cast<uint8_t>(pgno)};
  return crc64(crc64(0, number), page);
}

Blob encode_ltx(const LtxInfo& info, std::span<const NumberedPage> pages) {
  CHECK(info.min.value >= 1 && info.min <= info.max) << info.min << " to " << info.max;
  CHECK(info.page_count <= kPageCountMax) << info.page_count;
  return Encoder(info).encode(pages);
}

Result<LtxFile> decode_ltx(std::string_view bytes) {
  LtxFile file;
  PageRef page;
  TRY_ASSIGN(file.info, walk(
                            bytes,
                            [&](Pgno) {
                              page = PageRef::allocate();
                              return page.mutable_data();
                            },
                            [&](Pgno pgno) {
                              file.pages.push_back({pgno, std::move(page)});
                            }));
  return file;
}

Result<LtxInfo> read_ltx(std::string_view bytes, const PageVisitor& visit) {
  uint8_t page[kPageSize];
  return walk(
      bytes, [&](Pgno) { return page; },
      [&](Pgno pgno) { visit(pgno, std::span<const uint8_t, kPageSize>(page)); });
}

Result<LtxInfo> decode_ltx_header(std::string_view bytes) {
  TRY_ASSIGN(Header header, parse_header(bytes));
  return header.info;
}

Result<uint64_t> page_index_tail_bytes(std::string_view tail, uint64_t file_bytes) {
  constexpr size_t kEnd = kIndexLengthSize + kLtxTrailerSize;
  if (tail.size() < kEnd) return fail(Error::invalid("LTX page index: fewer than 24 bytes given"));
  uint64_t length = ByteReader(tail.substr(tail.size() - kEnd)).u64();
  constexpr uint64_t kRest = kLtxHeaderSize + kBlockEndSize + kEnd;
  if (file_bytes < kRest || length < 1 || length > file_bytes - kRest) {
    return fail(corrupt_at(file_bytes - kEnd, "page index of " + std::to_string(length) +
                                                  " bytes in a file of " +
                                                  std::to_string(file_bytes)));
  }
  return length + kEnd;
}

Result<std::vector<PageIndexEntry>> decode_page_index(std::string_view tail, uint64_t file_bytes) {
  TRY_ASSIGN(uint64_t needed, page_index_tail_bytes(tail, file_bytes));
  if (tail.size() < needed) {
    return fail(Error::invalid("LTX page index: " + std::to_string(needed) + " bytes needed, " +
                               std::to_string(tail.size()) + " given"));
  }
  uint64_t index_at = file_bytes - needed;
  uint64_t pages_end = index_at - kBlockEndSize;
  ByteReader in(tail.substr(tail.size() - needed, needed - kIndexLengthSize - kLtxTrailerSize));
  std::vector<PageIndexEntry> entries;
  uint64_t next_offset = kLtxHeaderSize;
  for (Pgno last = 0;;) {
    uint64_t at = index_at + in.offset();
    uint64_t pgno = in.uvarint();
    if (!in.ok()) return fail(corrupt_at(at, "page index is cut off"));
    if (pgno == 0) break;
    uint64_t offset = in.uvarint();
    uint64_t bytes = in.uvarint();
    if (!in.ok()) return fail(corrupt_at(at, "page index is cut off"));
    if (pgno <= last || pgno > kPageCountMax) {
      return fail(corrupt_at(
          at, "page index: page " + std::to_string(pgno) + " after " + std::to_string(last)));
    }
    if (offset != next_offset || bytes <= kFrameHeaderSize ||
        bytes > kFrameHeaderSize + kPageBlockMax || bytes > pages_end - offset) {
      return fail(corrupt_at(at, "page index: frame of page " + std::to_string(pgno)));
    }
    last = static_cast<Pgno>(pgno);
    next_offset = offset + bytes;
    entries.push_back({last, offset, static_cast<uint32_t>(bytes)});
  }
  if (in.left() != 0) return fail(corrupt_at(index_at + in.offset(), "bytes after the page index"));
  if (next_offset != pages_end) return fail(corrupt_at(index_at, "pages outside the page index"));
  return entries;
}

Result<PageRef> decode_page_frame(std::string_view frame, Pgno pgno) {
  ByteReader in(frame);
  uint64_t crc = 0;
  TRY_ASSIGN(Frame parsed, parse_frame(in, crc, frame));
  if (parsed.pgno != pgno || in.left() != 0) {
    return fail(corrupt_at(0, "frame of page " + std::to_string(parsed.pgno) + " in place of " +
                                  std::to_string(pgno)));
  }
  PageRef page = PageRef::allocate();
  if (!decompress(parsed.block, page.mutable_data())) {
    return fail(corrupt_at(0, "page " + std::to_string(pgno) + " does not decompress"));
  }
  return page;
}

}  // namespace celld
