#include "store/gcs/gcs_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "base/hex.h"
#include "store/at_once.h"
#include "store/gcs/gcs_reply.h"
#include "store/gcs/google_tokens.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/s3_xml.h"
#include "store/token_http.h"
#include "store/upload.h"
#include "store/utf8.h"

namespace celld {

namespace {

constexpr uint64_t kErrorBytesMax = 64 << 10;
constexpr uint64_t kListBytesMax = 32 << 20;
constexpr size_t kDeletesAtOnce = 16;

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

bool is_2xx(const HttpReply& reply) { return reply.status >= 200 && reply.status <= 299; }

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
    : world_(world), transport_(std::move(transport)), options_(std::move(options)) {}

std::string GcsStore::where(std::string_view verb, std::string_view key) const {
  return describe() + ": " + std::string(verb) + " '" + printable_key(key) + "'";
}

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

GcsStore::Request GcsStore::object_request(std::string method, const std::string& key) const {
  Request request;
  request.method = std::move(method);
  request.path = "/storage/v1/b/" + options_.bucket + "/o/" + percent_encode(key, Slash::kEncode);
  return request;
}

GcsStore::Request GcsStore::upload_request(const std::string& key, Blob body) const {
  Request request;
  request.method = "POST";
  request.path = "/upload/storage/v1/b/" + options_.bucket + "/o";
  request.query = {{"uploadType", "media"}, {"name", key}, {"fields", "generation,size"}};
  request.headers.emplace_back("content-type", "application/octet-stream");
  request.body = std::move(body);
  return request;
}

GcsStore::Request GcsStore::part_request(std::string method, const std::string& key,
                                         Query query) const {
  Request request;
  request.method = std::move(method);
  request.path = "/" + options_.bucket + "/" + percent_encode(key, Slash::kKeep);
  request.query = std::move(query);
  return request;
}

// One request, one reply; errors without context.
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

Task<Result<StoredObject>> GcsStore::read(std::string key, std::optional<ByteRange> range,
                                          Deadline deadline) {
  const std::string context = where("get", key);
  if (auto ok = check(key); !ok) co_return fail(ok.error().at(describe()));
  Request request = object_request("GET", key);
  request.query = {{"alt", "media"}};
  request.reply_bytes_max = options_.object_bytes_max;
  if (range) {
    if (range->length == 0) co_return fail(Error::invalid(context + ": range of length 0"));
    uint64_t last = 0;
    const bool wraps = __builtin_add_overflow(range->offset, range->length - 1, &last);
    if (wraps || last > INT64_MAX - 1) last = INT64_MAX - 1;
    request.headers.emplace_back(
        "range", "bytes=" + std::to_string(range->offset) + "-" + std::to_string(last));
    request.reply_bytes_max = std::min(range->length, options_.object_bytes_max) + kErrorBytesMax;
  }
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (range && reply->status == 416) {
    co_return fail(Error::invalid(context + ": range from " + std::to_string(range->offset) +
                                  " is past the end"));
  }
  if (reply->status != 200 && !(range && reply->status == 206))
    co_return fail(gcs_error(*reply).at(context));
  Result<Version> version = gcs_version(find_header(*reply, "x-goog-generation").value_or(""));
  if (!version) co_return fail(version.error().at(context));
  StoredObject object;
  object.object_bytes = reply->body.size();
  if (range && reply->status == 206) {
    auto header = find_header(*reply, "content-range");
    auto total = header ? s3_content_range(*header, range->offset, reply->body.size())
                        : std::optional<uint64_t>();
    if (!total || reply->body.size() != std::min(range->length, *total - range->offset)) {
      co_return fail(Error::unsupported(context + ": the store answered another range than asked"));
    }
    object.object_bytes = *total;
  } else if (range) {
    if (range->offset != 0 || reply->body.size() > range->length) {
      co_return fail(Error::unsupported(context + ": the store ignores the Range header"));
    }
    if (reply->body.empty())
      co_return fail(Error::invalid(context + ": range from 0 is past the end of 0 bytes"));
  }
  object.body = Blob(std::move(reply->body));
  object.version = std::move(*version);
  co_return object;
}

Task<Result<StoredObject>> GcsStore::get(std::string key, Deadline deadline) {
  return read(std::move(key), std::nullopt, deadline);
}

Task<Result<StoredObject>> GcsStore::get_range(std::string key, ByteRange range,
                                               Deadline deadline) {
  return read(std::move(key), range, deadline);
}

Task<Result<ObjectInfo>> GcsStore::head(std::string key, Deadline deadline) {
  const std::string context = where("head", key);
  if (auto ok = check(key); !ok) co_return fail(ok.error().at(describe()));
  Request request = object_request("GET", key);
  request.query = {{"fields", "generation,size"}};
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (reply->status != 200) co_return fail(gcs_error(*reply).at(context));
  Result<ObjectInfo> info = gcs_object_info(reply->body);
  if (!info) co_return fail(info.error().at(context));
  co_return info;
}

Task<SwapResult> GcsStore::put_if(std::string key, Blob body, Condition condition,
                                  Deadline deadline) {
  const std::string context = where("put", key);
  if (auto ok = check(key); !ok) co_return SwapResult::ambiguous(ok.error().at(describe()));
  std::string generation = "0";  // none
  if (condition.version) {
    // A token that is no generation would be refused as malformed, and 0 would create.
    if (auto ok = gcs_version(condition.version->token); !ok)
      co_return SwapResult::ambiguous(ok.error().at(context));
    generation = condition.version->token;
  }
  Request request = upload_request(key, std::move(body));
  request.query.emplace_back("ifGenerationMatch", std::move(generation));
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return SwapResult::ambiguous(reply.error().at(context));
  SwapResult result = gcs_swap_result(*reply);
  if (result.outcome == SwapOutcome::kAmbiguous) result.error = result.error.at(context);
  co_return result;
}

Task<Result<Version>> GcsStore::put(std::string key, Blob body, Deadline deadline) {
  const std::string context = where("put", key);
  if (auto ok = check(key); !ok) co_return fail(ok.error().at(describe()));
  if (body.size() > options_.object_bytes_max) {
    co_return fail(Error::invalid(context + ": " + std::to_string(body.size()) +
                                  " bytes; the limit is " +
                                  std::to_string(options_.object_bytes_max)));
  }
  Request request = upload_request(key, std::move(body));
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (!is_2xx(*reply)) co_return fail(gcs_error(*reply).at(context));
  Result<ObjectInfo> info = gcs_object_info(reply->body);
  if (!info) co_return fail(info.error().at(context));
  co_return std::move(info->version);
}

Task<Result<void>> GcsStore::remove(std::string key, Deadline deadline) {
  const std::string context = where("delete", key);
  if (auto ok = check(key); !ok) co_return fail(ok.error().at(describe()));
  Request request = object_request("DELETE", key);
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (is_2xx(*reply)) co_return Result<void>{};
  Error error = gcs_error(*reply);
  if (error.code == ErrorCode::kNotFound) co_return Result<void>{};
  co_return fail(error.at(context));
}

Task<std::vector<Result<void>>> GcsStore::remove_many(std::vector<std::string> keys,
                                                      Deadline deadline) {
  return remove_at_once(world_, *this, std::move(keys), kDeletesAtOnce, deadline);
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
    Result<HttpReply> reply = co_await store_.send(std::move(request), deadline);
    if (!reply) co_return fail(reply.error().at(context));
    if (!is_2xx(*reply)) co_return fail(gcs_error(*reply).at(context));
    Result<Version> etag = s3_version(*reply);
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
    if (!is_2xx(*reply)) co_return fail(gcs_error(*reply).at(context));
    if (auto generation = find_header(*reply, "x-goog-generation")) {
      Result<Version> version = gcs_version(*generation);
      if (!version) co_return fail(version.error().at(context));
      co_return std::move(*version);
    }
    std::string key = key_;
    CO_TRY_ASSIGN(ObjectInfo info, co_await store_.head(std::move(key), deadline));
    co_return std::move(info.version);
  }

