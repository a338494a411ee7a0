// What the stores behind HTTP share. Each says how its requests look and what replies mean, and sends
// them; what becomes of an object's operation is here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/http_reply.h"
#include "store/object_store.h"
#include "world/http_transport.h"

namespace celld {

// Sends every request once: RetryStore repeats what is safe. On the world's thread, as the transport.
class HttpStore : public ObjectStore {
 public:
  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range,
                                       Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition,
                          Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  // A few requests at a time.
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys,
                                              Deadline deadline) override;

 protected:
  static constexpr uint64_t kErrorBytesMax = 64 << 10;
  static constexpr uint64_t kListBytesMax = 32 << 20;

  using Query = std::vector<std::pair<std::string, std::string>>;
  struct Request {
    std::string method;
    std::string path;    // as send() takes it
    Query query;         // not encoded
    HeaderList headers;  // names in lower case
    Blob body;
    uint64_t reply_bytes_max = kErrorBytesMax;
    bool conditional = false;  // sent once, whatever the answer
  };

  // `object_bytes_max`: what a get without a range accepts, and a put sends. `world` outlives this.
  HttpStore(World& world, std::shared_ptr<HttpTransport> transport, uint64_t object_bytes_max);

  // Authorises and sends. The reply, whatever its status; errors without context.
  virtual Task<Result<HttpReply>> send(Request request, Deadline deadline) = 0;
  // The same, but a reply outside 2xx is the error that it stands for; errors with the context.
  Task<Result<HttpReply>> send_for_success(Request request, std::string context, Deadline deadline);

  // Requests for an object; put's without body. kInvalid when the store takes no such key.
  virtual Result<Request> get_request(const std::string& key) const = 0;
  virtual Result<Request> put_request(const std::string& key) const = 0;
  virtual Result<Request> delete_request(const std::string& key) const = 0;
  // kInvalid when the store has no such version.
  virtual Result<void> set_condition(Request& put, const Condition& condition) const = 0;

  virtual Error error_of(const HttpReply& reply) const = 0;
  // Of replies in 2xx: to a get, to a put (by default the same).
  virtual Result<Version> version_read(const HttpReply& reply) const = 0;
  virtual Result<Version> version_written(const HttpReply& reply) const {
    return version_read(reply);
  }
  virtual SwapResult swap_result(const HttpReply& reply, const Condition& condition) const = 0;

  // "s3://bucket: get 'key'"
  std::string where(std::string_view verb, std::string_view key) const;

  World& world_;
  const std::shared_ptr<HttpTransport> transport_;

 private:
  Task<Result<StoredObject>> read(std::string key, std::optional<ByteRange> range,
                                  Deadline deadline);

  const uint64_t object_bytes_max_;
};

}  // namespace celld
