#include "store/s3_quirks.h"

#include <array>

namespace celld {

namespace {

constexpr S3Quirks kUnknown{.host_suffix = "", .name = "S3"};

constexpr std::array kTable = {
    S3Quirks{.host_suffix = ".r2.cloudflarestorage.com",
             .name = "Cloudflare R2",
             .region = "auto"},
    // Without that header conditions and reads are served by the nearest region, not the leader.
    // https://www.tigrisdata.com/docs/objects/conditionals/
    S3Quirks{.host_suffix = ".tigris.dev",
             .name = "Tigris",
             .region = "auto",
             .header = "x-tigris-consistent",
             .header_value = "true"},
    S3Quirks{.host_suffix = ".storage.dev",
             .name = "Tigris",
             .region = "auto",
             .header = "x-tigris-consistent",
             .header_value = "true"},
    // Ceph RGW.
    S3Quirks{.host_suffix = ".your-objectstorage.com",
             .name = "Hetzner Object Storage",
             .etag_quotes = EtagQuotes::kBare},
    // Path style is refused.
    S3Quirks{.host_suffix = ".aliyuncs.com",
             .name = "Alibaba OSS",
             .addressing = Addressing::kVirtualHost},
};

}  // namespace

const S3Quirks& s3_quirks(std::string_view host) {
  host = host.substr(0, host.rfind(':') == std::string_view::npos || host.ends_with(']')
                            ? std::string_view::npos
                            : host.rfind(':'));
  for (const S3Quirks& quirks : kTable) {
    if (host.ends_with(quirks.host_suffix)) return quirks;
  }
  return kUnknown;
}

}  // namespace celld
