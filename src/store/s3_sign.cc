#include "store/s3_sign.h"

#include <algorithm>
#include <ctime>

#include "store/digest.h"
#include "store/key.h"

namespace celld {

namespace {

// "20130524T000000Z"
std::string amz_date(WallMs now) {
  std::time_t seconds = static_cast<std::time_t>(now.value / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  size_t n = std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return std::string(text, n);
}

std::string canonical_query(const std::vector<std::pair<std::string, std::string>>& query) {
  std::vector<std::pair<std::string, std::string>> encoded;
  encoded.reserve(query.size());
  for (const auto& [name, value] : query) {
    encoded.emplace_back(percent_encode(name, Slash::kEncode),
                         percent_encode(value, Slash::kEncode));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string out;
  for (const auto& [name, value] : encoded) {
    if (!out.empty()) out += '&';
    out += name + "=" + value;
  }
  return out;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) { return hex_lower(sha256_bytes(bytes)); }

S3Signed S3Signer::sign(const S3Credentials& credentials, const S3Unsigned& request, WallMs now) {
  constexpr std::string_view kTokenHeader = "x-amz-security-token";
  const std::string date = amz_date(now);
  const std::string day = date.substr(0, 8);
  if (key_.empty() || day != key_day_ || credentials.secret_key != key_secret_) {
    key_ = hmac_sha256_bytes("AWS4" + credentials.secret_key, day);
    for (std::string_view part :
         {std::string_view(region_), std::string_view(service_), std::string_view("aws4_request")}) {
      key_ = hmac_sha256_bytes(key_, part);
    }
    key_day_ = day;
    key_secret_ = credentials.secret_key;
  }

  const std::string payload_hash =
      request.body_sha256.empty() ? sha256_hex(request.body) : request.body_sha256;
  HeaderList headers = request.headers;
  headers.emplace_back("host", request.host);
  if (service_ == "s3") headers.emplace_back("x-amz-content-sha256", payload_hash);
  headers.emplace_back("x-amz-date", date);
  if (!credentials.session_token.empty()) {
    headers.emplace_back(kTokenHeader, credentials.session_token);
  }
  std::sort(headers.begin(), headers.end());

  std::string names;
  std::string lines;
  std::string loggable;
  for (const auto& [name, value] : headers) {
    if (!names.empty()) names += ';';
    names += name;
    lines += name + ":" + value + "\n";
    loggable += name + ":" + (name == kTokenHeader ? "(hidden)" : value) + "\n";
  }
  const std::string path = percent_encode(request.path, Slash::kKeep);
  const std::string query = canonical_query(request.query);
  const std::string head = request.method + "\n" + path + "\n" + query + "\n";
  const std::string tail = "\n" + names + "\n" + payload_hash;
  const std::string scope = day + "/" + region_ + "/" + service_ + "/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + sha256_hex(head + lines + tail);

  S3Signed out;
  out.path_and_query = query.empty() ? path : path + "?" + query;
  out.canonical_request = head + loggable + tail;
  std::erase_if(headers, [](const auto& header) { return header.first == "host"; });
  out.headers = std::move(headers);
  out.headers.emplace_back("authorization",
                           "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + scope +
                               ", SignedHeaders=" + names +
                               ", Signature=" + hex_lower(hmac_sha256_bytes(key_, to_sign)));
  return out;
}

}  // namespace celld
