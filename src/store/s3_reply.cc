#include "store/s3_reply.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "base/hex.h"
#include "store/key.h"
#include "store/s3_xml.h"
#include "store/utf8.h"

namespace celld {

namespace {

// Sorts after every other character, so after every key that continues a prefix.
constexpr std::string_view kLastCharacter = "\xf4\x8f\xbf\xbf";
constexpr size_t kTokenBytesMax = 256;

struct S3ErrorBody {
  std::string code;
  std::string message;
  std::string region;
};

S3ErrorBody error_body(const HttpReply& reply) {
  auto xml = parse_xml(reply.body);
  if (!xml || xml->name != "Error") return {};
  return {std::string(xml->child_text("Code")), std::string(xml->child_text("Message")),
          std::string(xml->child_text("Region"))};
}

ErrorCode code_of(int status, const S3ErrorBody& body) {
  if (status == 404) {
    if (body.code == "NoSuchKey") return ErrorCode::kNotFound;
    if (body.code == "NoSuchBucket") return ErrorCode::kInvalid;
    return ErrorCode::kUnavailable;
  }
  if (body.code == "RequestTimeout" || body.code == "SlowDown" || body.code == "ExpiredToken") {
    return ErrorCode::kUnavailable;
  }
  if (status == 501) return ErrorCode::kUnsupported;
  if (status >= 500 || status == 408 || status == 409 || status == 425 || status == 429) {
    return ErrorCode::kUnavailable;
  }
  if (status == 401 || status == 403) return ErrorCode::kForbidden;
  return ErrorCode::kInvalid;
}

bool is_expired(const S3ErrorBody& body) {
  return body.code == "ExpiredToken" || body.code == "TokenRefreshRequired";
}

Result<std::string> decoded(std::string_view text, bool url_encoded) {
  if (!url_encoded) return std::string(text);
  auto out = percent_decode(text, Plus::kBlank);
  if (!out) return fail(Error::corrupt("list: '" + printable_key(text) + "' is not URL-encoded"));
  return std::move(*out);
}

Result<ListedObject> listed_object(const XmlElement& contents, bool url_encoded) {
  ListedObject object;
  TRY_ASSIGN(object.key, decoded(contents.child_text("Key"), url_encoded));
  auto size = parse_decimal(contents.child_text("Size"));
  auto modified = parse_iso8601(contents.child_text("LastModified"));
  if (object.key.empty() || !size || !modified) {
    return fail(Error::corrupt("list: an entry lacks its key, size or time ('" +
                               printable_key(object.key) + "')"));
  }
  object.bytes = *size;
  object.modified = *modified;
  return object;
}

Error error_of(const HttpReply& reply, const S3ErrorBody& body) {
  std::string message = std::to_string(reply.status);
  if (!body.code.empty()) message += " " + printable_key(body.code);
  if (!body.message.empty()) message += ": " + printable_key(body.message);
  if (auto region = s3_bucket_region(reply)) {
    message += " (the bucket is in region '" + printable_key(*region) + "')";
  }
  if (body.code == "RequestTimeTooSkewed") message += " (check the clock of this machine)";
  Error error = Error::make(code_of(reply.status, body), std::move(message));
  error.retry_after_ms = retry_after_ms(reply, body.code == "SlowDown");
  return error;
}

void append_xml(std::string& out, std::string_view text) {
  for (char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
}

}  // namespace

std::optional<std::string> s3_bucket_region(const HttpReply& reply) {
  if (is_success(reply)) return std::nullopt;  // whose body may be large
  const S3ErrorBody body = error_body(reply);
  if (reply.status != 301 && reply.status != 307 && body.code != "AuthorizationHeaderMalformed") {
    return std::nullopt;
  }
  auto header = find_header(reply, "x-amz-bucket-region");
  std::string region = header ? std::string(*header) : body.region;
  if (region.empty()) return std::nullopt;
  return region;
}

Error s3_error(const HttpReply& reply) {
  return error_of(reply, error_body(reply));
}
bool s3_credentials_expired(const HttpReply& reply) {
  return (reply.status == 400 || reply.status == 403) && is_expired(error_body(reply));
}

Result<Version> s3_version(const HttpReply& reply) {
  auto etag = find_header(reply, "etag");
  if (!etag || etag->empty()) return fail(Error::unsupported("the store gave no ETag"));
  if (etag->starts_with("W/")) {
    return fail(Error::unsupported("the store gave a weak ETag, which names no single state"));
  }
  std::string_view token = *etag;
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') {
    token = token.substr(1, token.size() - 2);
  }
  bool clean = !token.empty() && token.size() <= kTokenBytesMax &&
               std::all_of(token.begin(), token.end(),
                           [](char c) { return c > 0x20 && c < 0x7f && c != '"'; });
  if (!clean) {
    return fail(
        Error::unsupported("the store gave a malformed ETag '" + printable_key(*etag) + "'"));
  }
  return Version{std::string(token)};
}

SwapResult s3_swap_result(const HttpReply& reply, const Condition& condition) {
  if (reply.status == 412 || (reply.status == 409 && !condition.version)) {
    return SwapResult::rejected();
  }
  if (!is_success(reply)) return SwapResult::ambiguous(s3_error(reply));
  auto version = s3_version(reply);
  if (!version) return SwapResult::ambiguous(std::move(version).error());
  return SwapResult::applied(std::move(*version));
}

std::optional<WallMs> parse_iso8601(std::string_view text) {
  int year, month, day, hour, minute, second, read = 0;
  const std::string copy(text.substr(0, 40));
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute,
                  &second, &read) != 6) {
    return std::nullopt;
  }
  std::string_view rest = std::string_view(copy).substr(static_cast<size_t>(read));
  int64_t ms = 0;
  if (rest.starts_with('.')) {
    int64_t scale = 100;
    rest.remove_prefix(1);
    for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1)) {
      ms += (rest[0] - '0') * scale;
      scale /= 10;
    }
  }
  std::chrono::year_month_day date{std::chrono::year(year),
                                   std::chrono::month(static_cast<unsigned>(month)),
                                   std::chrono::day(static_cast<unsigned>(day))};
  if ((rest != "Z" && rest != "+00:00") || !date.ok() || hour < 0 || hour > 23 || minute < 0 ||
      minute > 59 || second < 0 || second > 60) {
    return std::nullopt;
  }
  int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return WallMs{(((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms};
}

std::string s3_start_after(const ListRequest& request) {
  if (request.delimiter.empty() || !request.start_after.starts_with(request.prefix)) {
    return request.start_after;
  }
  size_t cut = request.start_after.find(request.delimiter, request.prefix.size());
  if (cut == std::string::npos) return request.start_after;
  return request.start_after.substr(0, cut + 1) + std::string(kLastCharacter);
}

Result<ListPage> s3_list_page(std::string_view xml, const ListRequest& request) {
  TRY_ASSIGN(XmlElement root, parse_xml(xml));
  if (root.name != "ListBucketResult") {
    return fail(Error::corrupt("list: the reply is a '" + printable_key(root.name) + "'"));
  }
  const bool url_encoded = root.child_text("EncodingType") == "url";
  ListPage page;
  for (const auto& child : root.children) {
    if (child.name == "Contents") {
      TRY_ASSIGN(ListedObject object, listed_object(child, url_encoded));
      if (!object.key.starts_with(request.prefix) || object.key <= request.start_after) {
        return fail(
            Error::unsupported("list: the store ignores 'prefix' or 'start-after': it gave '" +
                               printable_key(object.key) + "'"));
      }
      if (!page.objects.empty() && object.key <= page.objects.back().key) {
        return fail(Error::unsupported("list: the store does not list keys in byte order"));
      }
      page.objects.push_back(std::move(object));
    } else if (child.name == "CommonPrefixes") {
      TRY_ASSIGN(std::string common, decoded(child.child_text("Prefix"), url_encoded));
      if (common <= request.start_after) continue;
      if (!page.common_prefixes.empty() && common <= page.common_prefixes.back()) {
        return fail(Error::unsupported("list: the store does not list prefixes in byte order"));
      }
      page.common_prefixes.push_back(std::move(common));
    }
  }
  std::string_view truncated = root.child_text("IsTruncated");
  if (truncated != "true" && truncated != "false") {
    return fail(Error::corrupt("list: the reply does not say whether it is complete"));
  }
  page.more = truncated == "true";
  if (page.more) {
    if (!page.objects.empty()) page.next_start_after = page.objects.back().key;
    if (!page.common_prefixes.empty()) {
      page.next_start_after = std::max(page.next_start_after, page.common_prefixes.back());
    }
    if (page.next_start_after.empty()) {
      return fail(Error::corrupt("list: the reply is cut off but shows nothing"));
    }
  }
  return page;
}

Result<std::string> s3_upload_id(std::string_view xml) {
  constexpr size_t kIdBytesMax = 4096;
  TRY_ASSIGN(XmlElement root, parse_xml(xml));
  std::string_view id = root.child_text("UploadId");
  if (root.name != "InitiateMultipartUploadResult" || id.empty() || id.size() > kIdBytesMax) {
    return fail(Error::corrupt("the reply names no upload"));
  }
  return std::string(id);
}

Result<std::optional<Version>> s3_upload_finished(const HttpReply& reply) {
  if (!is_success(reply)) return fail(s3_error(reply));
  TRY_ASSIGN(XmlElement root, parse_xml(reply.body));
  if (root.name == "Error") {
    // The status was sent before the store knew: a failure like any 5xx.
    HttpReply late = reply;
    late.status = 500;
    return fail(s3_error(late));
  }
  if (root.name != "CompleteMultipartUploadResult") {
    return fail(Error::corrupt("the reply is a '" + printable_key(root.name) + "'"));
  }
  if (root.child_text("ETag").empty()) return std::optional<Version>();
  HttpReply as_header;
  as_header.headers.emplace_back("etag", std::string(root.child_text("ETag")));
  TRY_ASSIGN(Version version, s3_version(as_header));
  return std::optional<Version>(std::move(version));
}

bool s3_no_such_upload(const HttpReply& reply) { return error_body(reply).code == "NoSuchUpload"; }

std::string s3_finish_body(const std::vector<Version>& parts) {
  std::string out = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (size_t i = 0; i < parts.size(); ++i) {
    out += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>";
    append_xml(out, "\"" + parts[i].token + "\"");
    out += "</ETag></Part>";
  }
  return out + "</CompleteMultipartUpload>";
}

bool s3_key_fits_xml(std::string_view key) {
  // Line ends are left out too: an XML reader makes one of "\r\n".
  for (size_t at = 0; at < key.size();) {
    const size_t bytes = printable_utf8_bytes(key, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string s3_delete_body(const std::vector<std::string>& keys) {
  std::string out = "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const auto& key : keys) {
    out += "<Object><Key>";
    append_xml(out, key);
    out += "</Key></Object>";
  }
  return out + "</Delete>";
}

Result<std::vector<Result<void>>> s3_delete_outcomes(std::string_view xml,
                                                     const std::vector<std::string>& keys) {
  TRY_ASSIGN(XmlElement root, parse_xml(xml));
  if (root.name != "DeleteResult") {
    return fail(Error::corrupt("the reply is a '" + printable_key(root.name) + "'"));
  }
  std::map<std::string_view, Result<void>> said;
  for (const auto& child : root.children) {
    const std::string_view key = child.child_text("Key");
    if (child.name == "Deleted") {
      said[key] = Result<void>();
    } else if (child.name == "Error") {
      S3ErrorBody body{std::string(child.child_text("Code")),
                       std::string(child.child_text("Message")), ""};
      if (body.code == "NoSuchKey") {
        said[key] = Result<void>();
        continue;
      }
      HttpReply reply;
      reply.status = body.code == "AccessDenied" ? 403 : 500;
      said[key] = fail(error_of(reply, body));
    }
  }
  if (said.empty() && !keys.empty()) return fail(Error::corrupt("the reply names none of the keys"));
  std::vector<Result<void>> out;
  out.reserve(keys.size());
  for (const auto& key : keys) {
    auto it = said.find(key);
    if (it == said.end()) {
      out.push_back(fail(Error::unavailable("the store did not say what became of it")));
    } else {
      out.push_back(it->second);
    }
  }
  return out;
}

}  // namespace celld
