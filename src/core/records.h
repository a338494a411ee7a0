// The JSON records of the bucket: who owns a cell, which nodes live, which alarms are due.
//
// Layouts in docs/formats/{own,node,alarm-index,format}.md. Encoding is canonical: equal records
// give equal bytes. Decoding ignores unknown fields and refuses everything else that is not
// right: Error::corrupt, naming the key (give it as `key`) and the field. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ltx/restore_plan.h"

namespace celld {

// -- cells/<cell>/own.json --------------------------------------------------------------------

inline constexpr size_t kManifestObjectsMax = 4096;

// The LTX objects that make up the database as of the last clean release or checkpoint.
struct Manifest {
  Epoch epoch;  // that wrote the manifest; 0 = there is none yet, then the rest is empty too
  Txid txid;    // the final commit; 0 = the database is empty
  uint32_t page_count = 0;             // of the database
  std::vector<RestoreObject> objects;  // what to fetch, at most kManifestObjectsMax
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

struct OwnerRecord {
  NodeId node;  // empty = released
  Epoch epoch;  // >= 1; grows with every claim, never resets
  Manifest manifest;
  std::optional<WallMs> alarm;  // of a released cell: when it is due
  bool released() const { return node.empty(); }
  friend bool operator==(const OwnerRecord&, const OwnerRecord&) = default;
};

std::string owner_key(const CellId& cell);
std::optional<CellId> parse_owner_key(std::string_view key);
// CHECKs that the record is one that decode takes.
std::string encode_owner(const OwnerRecord& record);
Result<OwnerRecord> decode_owner(std::string_view json, std::string_view key);

// -- nodes/<node>.json ------------------------------------------------------------------------

// kLeft: closed by the node itself, and no cell was left in its name.
enum class JournalState : uint8_t { kOpen, kFencing, kRecovered, kLeft };
std::string_view to_string(JournalState state);

// A sample, for placement only.
struct NodeLoad {
  WallMs sampled;
  uint64_t resident_cells = 0;
  uint64_t resident_cells_max = 0;  // 0 = no limit
  uint64_t hibernated_cells = 0;
  uint64_t websockets = 0;
  uint64_t memory_bytes = 0;
  uint64_t memory_bytes_max = 0;  // 0 = no limit
  uint64_t cpu_percent = 0;       // of all cores together, 100 per core
  bool pressured = false;         // takes no new cells
  bool draining = false;          // is shutting down
  friend bool operator==(const NodeLoad&, const NodeLoad&) = default;
};

struct NodeJournal {
  JournalState state = JournalState::kOpen;
  Slot drained;  // the highest slot all of whose commits are in LTX objects; never falls
  // The record was gone and a recoverer wrote it anew: `drained` is a lower bound, the slots know better.
  bool lost = false;
  friend bool operator==(const NodeJournal&, const NodeJournal&) = default;
};

struct NodeRecord {
  NodeId node;
  std::string name;  // for people; up to 255 bytes
  std::string addr;  // host:port for peers; empty = not routable
  WallMs expires;
  uint64_t seq = 0;              // grows with every swap, so that no two versions have equal bytes
  std::string probe_public_key;  // Ed25519, 64 lowercase hex digits; empty = does not answer
  uint32_t peer_protocol = 0;
  std::string generation;  // the deployment it runs; up to 255 bytes
  NodeLoad load;
  NodeJournal journal;
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

std::string node_key(const NodeId& node);
std::optional<NodeId> parse_node_key(std::string_view key);
std::string encode_node(const NodeRecord& record);
// Also checks that the record is of the node that the key names.
Result<NodeRecord> decode_node(std::string_view json, std::string_view key);

// -- fleet/format.json ------------------------------------------------------------------------

inline constexpr uint64_t kBucketFormat = 1;  // of all that this file and docs/formats describe
inline constexpr std::string_view kFormatKey = "fleet/format.json";

struct FormatRecord {
  uint64_t format = kBucketFormat;  // grows with every swap
  std::string written_by;           // the celld version, for people; up to 255 bytes
  friend bool operator==(const FormatRecord&, const FormatRecord&) = default;
};

std::string encode_format(const FormatRecord& record);
// Error::unsupported for a format newer than kBucketFormat; it names both.
Result<FormatRecord> decode_format(std::string_view json, std::string_view key = kFormatKey);

// -- fleet/joined.json ------------------------------------------------------------------------

inline constexpr std::string_view kJoinedKey = "fleet/joined.json";

// Changes whenever a node has joined: its lease is there before. Who saw it last and sees it
// unchanged knows of every node.
struct JoinedRecord {
  uint64_t seq = 0;  // grows with every swap
  NodeId node;       // who joined last
  friend bool operator==(const JoinedRecord&, const JoinedRecord&) = default;
};

std::string encode_joined(const JoinedRecord& record);
Result<JoinedRecord> decode_joined(std::string_view json, std::string_view key = kJoinedKey);

// -- wake/<node>/<shard>.json -----------------------------------------------------------------

inline constexpr size_t kAlarmIndexEntriesMax = 1 << 16;  // in one shard

struct AlarmEntry {
  CellId cell;
  WallMs due;
  friend bool operator==(const AlarmEntry&, const AlarmEntry&) = default;
};

// The alarms of the cells that a node owns, cut into shards by the node as it likes.
struct AlarmIndexRecord {
  NodeId node;
  uint64_t seq = 0;                 // grows with every write
  Slot through;                     // every alarm change in slots up to this one is in here
  std::vector<AlarmEntry> entries;  // encoded in order of (due, cell)
  friend bool operator==(const AlarmIndexRecord&, const AlarmIndexRecord&) = default;
};

// wake/<node>/<shard, 4 hex>.json; no node may be called "unowned".
std::string alarm_index_key(const NodeId& node, unsigned shard);
std::string alarm_index_prefix(const NodeId& node);
struct AlarmIndexName {
  NodeId node;
  unsigned shard = 0;
};
std::optional<AlarmIndexName> parse_alarm_index_key(std::string_view key);
std::string encode_alarm_index(const AlarmIndexRecord& record);
Result<AlarmIndexRecord> decode_alarm_index(std::string_view json, std::string_view key);

// -- wake/unowned/<YYYY-MM-DDTHH:MM>/<cell> ---------------------------------------------------

inline constexpr std::string_view kUnownedAlarmPrefix = "wake/unowned/";

// `due` rounded down to the UTC minute, kept within the years 1970 to 9999: keys in order of text
// are in order of time.
std::string unowned_alarm_key(const CellId& cell, WallMs due);
struct UnownedAlarmName {
  CellId cell;
  WallMs minute;  // its beginning
};
std::optional<UnownedAlarmName> parse_unowned_alarm_key(std::string_view key);
std::string encode_unowned_alarm(const AlarmEntry& entry);
// Also checks that the entry is of the cell and the minute that the key names.
Result<AlarmEntry> decode_unowned_alarm(std::string_view json, std::string_view key);

}  // namespace celld
