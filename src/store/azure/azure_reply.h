// What Azure Blob Storage answers, in the terms of ObjectStore. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/object_store.h"
#include "world/http_transport.h"

namespace celld {

// "BlobNotFound": from the header, else from the body; "" when it says none.
std::string azure_error_code(const HttpReply& reply);

// The error that a reply outside 2xx stands for. kNotFound only for BlobNotFound: a missing
// container is kInvalid. ServerBusy, 429 and 5xx are kUnavailable and carry Retry-After; 401 and
// 403 kForbidden.
Error azure_error(const HttpReply& reply);

// What became of a conditional write: 201 with an ETag is applied; 409 BlobAlreadyExists of a
// create and 412 ConditionNotMet are rejected; everything else, other 409s and 412s included, is
// ambiguous.
SwapResult azure_swap_result(const HttpReply& reply, const Condition& condition);

// "Mon, 30 Nov 2026 21:15:30 GMT"
std::optional<WallMs> parse_http_date(std::string_view text);

// One reply of List Blobs.
struct AzureListEntry {
  ListedObject object;  // of a prefix only the key
  bool is_prefix = false;
};
struct AzureListPage {
  std::vector<AzureListEntry>
      entries;              // blobs of others, whose names celld does not give, are left out
  std::string next_marker;  // empty at the end
};

// `request` is what the caller asked for. kUnsupported when the store ignores the prefix or does
// not list in byte order (as accounts with a hierarchical namespace do).
Result<AzureListPage> azure_list_page(std::string_view xml, const ListRequest& request);

}  // namespace celld
