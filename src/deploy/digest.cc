#include "deploy/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace celld {

Sha256 sha256(std::string_view bytes) {
  Sha256 out{};
  unsigned length = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), out.data(), &length, EVP_sha256(), nullptr) == 1);
  CHECK(length == out.size());
  return out;
}

std::string to_hex_text(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (unsigned char c : bytes) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 digest = sha256(bytes);
  return to_hex_text({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

bool is_sha256_hex(std::string_view text) {
  if (text.size() != 64) return false;
  for (char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

}  // namespace celld
