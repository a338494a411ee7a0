// From the options of a command line to the settings of a node.
#pragma once

#include "cli/options.h"
#include "cli/serve.h"

namespace celld {

// Everything but the listener, the bucket and the data directory.
NodeConfig node_config(const TuningOptions& tuning);
StoreOptions store_options(const BucketOptions& bucket);

}  // namespace celld
