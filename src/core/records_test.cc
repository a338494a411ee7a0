#include "core/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace celld {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kOwnKey = "cells/C:1/own.json";
constexpr std::string_view kNodeKey = "nodes/n-1.json";

OwnerRecord sample_owner() {
  return {.node = NodeId("n-1"),
          .epoch = Epoch(7),
          .manifest = {.epoch = Epoch(6),
                       .txid = Txid(20),
                       .page_count = 9,
                       .objects = {{Epoch(3), 9, Txid(1), Txid(15), 5000},
                                   {Epoch(6), 0, Txid(16), Txid(20), 300}}},
          .alarm = WallMs{1'700'000'000'000}};
}

NodeRecord sample_node() {
  NodeRecord r;
  r.node = NodeId("n-1");
  r.name = "left \"rack\"\n";
  r.addr = "10.0.0.1:8787";
  r.expires = WallMs{1'700'000'000'123};
  r.seq = 42;
  r.probe_public_key = std::string(64, 'a');
  r.peer_protocol = 3;
  r.generation = "v7";
  r.load = {.sampled = WallMs{1'700'000'000'000},
            .resident_cells = 3,
            .memory_bytes = UINT64_MAX,
            .pressured = true};
  r.journal = {JournalState::kFencing, Slot(kCounterMax), true};
  return r;
}

template <class Decode>
std::string error_of(Decode decode, std::string_view json, std::string_view key) {
  auto record = decode(json, key);
  if (record) return "no error";
  EXPECT_EQ(record.error().code, ErrorCode::kCorrupt) << record.error().message;
  return record.error().message;
}

TEST(OwnerRecord, comes_back_as_it_was) {
  for (OwnerRecord r :
       {sample_owner(), OwnerRecord{.node = {}, .epoch = Epoch(1), .manifest = {}, .alarm = {}},
        OwnerRecord{.node = NodeId("x"),
        .epoch = Epoch(kCounterMax),
        .manifest = {.epoch = Epoch(2)},
        .alarm = {}}}) {
    std::string text = encode_owner(r);
    auto back = decode_owner(text, kOwnKey);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, r);
    EXPECT_EQ(encode_owner(*back), text);
  }
}

TEST(OwnerRecord, text_is_canonical) {
  EXPECT_EQ(encode_owner({.node = {}, .epoch = Epoch(3), .manifest = {}, .alarm = {}}),
            R"({"node":"","epoch":3})");
  EXPECT_EQ(encode_owner(sample_owner()),
            R"({"node":"n-1","epoch":7,"manifest":{"epoch":6,"txid":20,"page_count":9,"objects":[)"
            R"({"epoch":3,"level":9,"min":1,"max":15,"bytes":5000},)"
            R"({"epoch":6,"level":0,"min":16,"max":20,"bytes":300}]},"alarm_ms":1700000000000})");
}

TEST(OwnerRecord, unknown_fields_are_ignored) {
  auto r = decode_owner(R"({"node":"","epoch":3,"later":{"a":[1]}})", kOwnKey);
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->released());
  EXPECT_EQ(r->epoch, Epoch(3));
}

TEST(OwnerRecord, errors_name_key_and_field) {
  auto error = [](std::string_view json) { return error_of(decode_owner, json, kOwnKey); };
  EXPECT_EQ(error(R"({"epoch":3})"), "cells/C:1/own.json: node is missing");
  EXPECT_EQ(error(R"({"node":"A/B","epoch":3})"), "cells/C:1/own.json: node is not a node id");
  EXPECT_THAT(error(R"({"node":"a"})"), HasSubstr("epoch is missing"));
  EXPECT_THAT(error(R"({"node":"a","epoch":0})"), HasSubstr("epoch is not a whole number from 1"));
  EXPECT_THAT(error(R"({"node":"a","epoch":"1"})"), HasSubstr("epoch is not"));
  EXPECT_THAT(error(R"({"node":"a","epoch":1,"manifest":[]})"),
              HasSubstr("manifest is not an object"));
  EXPECT_THAT(error(R"({"node":"a","epoch":1,"manifest":{"epoch":2,"txid":0,"page_count":0}})"),
              HasSubstr("manifest.epoch is not"));
  EXPECT_THAT(error(R"({"node":"a","epoch":1,"manifest":{"epoch":1,"txid":4,"page_count":0}})"),
              HasSubstr("manifest.objects do not fit the txid"));
  EXPECT_THAT(
      error(R"({"node":"a","epoch":1,"manifest":{"epoch":1,"txid":4,"page_count":1,"objects":[)"
            R"({"epoch":1,"level":0,"min":3,"max":2,"bytes":1}]}})"),
      HasSubstr("manifest.objects[0].min is above max"));
  EXPECT_THAT(
      error(R"({"node":"a","epoch":1,"manifest":{"epoch":1,"txid":4,"page_count":1,"objects":[)"
            R"({"epoch":1,"level":0,"min":3,"max":5,"bytes":1}]}})"),
      HasSubstr("manifest.objects[0].max is above the manifest's txid"));
  EXPECT_THAT(
      error(R"({"node":"a","epoch":1,"manifest":{"epoch":1,"txid":4,"page_count":99999999}})"),
      HasSubstr("page_count"));
  EXPECT_THAT(error(R"({"node":"a","epoch":1,"alarm_ms":1e30})"), HasSubstr("alarm_ms"));
  EXPECT_THAT(error("<html>"), HasSubstr("cells/C:1/own.json: not valid JSON"));
  EXPECT_THAT(error(""), HasSubstr("not valid JSON"));
}

