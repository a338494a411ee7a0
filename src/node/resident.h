// A cell of a loop with its way to the journal.
#pragma once

#include "node/loop.h"

namespace celld {

struct Loop::Resident final : CellStorage::Sink {
  Resident(CellId id, Control& control);

  // CellStorage::Sink
  bool may_commit() override;
  std::string refusal() const override;
  void commit(std::vector<NumberedPage> pages, uint32_t page_count,
              std::optional<std::optional<int64_t>> alarm_change_ms) override;

  js::Cell cell;
  Control& control;
  bool activating = false;
  Claim claim = Claim::kOrTell;  // of the activation under way
  bool wait_for_owner = false;   // rather than send events there: it is not to be reached
  bool alarm_hinted = false;
  bool overfull = false;  // why the last commit was refused
  MonoTime held_since = MonoTime::max();  // waits for room in the journal, or for its release
};

}  // namespace celld
