// A local file that is only a cache: never synced, removed when closed, worthless after a crash.
//
// One thread at a time may call a file; the caller serialises. Calls block on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace celld {

class ScratchFile {
 public:
  virtual ~ScratchFile() = default;
  // All of `out`; a part that was never written reads as zeros. kUnavailable: the disk failed.
  virtual Result<void> read(uint64_t offset, std::span<uint8_t> out) = 0;
  // All of `bytes` or an error (kUnavailable), after which that range holds anything.
  virtual Result<void> write(uint64_t offset, std::span<const uint8_t> bytes) = 0;
  // Forgets what lies at and beyond `size`. Best effort.
  virtual void truncate(uint64_t size) = 0;
};

// Creates an empty file at `path` (replacing one that is there) and takes its name away at once,
// so that nothing is left behind whatever happens to the process.
Result<std::unique_ptr<ScratchFile>> open_scratch_file(const std::string& path);

}  // namespace celld
