// The folder in which `celld dev` keeps its state.
#pragma once

#include <string>

#include "base/result.h"

namespace celld {

// Makes the folder; with `clean` empties it first. A folder that celld made has a mark, and no other
// that holds anything is ever emptied. Errors name the folder. Blocks on the disk.
//
//   kInvalid      it is no folder, or not one of ours to empty
//   kUnavailable  the disk refuses, or another celld uses it
Result<void> prepare_dev_data(const std::string& folder, bool clean);

}  // namespace celld
