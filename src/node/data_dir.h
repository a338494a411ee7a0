// The local folder of a node: a lock, the id of the node that ran here last, scratch files.
//
// Nothing in it is needed: whoever loses it loses time, not data.
#pragma once

#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace celld {

class DataDir {
 public:
  // Creates the folder if need be and takes its lock. kUnavailable when another process holds it.
  // Blocks on the disk.
  static Result<DataDir> open(const std::string& path);
  DataDir(DataDir&& other) noexcept;
  DataDir& operator=(DataDir&&) = delete;
  ~DataDir();

  // The node that held this folder before: it is gone for certain.
  const std::optional<NodeId>& predecessor() const { return predecessor_; }
  // After the node has left in good order: its successor has nothing to recover.
  Result<void> forget();
  // Records who holds it now; before that node claims anything.
  Result<void> remember(const NodeId& node);
  // For files that are only a cache; emptied at open.
  std::string scratch() const { return path_ + "/scratch"; }

 private:
  DataDir(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_ = -1;
  std::optional<NodeId> predecessor_;
};

}  // namespace celld
