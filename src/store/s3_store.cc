#include "store/s3_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "store/key.h"
#include "store/s3_reply.h"

namespace celld {

namespace {

// A body of at least so many bytes is hashed on another thread: a fraction of a millisecond.
constexpr size_t kHashedAsideMin = 128 << 10;

bool bucket_name_ok(std::string_view name) {
  if (name.size() < 3 || name.size() > 255) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
  });
}

bool region_ok(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

}  // namespace

Result<std::unique_ptr<S3Store>> S3Store::make(World& world,
                                               std::shared_ptr<HttpTransport> transport,
                                               S3Options options) {
  if (!bucket_name_ok(options.bucket)) {
    return fail(Error::invalid("'" + printable_key(options.bucket) +
                               "' is not a bucket name: 3 to 255 of [A-Za-z0-9._-]"));
  }
  if (!options.region.empty() && !region_ok(options.region)) {
    return fail(Error::invalid("'" + printable_key(options.region) + "' is not a region"));
  }
  if (!options.credentials) return fail(Error::invalid("no credentials"));
  std::unique_ptr<S3Store> store(new S3Store(world, std::move(transport), std::move(options)));
  TRY(store->parse_endpoint());
  return store;
}

S3Store::S3Store(World& world, std::shared_ptr<HttpTransport> transport, S3Options options)
    : HttpStore(world, std::move(transport), options.object_bytes_max),
      options_(std::move(options)),
      signer_("") {}

