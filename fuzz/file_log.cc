// The log of a directory store, which a power failure may have left in any state.
//
// links: store
#include "store/file_log.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace celld;
  std::string boot;
  for (const auto& record : read_log({reinterpret_cast<const char*>(data), size}, boot)) {
    CHECK(!record.key.empty() && record.key.size() <= 1024);
    CHECK(record.body.size() <= FileLog::kBodyBytesMax);
    CHECK(record.kind == LogRecord::Kind::kRemove ? record.token.empty()
                                                  : record.token.size() == 32);
    CHECK(record.kind == LogRecord::Kind::kPut || record.body.empty());
    CHECK(!boot.empty());
  }
  return 0;
}
