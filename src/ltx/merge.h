// Several LTX files as one.
#pragma once

#include <span>

#include "ltx/ltx.h"

namespace celld {

// The one file that leaves a database as the given files leave it when applied one after the
// other: the newest content of each page, cut to the newest page_count.
//
// `files`: at least one; `min` never falls from one to the next. Ranges may overlap; a file whose
// `max` is not above what came before adds nothing. A hole between them, or a falling `min`, is
// Error::corrupt. Pages that were cut off and came back without being written are zeros in the
// result. Shares the pages, copies none. Any thread.
Result<LtxFile> merge(std::span<const LtxFile> files);

}  // namespace celld
