#include "store/azure/azure_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/hex.h"
#include "store/azure/azure_name.h"
#include "store/azure/azure_reply.h"
#include "store/digest.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/upload.h"

namespace celld {

namespace {

// With it: objects of up to 5,000 MiB in one request, bearer tokens, x-ms-error-code.
constexpr const char* kApiVersion = "2021-12-02";
constexpr uint32_t kSkipPageKeys = 2000;  // that parse_xml takes, however many properties they have
constexpr size_t kContinuationsMax = 64;
constexpr size_t kContinuationDigits = 16;

// https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
bool container_ok(std::string_view name) {
  if (name == "$root" || name == "$web") return true;
  if (name.size() < 3 || name.size() > 63 || name.front() == '-' || name.back() == '-')
    return false;
  if (name.find("--") != std::string_view::npos) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

struct StartAfter {
  std::string key;
  std::optional<uint64_t> number;  // of a continuation
};

StartAfter parse_start_after(const std::string& text) {
  const size_t key_bytes = text.size() - std::min(text.size(), kContinuationDigits + 1);
  if (key_bytes > 0 && text[key_bytes] == '\0') {
    auto number =
        parse_hex_fixed(std::string_view(text).substr(key_bytes + 1), kContinuationDigits);
    if (number) return {text.substr(0, key_bytes), number};
  }
  return {text, std::nullopt};
}

}  // namespace

Result<std::unique_ptr<AzureStore>> AzureStore::make(World& world,
                                                     std::shared_ptr<HttpTransport> transport,
                                                     AzureOptions options) {
  if (!container_ok(options.container)) {
    return fail(Error::invalid("'" + printable_key(options.container) +
                               "' is not a container name: 3 to 63 of [a-z0-9-], no '--'"));
  }
  if (!options.auth) return fail(Error::invalid("no credentials"));
  std::unique_ptr<AzureStore> store(
      new AzureStore(world, std::move(transport), std::move(options)));
  TRY(store->find_endpoint());
  return store;
}

AzureStore::AzureStore(World& world, std::shared_ptr<HttpTransport> transport, AzureOptions options)
    : HttpStore(world, std::move(transport), options.object_bytes_max), options_(std::move(options)) {}

Result<void> AzureStore::find_endpoint() {
  std::string_view endpoint = options_.endpoint;
  while (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  std::string_view scheme = endpoint.starts_with("https://")  ? "https://"
                            : endpoint.starts_with("http://") ? "http://"
                                                              : "";
  std::string_view rest = endpoint.substr(scheme.size());
  const size_t slash = rest.find('/');
  std::string_view host = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash);
  if (scheme.empty() || host.empty() || rest.find_first_of("?#@% ") != std::string_view::npos) {
    return fail(Error::invalid("endpoint '" + printable_key(options_.endpoint) +
                               "' is not http(s)://HOST[:PORT] or http(s)://HOST[:PORT]/ACCOUNT"));
  }
  origin_ = std::string(scheme) + std::string(host);
  base_path_ = std::string(path) + "/" + options_.container;
  return {};
}

Result<HttpStore::Request> AzureStore::blob_request(std::string method,
                                                    const std::string& key) const {
  TRY(check_key(key));
  TRY_ASSIGN(std::string name, azure_name(key));
  Request request;
  request.method = std::move(method);
  request.path = base_path_ + "/" + percent_encode(name, Slash::kKeep);
  return request;
}

Result<HttpStore::Request> AzureStore::get_request(const std::string& key) const {
  return blob_request("GET", key);
}

Result<HttpStore::Request> AzureStore::put_request(const std::string& key) const {
  TRY_ASSIGN(Request request, blob_request("PUT", key));
  request.headers.emplace_back("x-ms-blob-type", "BlockBlob");
  request.headers.emplace_back("content-type", "application/octet-stream");
  return request;
}

Result<HttpStore::Request> AzureStore::delete_request(const std::string& key) const {
  TRY_ASSIGN(Request request, blob_request("DELETE", key));
  // A blob that has snapshots could not be deleted without them.
  request.headers.emplace_back("x-ms-delete-snapshots", "include");
  return request;
}

Result<void> AzureStore::set_condition(Request& put, const Condition& condition) const {
  if (condition.version) {
    put.headers.emplace_back("if-match", "\"" + condition.version->token + "\"");
  } else {
    put.headers.emplace_back("if-none-match", "*");
  }
  return {};
}

Error AzureStore::error_of(const HttpReply& reply) const { return azure_error(reply); }
Result<Version> AzureStore::version_read(const HttpReply& reply) const { return s3_version(reply); }
SwapResult AzureStore::swap_result(const HttpReply& reply, const Condition& condition) const {
  return azure_swap_result(reply, condition);
}

Task<Result<HttpReply>> AzureStore::send(Request request, Deadline deadline) {
  AzureRequest sent;
  sent.method = std::move(request.method);
  sent.path = std::move(request.path);
  sent.query = std::move(request.query);
  sent.headers = std::move(request.headers);
  sent.headers.emplace_back("x-ms-version", kApiVersion);
  sent.body_bytes = request.body.size();
  CO_TRY(co_await options_.auth->authorize(sent, deadline));
  HttpCall call;
  call.method = sent.method;
  call.url = origin_ + sent.path + azure_query_text(sent.query);
  const std::string suffix = options_.auth->url_suffix();
  if (!suffix.empty()) call.url += (sent.query.empty() ? "?" : "&") + suffix;
  call.headers = sent.headers;
  call.body = std::move(request.body);
  call.deadline = deadline;
  call.reply_bytes_max = request.reply_bytes_max;
  Result<HttpReply> reply = co_await transport_->perform(std::move(call));
  if (reply && (reply->status == 401 || reply->status == 403)) {
    spdlog::debug("{}: {} {} was refused: {}", describe(), sent.method, sent.path,
                  azure_error(*reply).message);
    // 403 is a right that is missing: another token would not have it either.
    if (reply->status == 401) options_.auth->refused(sent);
  }
  co_return reply;
}

Task<Result<ObjectInfo>> AzureStore::head(std::string key, Deadline deadline) {
  const std::string context = where("head", key);
  Result<Request> request = blob_request("HEAD", key);
  if (!request) co_return fail(request.error().at(describe()));
  CO_TRY_ASSIGN(HttpReply reply,
                co_await send_for_success(std::move(*request), context, deadline));
  Result<Version> version = s3_version(reply);
  if (!version) co_return fail(version.error().at(context));
  Result<ObjectInfo> info = info_of(reply);
  if (!info) co_return fail(info.error().at(context));
  info->version = std::move(*version);
  co_return info;
}

// Parts are blocks, made into a blob by a block list. The ids of the blocks come from their
// content, so that writers of one key, who write the same, never lose blocks to each other: what
// one of them has committed, the other's list finds again.
class AzureStore::BlockUpload final : public Upload {
 public:
  BlockUpload(AzureStore& store, std::string key, uint64_t part_bytes)
      : store_(store), key_(std::move(key)), sizes_(part_bytes) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    const std::string context = store_.where("put", key_) + " part " + std::to_string(number);
    if (auto ok = sizes_.check(number, body.size()); !ok) co_return fail(ok.error().at(context));
    Result<Request> request = store_.blob_request("PUT", key_);
    if (!request) co_return fail(request.error().at(store_.describe()));
    const uint64_t bytes = body.size();
    std::string id = base64_encode(hex_fixed(number, 8) + sha256_bytes(body.view()));
    request->query = {{"comp", "block"}, {"blockid", id}};
    request->headers.emplace_back("content-type", "application/octet-stream");
    request->body = std::move(body);
    CO_TRY(co_await store_.send_for_success(std::move(*request), context, deadline));
    sizes_.sent(number, bytes);
    ids_[number] = std::move(id);
    co_return Result<void>{};
  }

