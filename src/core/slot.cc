#include "core/slot.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hex.h"
#include "ltx/crc64.h"
#include "ltx/ltx.h"

namespace celld {

namespace {

constexpr std::string_view kMagic = "CJN1";
constexpr uint8_t kSlotFormatVersion = 2;
constexpr size_t kChecksumSize = 8;

enum class AlarmTag : uint8_t { kUnchanged = 0, kSet = 1, kDeleted = 2 };

void put_short(std::string& out, std::string_view text) {
  CHECK(!text.empty() && text.size() <= 255) << text.size();
  put_be(out, text.size(), 1);
  out += text;
}

void put_head(std::string& out, SlotKind kind, const NodeId& node, Slot slot) {
  CHECK(slot.value >= 1);
  out += kMagic;
  put_be(out, kSlotFormatVersion, 1);
  put_be(out, static_cast<uint64_t>(kind), 1);
  put_be(out, slot.value, 8);
  put_short(out, node.value);
}

Blob finished(std::string out) {
  put_be(out, crc64(0, as_bytes(out)), 8);
  return Blob(std::move(out));
}

// Bytes of a slot without parts, and of a part without payload.
size_t head_bytes(const NodeId& node) { return 4 + 1 + 1 + 8 + 1 + node.value.size() + 8 + 4; }
size_t part_bytes(const CellId& cell) { return 1 + cell.value.size() + 8 + 8 + 4 + 4 + 1 + 8 + 4; }

template <class Tag>
bool in_range(Counter<Tag> c) {
  return c.value >= 1 && c.value <= kCounterMax;
}

Error corrupt_at(size_t offset, const std::string& reason) {
  return Error::corrupt("journal slot, offset " + std::to_string(offset) + ": " + reason);
}

Result<CommitPart> parse_part(ByteReader& in) {
  size_t at = in.offset();
  CommitPart part;
  auto cell = parse_cell_id(in.take(in.u8()));
  part.epoch = Epoch(in.u64());
  part.txid = Txid(in.u64());
  part.index = in.u32();
  part.count = in.u32();
  uint8_t tag = in.u8();
  auto alarm_at = WallMs{static_cast<int64_t>(in.u64())};
  part.payload = in.take(in.u32());
  if (!in.ok()) return fail(corrupt_at(at, "part is cut off"));
  if (!cell) return fail(corrupt_at(at, "cell id"));
  part.cell = std::move(*cell);
  auto bad = [&](const std::string& what) {
    return fail(corrupt_at(at, what + " in a part of cell " + part.cell.value));
  };
  if (!in_range(part.epoch)) return bad("epoch " + std::to_string(part.epoch.value));
  if (!in_range(part.txid)) return bad("TXID " + std::to_string(part.txid.value));
  if (part.index >= part.count) {
    return bad("part " + std::to_string(part.index) + " of " + std::to_string(part.count));
  }
  if (part.payload.empty()) return bad("no content");
  switch (static_cast<AlarmTag>(tag)) {
    case AlarmTag::kUnchanged:
      break;
    case AlarmTag::kSet:
      part.alarm = AlarmChange{alarm_at};
      break;
    case AlarmTag::kDeleted:
      part.alarm = AlarmChange{};
      break;
    default:
      return bad("alarm change " + std::to_string(tag));
  }
  if (tag != static_cast<uint8_t>(AlarmTag::kSet) && alarm_at.value != 0) return bad("alarm time");
  if (part.alarm && part.index != 0) return bad("alarm change in a later part");
  return part;
}

}  // namespace

Blob encode_slot(const NodeId& node, Slot slot, std::span<const CommitPart> parts, Slot drained) {
  CHECK(drained < slot) << "slot " << slot << " is drained through " << drained;
  CHECK(!parts.empty() && parts.size() <= kSlotPartsMax) << parts.size();
  std::string out;
  size_t size = head_bytes(node) + kChecksumSize;
  for (const CommitPart& part : parts) size += part_bytes(part.cell) + part.payload.size();
  CHECK(size <= kSlotBytesMax) << size;
  out.reserve(size);
  put_head(out, SlotKind::kData, node, slot);
  put_be(out, drained.value, 8);
  put_be(out, parts.size(), 4);
  for (const CommitPart& part : parts) {
    CHECK(part.epoch.value >= 1 && part.txid.value >= 1) << part.cell;
    CHECK(part.index < part.count && !part.payload.empty()) << part.index << " " << part.count;
    CHECK(!part.alarm || part.index == 0) << "alarm change in part " << part.index;
    put_short(out, part.cell.value);
    put_be(out, part.epoch.value, 8);
    put_be(out, part.txid.value, 8);
    put_be(out, part.index, 4);
    put_be(out, part.count, 4);
    AlarmTag tag = !part.alarm      ? AlarmTag::kUnchanged
                   : part.alarm->at ? AlarmTag::kSet
                                    : AlarmTag::kDeleted;
    put_be(out, static_cast<uint64_t>(tag), 1);
    put_be(out, tag == AlarmTag::kSet ? static_cast<uint64_t>(part.alarm->at->value) : 0, 8);
    put_be(out, part.payload.size(), 4);
    out += part.payload;
  }
  return finished(std::move(out));
}

Blob encode_fence(const NodeId& victim, Slot slot, const NodeId& fencer) {
  std::string out;
  put_head(out, SlotKind::kFence, victim, slot);
  put_short(out, fencer.value);
  return finished(std::move(out));
}

Result<SlotContent> decode_slot(std::string_view bytes) {
  if (bytes.size() > kSlotBytesMax) {
    return fail(corrupt_at(kSlotBytesMax, "slot of " + std::to_string(bytes.size()) + " bytes"));
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) return fail(corrupt_at(0, "magic is not CJN1"));
  if (bytes.size() < kMagic.size() + 1 + kChecksumSize) {
    return fail(corrupt_at(bytes.size(), "ends too early"));
  }
  if (auto version = static_cast<uint8_t>(bytes[4]); version != kSlotFormatVersion) {
    return fail(Error::unsupported("journal slot, offset 4: format version " +
                                   std::to_string(version) + ", this celld knows version " +
                                   std::to_string(kSlotFormatVersion)));
  }
  std::string_view body = bytes.substr(0, bytes.size() - kChecksumSize);
  if (ByteReader(bytes.substr(body.size())).u64() != crc64(0, as_bytes(body))) {
    return fail(corrupt_at(body.size(), "checksum"));
  }
  ByteReader in(body);
  in.take(kMagic.size() + 1);
  SlotContent content;
  uint8_t kind = in.u8();
  content.slot = Slot(in.u64());
  auto node = parse_node_id(in.take(in.u8()));
  if (!in.ok()) return fail(corrupt_at(in.offset(), "ends inside the header"));
  if (!node) return fail(corrupt_at(14, "node id"));
  if (!in_range(content.slot)) {
    return fail(corrupt_at(6, "slot number " + std::to_string(content.slot.value)));
  }
  content.node = std::move(*node);
  if (kind == static_cast<uint8_t>(SlotKind::kFence)) {
    content.kind = SlotKind::kFence;
    size_t at = in.offset();
    auto fencer = parse_node_id(in.take(in.u8()));
    if (!in.ok() || !fencer) return fail(corrupt_at(at, "node id of the fencer"));
    content.fencer = std::move(*fencer);
  } else if (kind == static_cast<uint8_t>(SlotKind::kData)) {
    content.drained = Slot(in.u64());
    size_t at = in.offset();
    uint32_t count = in.u32();
    if (!in.ok() || count < 1 || count > kSlotPartsMax) {
      return fail(corrupt_at(at, std::to_string(count) + " parts"));
    }
    if (content.drained >= content.slot) {
      return fail(corrupt_at(at - 8, "drained through slot " + std::to_string(content.drained.value)));
    }
    for (uint32_t i = 0; i < count; ++i) {
      TRY_ASSIGN(CommitPart part, parse_part(in));
      content.parts.push_back(std::move(part));
    }
  } else {
    return fail(corrupt_at(5, "kind " + std::to_string(kind)));
  }
  if (in.left() != 0) return fail(corrupt_at(in.offset(), "bytes after the last part"));
  return content;
}

std::string journal_prefix(const NodeId& node) { return "journal/" + node.value + "/"; }

std::string journal_key(const NodeId& node, Slot slot) {
  CHECK(!node.empty() && slot.value >= 1) << node << " " << slot;
  return journal_prefix(node) + hex_fixed(slot.value, 16) + ".jnl";
}

std::optional<JournalName> parse_journal_key(std::string_view key) {
  constexpr std::string_view kPrefix = "journal/";
  constexpr std::string_view kSuffix = ".jnl";
  constexpr size_t kFile = 16 + 4;
  if (!key.starts_with(kPrefix) || !key.ends_with(kSuffix)) return std::nullopt;
  key.remove_prefix(kPrefix.size());
  if (key.size() < 1 + 1 + kFile || key[key.size() - kFile - 1] != '/') return std::nullopt;
  auto node = parse_node_id(key.substr(0, key.size() - kFile - 1));
  auto slot = parse_hex_fixed(key.substr(key.size() - kFile, 16), 16);
  if (!node || !slot || *slot < 1 || *slot > kCounterMax) return std::nullopt;
  return JournalName{*node, Slot(*slot)};
}

SlotWriter::SlotWriter(NodeId node, Slot first, size_t slot_bytes_max)
    : node_(std::move(node)), slot_bytes_max_(slot_bytes_max), next_(first) {
  CHECK(slot_bytes_max >= kSlotBytesMin && slot_bytes_max <= kSlotBytesMax) << slot_bytes_max;
  CHECK(!node_.empty() && first.value >= 1);
}

size_t SlotWriter::room_of_empty_slot(const CellId& cell) const {
  return slot_bytes_max_ - head_bytes(node_) - kChecksumSize - part_bytes(cell);
}

Result<void> SlotWriter::add(EncodedCommit commit) {
  CHECK(!commit.ltx.empty()) << "commit " << commit.txid << " of " << commit.cell;
  size_t bytes = commit.ltx.size();
  if (bytes > kCommitBytesMax) {
    return fail(Error::overloaded("commit " + std::to_string(commit.txid.value) + " of cell " +
                                  commit.cell.value + " has " + std::to_string(bytes) +
                                  " bytes, at most " + std::to_string(kCommitBytesMax) +
                                  " are allowed"));
  }
  size_t room = room_of_empty_slot(commit.cell);
  Waiting waiting;
  waiting.part_count = static_cast<uint32_t>((bytes + room - 1) / room);
  waiting.commit = std::move(commit);
  queue_.push_back(std::move(waiting));
  waiting_bytes_ += bytes;
  return {};
}

SlotWriter::Sealed SlotWriter::seal(Slot drained) {
  CHECK(!queue_.empty()) << "nothing waits for slot " << next_;
  Sealed sealed;
  sealed.slot = next_;
  sealed.draft.node = node_;
  sealed.draft.slot = next_;
  std::vector<CommitPart>& parts = sealed.draft.parts;
  size_t used = head_bytes(node_) + kChecksumSize;
  size_t taken = 0;  // commits at the head of the queue that end in this slot
  while (taken < queue_.size() && parts.size() < kSlotPartsMax) {
    Waiting& w = queue_[taken];
    const EncodedCommit& commit = w.commit;
    size_t room = room_of_empty_slot(commit.cell);
    std::string_view payload = commit.ltx.view().substr(w.next_part * room, room);
    size_t size = part_bytes(commit.cell) + payload.size();
    // All parts of a commit but the last one fill a slot, so that it never begins behind others.
    if (used + size > slot_bytes_max_) break;
    if (w.next_part == 0) w.first = next_;
    parts.push_back(CommitPart{commit.cell, commit.epoch, commit.txid, w.next_part, w.part_count,
                               w.next_part == 0 ? commit.alarm : std::nullopt, payload});
    sealed.draft.held.push_back(commit.ltx);
    used += size;
    waiting_bytes_ -= payload.size();
    if (++w.next_part < w.part_count) {
      sealed.open_since = w.first;
      break;
    }
    ++taken;
  }
  sealed.draft.drained = drained;
  sealed.draft.bytes = used;
  for (size_t i = 0; i < taken; ++i) {
    Waiting& w = queue_.front();
    sealed.ended.push_back(
        Ended{std::move(w.commit.cell), w.commit.epoch, w.commit.txid, w.first, w.commit.alarm});
    queue_.pop_front();
  }
  next_ = next_.next();
  return sealed;
}

Error CommitAssembler::wrong(Slot slot, const CommitPart& part, std::string_view reason) const {
  return Error::corrupt(journal_key(node_, slot) + ": commit " + std::to_string(part.txid.value) +
                        " of cell " + part.cell.value + ", epoch " +
                        std::to_string(part.epoch.value) + ", part " + std::to_string(part.index) +
                        " of " + std::to_string(part.count) + ": " + std::string(reason));
}

Result<void> CommitAssembler::check_position(Slot slot, const CommitPart& part) {
  auto [it, fresh] = positions_.try_emplace(part.cell, Position{part.epoch, part.txid});
  if (fresh) return {};
  Position& last = it->second;
  bool follows = part.epoch == last.epoch ? part.txid == last.txid.next()
                                          : part.epoch > last.epoch && part.txid > last.txid;
  if (!follows) {
    return fail(wrong(slot, part,
                      "follows commit " + std::to_string(last.txid.value) + " of epoch " +
                          std::to_string(last.epoch.value)));
  }
  last = {part.epoch, part.txid};
  return {};
}

Result<std::vector<EncodedCommit>> CommitAssembler::feed_encoded(const SlotContent& slot) {
  auto out_of_turn = [&](const std::string& reason) {
    return fail(Error::corrupt(journal_key(node_, slot.slot) + ": " + reason));
  };
  if (slot.node != node_) return out_of_turn("holds a slot of node " + slot.node.value);
  if (slot.kind != SlotKind::kData) return out_of_turn("is a fence, not data");
  if (last_ && slot.slot != last_->next()) {
    return out_of_turn("comes after slot " + std::to_string(last_->value));
  }
  last_ = slot.slot;
  std::vector<EncodedCommit> whole;
  for (const CommitPart& part : slot.parts) {
    if (!open_) {
      if (part.index != 0) return fail(wrong(slot.slot, part, "its first part is missing"));
      TRY(check_position(slot.slot, part));
      open_ = Open{.commit = {part.cell, part.epoch, part.txid, part.alarm, Blob()},
                   .ltx = {},
                   .next_part = 1,
                   .part_count = part.count,
                   .first = slot.slot};
    } else {
      const EncodedCommit& c = open_->commit;
      if (part.cell != c.cell || part.epoch != c.epoch || part.txid != c.txid ||
          part.index != open_->next_part || part.count != open_->part_count) {
        return fail(wrong(slot.slot, part,
                          "in place of part " + std::to_string(open_->next_part) + " of commit " +
                              std::to_string(c.txid.value) + " of cell " + c.cell.value));
      }
      ++open_->next_part;
    }
    if (open_->ltx.size() + part.payload.size() > kCommitBytesMax) {
      return fail(wrong(slot.slot, part, "is too large"));
    }
    open_->ltx += part.payload;
    if (open_->next_part == open_->part_count) {
      open_->commit.ltx = Blob(std::move(open_->ltx));
      whole.push_back(std::move(open_->commit));
      open_.reset();
    }
  }
  return whole;
}

Result<std::vector<Commit>> CommitAssembler::feed(const SlotContent& slot) {
  TRY_ASSIGN(std::vector<EncodedCommit> encoded, feed_encoded(slot));
  std::vector<Commit> commits;
  commits.reserve(encoded.size());
  for (const EncodedCommit& e : encoded) {
    auto commit = decode_commit(e);
    if (!commit) return fail(commit.error().at(journal_key(node_, slot.slot)));
    commits.push_back(std::move(*commit));
  }
  return commits;
}

std::optional<CommitAssembler::Incomplete> CommitAssembler::incomplete() const {
  if (!open_) return std::nullopt;
  const EncodedCommit& c = open_->commit;
  return Incomplete{c.cell, c.epoch, c.txid, open_->first};
}

}  // namespace celld
