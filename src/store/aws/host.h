// What the providers of keys see of the machine; tests give their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/s3_credentials.h"
#include "world/task.h"
#include "world/world.h"

namespace celld {

// On the world's thread.
class AwsHost {
 public:
  virtual ~AwsHost() = default;

  virtual std::optional<std::string> variable(const std::string& name) const = 0;

  // A small local file, whole: kNotFound, or kInvalid when it cannot be read or is larger than
  // 1 MiB. Errors name the path. Blocks on the disk for a moment.
  virtual Result<std::string> read_file(const std::string& path) const = 0;

  // Puts `text` there in place of what there was, as a whole even when the machine fails, readable by
  // its owner only. kInvalid when it cannot be written; the old content is then still there. Errors
  // name the path. Blocks on the disk.
  virtual Result<void> replace_file(const std::string& path, std::string_view text) = 0;

  // What `command`, given to /bin/sh, prints on its standard output: at most 64 KiB. kInvalid with
  // what it says on standard error, when it fails. It is killed when the deadline passes.
  virtual Task<Result<std::string>> run_command(std::string command, Deadline deadline) = 0;
};

// This machine. `world` outlives it. Destroying it kills and waits for what it runs.
std::unique_ptr<AwsHost> aws_host(World& world, Environment environment);

}  // namespace celld
