// The JSON records of the bucket: any text is decoded or refused; what is decoded gives a
// canonical text that decodes to the same.
// links: core
#include "core/records.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"

using namespace celld;

namespace {

template <class Decode, class Encode>
void round_trip(std::string_view text, std::string_view key, Decode decode, Encode encode) {
  auto record = decode(text, key);
  if (!record) {
    CHECK(record.error().message.starts_with(key)) << record.error().message;
    return;
  }
  std::string canonical = encode(*record);
  auto again = decode(canonical, key);
  CHECK(again.has_value()) << again.error().message;
  CHECK(encode(*again) == canonical);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = as_chars({data, size});
  round_trip(text, "cells/C:1/own.json", decode_owner, encode_owner);
  round_trip(text, "nodes/n-1.json", decode_node, encode_node);
  round_trip(text, kFormatKey, decode_format, encode_format);
  round_trip(text, "wake/n-1/0000.json", decode_alarm_index, encode_alarm_index);
  round_trip(text, "wake/unowned/2023-11-14T22:13/C:1", decode_unowned_alarm, encode_unowned_alarm);

  // The same bytes as keys.
  if (auto k = parse_unowned_alarm_key(text)) {
    CHECK(unowned_alarm_key(k->cell, k->minute) == text);
  }
  if (auto k = parse_alarm_index_key(text)) {
    CHECK(alarm_index_key(k->node, k->shard) == text);
  }
  if (auto k = parse_node_key(text)) {
    CHECK(node_key(*k) == text);
  }
  if (auto k = parse_owner_key(text)) {
    CHECK(owner_key(*k) == text);
  }
  return 0;
}
