// From a deployment of the bucket to the code that isolates load.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "deploy/deployment.h"
#include "js/worker_code.h"

namespace celld {

// kCorrupt when the deployment contradicts itself. Any thread.
Result<std::shared_ptr<const js::WorkerCode>> worker_code(LoadedDeployment deployment);

// Code with the same classes and bindings whose every handler and constructor throws `message`.
std::shared_ptr<const js::WorkerCode> code_that_fails(const js::WorkerCode& like, const std::string& message);

}  // namespace celld
