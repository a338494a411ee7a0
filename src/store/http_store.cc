#include "store/http_store.h"

#include <algorithm>
#include <iterator>

#include "store/key.h"

namespace celld {

namespace {

constexpr size_t kDeletesAtOnce = 16;

}  // namespace

HttpStore::HttpStore(World& world, std::shared_ptr<HttpTransport> transport,
                     uint64_t object_bytes_max)
    : world_(world), transport_(std::move(transport)), object_bytes_max_(object_bytes_max) {}

std::string HttpStore::where(std::string_view verb, std::string_view key) const {
  return describe() + ": " + std::string(verb) + " '" + printable_key(key) + "'";
}

Task<Result<HttpReply>> HttpStore::send_for_success(Request request, std::string context,
                                                    Deadline deadline) {
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (!is_success(*reply)) co_return fail(error_of(*reply).at(context));
  co_return reply;
}

Task<Result<StoredObject>> HttpStore::read(std::string key, std::optional<ByteRange> range,
                                           Deadline deadline) {
  const std::string context = where("get", key);
  Result<Request> request = get_request(key);
  if (!request) co_return fail(request.error().at(describe()));
  request->reply_bytes_max = object_bytes_max_;
  if (range) {
    if (range->length == 0) co_return fail(Error::invalid(context + ": range of length 0"));
    request->headers.emplace_back("range", range_header(*range));
    request->reply_bytes_max = std::min(range->length, object_bytes_max_) + kErrorBytesMax;
  }
  Result<HttpReply> reply = co_await send(std::move(*request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (range && reply->status == 416) {
    co_return fail(Error::invalid(context + ": range from " + std::to_string(range->offset) +
                                  " is past the end"));
  }
  if (reply->status != 200 && !(range && reply->status == 206)) {
    co_return fail(error_of(*reply).at(context));
  }
  Result<Version> version = version_read(*reply);
  Result<StoredObject> object = object_of(std::move(*reply), range);
  if (!object) co_return fail(object.error().at(context));
  if (!version) co_return fail(version.error().at(context));
  object->version = std::move(*version);
  co_return object;
}

Task<Result<StoredObject>> HttpStore::get(std::string key, Deadline deadline) {
  return read(std::move(key), std::nullopt, deadline);
}

Task<Result<StoredObject>> HttpStore::get_range(std::string key, ByteRange range,
                                                Deadline deadline) {
  return read(std::move(key), range, deadline);
}

Task<SwapResult> HttpStore::put_if(std::string key, Blob body, Condition condition,
                                   Deadline deadline) {
  const std::string context = where("put", key);
  Result<Request> request = put_request(key);
  if (!request) co_return SwapResult::ambiguous(request.error().at(describe()));
  if (auto ok = set_condition(*request, condition); !ok) {
    co_return SwapResult::ambiguous(ok.error().at(context));
  }
  request->conditional = true;
  request->body = std::move(body);
  Result<HttpReply> reply = co_await send(std::move(*request), deadline);
  if (!reply) co_return SwapResult::ambiguous(reply.error().at(context));
  SwapResult result = swap_result(*reply, condition);
  if (result.outcome == SwapOutcome::kAmbiguous) result.error = result.error.at(context);
  co_return result;
}

Task<Result<Version>> HttpStore::put(std::string key, Blob body, Deadline deadline) {
  const std::string context = where("put", key);
  Result<Request> request = put_request(key);
  if (!request) co_return fail(request.error().at(describe()));
  if (body.size() > object_bytes_max_) {
    co_return fail(Error::invalid(context + ": " + std::to_string(body.size()) +
                                  " bytes; the limit is " + std::to_string(object_bytes_max_)));
  }
  request->body = std::move(body);
  CO_TRY_ASSIGN(HttpReply reply,
                co_await send_for_success(std::move(*request), context, deadline));
  Result<Version> version = version_written(reply);
  if (!version) co_return fail(version.error().at(context));
  co_return std::move(*version);
}

Task<Result<void>> HttpStore::remove(std::string key, Deadline deadline) {
  Result<Request> request = delete_request(key);
  if (!request) co_return fail(request.error().at(describe()));
  const std::string context = where("delete", key);
  Result<HttpReply> reply = co_await send(std::move(*request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (is_success(*reply)) co_return Result<void>{};
  // Only the store knows that it is gone: a token file that is not found is no deleted object.
  Error error = error_of(*reply);
  if (error.code == ErrorCode::kNotFound) co_return Result<void>{};
  co_return fail(error.at(context));
}

Task<std::vector<Result<void>>> HttpStore::remove_many(std::vector<std::string> keys,
                                                       Deadline deadline) {
  std::vector<Result<void>> outcomes;
  outcomes.reserve(keys.size());
  for (size_t at = 0; at < keys.size();) {
    std::vector<Task<Result<void>>> some;
    for (; at < keys.size() && some.size() < kDeletesAtOnce; ++at) {
      some.push_back(remove(std::move(keys[at]), deadline));
    }
    std::vector<Result<void>> done = co_await join_all(world_, std::move(some));
    std::move(done.begin(), done.end(), std::back_inserter(outcomes));
  }
  co_return outcomes;
}

}  // namespace celld
