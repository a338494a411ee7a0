#include "store/digest.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <memory>

#include "base/check.h"
#include "store/key.h"

namespace celld {

namespace {

constexpr int kRsaBitsMin = 2048;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* what) const {
    kFree(what);
  }
};

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');
  int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(bytes),
                               static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

std::string base64url_encode(std::string_view bytes) {
  std::string out = base64_encode(bytes);
  while (out.ends_with('=')) out.pop_back();
  for (char& c : out) {
    if (c == '+') c = '-';
    if (c == '/') c = '_';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  constexpr size_t kTextMax = 1 << 20;
  if (text.size() % 4 != 0 || text.size() > kTextMax) return std::nullopt;
  size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (char c : text.substr(0, text.size() - padding)) {
    bool in_alphabet = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '+' || c == '/';
    if (!in_alphabet) return std::nullopt;  // OpenSSL would skip blanks
  }
  std::string out(text.size() / 4 * 3 + 1, '\0');
  int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(text),
                               static_cast<int>(text.size()));
  if (length < 0) return std::nullopt;
  out.resize(static_cast<size_t>(length) - padding);
  return out;
}

std::string sha256_bytes(std::string_view bytes) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  int ok = EVP_Digest(bytes.data(), bytes.size(), out, &length, EVP_sha256(), nullptr);
  CHECK(ok == 1 && length == 32) << "SHA-256 failed";
  return std::string(reinterpret_cast<const char*>(out), length);
}

std::string hmac_sha256_bytes(std::string_view key, std::string_view message) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  const void* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(message),
                          message.size(), out, &length);
  CHECK(done != nullptr && length == 32) << "HMAC failed";
  return std::string(reinterpret_cast<const char*>(out), length);
}

Result<std::string> rs256_sign(std::string_view private_key_pem, std::string_view message) {
  std::unique_ptr<BIO, Freed<BIO_free>> bio(
      BIO_new_mem_buf(private_key_pem.data(), static_cast<int>(private_key_pem.size())));
  CHECK(bio != nullptr);
  // Never asks a terminal for a password.
  auto no_password = [](char*, int, int, void*) { return -1; };
  std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (!key) return fail(Error::invalid("the private key is not readable PEM"));
  if (EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_RSA ||
      EVP_PKEY_get_bits(key.get()) < kRsaBitsMin) {
    return fail(Error::invalid("the private key is not an RSA key of at least 2048 bits"));
  }
  std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  size_t length = 0;
  if (EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &length, bytes_of(message), message.size()) != 1) {
    return fail(Error::internal("signing failed"));
  }
  std::string out(length, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &length,
                     bytes_of(message), message.size()) != 1) {
    return fail(Error::internal("signing failed"));
  }
  out.resize(length);
  return out;
}

FormText& FormText::add(std::string_view name, std::string_view value) {
  if (!text_.empty()) text_ += '&';
  text_ += percent_encode(name, Slash::kEncode) + "=" + percent_encode(value, Slash::kEncode);
  return *this;
}

}  // namespace celld