  Task<Result<Version>> finish(Deadline deadline) override {
    const std::string context = store_.where("put", key_);
    if (auto ok = sizes_.complete(); !ok) co_return fail(ok.error().at(context));
    Result<Request> request = store_.blob_request("PUT", key_);
    if (!request) co_return fail(request.error().at(store_.describe()));
    std::string list = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>";
    for (const auto& [number, id] : ids_) list += "<Latest>" + id + "</Latest>";
    list += "</BlockList>";
    request->query = {{"comp", "blocklist"}};
    request->headers.emplace_back("content-type", "application/xml");
    request->headers.emplace_back("x-ms-blob-content-type", "application/octet-stream");
    request->body = Blob(std::move(list));
    CO_TRY_ASSIGN(HttpReply reply,
                  co_await store_.send_for_success(std::move(*request), context, deadline));
    Result<Version> version = s3_version(reply);
    if (!version) co_return fail(version.error().at(context));
    co_return std::move(*version);
  }

  // Azure forgets blocks that no list took within a week; nothing else gives up some of them.
  Task<Result<void>> abort(Deadline) override { co_return Result<void>{}; }

 private:
  AzureStore& store_;
  const std::string key_;
  PartSizes sizes_;
  std::map<uint32_t, std::string> ids_;
};

Task<Result<std::unique_ptr<Upload>>> AzureStore::begin_upload(std::string key, uint64_t part_bytes,
                                                               Deadline) {
  if (auto ok = check_part_bytes(part_bytes); !ok) co_return fail(ok.error().at(describe()));
  Result<Request> request = blob_request("PUT", key);
  if (!request) co_return fail(request.error().at(describe()));
  std::unique_ptr<Upload> upload = std::make_unique<BlockUpload>(*this, std::move(key), part_bytes);
  co_return upload;
}

std::string AzureStore::remember(const ListRequest& request, std::string_view last_key,
                                 std::string marker) {
  Continuation next{++continuation_numbers_, request.prefix, request.delimiter, std::move(marker)};
  std::string text(last_key);
  text += '\0' + hex_fixed(next.number, kContinuationDigits);
  continuations_.push_front(std::move(next));
  if (continuations_.size() > kContinuationsMax) continuations_.pop_back();
  return text;
}

const AzureStore::Continuation* AzureStore::recall(const ListRequest& request, uint64_t number) {
  auto found =
      std::find_if(continuations_.begin(), continuations_.end(), [&](const Continuation& c) {
        return c.number == number && c.prefix == request.prefix && c.delimiter == request.delimiter;
      });
  return found == continuations_.end() ? nullptr : &*found;
}

Task<Result<ListPage>> AzureStore::list(ListRequest request, Deadline deadline) {
  if (auto ok = check_list(request); !ok) co_return fail(ok.error().at(describe()));
  const std::string context = where("list", request.prefix);
  Result<std::string> prefix = azure_prefix(request.prefix);
  if (!prefix) co_return fail(prefix.error().at(context));
  const StartAfter after = parse_start_after(request.start_after);
  std::string marker;
  if (after.number) {
    if (const Continuation* known = recall(request, *after.number)) marker = known->marker;
  }
  // Whether names that the caller has passed already are still to come.
  bool skipping = !after.key.empty() && marker.empty();
  // What has passed includes all that is folded into a prefix which has been shown.
  const std::string passed = after.key;
  ListPage page;
  while (true) {
    Request sent;
    sent.method = "GET";
    sent.path = base_path_;
    sent.query.emplace_back("comp", "list");
    sent.query.emplace_back("restype", "container");
    sent.query.emplace_back("maxresults",
                            std::to_string(skipping ? kSkipPageKeys : request.keys_max));
    if (!prefix->empty()) sent.query.emplace_back("prefix", *prefix);
    if (!request.delimiter.empty()) sent.query.emplace_back("delimiter", request.delimiter);
    if (!marker.empty()) sent.query.emplace_back("marker", marker);
    sent.reply_bytes_max = kListBytesMax;
    CO_TRY_ASSIGN(HttpReply reply, co_await send_for_success(std::move(sent), context, deadline));
    Result<AzureListPage> part = azure_list_page(reply.body, request);
    if (!part) co_return fail(part.error().at(context));

    std::string last;
    uint32_t shown = 0;
    for (AzureListEntry& entry : part->entries) {
      if (entry.object.key <= passed) continue;
      if (shown == request.keys_max) {
        // The page goes on behind its last entry; a later one begins with this same marker.
        page.more = true;
        page.next_start_after = marker.empty() ? last : remember(request, last, marker);
        co_return page;
      }
      ++shown;
      last = entry.object.key;
      if (entry.is_prefix) {
        page.common_prefixes.push_back(std::move(entry.object.key));
      } else {
        page.objects.push_back(std::move(entry.object));
      }
    }
    if (part->next_marker.empty()) co_return page;
    if (part->next_marker == marker)
      co_return fail(Error::corrupt(context + ": the store's marker does not move"));
    marker = std::move(part->next_marker);
    if (shown > 0) {
      page.more = true;
      page.next_start_after = remember(request, last, marker);
      co_return page;
    }
  }
}

}  // namespace celld
