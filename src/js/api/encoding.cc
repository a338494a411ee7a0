// Natives of text: UTF-8 both ways, the other encodings by ICU, base64.
#include <openssl/evp.h>
#include <unicode/ucnv.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "js/api/encoding_labels.h"
#include "js/isolate_internal.h"

namespace celld::js {

namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

bool is_ascii(std::span<const uint8_t> bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word & 0x8080808080808080ull) return false;
  }
  for (; i < bytes.size(); ++i) {
    if (bytes[i] & 0x80) return false;
  }
  return true;
}

// Unicode 15, table 3-7: well-formed UTF-8.
bool is_utf8(std::span<const uint8_t> b) {
  size_t i = 0;
  auto tail = [&](size_t at, uint8_t low = 0x80, uint8_t high = 0xbf) {
    return at < b.size() && b[at] >= low && b[at] <= high;
  };
  while (i < b.size()) {
    uint8_t c = b[i];
    if (c < 0x80) {
      ++i;
    } else if (c >= 0xc2 && c <= 0xdf) {
      if (!tail(i + 1)) return false;
      i += 2;
    } else if (c >= 0xe0 && c <= 0xef) {
      uint8_t low = c == 0xe0 ? 0xa0 : 0x80, high = c == 0xed ? 0x9f : 0xbf;
      if (!tail(i + 1, low, high) || !tail(i + 2)) return false;
      i += 3;
    } else if (c >= 0xf0 && c <= 0xf4) {
      uint8_t low = c == 0xf0 ? 0x90 : 0x80, high = c == 0xf4 ? 0x8f : 0xbf;
      if (!tail(i + 1, low, high) || !tail(i + 2) || !tail(i + 3)) return false;
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

void utf8_encode(Args args) {
  args.GetReturnValue().Set(to_uint8array(args.GetIsolate(), to_utf8(args.GetIsolate(), args[0])));
}

void utf8_encode_into(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  if (!args[0]->IsString()) return;
  auto target = bytes_of(args[1]);
  int read = 0;
  int written = args[0].As<v8::String>()->WriteUtf8(
      isolate, reinterpret_cast<char*>(target.data()), static_cast<int>(target.size()), &read,
      v8::String::NO_NULL_TERMINATION | v8::String::REPLACE_INVALID_UTF8);
  v8::Local<v8::Value> pair[] = {v8::Integer::New(isolate, read), v8::Integer::New(isolate, written)};
  args.GetReturnValue().Set(v8::Array::New(isolate, pair, 2));
}

void utf8_decode(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  std::span<const uint8_t> bytes = bytes_of(args[0]);
  bool fatal = args[1]->IsTrue();
  bool keep_bom = args[2]->IsTrue();
  if (!keep_bom && bytes.size() >= 3 && bytes[0] == 0xef && bytes[1] == 0xbb && bytes[2] == 0xbf) {
    bytes = bytes.subspan(3);
  }
  if (bytes.size() > static_cast<size_t>(v8::String::kMaxLength)) {
    return throw_error(isolate, "RangeError", "the decoded text is longer than a string can be");
  }
  v8::MaybeLocal<v8::String> text;
  int length = static_cast<int>(bytes.size());
  if (is_ascii(bytes)) {
    text = v8::String::NewFromOneByte(isolate, bytes.data(), v8::NewStringType::kNormal, length);
  } else {
    if (fatal && !is_utf8(bytes)) {
      return throw_error(isolate, "TypeError", "Failed to decode input.");
    }
    text = v8::String::NewFromUtf8(isolate, reinterpret_cast<const char*>(bytes.data()),
                                   v8::NewStringType::kNormal, length);
  }
  v8::Local<v8::String> result;
  if (text.ToLocal(&result)) args.GetReturnValue().Set(result);
}

// --- other encodings ---

struct Decoder {
  const Encoding* encoding = nullptr;
  UConverter* converter = nullptr;
  bool fatal = false;
  bool keep_bom = false;
  bool at_start = true;
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() {
    if (converter) ucnv_close(converter);
  }
};

Decoder* decoder_of(v8::Local<v8::Value> value) {
  if (!value->IsObject() || value.As<v8::Object>()->InternalFieldCount() != 1) return nullptr;
  return static_cast<Decoder*>(value.As<v8::Object>()->GetAlignedPointerFromInternalField(0));
}

void decoder_create(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  const Encoding* encoding = find_encoding(to_utf8(isolate, args[0]));
  if (!encoding) return;
  UErrorCode status = U_ZERO_ERROR;
  auto decoder = std::make_unique<Decoder>();
  decoder->encoding = encoding;
  decoder->converter = ucnv_open(encoding->converter, &status);
  decoder->fatal = args[1]->IsTrue();
  decoder->keep_bom = args[2]->IsTrue();
  if (U_FAILURE(status)) return;
  if (decoder->fatal) {
    ucnv_setToUCallBack(decoder->converter, UCNV_TO_U_CALLBACK_STOP, nullptr, nullptr, nullptr, &status);
  }
  v8::Local<v8::ObjectTemplate> shape = v8::ObjectTemplate::New(isolate);
  shape->SetInternalFieldCount(1);
  v8::Local<v8::Object> object;
  if (!shape->NewInstance(isolate->GetCurrentContext()).ToLocal(&object)) return;
  object->SetAlignedPointerInInternalField(0, decoder.get());
  constexpr size_t kDecoderBytes = 1024;  // a hint for the collector
  native_host(isolate).when_forgotten(object, kDecoderBytes, [owned = std::move(decoder)] {});
  args.GetReturnValue().Set(object);
}

void decoder_name(Args args) {
  if (Decoder* d = decoder_of(args[0])) {
    args.GetReturnValue().Set(to_v8(args.GetIsolate(), d->encoding->name));
  }
}

void decoder_decode(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  Decoder* d = decoder_of(args[0]);
  if (!d) return;
  auto bytes = bytes_of(args[1]);
  bool flush = !args[2]->IsTrue();
  std::u16string out;
  out.resize(bytes.size() * 2 + 16);
  const char* source = reinterpret_cast<const char*>(bytes.data());
  const char* source_end = source + bytes.size();
  size_t used = 0;
  while (true) {
    UErrorCode status = U_ZERO_ERROR;
    char16_t* target = out.data() + used;
    ucnv_toUnicode(d->converter, &target, out.data() + out.size(), &source, source_end, nullptr, flush,
                   &status);
    used = static_cast<size_t>(target - out.data());
    if (status == U_BUFFER_OVERFLOW_ERROR) {
      out.resize(out.size() * 2);
      continue;
    }
    if (U_FAILURE(status)) {
      ucnv_reset(d->converter);
      d->at_start = true;
      return throw_error(isolate, "TypeError", "Failed to decode input.");
    }
    break;
  }
  std::u16string_view text(out.data(), used);
  if (d->at_start && !text.empty()) {
    if (!d->keep_bom && text.front() == u'\ufeff') text.remove_prefix(1);
    d->at_start = false;
  }
  if (flush) {
    ucnv_reset(d->converter);
    d->at_start = true;
  }
  v8::Local<v8::String> result;
  if (v8::String::NewFromTwoByte(isolate, reinterpret_cast<const uint16_t*>(text.data()),
                                 v8::NewStringType::kNormal, static_cast<int>(text.size()))
          .ToLocal(&result)) {
    args.GetReturnValue().Set(result);
  }
}

// --- base64 ---

void base64_encode(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  v8::Local<v8::String> s = args[0].As<v8::String>();
  if (!s->ContainsOnlyOneByte()) {
    return throw_error(
        isolate, "InvalidCharacterError",
        "btoa() can only operate on characters in the Latin1 (ISO/IEC 8859-1) range.");
  }
  std::string in(static_cast<size_t>(s->Length()), '\0');
  s->WriteOneByte(isolate, reinterpret_cast<uint8_t*>(in.data()), 0, s->Length(),
                  v8::String::NO_NULL_TERMINATION);
  std::string out((in.size() + 2) / 3 * 4 + 1, '\0');
  int n = EVP_EncodeBlock(reinterpret_cast<uint8_t*>(out.data()),
                          reinterpret_cast<const uint8_t*>(in.data()), static_cast<int>(in.size()));
  out.resize(static_cast<size_t>(n));
  args.GetReturnValue().Set(to_v8(isolate, out));
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// "Forgiving-base64 decode" of the Infra Standard.
void base64_decode(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  std::string in = to_utf8(isolate, args[0]);
  std::erase_if(in, [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r'; });
  if (in.size() % 4 == 0) {
    for (int i = 0; i < 2 && in.ends_with('='); ++i) in.pop_back();
  }
  bool valid = in.size() % 4 != 1;
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (char c : in) {
    int digit = base64_digit(c);
    if (digit < 0) {
      valid = false;
      break;
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  if (!valid) {
    return throw_error(isolate, "InvalidCharacterError",
                       "atob() called with invalid base64-encoded data. (Only whitespace, '+', '/', "
                       "alphanumeric ASCII, and up to two terminal '=' signs when the input data "
                       "length is divisible by 4 are allowed.)");
  }
  v8::Local<v8::String> text;
  if (v8::String::NewFromOneByte(isolate, reinterpret_cast<const uint8_t*>(out.data()),
                                 v8::NewStringType::kNormal, static_cast<int>(out.size()))
          .ToLocal(&text)) {
    args.GetReturnValue().Set(text);
  }
}

constexpr NativeFunction kTable[] = {
    {"utf8Encode", utf8_encode},       {"utf8EncodeInto", utf8_encode_into},
    {"utf8Decode", utf8_decode},       {"decoderCreate", decoder_create},
    {"decoderName", decoder_name},     {"decoderDecode", decoder_decode},
    {"base64Encode", base64_encode},   {"base64Decode", base64_decode},
};

}  // namespace

std::span<const NativeFunction> encoding_natives() { return kTable; }

}  // namespace celld::js
