#include "store/azure/azure_auth.h"

#include <algorithm>
#include <ctime>
#include <map>

#include "store/digest.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr size_t kAccountKeyBytesMin = 16;

std::string header_value(const AzureRequest& request, std::string_view name) {
  for (const auto& [header, value] : request.headers) {
    if (header == name) return value;
  }
  return {};
}

void set_date(World& world, AzureRequest& request) {
  request.headers.emplace_back("x-ms-date", http_date(world.wall_now()));
}

class SharedKey final : public AzureAuth {
 public:
  SharedKey(World& world, std::string account, std::string key)
      : world_(world), account_(std::move(account)), key_(std::move(key)) {}

  Task<Result<void>> authorize(AzureRequest& request, Deadline) override {
    set_date(world_, request);
    std::string signature =
        base64_encode(hmac_sha256_bytes(key_, azure_string_to_sign(account_, request)));
    request.headers.emplace_back("authorization", "SharedKey " + account_ + ":" + signature);
    co_return Result<void>{};
  }

 private:
  World& world_;
  const std::string account_;
  const std::string key_;
};

class Sas final : public AzureAuth {
 public:
  Sas(World& world, std::string text) : world_(world), text_(std::move(text)) {}
  Task<Result<void>> authorize(AzureRequest& request, Deadline) override {
    set_date(world_, request);
    co_return Result<void>{};
  }
  std::string url_suffix() const override { return text_; }

 private:
  World& world_;
  const std::string text_;
};

class Bearer final : public AzureAuth {
 public:
  Bearer(World& world, std::shared_ptr<TokenSource> source)
      : world_(world), tokens_(world, std::move(source)) {}

  Task<Result<void>> authorize(AzureRequest& request, Deadline deadline) override {
    CO_TRY_ASSIGN(std::string token, co_await tokens_.get(deadline));
    set_date(world_, request);
    request.headers.emplace_back("authorization", "Bearer " + token);
    co_return Result<void>{};
  }
  void refused(const AzureRequest& request) override {
    constexpr size_t kScheme = std::string_view("Bearer ").size();
    std::string sent = header_value(request, "authorization");
    if (sent.size() > kScheme) tokens_.invalidate(sent.substr(kScheme));
  }

 private:
  World& world_;
  TokenCache tokens_;
};

}  // namespace

std::string azure_query_text(const std::vector<std::pair<std::string, std::string>>& query) {
  std::string out;
  for (const auto& [name, value] : query) {
    out += out.empty() ? '?' : '&';
    out += percent_encode(name, Slash::kEncode) + "=" + percent_encode(value, Slash::kEncode);
  }
  return out;
}

std::string azure_string_to_sign(const std::string& account, const AzureRequest& request) {
  std::string out = request.method + "\n\n\n";  // no content-encoding, no content-language
  if (request.body_bytes > 0) out += std::to_string(request.body_bytes);
  out += "\n" + header_value(request, "content-md5") + "\n" +
         header_value(request, "content-type") +
         "\n\n\n";  // the date is x-ms-date; no if-modified-since
  out += header_value(request, "if-match") + "\n" + header_value(request, "if-none-match") +
         "\n\n" + header_value(request, "range") + "\n";
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : request.headers) {
    if (name.starts_with("x-ms-")) sorted[name] = value;
  }
  for (const auto& [name, value] : sorted) out += name + ":" + value + "\n";
  out += "/" + account + request.path;
  auto query = request.query;
  std::sort(query.begin(), query.end());
  for (const auto& [name, value] : query) out += "\n" + name + ":" + value;
  return out;
}

Result<std::shared_ptr<AzureAuth>> azure_shared_key(World& world, std::string account,
                                                    std::string_view key) {
  auto bytes = base64_decode(key);
  if (!bytes || bytes->size() < kAccountKeyBytesMin) {
    return fail(Error::invalid("the account's key is not base64 of at least 16 bytes"));
  }
  return std::make_shared<SharedKey>(world, std::move(account), std::move(*bytes));
}

Result<std::shared_ptr<AzureAuth>> azure_sas(World& world, std::string_view sas) {
  while (sas.starts_with('?') || sas.starts_with('&')) sas.remove_prefix(1);
  const bool printable =
      std::all_of(sas.begin(), sas.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
  const bool is_signed = sas.starts_with("sig=") || sas.find("&sig=") != std::string_view::npos;
  if (!printable || !is_signed) {
    return fail(Error::invalid(
        "the shared access signature is not the text of a URL's query with a 'sig'"));
  }
  return std::make_shared<Sas>(world, std::string(sas));
}

std::shared_ptr<AzureAuth> azure_bearer(World& world, std::shared_ptr<TokenSource> source) {
  return std::make_shared<Bearer>(world, std::move(source));
}

std::string http_date(WallMs time) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::time_t seconds = static_cast<std::time_t>(time.value / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  int n = std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                        kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900,
                        utc.tm_hour, utc.tm_min, utc.tm_sec);
  return std::string(text, static_cast<size_t>(n));
}

}  // namespace celld
