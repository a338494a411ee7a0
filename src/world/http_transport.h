// Outgoing HTTP as an interface, so that object stores can be driven without a network.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/blob.h"
#include "base/result.h"
#include "world/task.h"
#include "world/world.h"

namespace celld {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpCall {
  std::string method;
  std::string url;         // absolute; the path is sent as it stands, no normalisation
  HeaderList headers;      // sent as they stand; Host and Content-Length are added
  Blob body;
  Deadline deadline;
  uint64_t reply_bytes_max = 64ull << 20;  // a longer reply is an error, not a truncation
  bool direct = false;     // never through a proxy: for addresses that only this machine has
};

struct HttpReply {
  int status = 0;
  HeaderList headers;      // names in lower case
  std::string body;
};

// One connection pool. Never retries and never follows redirects.
//
// An error means that no complete reply arrived: the other side may or may not have acted
// (kUnavailable, kDeadline, kCancelled). A call whose deadline is cancelled is taken off its
// connection, which is closed. On the world's thread.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  virtual Task<Result<HttpReply>> perform(HttpCall call) = 0;
};

}  // namespace celld