TEST(OwnerRecord, an_epoch_that_could_not_grow_is_refused) {
  EXPECT_THAT(error_of(decode_owner, R"({"node":"","epoch":18446744073709551615})", kOwnKey),
              HasSubstr("epoch is not a whole number from 1 to 9223372036854775807"));
}

TEST(OwnerRecord, every_truncation_is_an_error) {
  std::string text = encode_owner(sample_owner());
  for (size_t n = 0; n < text.size(); ++n)
    EXPECT_FALSE(decode_owner(text.substr(0, n), kOwnKey)) << n;
}

TEST(NodeRecord, comes_back_as_it_was) {
  NodeRecord r = sample_node();
  std::string text = encode_node(r);
  auto back = decode_node(text, kNodeKey);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, r);
  EXPECT_EQ(encode_node(*back), text);
}

TEST(NodeRecord, two_versions_never_have_equal_bytes) {
  // A version token may be a hash of the content.
  NodeRecord r = sample_node();
  std::string before = encode_node(r);
  ++r.seq;
  EXPECT_NE(encode_node(r), before);
}

TEST(NodeRecord, a_minimal_record_of_another_version_is_read) {
  auto r = decode_node(R"({"node":"n-1","expires_ms":5,"seq":1,"peer_protocol":9,"x":1,)"
                       R"("journal":{"state":"open","drained":0,"y":2}})",
                       kNodeKey);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->peer_protocol, 9u);
  EXPECT_EQ(r->load, NodeLoad{});
}

TEST(NodeRecord, errors_name_key_and_field) {
  auto error = [](std::string_view json) { return error_of(decode_node, json, kNodeKey); };
  EXPECT_THAT(error(R"({"node":"n-2"})"),
              HasSubstr("nodes/n-1.json: node is not the node that the key names"));
  EXPECT_THAT(error(R"({"node":"n-1"})"), HasSubstr("expires_ms is missing"));
  constexpr std::string_view kHead = R"({"node":"n-1","expires_ms":5,"seq":1,"peer_protocol":1)";
  auto with = [&](const char* rest) { return error(std::string(kHead) + rest); };
  EXPECT_THAT(with("}"), HasSubstr("journal is missing"));
  EXPECT_THAT(with(R"(,"journal":{"state":"sealed","drained":1}})"),
              HasSubstr("journal.state is neither open nor fencing nor recovered"));
  EXPECT_THAT(with(R"(,"journal":{"state":"open"}})"), HasSubstr("journal.drained is missing"));
  EXPECT_THAT(with(R"(,"journal":{"state":"open","drained":-1}})"),
              HasSubstr("journal.drained is not"));
  EXPECT_THAT(with(R"(,"probe_public_key":"AA","journal":{"state":"open","drained":1}})"),
              HasSubstr("probe_public_key"));
  EXPECT_THAT(with(R"(,"load":{"websockets":"many"},"journal":{"state":"open","drained":1}})"),
              HasSubstr("load.websockets"));
}

TEST(FormatRecord, a_newer_format_is_refused_by_name) {
  FormatRecord r{.format = kBucketFormat, .written_by = "celld 0.1.0"};
  EXPECT_EQ(*decode_format(encode_format(r)), r);
  auto newer = decode_format(R"({"format":9,"written_by":{"shape":"changed"}})");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(newer.error().message, HasSubstr("fleet/format.json: the bucket has format 9"));
  EXPECT_EQ(decode_format(R"({"format":0})").error().code, ErrorCode::kCorrupt);
}

