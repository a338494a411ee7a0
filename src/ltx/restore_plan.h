// Which objects to fetch to bring a database to its newest state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ltx/ltx.h"

namespace celld {

// One LTX object of a cell, as a manifest or a LIST names it.
struct RestoreObject {
  Epoch epoch;
  unsigned level = 0;
  Txid min;
  Txid max;
  uint64_t bytes = 0;
  friend bool operator==(const RestoreObject&, const RestoreObject&) = default;
};

struct RestorePlan {
  std::vector<RestoreObject> objects;  // in the order in which merge() takes them
  Txid max;                            // what they lead to; 0 = there is no database yet
  uint64_t bytes = 0;                  // of all objects together
};

// The newest snapshot and the shortest chain of objects above it, out of `objects` in any order.
//
// Ranges may overlap and objects may be listed twice. An object of epoch e counts only below the
// cut of its epoch: the first TXID that any later epoch wrote. (A snapshot of a later epoch so
// replaces all that came before.) Of equal ranges the later epoch wins, then the higher level. No
// objects: an empty plan. TXIDs that nothing covers below the newest one are Error::corrupt, which
// names the missing range. Any thread.
//
// For the cut to be right, a merged object that is not a snapshot must not begin below the first
// TXID of the epoch that it is stored under.
Result<RestorePlan> plan_restore(std::span<const RestoreObject> objects);

}  // namespace celld
