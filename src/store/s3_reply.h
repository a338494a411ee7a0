// What S3 answers, in the terms of ObjectStore. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/http_reply.h"

namespace celld {

// The error that a reply outside 2xx stands for, with status, code and message of the store.
//
// kNotFound only when the store says NoSuchKey: a missing bucket, or a 404 of something in between,
// is never taken for an object that does not exist. Throttling and 5xx are kUnavailable and carry
// Retry-After (1 ms when throttling does not say how long); refused signatures and rights
// kForbidden; a request that can never work kInvalid; 501 kUnsupported.
Error s3_error(const HttpReply& reply);

// The region that a reply names because the request went to, or was signed for, another one.
std::optional<std::string> s3_bucket_region(const HttpReply& reply);

// Whether the store says that the keys have expired.
bool s3_credentials_expired(const HttpReply& reply);

// The version that the ETag header stands for, without quotes. kUnsupported when there is none or a
// weak one.
Result<Version> s3_version(const HttpReply& reply);

// What became of a conditional write: 2xx with a version is applied; 412, and 409 for a create, is
// rejected; everything else is ambiguous.
SwapResult s3_swap_result(const HttpReply& reply, const Condition& condition);

// "2009-10-12T17:50:30.000Z"
std::optional<WallMs> parse_iso8601(std::string_view text);

// A page of ListObjectsV2. `start_after` is what the caller asked for: what does not come after it
// is dropped when it is a common prefix, and an error when it is a key.
Result<ListPage> s3_list_page(std::string_view xml, const ListRequest& request);

// What to send as start-after, so that a folded prefix is not shown again: past everything in it.
std::string s3_start_after(const ListRequest& request);

// The UploadId of a begun upload. kCorrupt when there is none.
Result<std::string> s3_upload_id(std::string_view xml);

// What finishing an upload came to: a 200 may carry an error in its body. Nothing when it is finished
// but the reply names no version, as that of Ceph RGW 16.
Result<std::optional<Version>> s3_upload_finished(const HttpReply& reply);
// Whether the store says that it does not know the upload.
bool s3_no_such_upload(const HttpReply& reply);

// The body that finishes an upload of parts with these versions, from 1 up.
std::string s3_finish_body(const std::vector<Version>& parts);

// Whether a key can stand in the XML of a batch: valid UTF-8 without control characters.
bool s3_key_fits_xml(std::string_view key);
// The body of a delete of many keys.
std::string s3_delete_body(const std::vector<std::string>& keys);
// One outcome for each key; kCorrupt unless the reply is a DeleteResult that names one. A key that it does not
// speak of failed (kUnavailable).
Result<std::vector<Result<void>>> s3_delete_outcomes(std::string_view xml,
                                                     const std::vector<std::string>& keys);

}  // namespace celld