  Task<Result<void>> abort(Deadline deadline) override {
    Query query{{"uploadId", id_}};
    Request request = store_.part_request("DELETE", key_, std::move(query));
    Result<HttpReply> reply = co_await store_.send(std::move(request), deadline);
    const std::string context = store_.where("give up", key_);
    if (!reply) co_return fail(reply.error().at(context));
    if (is_2xx(*reply) || reply->status == 404) co_return Result<void>{};
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
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  if (!is_2xx(*reply)) co_return fail(gcs_error(*reply).at(context));
  Result<XmlElement> xml = parse_xml(reply->body);
  if (!xml) co_return fail(xml.error().at(context));
  std::string id(xml->child_text("UploadId"));
  if (id.empty() || id.size() > 4096)
    co_return fail(Error::unsupported(context + ": the store gave no UploadId"));
  std::unique_ptr<Upload> upload =
      std::make_unique<PartUpload>(*this, std::move(key), part_bytes, std::move(id));
  co_return upload;
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
    Result<HttpReply> reply = co_await send(std::move(sent), deadline);
    if (!reply) co_return fail(reply.error().at(context));
    if (reply->status != 200) co_return fail(gcs_error(*reply).at(context));
    Result<GcsListPage> part = gcs_list_page(reply->body, request);
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
