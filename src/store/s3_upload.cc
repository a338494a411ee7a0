// Uploads in parts and deletes of many keys.
//
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateMultipartUpload.html
#include <openssl/evp.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "store/digest.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/s3_store.h"
#include "store/upload.h"

namespace celld {

namespace {

constexpr size_t kBatchKeysMax = 1000;
constexpr uint64_t kBatchReplyBytesMax = 8 << 20;

std::string md5_base64(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_md5(), nullptr) == 1);
  return base64_encode(std::string_view(reinterpret_cast<const char*>(digest), length));
}

}  // namespace

class S3Store::S3Upload final : public Upload {
 public:
  S3Upload(S3Store& store, std::string key, std::string id, uint64_t part_bytes)
      : store_(store), key_(std::move(key)), id_(std::move(id)), sizes_(part_bytes) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    const std::string context = where() + ": part " + std::to_string(number);
    const uint64_t bytes = body.size();
    if (auto ok = sizes_.check(number, bytes); !ok) co_return fail(ok.error().at(where()));
    Request request = upload_request("PUT");
    request.query.emplace_back("partNumber", std::to_string(number));
    request.body = std::move(body);
    CO_TRY_ASSIGN(HttpReply reply,
                  co_await store_.send_for_success(std::move(request), context, deadline));
    Result<Version> version = s3_version(reply);
    if (!version) co_return fail(version.error().at(context));
    sizes_.sent(number, bytes);
    versions_[number] = std::move(*version);
    co_return Result<void>{};
  }

  Task<Result<Version>> finish(Deadline deadline) override {
    const std::string context = where() + ": finish";
    if (auto ok = sizes_.complete(); !ok) co_return fail(ok.error().at(context));
    std::vector<Version> parts;
    for (const auto& [number, version] : versions_) parts.push_back(version);
    Request request = upload_request("POST");
    request.body = Blob(s3_finish_body(parts));
    Result<HttpReply> reply = co_await store_.send(std::move(request), deadline);
    if (!reply) co_return fail(reply.error().at(context));
    // When an earlier attempt whose reply was lost has finished it, the object is there.
    const bool unknown = s3_no_such_upload(*reply);
    Result<std::optional<Version>> version = s3_upload_finished(*reply);
    if (version && *version) co_return std::move(**version);
    if (!version && !unknown) co_return fail(version.error().at(context));
    std::string key = key_;
    Result<ObjectInfo> there = co_await store_.head(std::move(key), deadline);
    if (there && there->bytes == sizes_.total_bytes()) co_return std::move(there->version);
    if (!there && (!unknown || there.error().code != ErrorCode::kNotFound)) {
      co_return fail(there.error().at(context));
    }
    if (!version) co_return fail(version.error().at(context));
    co_return fail(Error::corrupt(context + ": another object is there than was sent"));
  }

  Task<Result<void>> abort(Deadline deadline) override {
    Request request = upload_request("DELETE");
    Result<HttpReply> reply = co_await store_.send(std::move(request), deadline);
    if (!reply) co_return fail(reply.error().at(where() + ": abort"));
    if (is_success(*reply) || s3_no_such_upload(*reply)) co_return Result<void>{};
    co_return fail(s3_error(*reply).at(where() + ": abort"));
  }

 private:
  std::string where() const { return store_.where("upload", key_); }
  Request upload_request(std::string method) const {
    Request request = store_.object_request(std::move(method), key_);
    request.query.emplace_back("uploadId", id_);
    return request;
  }

  S3Store& store_;
  const std::string key_;
  const std::string id_;
  PartSizes sizes_;
  std::map<uint32_t, Version> versions_;
};

Task<Result<std::unique_ptr<Upload>>> S3Store::begin_upload(std::string key, uint64_t part_bytes,
                                                            Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  if (auto ok = check_part_bytes(part_bytes); !ok) co_return fail(ok.error().at(describe()));
  const std::string context = where("upload", key);
  Request request = object_request("POST", key);
  request.query.emplace_back("uploads", "");
  CO_TRY_ASSIGN(HttpReply reply, co_await send_for_success(std::move(request), context, deadline));
  Result<std::string> id = s3_upload_id(reply.body);
  if (!id) co_return fail(id.error().at(context));
  co_return std::make_unique<S3Upload>(*this, std::move(key), std::move(*id), part_bytes);
}

Task<Result<std::vector<Result<void>>>> S3Store::remove_batch(std::vector<std::string> batch,
                                                              Deadline deadline) {
  Request request = bucket_request("POST");
  request.query.emplace_back("delete", "");
  request.body = Blob(s3_delete_body(batch));
  // Amazon wants one checksum or another here; this one every store knows.
  request.headers.emplace_back("content-md5", md5_base64(request.body.view()));
  request.headers.emplace_back("content-type", "application/xml");
  request.reply_bytes_max = kBatchReplyBytesMax;
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(std::move(reply).error());
  if (reply->status != 200) co_return fail(s3_error(*reply));
  co_return s3_delete_outcomes(reply->body, batch);
}

Task<std::vector<Result<void>>> S3Store::remove_many(std::vector<std::string> keys,
                                                     Deadline deadline) {
  std::vector<Result<void>> outcomes(keys.size());
  std::vector<size_t> singly;  // indexes
  std::vector<size_t> batched;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool fits = check_key(keys[i]) && s3_key_fits_xml(keys[i]);
    (fits && options_.dialect->batch_delete ? batched : singly).push_back(i);
  }
  for (size_t begin = 0; begin < batched.size(); begin += kBatchKeysMax) {
    const size_t end = std::min(begin + kBatchKeysMax, batched.size());
    std::vector<std::string> batch;
    for (size_t i = begin; i < end; ++i) batch.push_back(keys[batched[i]]);
    auto got = co_await remove_batch(std::move(batch), deadline);
    // A refusal of the whole may be one of batches: a delete of one key knows.
    const bool refused = !got && (got.error().code == ErrorCode::kInvalid ||
                                  got.error().code == ErrorCode::kUnsupported ||
                                  got.error().code == ErrorCode::kForbidden ||
                                  got.error().code == ErrorCode::kCorrupt);
    if (refused) {
      std::string first = keys[batched[begin]];
      Result<void> removed = co_await remove(std::move(first), deadline);
      if (removed) {
        options_.dialect->batch_delete = false;
        singly.insert(singly.end(), batched.begin() + static_cast<ptrdiff_t>(begin), batched.end());
        break;
      }
    }
    for (size_t i = begin; i < end; ++i) {
      const std::string context = where("delete", keys[batched[i]]);
      if (!got) {
        outcomes[batched[i]] = fail(got.error().at(context));
      } else if (Result<void>& one = (*got)[i - begin]; !one) {
        outcomes[batched[i]] = fail(one.error().at(context));
      }
    }
  }
  std::vector<std::string> rest;
  for (size_t i : singly) rest.push_back(keys[i]);
  std::vector<Result<void>> removed = co_await HttpStore::remove_many(std::move(rest), deadline);
  for (size_t i = 0; i < singly.size(); ++i) outcomes[singly[i]] = std::move(removed[i]);
  co_return outcomes;
}

}  // namespace celld
