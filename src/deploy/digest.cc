#include "deploy/digest.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"

namespace celld {

std::string content_hash(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  unsigned char digest[32];
  unsigned length = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) == 1);
  CHECK(length == sizeof(digest)) << length;
  std::string out;
  out.reserve(2 * sizeof(digest));
  for (unsigned char c : digest) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

bool is_content_hash(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace celld
