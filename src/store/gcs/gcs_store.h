// gs://bucket: Google Cloud Storage, by its JSON API (and its XML API for uploads in parts).
//
// How it is spoken to is in docs/stores.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/http_store.h"
#include "store/s3_credentials.h"
#include "store/token_source.h"

namespace celld {

struct GcsOptions {
  std::string bucket;
  std::string endpoint = "https://storage.googleapis.com";
  std::shared_ptr<TokenCache> tokens;        // null: requests are anonymous
  uint64_t object_bytes_max = 256ull << 20;  // that a get without a range accepts, and a put sends
};

// Versions are generations.
class GcsStore final : public HttpStore {
 public:
  // kInvalid names what is wrong with the options. `world` outlives the store.
  static Result<std::unique_ptr<GcsStore>> make(World& world,
                                                std::shared_ptr<HttpTransport> transport,
                                                GcsOptions options);

  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "gs://" + options_.bucket; }

 private:
  class PartUpload;

  GcsStore(World& world, std::shared_ptr<HttpTransport> transport, GcsOptions options);
  Result<Request> object_request(std::string method, const std::string& key) const;
  Request part_request(std::string method, const std::string& key, Query query) const;
  Result<Request> get_request(const std::string& key) const override;
  Result<Request> put_request(const std::string& key) const override;
  Result<Request> delete_request(const std::string& key) const override;
  Result<void> set_condition(Request& put, const Condition& condition) const override;
  Task<Result<HttpReply>> send(Request request, Deadline deadline) override;
  Error error_of(const HttpReply& reply) const override;
  Result<Version> version_read(const HttpReply& reply) const override;
  Result<Version> version_written(const HttpReply& reply) const override;
  SwapResult swap_result(const HttpReply& reply, const Condition& condition) const override;
  Result<void> check(std::string_view key) const;

  const GcsOptions options_;
};

// From the environment: `endpoint` or STORAGE_EMULATOR_HOST instead of Google's own, and
// google_token_source(). With an emulator and without GOOGLE_APPLICATION_CREDENTIALS requests are
// anonymous.
// `shared` holds the tokens of another store on the same bucket, or takes those of this one.
Result<std::unique_ptr<GcsStore>> open_gcs(World& world, std::shared_ptr<HttpTransport> transport,
                                           std::string bucket, std::string endpoint,
                                           const Environment& environment,
                                           std::shared_ptr<TokenCache>* shared = nullptr);

}  // namespace celld
