// s3://bucket: Amazon S3 and what speaks like it.
//
// What works with which store is in docs/stores.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/dialect.h"
#include "store/http_store.h"
#include "store/s3_credentials.h"
#include "store/s3_quirks.h"
#include "store/s3_sign.h"

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

class S3Store final : public HttpStore {
 public:
  // kInvalid names what is wrong with the options. `world` outlives the store.
  static Result<std::unique_ptr<S3Store>> make(World& world,
                                               std::shared_ptr<HttpTransport> transport,
                                               S3Options options);

  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  // Up to a thousand keys a request, where the store takes that.
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "s3://" + options_.bucket; }

 private:
  class S3Upload;

  S3Store(World& world, std::shared_ptr<HttpTransport> transport, S3Options options);
  Result<void> parse_endpoint();
  void address(std::string region);
  bool learn_region(const HttpReply& reply, const std::string& signed_for);
  Task<Result<HttpReply>> send(Request request, Deadline deadline) override;
  // The region that it was signed for goes to `*signed_for`.
  Task<Result<HttpReply>> send_once(Request request, std::string* signed_for, Deadline deadline);
  Request object_request(std::string method, const std::string& key) const;
  Request bucket_request(std::string method) const;
  Result<Request> get_request(const std::string& key) const override;
  Result<Request> put_request(const std::string& key) const override;
  Result<Request> delete_request(const std::string& key) const override;
  Result<void> set_condition(Request& put, const Condition& condition) const override;
  Error error_of(const HttpReply& reply) const override;
  Result<Version> version_read(const HttpReply& reply) const override;
  SwapResult swap_result(const HttpReply& reply, const Condition& condition) const override;
  // The outcomes of the keys `batch`, which are at most 1000 and can stand in XML; an error when
  // the store refuses the whole.
  Task<Result<std::vector<Result<void>>>> remove_batch(std::vector<std::string> batch,
                                                       Deadline deadline);

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
