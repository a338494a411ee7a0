// az://container: Azure Blob Storage and Azurite.
//
// How it is spoken to is in docs/stores.md.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "store/azure/azure_auth.h"
#include "store/http_store.h"

namespace celld {

struct AzureOptions {
  std::string container;
  // "https://ACCOUNT.blob.core.windows.net", or with the account as the path
  // ("http://127.0.0.1:10000/ACCOUNT").
  std::string endpoint;
  std::shared_ptr<AzureAuth> auth;
  uint64_t object_bytes_max = 256ull << 20;  // that a get without a range accepts, and a put sends
};

// Lists: Azure goes on only from a marker of its own, not from a key. The `next_start_after` of a
// page that is not the last ends in a zero byte and a number by which this store finds the marker
// again, so that a walk costs one request a page. Any other start_after is found by reading from
// the beginning of the prefix, 2,000 names a request.
class AzureStore final : public HttpStore {
 public:
  // kInvalid names what is wrong with the options. `world` outlives the store.
  static Result<std::unique_ptr<AzureStore>> make(World& world,
                                                  std::shared_ptr<HttpTransport> transport,
                                                  AzureOptions options);

  Task<Result<ObjectInfo>> head(std::string key, Deadline deadline) override;
  // Blocks: docs/stores.md.
  Task<Result<std::unique_ptr<Upload>>> begin_upload(std::string key, uint64_t part_bytes,
                                                     Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "az://" + options_.container; }

 private:
  class BlockUpload;

  // Where a walk goes on: at `marker`, past everything up to the key that it ended with.
  struct Continuation {
    uint64_t number = 0;
    std::string prefix;
    std::string delimiter;
    std::string marker;
  };

  AzureStore(World& world, std::shared_ptr<HttpTransport> transport, AzureOptions options);
  Result<void> find_endpoint();
  Result<Request> blob_request(std::string method, const std::string& key) const;
  Result<Request> get_request(const std::string& key) const override;
  Result<Request> put_request(const std::string& key) const override;
  Result<Request> delete_request(const std::string& key) const override;
  Result<void> set_condition(Request& put, const Condition& condition) const override;
  Task<Result<HttpReply>> send(Request request, Deadline deadline) override;
  Error error_of(const HttpReply& reply) const override;
  Result<Version> version_read(const HttpReply& reply) const override;
  SwapResult swap_result(const HttpReply& reply, const Condition& condition) const override;
  std::string remember(const ListRequest& request, std::string_view last_key, std::string marker);
  const Continuation* recall(const ListRequest& request, uint64_t number);

  const AzureOptions options_;
  std::string origin_;                     // "https://host"
  std::string base_path_;                  // "/container" or "/account/container", encoded
  std::list<Continuation> continuations_;  // the latest first
  uint64_t continuation_numbers_ = 0;
};

}  // namespace celld
