// s3://bucket: Amazon S3 and what speaks like it.
//
// What works with which store is in docs/stores.md.
#pragma once

#include <memory>
#include <string>

#include "store/dialect.h"
#include "store/object_store.h"
#include "store/s3_credentials.h"
#include "store/s3_sign.h"
#include "world/http_transport.h"

namespace celld {

struct S3Options {
  std::string bucket;
  // "https://host:port", then buckets are the first part of the path. Empty: Amazon, where they are
  // part of the host's name.
  std::string endpoint;
  std::string region = "us-east-1";
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
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "s3://" + options_.bucket; }

 private:
  struct Request;

  S3Store(World& world, std::shared_ptr<HttpTransport> transport, S3Options options);
  Result<void> find_origin();
  Task<Result<HttpReply>> send(Request request, Deadline deadline);
  Request object_request(std::string method, const std::string& key) const;
  std::string where(std::string_view verb, std::string_view key) const;

  World& world_;
  const std::shared_ptr<HttpTransport> transport_;
  S3Options options_;
  S3Signer signer_;
  std::string origin_;  // "https://host"
  std::string host_;
  std::string base_path_;  // "/bucket/" or "/"
};

}  // namespace celld