TEST(AlarmIndex, comes_back_in_order_of_time) {
  AlarmIndexRecord r{
      NodeId("n-1"),
      5,
      Slot(9),
      {{CellId("C:2"), WallMs{30}}, {CellId("C:1"), WallMs{30}}, {CellId("C:3"), WallMs{-1}}}};
  std::string key = alarm_index_key(r.node, 0x12);
  EXPECT_EQ(key, "wake/n-1/0012.json");
  EXPECT_EQ(parse_alarm_index_key(key)->shard, 0x12u);
  std::string text = encode_alarm_index(r);
  auto back = decode_alarm_index(text, key);
  ASSERT_TRUE(back) << back.error().message;
  std::swap(r.entries[0], r.entries[2]);
  EXPECT_EQ(*back, r);
  EXPECT_EQ(encode_alarm_index(*back), text);
  EXPECT_THAT(error_of(decode_alarm_index, text, "wake/n-2/0012.json"), HasSubstr("the key names"));
  EXPECT_THAT(
      error_of(decode_alarm_index,
               R"({"node":"n-1","seq":1,"through":2,"alarms":[{"cell":"a b","due_ms":1}]})", key),
      HasSubstr("alarms[0].cell is not a cell id"));
  EXPECT_FALSE(parse_alarm_index_key("wake/unowned/0012.json"));
}

TEST(UnownedAlarm, keys_are_sorted_by_the_minute) {
  CellId cell("C:1");
  EXPECT_EQ(unowned_alarm_key(cell, WallMs{1'709'211'599'999}),
            "wake/unowned/2024-02-29T12:59/C:1");
  EXPECT_EQ(unowned_alarm_key(cell, WallMs{0}), "wake/unowned/1970-01-01T00:00/C:1");
  EXPECT_EQ(unowned_alarm_key(cell, WallMs{-5}), "wake/unowned/1970-01-01T00:00/C:1");
  EXPECT_EQ(unowned_alarm_key(cell, WallMs{8'640'000'000'000'000}),
            "wake/unowned/9999-12-31T23:59/C:1");
  for (int64_t due : {int64_t{0}, int64_t{59'999}, int64_t{60'000}, int64_t{951'782'400'000},
                      int64_t{253'402'300'799'999}}) {
    std::string key = unowned_alarm_key(cell, WallMs{due});
    auto name = parse_unowned_alarm_key(key);
    ASSERT_TRUE(name) << key;
    EXPECT_EQ(name->minute.value, due / 60'000 * 60'000);
    EXPECT_EQ(name->cell, cell);
    EXPECT_EQ(*decode_unowned_alarm(encode_unowned_alarm({cell, WallMs{due}}), key),
              (AlarmEntry{cell, WallMs{due}}));
  }
}

TEST(UnownedAlarm, what_does_not_fit_the_key_is_refused) {
  std::string key = unowned_alarm_key(CellId("C:1"), WallMs{120'000});
  EXPECT_THAT(error_of(decode_unowned_alarm, R"({"cell":"C:2","due_ms":120000})", key),
              HasSubstr("the cell that the key names"));
  EXPECT_THAT(error_of(decode_unowned_alarm, R"({"cell":"C:1","due_ms":180000})", key),
              HasSubstr("the minute that the key names"));
  for (const char* bad : {"wake/unowned/2023-02-29T12:59/C:1", "wake/unowned/2024-13-01T12:59/C:1",
                          "wake/unowned/2024-02-01T24:00/C:1", "wake/unowned/2024-02-01T23:60/C:1",
                          "wake/unowned/2024-02-01 23:00/C:1", "wake/unowned/2024-02-01T23:00/",
                          "wake/unowned/2024-02-01T23:00/a/b", "wake/unowned/1969-12-31T23:59/C:1",
                          "wake/unowned/2024-02-01T23:00"}) {
    EXPECT_FALSE(parse_unowned_alarm_key(bad)) << bad;
  }
}

TEST(RecordKeys, come_back_as_they_were) {
  EXPECT_EQ(parse_owner_key(owner_key(CellId("C:1"))), CellId("C:1"));
  EXPECT_EQ(parse_node_key(node_key(NodeId("n-1"))), NodeId("n-1"));
  for (const char* bad : {"cells/own.json", "cells//own.json", "cells/a/b/own.json", "nodes/.json",
                          "nodes/a/b.json", "nodes/A.json"}) {
    EXPECT_FALSE(parse_owner_key(bad)) << bad;
    EXPECT_FALSE(parse_node_key(bad)) << bad;
  }
}

}  // namespace
}  // namespace celld
