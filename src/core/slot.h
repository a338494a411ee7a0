// The objects of a node's journal: slots with commits, and the fence that ends a journal.
//
// Layout and rules in docs/formats/slot.md; what they are for in the protocol, section 5 and 6.
// Pure functions over bytes; nothing here blocks. One thread at a time per object.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/commit.h"

namespace celld {

inline constexpr size_t kSlotBytesDefault = 4
                                            << 20;  // a group commit that one PUT still moves fast
inline constexpr size_t kSlotBytesMin = 4 << 10;
inline constexpr size_t kSlotBytesMax = 64 << 20;   // a decoder refuses more
inline constexpr uint32_t kSlotPartsMax = 1 << 16;  // in one slot
inline constexpr size_t kCommitBytesMax = 1 << 30;  // encoded, over all its slots

enum class SlotKind : uint8_t { kData = 1, kFence = 2 };

// A commit, or a piece of one that is larger than a slot.
struct CommitPart {
  CellId cell;
  Epoch epoch;
  Txid txid;
  uint32_t index = 0;  // < count
  uint32_t count = 1;
  std::optional<AlarmChange> alarm;  // only in the part with index 0
  std::string_view payload;  // the piece of the commit's LTX file; views somebody else's bytes
};

struct SlotContent {
  SlotKind kind = SlotKind::kData;
  NodeId node;  // whose journal
  Slot slot;
  Slot drained;                   // of data: the node's drained mark when the slot was sealed
  NodeId fencer;                  // of a fence: who wrote it
  std::vector<CommitPart> parts;  // of data; payloads view the bytes given to decode_slot
};

// Every part CHECKed: ids not empty, index < count, alarm only in part 0; `drained` < `slot`.
Blob encode_slot(const NodeId& node, Slot slot, std::span<const CommitPart> parts, Slot drained = {});
// The record that takes `slot` from `victim`, so that no data can ever be there.
Blob encode_fence(const NodeId& victim, Slot slot, const NodeId& fencer);

// Error::corrupt (naming offset and reason) for anything that the encoders do not make,
// Error::unsupported for a newer format version. Allocates in proportion to `bytes`.
Result<SlotContent> decode_slot(std::string_view bytes);

// journal/<node>/<slot, 16 hex>.jnl
std::string journal_key(const NodeId& node, Slot slot);
std::string journal_prefix(const NodeId& node);  // journal/<node>/
struct JournalName {
  NodeId node;
  Slot slot;
};
// Only the keys that journal_key makes, slot >= 1.
std::optional<JournalName> parse_journal_key(std::string_view key);

// Packs commits into slots, in the order in which they come.
//
// A commit that fits into an empty slot is never split. A larger one starts a slot of its own and
// continues at the head of the next ones; what follows it may share its last slot. So at most one
// commit is open at the end of a slot. Not bounded by itself: ask waiting_bytes().
class SlotWriter {
 public:
  // `first`: the number of the first slot; `slot_bytes_max` from kSlotBytesMin to kSlotBytesMax.
  SlotWriter(NodeId node, Slot first, size_t slot_bytes_max = kSlotBytesDefault);

  // Error::overloaded when the commit is larger than kCommitBytesMax; it is then not taken.
  Result<void> add(EncodedCommit commit);

  bool empty() const { return queue_.empty(); }
  size_t waiting_bytes() const { return waiting_bytes_; }  // of encoded pages
  size_t waiting_commits() const { return queue_.size(); }
  Slot next_slot() const { return next_; }

  struct Ended {  // a commit whose last part is in the slot
    CellId cell;
    Epoch epoch;
    Txid txid;
    Slot first;  // where its first part is
    std::optional<AlarmChange> alarm;
  };
  // What goes into a slot. Shares the bytes of the commits.
  struct Draft {
    NodeId node;
    Slot slot;
    std::vector<CommitPart> parts;
    std::vector<Blob> held;  // what the parts view
    Slot drained;
    size_t bytes = 0;  // encoded
    // The same bytes each time. Costs about a millisecond a megabyte; any thread.
    Blob encode() const { return encode_slot(node, slot, parts, drained); }
  };
  struct Sealed {
    Slot slot;
    Draft draft;
    std::vector<Ended> ended;  // in order; these count once the slot is durable
    // The first slot of the commit that goes on in the next slot: the drained mark must stay below
    // it until the slot of its last part can be passed as well.
    std::optional<Slot> open_since;
  };
  // The next slot, as full as the limit allows. CHECKs that something waits. `drained` is the mark
  // that the lease is known to carry.
  Sealed seal(Slot drained = {});

 private:
  struct Waiting {
    EncodedCommit commit;
    uint32_t next_part = 0;
    uint32_t part_count = 1;
    Slot first;
  };
  size_t room_of_empty_slot(const CellId& cell) const;

  const NodeId node_;
  const size_t slot_bytes_max_;
  Slot next_;
  std::deque<Waiting> queue_;
  size_t waiting_bytes_ = 0;
};

// Makes whole commits of the slots of one journal, fed in order without a gap.
//
// Keeps the one commit that is open (at most kCommitBytesMax) and one entry per cell seen.
class CommitAssembler {
 public:
  explicit CommitAssembler(NodeId node) : node_(std::move(node)) {}

  // The commits that end in this slot, in order. Start with any slot below which no commit is
  // open, `drained + 1`. Error::corrupt names slot and cell: a slot of another node or out of
  // turn, a fence, parts that do not follow each other, a damaged commit, a TXID that does not
  // follow the one before in its epoch, an epoch or TXID that goes back. After an error the
  // assembler is of no more use.
  Result<std::vector<Commit>> feed(const SlotContent& slot);
  // The same without decoding the pages.
  Result<std::vector<EncodedCommit>> feed_encoded(const SlotContent& slot);

  // The commit whose last part has not come. At the end of a journal it was never acknowledged:
  // drop it.
  struct Incomplete {
    CellId cell;
    Epoch epoch;
    Txid txid;
    Slot first;
  };
  std::optional<Incomplete> incomplete() const;

 private:
  struct Open {
    EncodedCommit commit;  // without pages
    std::string ltx;
    uint32_t next_part;
    uint32_t part_count;
    Slot first;
  };
  struct Position {
    Epoch epoch;
    Txid txid;
  };
  Error wrong(Slot slot, const CommitPart& part, std::string_view reason) const;
  Result<void> check_position(Slot slot, const CommitPart& part);

  NodeId node_;
  std::optional<Slot> last_;
  std::optional<Open> open_;
  std::map<CellId, Position> positions_;
};

}  // namespace celld
