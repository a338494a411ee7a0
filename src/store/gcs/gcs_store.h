// gs://bucket: Google Cloud Storage, by its JSON API (and its XML API for uploads in parts).
//
// How it is spoken to is in docs/stores.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/object_store.h"
#include "store/s3_credentials.h"
#include "store/token_source.h"
#include "world/http_transport.h"

namespace celld {

struct GcsOptions {
  std::string bucket;
  std::string endpoint = "https://storage.googleapis.com";
  std::shared_ptr<TokenCache> tokens;        // null: requests are anonymous
  uint64_t object_bytes_max = 256ull << 20;  // that a get without a range accepts, and a put sends
};

// Sends every request once: RetryStore repeats what is safe. On the world's thread, as `transport`.
// Versions are generations.
class GcsStore final : public ObjectStore {
 public:
  // kInvalid names what is wrong with the options. `world` outlives the store.
  static Result<std::unique_ptr<GcsStore>> make(World& world,
                                                std::shared_ptr<HttpTransport> transport,
                                                GcsOptions options);

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override;
  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  // A few requests at a time.
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "gs://" + options_.bucket; }

 private:
  class PartUpload;
  using Query = std::vector<std::pair<std::string, std::string>>;
  struct Request {
    std::string method;
    std::string path;  // encoded
    Query query;       // not encoded
    HeaderList headers;
    Blob body;
    uint64_t reply_bytes_max = 64 << 10;
  };

  GcsStore(World& world, std::shared_ptr<HttpTransport> transport, GcsOptions options);
  Request object_request(std::string method, const std::string& key) const;
  Request upload_request(const std::string& key, Blob body) const;
  Request part_request(std::string method, const std::string& key, Query query) const;
  Result<void> check(std::string_view key) const;
  Task<Result<HttpReply>> send(Request request, Deadline deadline);
  Task<Result<StoredObject>> read(std::string key, std::optional<ByteRange> range,
                                  Deadline deadline);
  std::string where(std::string_view verb, std::string_view key) const;

  World& world_;
  const std::shared_ptr<HttpTransport> transport_;
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
