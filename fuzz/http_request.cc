// The HTTP request parser: any bytes, in any pieces, give the same head or the same refusal; the
// body decoder gives the same bytes.
// links: net
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "net/http_parser.h"

using namespace celld;

namespace {

struct Outcome {
  ParseStatus status = ParseStatus::kNeedMore;
  RequestHead head;
  size_t consumed = 0;
  int error_status = 0;
  std::string body;
  bool body_done = false;
  bool body_failed = false;
};

// Feeds `data` in pieces of `step` bytes.
Outcome run(std::string_view data, size_t step) {
  HttpLimits limits{.request_line_bytes_max = 512, .head_bytes_max = 2048};
  Outcome out;
  RequestParser parser(limits);
  parser.reset(&out.head);
  for (size_t end = 0; out.status == ParseStatus::kNeedMore && end < data.size();) {
    end = std::min(data.size(), end + step);
    // A copy of its own, so that a read past the end is seen.
    std::string seen(data.substr(0, end));
    out.status = parser.parse(seen);
  }
  out.consumed = parser.consumed();
  out.error_status = parser.error_status();
  if (out.status == ParseStatus::kError) {
    CHECK(out.error_status >= 400 && out.error_status < 600) << out.error_status;
    CHECK(!parser.error_message().empty());
  }
  if (out.status != ParseStatus::kDone) return out;
  CHECK(out.consumed <= data.size());
  CHECK(!(parser.chunked() && out.head.content_length));
  CHECK(out.head.header_block.empty() || out.head.header_block.back() == '\n');
  if (!parser.chunked()) return out;
  ChunkedDecoder chunks;
  for (size_t at = out.consumed; at < data.size() && !chunks.done() && !chunks.failed();) {
    std::string piece(data.substr(at, step));
    size_t used = chunks.decode(piece, out.body);
    CHECK(used == piece.size() || chunks.done() || chunks.failed());
    at += used;
  }
  CHECK(out.body.size() <= data.size());
  out.body_done = chunks.done();
  out.body_failed = chunks.failed();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0 || size > 8192) return 0;
  size_t step = bytes[0] % 16 + 1;
  std::string_view data(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  Outcome whole = run(data, data.size() + 1);
  Outcome parts = run(data, step);
  CHECK(whole.status == parts.status);
  if (whole.status == ParseStatus::kDone) {
    CHECK(whole.consumed == parts.consumed);
    CHECK(whole.head.method == parts.head.method && whole.head.target == parts.head.target);
    CHECK(whole.head.header_block == parts.head.header_block);
    CHECK(whole.body == parts.body && whole.body_done == parts.body_done &&
          whole.body_failed == parts.body_failed);
  }
  return 0;
}
