#include "store/gcs/gcs_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "base/hex.h"
#include "store/gcs/gcs_reply.h"
#include "store/gcs/google_tokens.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/token_http.h"
#include "store/upload.h"
#include "store/utf8.h"

namespace celld {

namespace {

// https://cloud.google.com/storage/docs/buckets#naming
bool bucket_name_ok(std::string_view name) {
  if (name.size() < 3 || name.size() > 222) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

std::string query_text(const std::vector<std::pair<std::string, std::string>>& query) {
  std::string out;
  for (const auto& [name, value] : query) {
    out += out.empty() ? '?' : '&';
    out += percent_encode(name, Slash::kEncode);
    if (!value.empty()) out += "=" + percent_encode(value, Slash::kEncode);
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<GcsStore>> GcsStore::make(World& world,
                                                 std::shared_ptr<HttpTransport> transport,
                                                 GcsOptions options) {
  if (!bucket_name_ok(options.bucket)) {
    return fail(Error::invalid("'" + printable_key(options.bucket) +
                               "' is not a bucket name: 3 to 222 of [a-z0-9._-]"));
  }
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  const size_t scheme = options.endpoint.find("://");
  if ((!options.endpoint.starts_with("http://") && !options.endpoint.starts_with("https://")) ||
      options.endpoint.find_first_of("/?#@ ", scheme + 3) != std::string::npos ||
      options.endpoint.size() == scheme + 3) {
    return fail(Error::invalid("endpoint '" + printable_key(options.endpoint) +
                               "' is not http://HOST[:PORT] or https://HOST[:PORT]"));
  }
  if (options.tokens && !is_private_url(options.endpoint)) {
    return fail(Error::invalid("endpoint '" + printable_key(options.endpoint) +
                               "' is not https, so that anybody on the way could read the token"));
  }
  return std::unique_ptr<GcsStore>(new GcsStore(world, std::move(transport), std::move(options)));
}

GcsStore::GcsStore(World& world, std::shared_ptr<HttpTransport> transport, GcsOptions options)
    : HttpStore(world, std::move(transport), options.object_bytes_max), options_(std::move(options)) {}

// https://cloud.google.com/storage/docs/objects#naming
Result<void> GcsStore::check(std::string_view key) const {
  TRY(check_key(key));
  bool ok = key != "." && key != ".." && !key.starts_with(".well-known/acme-challenge/");
  for (size_t at = 0; ok && at < key.size();) {
    const size_t bytes = printable_utf8_bytes(key, at);
    ok = bytes != 0;
    at += bytes;
  }
  if (ok) return {};
  return fail(
      Error::invalid("'" + printable_key(key) + "' is no name that Google Cloud Storage takes"));
}

Result<HttpStore::Request> GcsStore::object_request(std::string method,
                                                    const std::string& key) const {
  TRY(check(key));
  Request request;
  request.method = std::move(method);
  request.path = "/storage/v1/b/" + options_.bucket + "/o/" + percent_encode(key, Slash::kEncode);
  return request;
}

HttpStore::Request GcsStore::part_request(std::string method, const std::string& key,
                                          Query query) const {
  Request request;
  request.method = std::move(method);
  request.path = "/" + options_.bucket + "/" + percent_encode(key, Slash::kKeep);
  request.query = std::move(query);
  return request;
}

Result<HttpStore::Request> GcsStore::get_request(const std::string& key) const {
  TRY_ASSIGN(Request request, object_request("GET", key));
  request.query = {{"alt", "media"}};
  return request;
}

Result<HttpStore::Request> GcsStore::put_request(const std::string& key) const {
  TRY(check(key));
  Request request;
  request.method = "POST";
  request.path = "/upload/storage/v1/b/" + options_.bucket + "/o";
  request.query = {{"uploadType", "media"}, {"name", key}, {"fields", "generation,size"}};
  request.headers.emplace_back("content-type", "application/octet-stream");
  return request;
}

Result<HttpStore::Request> GcsStore::delete_request(const std::string& key) const {
  return object_request("DELETE", key);
}

Result<void> GcsStore::set_condition(Request& put, const Condition& condition) const {
  std::string generation = "0";  // none
  if (condition.version) {
    // A token that is no generation would be refused as malformed, and 0 would create.
    TRY(gcs_version(condition.version->token));
    generation = condition.version->token;
  }
  put.query.emplace_back("ifGenerationMatch", std::move(generation));
  return {};
}

Error GcsStore::error_of(const HttpReply& reply) const { return gcs_error(reply); }
Result<Version> GcsStore::version_read(const HttpReply& reply) const {
  return gcs_version(find_header(reply, "x-goog-generation").value_or(""));
}
Result<Version> GcsStore::version_written(const HttpReply& reply) const {
  TRY_ASSIGN(ObjectInfo info, gcs_object_info(reply.body));
  return std::move(info.version);
}
SwapResult GcsStore::swap_result(const HttpReply& reply, const Condition&) const {
  return gcs_swap_result(reply);
}

Task<Result<HttpReply>> GcsStore::send(Request request, Deadline deadline) {
  HttpCall call;
  call.method = std::move(request.method);
  call.url = options_.endpoint + request.path + query_text(request.query);
  call.headers = std::move(request.headers);
  call.body = std::move(request.body);
  call.deadline = deadline;
  call.reply_bytes_max = request.reply_bytes_max;
  std::string token;
  if (options_.tokens) {
    CO_TRY_ASSIGN(token, co_await options_.tokens->get(deadline));
    call.headers.emplace_back("authorization", "Bearer " + token);
  }
  Result<HttpReply> reply = co_await transport_->perform(std::move(call));
  if (reply && reply->status == 401 && options_.tokens) {
    spdlog::debug("{}: the token of {} was refused", describe(), options_.tokens->describe());
    options_.tokens->invalidate(token);
  }
  co_return reply;
}

Task<Result<ObjectInfo>> GcsStore::head(std::string key, Deadline deadline) {
  const std::string context = where("head", key);
  Result<Request> request = object_request("GET", key);
  if (!request) co_return fail(request.error().at(describe()));
  request->query = {{"fields", "generation,size"}};
  CO_TRY_ASSIGN(HttpReply reply,
                co_await send_for_success(std::move(*request), context, deadline));
  Result<ObjectInfo> info = gcs_object_info(reply.body);
  if (!info) co_return fail(info.error().at(context));
  co_return info;
}

// https://cloud.google.com/storage/docs/multipart-uploads
class GcsStore::PartUpload final : public Upload {
 public:
  PartUpload(GcsStore& store, std::string key, uint64_t part_bytes, std::string id)
      : store_(store), key_(std::move(key)), id_(std::move(id)), sizes_(part_bytes) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    const std::string context = store_.where("put", key_) + " part " + std::to_string(number);
    if (auto ok = sizes_.check(number, body.size()); !ok) co_return fail(ok.error().at(context));
    const uint64_t bytes = body.size();
    Query query{{"partNumber", std::to_string(number)}, {"uploadId", id_}};
    Request request = store_.part_request("PUT", key_, std::move(query));
    request.body = std::move(body);
    CO_TRY_ASSIGN(HttpReply reply,
                  co_await store_.send_for_success(std::move(request), context, deadline));
    Result<Version> etag = s3_version(reply);
    if (!etag) co_return fail(etag.error().at(context));
    sizes_.sent(number, bytes);
    etags_[number] = etag->token;
    co_return Result<void>{};
  }

  Task<Result<Version>> finish(Deadline deadline) override {
    const std::string context = store_.where("put", key_);
    if (auto ok = sizes_.complete(); !ok) co_return fail(ok.error().at(context));
    std::string xml = "<CompleteMultipartUpload>";
    for (const auto& [number, etag] : etags_) {
      xml += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>\"" + etag +
             "\"</ETag></Part>";
    }
    xml += "</CompleteMultipartUpload>";
    Query query{{"uploadId", id_}};
    Request request = store_.part_request("POST", key_, std::move(query));
    request.headers.emplace_back("content-type", "application/xml");
    request.body = Blob(std::move(xml));
    Result<HttpReply> reply = co_await store_.send(std::move(request), deadline);
    if (!reply) co_return fail(reply.error().at(context));
    // When an earlier attempt whose reply was lost has finished it, the object is there.
    const bool unknown = s3_no_such_upload(*reply);
    if (!is_success(*reply) && !unknown) co_return fail(gcs_error(*reply).at(context));
    auto generation = find_header(*reply, "x-goog-generation");
    if (generation && !unknown) {
      Result<Version> version = gcs_version(*generation);
      if (!version) co_return fail(version.error().at(context));
      co_return std::move(*version);
    }
    std::string key = key_;
    Result<ObjectInfo> there = co_await store_.head(std::move(key), deadline);
    if (there && there->bytes == sizes_.total_bytes()) co_return std::move(there->version);
    if (there) co_return fail(Error::corrupt(context + ": another object is there than was sent"));
    if (unknown && there.error().code == ErrorCode::kNotFound) {
      co_return fail(gcs_error(*reply).at(context));
    }
    co_return fail(std::move(there).error());
  }

  Task<Result<void>> abort(Deadline deadline) override {
    Query query{{"uploadId", id_}};
    Request request = store_.part_request("DELETE", key_, std::move(query));
    Result<HttpReply> reply = co_await store_.send(std::move(request), deadline);
    const std::string context = store_.where("give up", key_);
    if (!reply) co_return fail(reply.error().at(context));
    if (is_success(*reply) || reply->status == 404) co_return Result<void>{};
    co_return fail(gcs_error(*reply).at(context));
  }

 private:
  GcsStore& store_;
  const std::string key_;
  const std::string id_;
  PartSizes sizes_;
  std::map<uint32_t, std::string> etags_;
};

Task<Result<std::unique_ptr<Upload>>> GcsStore::begin_upload(std::string key, uint64_t part_bytes,
                                                             Deadline deadline) {
  if (auto ok = check(key); !ok) co_return fail(ok.error().at(describe()));
  if (auto ok = check_part_bytes(part_bytes); !ok) co_return fail(ok.error().at(describe()));
  const std::string context = where("put", key);
  Query query{{"uploads", ""}};
  Request request = part_request("POST", key, std::move(query));
  request.headers.emplace_back("content-type", "application/octet-stream");
  CO_TRY_ASSIGN(HttpReply reply, co_await send_for_success(std::move(request), context, deadline));
  Result<std::string> id = s3_upload_id(reply.body);
  if (!id) co_return fail(id.error().at(context));
  co_return std::make_unique<PartUpload>(*this, std::move(key), part_bytes, std::move(*id));
}

Task<Result<ListPage>> GcsStore::list(ListRequest request, Deadline deadline) {
  if (auto ok = check_list(request); !ok) co_return fail(ok.error().at(describe()));
  const std::string context = where("list", request.prefix);
  const std::string start = s3_start_after(request);
  // startOffset is inclusive: one more than asked, where that is allowed.
  const uint32_t wanted = std::min(request.keys_max + (start.empty() ? 0 : 1), kListKeysMax);
  std::string page_token;
  while (true) {
    Request sent;
    sent.method = "GET";
    sent.path = "/storage/v1/b/" + options_.bucket + "/o";
    sent.query.emplace_back("fields", "nextPageToken,prefixes,items(name,size,updated)");
    sent.query.emplace_back("maxResults", std::to_string(wanted));
    if (!request.prefix.empty()) sent.query.emplace_back("prefix", request.prefix);
    if (!request.delimiter.empty()) sent.query.emplace_back("delimiter", request.delimiter);
    if (!start.empty()) sent.query.emplace_back("startOffset", start);
    if (!page_token.empty()) sent.query.emplace_back("pageToken", page_token);
    sent.reply_bytes_max = kListBytesMax;
    CO_TRY_ASSIGN(HttpReply reply, co_await send_for_success(std::move(sent), context, deadline));
    Result<GcsListPage> part = gcs_list_page(reply.body, request);
    if (!part) co_return fail(part.error().at(context));
    if (!part->page.next_start_after.empty() || !part->page.more) co_return std::move(part->page);
    if (part->next_page_token == page_token)
      co_return fail(Error::corrupt(context + ": the page token does not move"));
    page_token = std::move(part->next_page_token);
  }
}

Result<std::unique_ptr<GcsStore>> open_gcs(World& world, std::shared_ptr<HttpTransport> transport,
                                           std::string bucket, std::string endpoint,
                                           const Environment& environment,
                                           std::shared_ptr<TokenCache>* shared) {
  GcsOptions options;
  options.bucket = std::move(bucket);
  bool anonymous = false;
  if (!endpoint.empty()) {
    options.endpoint = std::move(endpoint);
  } else if (auto emulator = environment("STORAGE_EMULATOR_HOST")) {
    options.endpoint =
        emulator->find("://") == std::string::npos ? "http://" + *emulator : *emulator;
    anonymous = !environment("GOOGLE_APPLICATION_CREDENTIALS");
  }
  if (!anonymous) {
    if (shared != nullptr) options.tokens = *shared;
    if (!options.tokens) {
      TRY_ASSIGN(auto source, google_token_source(world, transport, environment));
      options.tokens = std::make_shared<TokenCache>(world, std::move(source));
    }
    if (shared != nullptr) *shared = options.tokens;
  }
  return GcsStore::make(world, std::move(transport), std::move(options));
}

}  // namespace celld
