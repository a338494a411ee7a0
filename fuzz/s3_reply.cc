// Replies of an object store: the XML parser, lists, errors, ETags and ranges take any bytes.
//
// links: store
#include "store/s3_reply.h"

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "store/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace celld;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_xml(text);

  ListRequest request;
  request.prefix = "p/";
  request.start_after = "p/b";
  request.delimiter = "/";
  if (auto page = s3_list_page(text, request)) {
    std::string last = request.start_after;
    for (const auto& object : page->objects) {
      CHECK(object.key > last && object.key.starts_with("p/")) << object.key;
      last = object.key;
    }
    CHECK(!page->more || page->next_start_after > request.start_after) << page->next_start_after;
  }

  HttpReply reply{404, {{"etag", std::string(text)}, {"retry-after", std::string(text)}}, {}};
  reply.body.assign(text);
  CHECK(s3_error(reply).message.starts_with("404"));
  if (auto version = s3_version(reply)) {
    CHECK(!version->token.empty());
  }
  (void)s3_credentials_expired(reply);
  (void)parse_iso8601(text);
  if (auto total = parse_content_range(text, 2, 3)) {
    CHECK(*total >= 5) << *total;
  }
  return 0;
}
