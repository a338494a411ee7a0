// What `celld` can be told to do. Each runs to its end on the calling thread and gives the exit status:
// 0 done, 1 failed (the reason is on stderr), 3 a node lost its authority.
//
// Data goes to stdout, everything for people to stderr.
#pragma once

#include "cli/options.h"

namespace celld {

int run_dev(const DevOptions& options);
int run_deploy(const DeployOptions& options);
int run_node(const NodeOptions& options);
int run_diagnose_bucket(const DiagnoseBucketOptions& options);

}  // namespace celld
