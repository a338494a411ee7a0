// Runs a program to its end, within bounds.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace celld {

struct SubprocessCall {
  std::filesystem::path program;
  std::vector<std::string> arguments;       // without the program's name
  std::filesystem::path working_dir;
  std::chrono::milliseconds timeout{60'000};
  size_t output_bytes_max = 1 << 20;        // of what it prints; the rest is dropped
};

struct SubprocessResult {
  int exit_status = 0;   // 128 + signal when a signal ended it
  std::string output;    // stdout and stderr, as they came
};

// Blocks until the program ends. Standard input is empty. The program leads a process group of its
// own, which is killed whole when the timeout passes (kDeadline). kInvalid when it cannot be started.
// Any thread.
Result<SubprocessResult> run_subprocess(const SubprocessCall& call);

}  // namespace celld