Result<void> S3Store::parse_endpoint() {
  std::string_view endpoint = options_.endpoint;
  while (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  if (endpoint.empty()) {
    scheme_ = "https://";
  } else {
    std::string_view scheme = endpoint.starts_with("https://")  ? "https://"
                              : endpoint.starts_with("http://") ? "http://"
                                                                : "";
    std::string_view host = endpoint.substr(scheme.size());
    if (scheme.empty() || host.empty() || host.find_first_of("/?#@ ") != std::string_view::npos) {
      return fail(Error::invalid("endpoint '" + printable_key(options_.endpoint) +
                                 "' is not http://HOST[:PORT] or https://HOST[:PORT]"));
    }
    // The scheme's own port is never part of the Host header, so it must not be signed.
    std::string_view own_port = scheme == "https://" ? ":443" : ":80";
    if (host.ends_with(own_port)) host.remove_suffix(own_port.size());
    scheme_ = scheme;
    endpoint_host_ = host;
  }
  quirks_ = &s3_quirks(endpoint_host_);
  if (!options_.dialect) options_.dialect = std::make_shared<StoreDialect>();
  if (quirks_->etag_quotes != EtagQuotes::kQuoted) {
    options_.dialect->etag_quotes = quirks_->etag_quotes;
  }
  const bool dots = options_.bucket.find('.') != std::string::npos;
  addressing_ = options_.addressing      ? *options_.addressing
                : !endpoint_host_.empty() ? quirks_->addressing
                : dots                    ? Addressing::kPath
                                          : Addressing::kVirtualHost;
  address(options_.region.empty() ? std::string(quirks_->region) : options_.region);
  return {};
}

// Everything that goes with the region.
void S3Store::address(std::string region) {
  region_ = std::move(region);
  signer_ = S3Signer(region_);
  host_ = endpoint_host_;
  if (host_.empty()) {
    host_ = "s3." + region_ + ".amazonaws.com" + (region_.starts_with("cn-") ? ".cn" : "");
  }
  if (addressing_ == Addressing::kVirtualHost) {
    host_ = options_.bucket + "." + host_;
    base_path_ = "/";
  } else {
    base_path_ = "/" + options_.bucket + "/";
  }
}

// Whether the reply names another region for the bucket than the request was signed for; from then on
// that one counts.
bool S3Store::learn_region(const HttpReply& reply, const std::string& signed_for) {
  auto named = s3_bucket_region(reply);
  if (!named || *named == signed_for || !region_ok(*named)) return false;
  if (*named == region_) return true;  // another request has learned it meanwhile
  spdlog::info("{}: the bucket is in region {}, not {}", describe(), *named, region_);
  options_.dialect->region = *named;
  address(std::move(*named));
  return true;
}

HttpStore::Request S3Store::object_request(std::string method, const std::string& key) const {
  Request request;
  request.method = std::move(method);
  request.path = base_path_ + key;
  return request;
}

HttpStore::Request S3Store::bucket_request(std::string method) const {
  Request request;
  request.method = std::move(method);
  request.path = base_path_;
  if (request.path.size() > 1) request.path.pop_back();
  return request;
}

Result<HttpStore::Request> S3Store::get_request(const std::string& key) const {
  TRY(check_key(key));
  return object_request("GET", key);
}
Result<HttpStore::Request> S3Store::put_request(const std::string& key) const {
  TRY(check_key(key));
  return object_request("PUT", key);
}
Result<HttpStore::Request> S3Store::delete_request(const std::string& key) const {
  TRY(check_key(key));
  return object_request("DELETE", key);
}

Result<void> S3Store::set_condition(Request& put, const Condition& condition) const {
  if (condition.version) {
    const std::string& token = condition.version->token;
    const bool quoted = options_.dialect->etag_quotes == EtagQuotes::kQuoted;
    put.headers.emplace_back("if-match", quoted ? "\"" + token + "\"" : token);
  } else {
    put.headers.emplace_back("if-none-match", "*");
  }
  return {};
}

Error S3Store::error_of(const HttpReply& reply) const { return s3_error(reply); }
Result<Version> S3Store::version_read(const HttpReply& reply) const { return s3_version(reply); }
SwapResult S3Store::swap_result(const HttpReply& reply, const Condition& condition) const {
  return s3_swap_result(reply, condition);
}

// One request and one reply, or two where the first reply was only the bucket's region. Errors
// without context.
Task<Result<HttpReply>> S3Store::send(Request request, Deadline deadline) {
  const std::string& learned = options_.dialect->region;
  if (!learned.empty() && learned != region_) {  // by another client of the bucket
    address(learned);
  }
  Request again = request;
  std::string signed_for;
  Result<HttpReply> reply = co_await send_once(std::move(request), &signed_for, deadline);
  if (!reply || !learn_region(*reply, signed_for)) co_return reply;
  if (again.conditional) {
    co_return fail(Error::unavailable(s3_error(*reply).message + "; that is used from now on"));
  }
  co_return co_await send_once(std::move(again), &signed_for, deadline);
}

Task<Result<HttpReply>> S3Store::send_once(Request request, std::string* signed_for,
                                           Deadline deadline) {
  CO_TRY_ASSIGN(S3Credentials credentials, co_await options_.credentials->get(deadline));
  S3Unsigned to_sign;
  to_sign.method = std::move(request.method);
  to_sign.path = std::move(request.path);
  to_sign.query = std::move(request.query);
  to_sign.headers = std::move(request.headers);
  to_sign.body = request.body.view();
  if (!quirks_->header.empty()) {
    to_sign.headers.emplace_back(quirks_->header, quirks_->header_value);
  }
  if (request.body.size() >= kHashedAsideMin) {
    std::move_only_function<std::string()> work = [body = request.body] { return sha256_hex(body.view()); };
    to_sign.body_sha256 =
        co_await compute<std::string>(world_, Urgency::kForeground, std::move(work));
  }
  // Nothing may be waited for from here on: the region can change meanwhile.
  to_sign.host = host_;
  *signed_for = region_;
  S3Signed sealed = signer_.sign(credentials, to_sign, world_.wall_now());
  HttpCall call;
  call.method = std::move(to_sign.method);
  call.url = scheme_ + host_ + sealed.path_and_query;
  call.headers = std::move(sealed.headers);
  call.body = std::move(request.body);
  call.deadline = deadline;
  call.reply_bytes_max = request.reply_bytes_max;
  Result<HttpReply> reply = co_await transport_->perform(std::move(call));
  if (reply && reply->status == 403) {
    spdlog::debug("{}: 403 for the canonical request:\n{}", describe(), sealed.canonical_request);
  }
  if (reply && s3_credentials_expired(*reply)) options_.credentials->invalidate();
  co_return reply;
}

Task<Result<ObjectInfo>> S3Store::head(std::string key, Deadline deadline) {
  if (auto ok = check_key(key); !ok) co_return fail(ok.error().at(describe()));
  const std::string context = where("head", key);
  Request request = object_request("HEAD", key);
  Result<HttpReply> reply = co_await send(std::move(request), deadline);
  if (!reply) co_return fail(reply.error().at(context));
  // The reply to a HEAD has no body, so it cannot say what is missing. A GET can.
  if (reply->status == 404) co_return co_await ObjectStore::head(std::move(key), deadline);
  if (reply->status != 200) co_return fail(s3_error(*reply).at(context));
  Result<Version> version = s3_version(*reply);
  if (!version) co_return fail(version.error().at(context));
  Result<ObjectInfo> info = info_of(*reply);
  if (!info) co_return fail(info.error().at(context));
  info->version = std::move(*version);
  co_return info;
}

Task<Result<ListPage>> S3Store::list(ListRequest request, Deadline deadline) {
  if (auto ok = check_list(request); !ok) co_return fail(ok.error().at(describe()));
  const std::string context = where("list", request.prefix);
  Request sent = bucket_request("GET");
  Query& query = sent.query;
  query.emplace_back("list-type", "2");
  query.emplace_back("encoding-type", "url");
  query.emplace_back("max-keys", std::to_string(request.keys_max));
  if (!request.prefix.empty()) query.emplace_back("prefix", request.prefix);
  if (!request.delimiter.empty()) query.emplace_back("delimiter", request.delimiter);
  std::string after = s3_start_after(request);
  if (!after.empty()) query.emplace_back("start-after", std::move(after));
  sent.reply_bytes_max = kListBytesMax;
  CO_TRY_ASSIGN(HttpReply reply, co_await send_for_success(std::move(sent), context, deadline));
  Result<ListPage> page = s3_list_page(reply.body, request);
  if (!page) co_return fail(page.error().at(context));
  co_return page;
}

}  // namespace celld
