// Ids and counters as types, so that an epoch is never passed for a TXID.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace celld {

// An unsigned counter of its own kind. Comparable, hashable, printable; `next()` is the only
// arithmetic most code needs.
template <class Tag>
struct Counter {
  uint64_t value = 0;

  constexpr Counter() = default;
  constexpr explicit Counter(uint64_t v) : value(v) {}
  constexpr auto operator<=>(const Counter&) const = default;
  constexpr Counter next() const { return Counter(value + 1); }
  constexpr Counter prev() const { return Counter(value - 1); }
  friend std::ostream& operator<<(std::ostream& out, Counter c) { return out << c.value; }
};

using Epoch = Counter<struct EpochTag>;  // ownership periods of one cell, from 1 up; 0 = none
using Txid = Counter<struct TxidTag>;    // commits of one cell, dense from 1 up; 0 = empty
using Slot = Counter<struct SlotTag>;    // objects of one node's journal, dense from 1 up; 0 = none

// A name of its own kind.
template <class Tag>
struct Name {
  std::string value;

  Name() = default;
  explicit Name(std::string v) : value(std::move(v)) {}
  auto operator<=>(const Name&) const = default;
  bool empty() const { return value.empty(); }
  friend std::ostream& operator<<(std::ostream& out, const Name& n) { return out << n.value; }
};

// "<Class>:<id>", 1 to 255 bytes of [A-Za-z0-9_.:$-]; used verbatim as one component of a key.
using CellId = Name<struct CellTag>;
// One run of a celld process; drawn anew at every start, never reused. [a-z0-9-], 1 to 64 bytes.
using NodeId = Name<struct NodeTag>;

// The CellId, or nothing when the text breaks the rules above ("." and ".." included).
std::optional<CellId> parse_cell_id(std::string_view text);
std::optional<NodeId> parse_node_id(std::string_view text);

// Wall-clock milliseconds since the Unix epoch. For people, leases and alarms; never for authority.
struct WallMs {
  int64_t value = 0;
  constexpr auto operator<=>(const WallMs&) const = default;
  friend std::ostream& operator<<(std::ostream& out, WallMs t) { return out << t.value; }
};

}  // namespace celld

template <class Tag>
struct std::hash<celld::Counter<Tag>> {
  size_t operator()(celld::Counter<Tag> c) const { return std::hash<uint64_t>()(c.value); }
};
template <class Tag>
struct std::hash<celld::Name<Tag>> {
  size_t operator()(const celld::Name<Tag>& n) const { return std::hash<std::string>()(n.value); }
};
