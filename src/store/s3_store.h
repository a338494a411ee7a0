// s3://bucket: Amazon S3 and what speaks like it.
//
// What works with which store is in docs/stores.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/dialect.h"
#include "store/object_store.h"
#include "store/s3_credentials.h"
#include "store/s3_quirks.h"
#include "store/s3_sign.h"
#include "world/http_transport.h"

namespace celld {

struct S3Options {
  std::string bucket;
  // "https://host:port". Empty: Amazon.
  std::string endpoint;
  // Empty: what s3_quirks says, "us-east-1" for Amazon. When the store names another one, that
  // counts (StoreDialect::region).
  std::string region;
  // Nothing: what s3_quirks says of an endpoint; virtual host for Amazon, but path style for names
  // with dots, which its certificate does not cover.
  std::optional<Addressing> addressing;
  std::shared_ptr<CredentialSource> credentials;
  // Shared by all clients of one store; null: the default dialect.
  std::shared_ptr<StoreDialect> dialect;
  uint64_t object_bytes_max = 256ull << 20;  // that a get without a range accepts, and a put sends
};

// Sends every request once: RetryStore repeats what is safe. On the world's thread, as `transport`.
class S3Store final : public ObjectStore {
 public:
  // kInvalid names what is wrong with the options. `world` outlives the store.
  static Result<std::unique_ptr<S3Store>> make(World& world,
                                               std::shared_ptr<HttpTransport> transport,
                                               S3Options options);

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
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "s3://" + options_.bucket; }

 private:
  class S3Upload;
  struct Request {
    S3Unsigned to_sign;
    Blob body;
    uint64_t reply_bytes_max = kErrorBytesMax;
    bool conditional = false;  // sent once, whatever the answer
  };
  static constexpr uint64_t kErrorBytesMax = 64 << 10;

  S3Store(World& world, std::shared_ptr<HttpTransport> transport, S3Options options);
  Result<void> parse_endpoint();
  void address(std::string region);
  bool learn_region(const HttpReply& reply);
  Task<Result<HttpReply>> send(Request request, Deadline deadline);
  Task<Result<HttpReply>> send_once(Request request, Deadline deadline);
  Request object_request(std::string method, const std::string& key) const;
  Request bucket_request(std::string method) const;
  std::string where(std::string_view verb, std::string_view key) const;
  // The outcomes of the keys `batch`, which are at most 1000 and can stand in XML; an error when
  // the store refuses the whole.
  Task<Result<std::vector<Result<void>>>> remove_batch(std::vector<std::string> batch,
                                                       Deadline deadline);

  World& world_;
  const std::shared_ptr<HttpTransport> transport_;
  S3Options options_;
  std::string scheme_;         // "https://"
  std::string endpoint_host_;  // without the scheme's own port; empty for Amazon
  const S3Quirks* quirks_ = nullptr;
  Addressing addressing_ = Addressing::kPath;
  // These go with the region.
  std::string region_;
  S3Signer signer_;
  std::string host_;
  std::string base_path_;  // "/bucket/" or "/"
};

}  // namespace celld
