#include "store/gcs/gcs_reply.h"

#include <algorithm>

#include "base/hex.h"
#include "base/json.h"
#include "store/key.h"
#include "store/s3_reply.h"

namespace celld {

namespace {

constexpr size_t kMessageBytesMax = 4096;
constexpr size_t kPageTokenBytesMax = 16 << 10;
constexpr size_t kNameBytesMax = 4096;
constexpr JsonLimits kListLimits{.bytes_max = 32 << 20, .depth_max = 16};

// JSON for most requests, plain text for downloads, XML for uploads in parts.
std::string message_of(const HttpReply& reply) {
  auto document = JsonDocument::parse(reply.body, "reply", ErrorCode::kUnavailable);
  std::string text;
  if (document) {
    JsonFields error = document->fields().object_or_empty("error");
    text = error.text_or("message", "", kMessageBytesMax);
  } else {
    text = reply.body.substr(0, 300);
  }
  return text.substr(0, text.find_first_of("\r\n"));
}

ErrorCode code_of(const HttpReply& reply, std::string_view message) {
  const int status = reply.status;
  if (status == 404) {
    if (message.find("bucket does not exist") != std::string_view::npos ||
        message.find("NoSuchBucket") != std::string_view::npos) {
      return ErrorCode::kInvalid;
    }
    return message.starts_with("No such object") ? ErrorCode::kNotFound : ErrorCode::kUnavailable;
  }
  if (status >= 500 || status == 408 || status == 409 || status == 429) {
    return status == 501 ? ErrorCode::kUnsupported : ErrorCode::kUnavailable;
  }
  if (status == 401 || status == 403) return ErrorCode::kForbidden;
  return ErrorCode::kInvalid;
}

}  // namespace

Error gcs_error(const HttpReply& reply) {
  const std::string message = message_of(reply);
  std::string text = std::to_string(reply.status);
  if (!message.empty()) text += ": " + printable_key(message);
  Error error = Error::make(code_of(reply, message), std::move(text));
  error.retry_after_ms = retry_after_ms(reply);
  return error;
}

Result<Version> gcs_version(std::string_view generation) {
  auto number = parse_decimal(generation);
  if (!number || *number == 0) {
    return fail(
        Error::unsupported("the store gave no generation ('" + printable_key(generation) + "')"));
  }
  return Version{std::string(generation)};
}

Result<ObjectInfo> gcs_object_info(std::string_view json) {
  TRY_ASSIGN(JsonDocument document,
             JsonDocument::parse(json, "the object's resource", ErrorCode::kUnsupported));
  JsonFields fields = document.fields();
  const std::string generation = fields.text("generation", 32);
  auto bytes = parse_decimal(fields.text("size", 32));
  TRY(fields.done());
  ObjectInfo info;
  TRY_ASSIGN(info.version, gcs_version(generation));
  if (!bytes) return fail(Error::unsupported("the store gave no size"));
  info.bytes = *bytes;
  return info;
}

SwapResult gcs_swap_result(const HttpReply& reply) {
  if (reply.status == 412) return SwapResult::rejected();
  if (!is_success(reply)) return SwapResult::ambiguous(gcs_error(reply));
  auto info = gcs_object_info(reply.body);
  if (!info) return SwapResult::ambiguous(std::move(info).error());
  return SwapResult::applied(std::move(info->version));
}

Result<GcsListPage> gcs_list_page(std::string_view json, const ListRequest& request) {
  TRY_ASSIGN(JsonDocument document,
             JsonDocument::parse(json, "list", ErrorCode::kCorrupt, kListLimits));
  JsonFields fields = document.fields();
  GcsListPage out;
  out.next_page_token = fields.text_or("nextPageToken", "", kPageTokenBytesMax);
  ListPage& page = out.page;
  std::optional<Error> broken;
  auto check = [&](const std::string& key, const std::string* last) {
    if (broken) return;
    if (!key.starts_with(request.prefix)) {
      broken = Error::unsupported("list: the store ignores 'prefix': it gave '" +
                                  printable_key(key) + "'");
    } else if (last != nullptr && key <= *last) {
      broken = Error::unsupported("list: the store does not list in byte order: '" +
                                  printable_key(key) + "' after '" + printable_key(*last) + "'");
    }
  };
  std::string last;
  fields.each("items", kListKeysMax + 1, [&](JsonFields& item) {
    ListedObject object;
    object.key = item.text("name", kNameBytesMax);
    auto bytes = parse_decimal(item.text("size", 32));
    auto modified = parse_iso8601(item.text("updated", 64));
    check(object.key, last.empty() ? nullptr : &last);
    last = object.key;
    if (!bytes || !modified) {
      item.reject("size", "or 'updated' is malformed");
      return;
    }
    object.bytes = *bytes;
    object.modified = *modified;
    if (object.key > request.start_after)
      page.objects.push_back(std::move(object));
    else if (object.key < request.start_after && !broken) {
      broken = Error::unsupported("list: the store ignores 'startOffset': it gave '" +
                                  printable_key(object.key) + "'");
    }
  });
  std::vector<std::string> prefixes =
      fields.texts_or_empty("prefixes", kListKeysMax + 1, kNameBytesMax);
  TRY(fields.done());
  const std::string* last_prefix = nullptr;
  for (const std::string& common : prefixes) {
    check(common, last_prefix);
    last_prefix = &common;
  }
  if (broken) return fail(std::move(*broken));
  for (std::string& common : prefixes) {
    if (common > request.start_after) page.common_prefixes.push_back(std::move(common));
  }
  // One more than the caller wants may have come, since start_after itself was asked for too.
  if (page.objects.size() + page.common_prefixes.size() > request.keys_max) {
    const bool object_is_last =
        page.common_prefixes.empty() ||
        (!page.objects.empty() && page.objects.back().key > page.common_prefixes.back());
    if (object_is_last)
      page.objects.pop_back();
    else
      page.common_prefixes.pop_back();
    page.more = true;
  }
  page.more |= !out.next_page_token.empty();
  if (!page.objects.empty()) page.next_start_after = page.objects.back().key;
  if (!page.common_prefixes.empty()) {
    page.next_start_after = std::max(page.next_start_after, page.common_prefixes.back());
  }
  if (!page.more) page.next_start_after.clear();
  return out;
}

}  // namespace celld
