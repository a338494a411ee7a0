// Replies of Azure Blob Storage and names of blobs: any bytes.
//
// links: store
#include "store/azure/azure_reply.h"

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "store/azure/azure_name.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace celld;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto name = azure_name(text)) {
    CHECK(azure_key(*name) == text) << *name;
    CHECK(name->empty() || (!name->ends_with('.') && !name->ends_with('/'))) << *name;
  }
  if (auto key = azure_key(text)) {
    CHECK(azure_name(*key).value() == text) << *key;
  }

  ListRequest request;
  request.prefix = "p/";
  request.delimiter = "/";
  if (auto page = azure_list_page(text, request)) {
    for (size_t i = 0; i < page->entries.size(); ++i) {
      const std::string& key = page->entries[i].object.key;
      CHECK(key.starts_with("p/")) << key;
      CHECK(i == 0 || page->entries[i - 1].object.key <= key) << key;
    }
  }

  HttpReply reply{
      404, {{"x-ms-error-code", std::string(text)}, {"retry-after", std::string(text)}}, {}};
  CHECK(azure_error(reply).message.starts_with("404"));
  reply.headers.clear();
  reply.body.assign(text);
  CHECK(azure_error(reply).message.starts_with("404"));
  for (int status : {201, 409, 412}) {
    reply.status = status;
    (void)azure_swap_result(reply, Condition::create());
  }
  (void)parse_http_date(text);
  return 0;
}
