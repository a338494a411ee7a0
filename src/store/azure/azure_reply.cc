#include "store/azure/azure_reply.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/hex.h"
#include "store/azure/azure_name.h"
#include "store/key.h"
#include "store/s3_reply.h"
#include "store/s3_xml.h"

namespace celld {

namespace {

constexpr size_t kMarkerBytesMax = 16 << 10;

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

ErrorCode code_of(int status, std::string_view code) {
  if (code == "BlobNotFound") return ErrorCode::kNotFound;
  if (code == "ContainerNotFound" || code == "ContainerDisabled" || code == "ResourceNotFound")
    return ErrorCode::kInvalid;
  if (status == 401 || status == 403 || code.starts_with("LeaseIdM") ||
      code == "BlobImmutableDueToPolicy") {
    return ErrorCode::kForbidden;
  }
  if (status == 501 || code == "UnsupportedHeader" || code == "UnsupportedHttpVerb" ||
      code == "FeatureNotSupportedByApiVersion") {
    return ErrorCode::kUnsupported;
  }
  if (status >= 500 || status == 404 || status == 408 || status == 409 || status == 429)
    return ErrorCode::kUnavailable;
  return ErrorCode::kInvalid;
}

Result<ListedObject> listed_blob(const XmlElement& blob, std::string key) {
  ListedObject object;
  const XmlElement* properties = blob.child("Properties");
  if (properties != nullptr) {
    auto bytes = parse_decimal(properties->child_text("Content-Length"));
    auto modified = parse_http_date(properties->child_text("Last-Modified"));
    if (bytes && modified) {
      object.key = std::move(key);
      object.bytes = *bytes;
      object.modified = *modified;
      return object;
    }
  }
  return fail(
      Error::corrupt("list: the entry of '" + printable_key(key) + "' lacks its size or time"));
}

}  // namespace

std::string azure_error_code(const HttpReply& reply) {
  if (auto header = find_header(reply, "x-ms-error-code")) return std::string(*header);
  auto xml = parse_xml(reply.body);
  return xml && xml->name == "Error" ? std::string(xml->child_text("Code")) : std::string();
}

Error azure_error(const HttpReply& reply) {
  const std::string code = azure_error_code(reply);
  std::string message = std::to_string(reply.status);
  if (!code.empty()) message += " " + printable_key(code);
  if (auto xml = parse_xml(reply.body); xml && xml->name == "Error") {
    std::string text = first_line(xml->child_text("Message"));
    if (!text.empty()) message += ": " + printable_key(text);
  }
  if (code == "AuthenticationFailed")
    message += " (check the key or token and the clock of this machine)";
  Error error = Error::make(code_of(reply.status, code), std::move(message));
  error.retry_after_ms = retry_after_ms(reply, code == "ServerBusy");
  return error;
}

SwapResult azure_swap_result(const HttpReply& reply, const Condition& condition) {
  if (reply.status == 409 || reply.status == 412) {
    const std::string code = azure_error_code(reply);
    const bool exists =
        reply.status == 409 && !condition.version && (code.empty() || code == "BlobAlreadyExists");
    const bool unmet = reply.status == 412 && (code.empty() || code == "ConditionNotMet");
    if (exists || unmet) return SwapResult::rejected();
  }
  if (!is_success(reply)) return SwapResult::ambiguous(azure_error(reply));
  auto version = s3_version(reply);
  if (!version) return SwapResult::ambiguous(std::move(version).error());
  return SwapResult::applied(std::move(*version));
}

std::optional<WallMs> parse_http_date(std::string_view text) {
  static constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  int day, year, hour, minute, second, read = 0;
  char month[4] = {};
  const std::string copy(text.substr(0, 40));
  if (std::sscanf(copy.c_str(), "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &day, month,
                  &year, &hour, &minute, &second, &read) != 6 ||
      static_cast<size_t>(read) != text.size()) {
    return std::nullopt;
  }
  const size_t at = kMonths.find(month);
  if (at == std::string_view::npos || at % 3 != 0 || std::string_view(month).size() != 3)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(at / 3 + 1)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || day < 0 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
      second > 60) {
    return std::nullopt;
  }
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return WallMs{(((days * 24 + hour) * 60 + minute) * 60 + second) * 1000};
}

Result<AzureListPage> azure_list_page(std::string_view xml, const ListRequest& request) {
  TRY_ASSIGN(XmlElement root, parse_xml(xml));
  const XmlElement* blobs = root.child("Blobs");
  if (root.name != "EnumerationResults" || blobs == nullptr) {
    return fail(Error::corrupt("list: the reply is a '" + printable_key(root.name) + "'"));
  }
  AzureListPage page;
  page.next_marker = root.child_text("NextMarker");
  if (page.next_marker.size() > kMarkerBytesMax)
    return fail(Error::corrupt("list: the marker is too long"));
  std::string last_blob, last_prefix;
  for (const auto& child : blobs->children) {
    const bool is_prefix = child.name == "BlobPrefix";
    if (!is_prefix && child.name != "Blob") continue;
    const std::string_view name = child.child_text("Name");
    if (name.empty()) return fail(Error::corrupt("list: an entry without a name"));
    std::optional<std::string> key = is_prefix ? azure_folder_key(name) : azure_key(name);
    if (!key) continue;
    if (!key->starts_with(request.prefix) || (is_prefix && request.delimiter.empty())) {
      return fail(Error::unsupported("list: the store ignores 'prefix' or 'delimiter': it gave '" +
                                     printable_key(*key) + "'"));
    }
    // Azurite gives the folded prefixes of a page before its blobs.
    std::string& last = is_prefix ? last_prefix : last_blob;
    if (!last.empty() && *key <= last) {
      return fail(Error::unsupported("list: the store does not list in byte order: '" +
                                     printable_key(*key) + "' after '" + printable_key(last) +
                                     "'; accounts with a hierarchical namespace do not"));
    }
    last = *key;
    AzureListEntry entry;
    entry.is_prefix = is_prefix;
    if (is_prefix) {
      entry.object.key = std::move(*key);
    } else {
      TRY_ASSIGN(entry.object, listed_blob(child, std::move(*key)));
    }
    page.entries.push_back(std::move(entry));
  }
  std::sort(page.entries.begin(), page.entries.end(),
            [](const auto& a, const auto& b) { return a.object.key < b.object.key; });
  return page;
}

}  // namespace celld
