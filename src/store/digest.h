// The small pieces of cryptography and text that requests to stores are signed with. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace celld {

// RFC 4648 section 4, with padding.
std::string base64_encode(std::string_view bytes);
// Section 5, without padding, as JSON Web Tokens have it.
std::string base64url_encode(std::string_view bytes);
// Section 4; padding is required. Nothing when it is malformed.
std::optional<std::string> base64_decode(std::string_view text);

// 32 bytes each.
std::string sha256_bytes(std::string_view bytes);
std::string hmac_sha256_bytes(std::string_view key, std::string_view message);

// RSASSA-PKCS1-v1_5 with SHA-256 (RS256 of RFC 7518), by a private key in PEM. kInvalid when it is
// no RSA key of at least 2,048 bits; errors never show the key.
Result<std::string> rs256_sign(std::string_view private_key_pem, std::string_view message);

// name=value&name=value, as application/x-www-form-urlencoded.
class FormText {
 public:
  FormText& add(std::string_view name, std::string_view value);
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace celld
