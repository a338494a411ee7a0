// Replies of Google Cloud Storage and of those who issue tokens: any bytes.
//
// links: store
#include "store/gcs/gcs_reply.h"

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "store/token_http.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace celld;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ListRequest request;
  request.prefix = "p/";
  request.start_after = "p/b";
  request.keys_max = 3;
  if (auto list = gcs_list_page(text, request)) {
    const ListPage& page = list->page;
    CHECK(!page.next_start_after.empty() || !page.more || page.objects.empty());
    std::string last = request.start_after;
    for (const auto& object : page.objects) {
      CHECK(object.key > last && object.key.starts_with("p/")) << object.key;
      last = object.key;
    }
  }
  if (auto info = gcs_object_info(text)) {
    CHECK(!info->version.token.empty());
  }
  HttpReply reply{404, {{"retry-after", std::string(text)}}, std::string(text)};
  CHECK(gcs_error(reply).message.starts_with("404"));
  for (int status : {200, 400, 412}) {
    reply.status = status;
    (void)gcs_swap_result(reply);
    if (auto token = parse_token_reply(reply, WallMs{1'700'000'000'000}, MonoTime{})) {
      CHECK(!token->value.empty() && token->expires > MonoTime{});
    }
  }
  (void)is_private_url(text);
  return 0;
}
