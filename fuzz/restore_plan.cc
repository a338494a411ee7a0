// Restore plans: any set of objects gives a chain without holes from the first commit, or an error.
// links: ltx
#include "ltx/restore_plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

using namespace celld;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Four bytes an object, so that ranges meet.
  ByteReader in(as_chars({data, size}));
  std::vector<RestoreObject> objects;
  while (in.left() >= 4 && objects.size() < 1000) {
    RestoreObject o;
    uint8_t first = in.u8();
    o.epoch = Epoch(first & 7);
    o.level = first >> 4;
    o.min = Txid(in.u8());
    o.max = Txid(o.min.value + in.u8() % 32);
    o.bytes = in.u8();
    objects.push_back(o);
  }
  auto plan = plan_restore(objects);
  if (!plan) return 0;
  Txid reached(0);
  uint64_t bytes = 0;
  for (const RestoreObject& o : plan->objects) {
    CHECK(o.min <= reached.next() && o.max > reached) << o.min << "-" << o.max;
    for (const RestoreObject& later : objects) {
      bool cut = later.epoch > o.epoch && later.min <= o.max;
      CHECK(!cut) << o.min << "-" << o.max << " is above the cut of epoch " << o.epoch;
    }
    reached = o.max;
    bytes += o.bytes;
  }
  CHECK(plan->max == reached && plan->bytes == bytes);
  CHECK(objects.empty() == plan->objects.empty());
  return 0;
}
