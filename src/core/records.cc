#include "core/records.h"

#include <algorithm>
#include <boost/json.hpp>
#include <tuple>

#include "base/check.h"
#include "base/hex.h"
#include "base/json.h"

namespace celld {

namespace json = boost::json;

namespace {

constexpr size_t kSmallRecordBytesMax = 64 << 10;
constexpr size_t kOwnerBytesMax = 1 << 20;
constexpr size_t kAlarmIndexBytesMax = 24 << 20;  // kAlarmIndexEntriesMax of the longest entries
constexpr size_t kTextBytesMax = 255;
constexpr int64_t kTimeMax = 8'640'000'000'000'000;  // of a JavaScript Date, in both directions

Result<JsonDocument> parse(std::string_view text, std::string_view key, size_t bytes_max) {
  return JsonDocument::parse(text, key, ErrorCode::kCorrupt,
                             JsonLimits{.bytes_max = bytes_max, .depth_max = 8});
}

std::string to_text(const json::object& object) { return json::serialize(object); }

uint64_t counter(JsonFields& f, std::string_view name, uint64_t min = 0) {
  return f.number(name, min, kCounterMax);
}
WallMs time(JsonFields& f, std::string_view name) {
  return WallMs{f.integer(name, -kTimeMax, kTimeMax)};
}
NodeId node_id(JsonFields& f, std::string_view name) {
  std::string text = f.text(name, kTextBytesMax);
  auto id = parse_node_id(text);
  if (!id) f.reject(name, "is not a node id");
  return id.value_or(NodeId());
}
CellId cell_id(JsonFields& f, std::string_view name) {
  std::string text = f.text(name, kTextBytesMax);
  auto id = parse_cell_id(text);
  if (!id) f.reject(name, "is not a cell id");
  return id.value_or(CellId());
}

void check_time(WallMs t) { CHECK(t.value >= -kTimeMax && t.value <= kTimeMax) << t; }

// What lies between prefix and suffix of a key, if that is how it begins and ends.
std::optional<std::string_view> between(std::string_view key, std::string_view prefix,
                                        std::string_view suffix) {
  if (key.size() < prefix.size() + suffix.size() || !key.starts_with(prefix) ||
      !key.ends_with(suffix)) {
    return std::nullopt;
  }
  return key.substr(prefix.size(), key.size() - prefix.size() - suffix.size());
}

}  // namespace

// -- cells/<cell>/own.json --------------------------------------------------------------------

std::string owner_key(const CellId& cell) {
  CHECK(!cell.empty());
  return "cells/" + cell.value + "/own.json";
}

std::optional<CellId> parse_owner_key(std::string_view key) {
  auto cell = between(key, "cells/", "/own.json");
  return cell ? parse_cell_id(*cell) : std::nullopt;
}

std::string encode_owner(const OwnerRecord& record) {
  const Manifest& m = record.manifest;
  CHECK(record.epoch.value >= 1) << "an owner record without an epoch";
  CHECK(m.epoch <= record.epoch) << "manifest of epoch " << m.epoch << " in " << record.epoch;
  CHECK(m.objects.size() <= kManifestObjectsMax) << m.objects.size();
  CHECK(m.epoch.value >= 1 || (m.txid.value == 0 && m.page_count == 0 && m.objects.empty()));
  CHECK((m.txid.value == 0) == m.objects.empty()) << m.txid << " " << m.objects.size();
  json::object out;
  out["node"] = record.node.value;
  out["epoch"] = record.epoch.value;
  if (m.epoch.value >= 1) {
    json::array objects;
    for (const RestoreObject& o : m.objects) {
      CHECK(o.epoch.value >= 1 && o.epoch <= m.epoch && o.level <= 0xffff) << o.epoch;
      CHECK(o.min.value >= 1 && o.min <= o.max && o.max <= m.txid) << o.min << "-" << o.max;
      objects.push_back({{"epoch", o.epoch.value},
                         {"level", o.level},
                         {"min", o.min.value},
                         {"max", o.max.value},
                         {"bytes", o.bytes}});
    }
    out["manifest"] = {{"epoch", m.epoch.value},
                       {"txid", m.txid.value},
                       {"page_count", m.page_count},
                       {"objects", std::move(objects)}};
  }
  if (record.alarm) {
    check_time(*record.alarm);
    out["alarm_ms"] = record.alarm->value;
  }
  return to_text(out);
}

Result<OwnerRecord> decode_owner(std::string_view text, std::string_view key) {
  TRY_ASSIGN(JsonDocument document, parse(text, key, kOwnerBytesMax));
  JsonFields f = document.fields();
  OwnerRecord record;
  if (f.text("node", kTextBytesMax) != "") record.node = node_id(f, "node");
  record.epoch = Epoch(counter(f, "epoch", 1));
  if (f.has("manifest")) {
    JsonFields m = f.object("manifest");
    record.manifest.epoch = Epoch(m.number("epoch", 1, std::max<uint64_t>(1, record.epoch.value)));
    record.manifest.txid = Txid(counter(m, "txid"));
    record.manifest.page_count = static_cast<uint32_t>(m.number("page_count", 0, kPageCountMax));
    m.each("objects", kManifestObjectsMax, [&](JsonFields& o) {
      RestoreObject object;
      object.epoch =
          Epoch(o.number("epoch", 1, std::max<uint64_t>(1, record.manifest.epoch.value)));
      object.level = static_cast<unsigned>(o.number("level", 0, 0xffff));
      object.max = Txid(counter(o, "max", 1));
      object.min = Txid(counter(o, "min", 1));
      object.bytes = o.number("bytes", 0, UINT64_MAX);
      if (object.min > object.max) o.reject("min", "is above max");
      if (object.max > record.manifest.txid) o.reject("max", "is above the manifest's txid");
      record.manifest.objects.push_back(object);
    });
    if ((record.manifest.txid.value == 0) != record.manifest.objects.empty()) {
      m.reject("objects", "do not fit the txid");
    }
  }
  if (f.has("alarm_ms")) record.alarm = time(f, "alarm_ms");
  TRY(f.done());
  return record;
}

// -- nodes/<node>.json ------------------------------------------------------------------------

std::string_view to_string(JournalState state) {
  switch (state) {
    case JournalState::kOpen:
      return "open";
    case JournalState::kFencing:
      return "fencing";
    case JournalState::kRecovered:
      return "recovered";
    case JournalState::kLeft:
      return "left";
  }
  return "unknown";
}

std::string node_key(const NodeId& node) {
  CHECK(!node.empty());
  return "nodes/" + node.value + ".json";
}

std::optional<NodeId> parse_node_key(std::string_view key) {
  auto node = between(key, "nodes/", ".json");
  return node ? parse_node_id(*node) : std::nullopt;
}

std::string encode_node(const NodeRecord& record) {
  CHECK(!record.node.empty()) << "a node record without a node";
  CHECK(record.name.size() <= kTextBytesMax && record.addr.size() <= kTextBytesMax &&
        record.generation.size() <= kTextBytesMax)
      << record.node;
  CHECK(record.probe_public_key.empty() || record.probe_public_key.size() == 64) << record.node;
  check_time(record.expires);
  check_time(record.load.sampled);
  const NodeLoad& load = record.load;
  json::object out;
  out["node"] = record.node.value;
  out["name"] = record.name;
  out["addr"] = record.addr;
  out["expires_ms"] = record.expires.value;
  out["seq"] = record.seq;
  out["probe_public_key"] = record.probe_public_key;
  out["peer_protocol"] = record.peer_protocol;
  out["generation"] = record.generation;
  out["load"] = {{"sampled_ms", load.sampled.value},
                 {"resident_cells", load.resident_cells},
                 {"resident_cells_max", load.resident_cells_max},
                 {"hibernated_cells", load.hibernated_cells},
                 {"websockets", load.websockets},
                 {"memory_bytes", load.memory_bytes},
                 {"memory_bytes_max", load.memory_bytes_max},
                 {"cpu_percent", load.cpu_percent},
                 {"pressured", load.pressured},
                 {"draining", load.draining}};
  out["journal"] = {{"state", std::string(to_string(record.journal.state))},
                    {"drained", record.journal.drained.value}};
  if (record.journal.lost) out["journal"].as_object()["lost"] = true;
  return to_text(out);
}

Result<NodeRecord> decode_node(std::string_view text, std::string_view key) {
  TRY_ASSIGN(JsonDocument document, parse(text, key, kSmallRecordBytesMax));
  JsonFields f = document.fields();
  NodeRecord record;
  record.node = node_id(f, "node");
  if (auto named = parse_node_key(key); !named || *named != record.node) {
    f.reject("node", "is not the node that the key names");
  }
  record.name = f.text_or("name", "", kTextBytesMax);
  record.addr = f.text_or("addr", "", kTextBytesMax);
  record.expires = time(f, "expires_ms");
  record.seq = counter(f, "seq");
  record.probe_public_key = f.text_or("probe_public_key", "", 64);
  const std::string& public_key = record.probe_public_key;
  if (!public_key.empty() &&
      (public_key.size() != 64 ||
       public_key.find_first_not_of("0123456789abcdef") != public_key.npos)) {
    f.reject("probe_public_key", "is not 64 lowercase hex digits");
  }
  record.peer_protocol = static_cast<uint32_t>(f.number("peer_protocol", 0, UINT32_MAX));
  record.generation = f.text_or("generation", "", kTextBytesMax);
  JsonFields load = f.object_or_empty("load");
  record.load.sampled = WallMs{load.integer_or("sampled_ms", 0, -kTimeMax, kTimeMax)};
  auto count = [&](std::string_view name) { return load.number_or(name, 0, 0, UINT64_MAX); };
  record.load.resident_cells = count("resident_cells");
  record.load.resident_cells_max = count("resident_cells_max");
  record.load.hibernated_cells = count("hibernated_cells");
  record.load.websockets = count("websockets");
  record.load.memory_bytes = count("memory_bytes");
  record.load.memory_bytes_max = count("memory_bytes_max");
  record.load.cpu_percent = count("cpu_percent");
  record.load.pressured = load.flag_or("pressured", false);
  record.load.draining = load.flag_or("draining", false);
  JsonFields journal = f.object("journal");
  std::string state = journal.text("state", kTextBytesMax);
  if (state == "open") {
    record.journal.state = JournalState::kOpen;
  } else if (state == "fencing") {
    record.journal.state = JournalState::kFencing;
  } else if (state == "recovered") {
    record.journal.state = JournalState::kRecovered;
  } else if (state == "left") {
    record.journal.state = JournalState::kLeft;
  } else {
    journal.reject("state", "is neither open nor fencing nor recovered nor left");
  }
  record.journal.lost = journal.flag_or("lost", false);
  record.journal.drained = Slot(counter(journal, "drained"));
  TRY(f.done());
  return record;
}

// -- fleet/format.json ------------------------------------------------------------------------

std::string encode_format(const FormatRecord& record) {
  CHECK(record.format >= 1 && record.written_by.size() <= kTextBytesMax) << record.format;
  json::object out;
  out["format"] = record.format;
  out["written_by"] = record.written_by;
  return to_text(out);
}

Result<FormatRecord> decode_format(std::string_view text, std::string_view key) {
  TRY_ASSIGN(JsonDocument document, parse(text, key, kSmallRecordBytesMax));
  JsonFields f = document.fields();
  FormatRecord record;
  record.format = counter(f, "format", 1);
  TRY(f.done());
  if (record.format > kBucketFormat) {
    return fail(Error::unsupported(std::string(key) + ": the bucket has format " +
                                   std::to_string(record.format) +
                                   ", this celld knows formats up to " +
                                   std::to_string(kBucketFormat) + ": use a newer celld"));
  }
  record.written_by = f.text_or("written_by", "", kTextBytesMax);
  TRY(f.done());
  return record;
}

// -- fleet/joined.json ------------------------------------------------------------------------

std::string encode_joined(const JoinedRecord& record) {
  CHECK(!record.node.empty() && record.seq >= 1) << record.seq;
  json::object out;
  out["seq"] = record.seq;
  out["node"] = record.node.value;
  return to_text(out);
}

Result<JoinedRecord> decode_joined(std::string_view text, std::string_view key) {
  TRY_ASSIGN(JsonDocument document, parse(text, key, kSmallRecordBytesMax));
  JsonFields f = document.fields();
  JoinedRecord record;
  record.seq = counter(f, "seq");
  record.node = node_id(f, "node");
  TRY(f.done());
  return record;
}

// -- wake/<node>/<shard>.json -----------------------------------------------------------------

std::string alarm_index_prefix(const NodeId& node) {
  CHECK(!node.empty() && node.value != "unowned") << node;
  return "wake/" + node.value + "/";
}

std::string alarm_index_key(const NodeId& node, unsigned shard) {
  CHECK(shard <= 0xffff) << shard;
  return alarm_index_prefix(node) + hex_fixed(shard, 4) + ".json";
}

std::optional<AlarmIndexName> parse_alarm_index_key(std::string_view key) {
  auto middle = between(key, "wake/", ".json");
  if (!middle) return std::nullopt;
  size_t slash = middle->find('/');
  if (slash == middle->npos) return std::nullopt;
  auto node = parse_node_id(middle->substr(0, slash));
  auto shard = parse_hex_fixed(middle->substr(slash + 1), 4);
  if (!node || node->value == "unowned" || !shard) return std::nullopt;
  return AlarmIndexName{*node, static_cast<unsigned>(*shard)};
}

std::string encode_alarm_index(const AlarmIndexRecord& record) {
  CHECK(!record.node.empty() && record.entries.size() <= kAlarmIndexEntriesMax)
      << record.node << " " << record.entries.size();
  std::vector<AlarmEntry> entries = record.entries;
  std::sort(entries.begin(), entries.end(), [](const AlarmEntry& a, const AlarmEntry& b) {
    return std::tie(a.due, a.cell) < std::tie(b.due, b.cell);
  });
  json::object out;
  out["node"] = record.node.value;
  out["seq"] = record.seq;
  out["through"] = record.through.value;
  json::array alarms;
  for (const AlarmEntry& e : entries) {
    CHECK(!e.cell.empty());
    check_time(e.due);
    alarms.push_back({{"cell", e.cell.value}, {"due_ms", e.due.value}});
  }
  out["alarms"] = std::move(alarms);
  return to_text(out);
}

Result<AlarmIndexRecord> decode_alarm_index(std::string_view text, std::string_view key) {
  TRY_ASSIGN(JsonDocument document, parse(text, key, kAlarmIndexBytesMax));
  JsonFields f = document.fields();
  AlarmIndexRecord record;
  record.node = node_id(f, "node");
  if (auto named = parse_alarm_index_key(key); !named || named->node != record.node) {
    f.reject("node", "is not the node that the key names");
  }
  record.seq = counter(f, "seq");
  record.through = Slot(counter(f, "through"));
  f.each("alarms", kAlarmIndexEntriesMax, [&](JsonFields& e) {
    CellId cell = cell_id(e, "cell");
    record.entries.push_back({std::move(cell), time(e, "due_ms")});
  });
  TRY(f.done());
  return record;
}

}  // namespace celld
