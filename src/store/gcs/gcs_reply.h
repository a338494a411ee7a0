// What Google Cloud Storage's JSON API answers, in the terms of ObjectStore. Pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "store/object_store.h"
#include "world/http_transport.h"

namespace celld {

// The error that a reply outside 2xx stands for. kNotFound only when an object does not exist: a
// missing bucket is kInvalid, a 404 of something in between kUnavailable. 408, 429 and 5xx are
// kUnavailable and carry Retry-After; 401 and 403 kForbidden.
Error gcs_error(const HttpReply& reply);

// The generation: of a resource in JSON, or of a reply's header x-goog-generation. kUnsupported
// when there is none.
Result<Version> gcs_version(std::string_view generation);
Result<ObjectInfo> gcs_object_info(std::string_view json);

// What became of a conditional write: 2xx with a generation is applied, 412 is rejected, everything
// else is ambiguous.
SwapResult gcs_swap_result(const HttpReply& reply);

// A reply to a list that began at `request.start_after`, inclusive. Keys and prefixes up to it are
// dropped, and what is more than keys_max. `next_page_token` is empty at the end; the page may be
// empty before it. kUnsupported when the store ignores the prefix or startOffset or does not list
// in byte order.
struct GcsListPage {
  ListPage page;
  std::string next_page_token;
};
Result<GcsListPage> gcs_list_page(std::string_view json, const ListRequest& request);

}  // namespace celld
