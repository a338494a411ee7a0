// Natives of crypto: randomness, digests, comparison in constant time.
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/check.h"
#include "js/isolate_internal.h"

namespace celld::js {

namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

void random_fill(Args args) {
  auto bytes = bytes_of(args[0]);
  // OpenSSL takes an int.
  constexpr size_t kPiece = 1 << 20;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    size_t n = std::min(kPiece, bytes.size() - at);
    CHECK(RAND_bytes(bytes.data() + at, static_cast<int>(n)) == 1);
  }
}

void random_uuid(Args args) {
  uint8_t b[16];
  CHECK(RAND_bytes(b, sizeof b) == 1);
  b[6] = static_cast<uint8_t>((b[6] & 0x0f) | 0x40);  // version 4
  b[8] = static_cast<uint8_t>((b[8] & 0x3f) | 0x80);  // variant of RFC 4122
  static constexpr char kDigits[] = "0123456789abcdef";
  char text[36];
  char* out = text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    *out++ = kDigits[b[i] >> 4];
    *out++ = kDigits[b[i] & 15];
  }
  args.GetReturnValue().Set(to_v8(args.GetIsolate(), std::string_view(text, sizeof text)));
}

void digest(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  std::string name = to_utf8(isolate, args[0]);
  const EVP_MD* md = name == "SHA-1"     ? EVP_sha1()
                     : name == "SHA-256" ? EVP_sha256()
                     : name == "SHA-384" ? EVP_sha384()
                     : name == "SHA-512" ? EVP_sha512()
                     : name == "MD5"     ? EVP_md5()
                                         : nullptr;
  if (!md) return throw_error(isolate, "NotSupportedError", "Unrecognized digest algorithm: " + name);
  auto bytes = bytes_of(args[1]);
  uint8_t out[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), out, &size, md, nullptr) == 1);
  args.GetReturnValue().Set(
      to_array_buffer(isolate, std::string_view(reinterpret_cast<const char*>(out), size)));
}

void timing_safe_equal(Args args) {
  auto a = bytes_of(args[0]);
  auto b = bytes_of(args[1]);
  args.GetReturnValue().Set(a.size() == b.size() &&
                            CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0);
}

constexpr NativeFunction kTable[] = {
    {"randomFill", random_fill},
    {"randomUUID", random_uuid},
    {"digest", digest},
    {"timingSafeEqual", timing_safe_equal},
};

}  // namespace

std::span<const NativeFunction> crypto_natives() { return kTable; }

}  // namespace celld::js
