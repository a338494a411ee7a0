#include "net/content_encoder.h"

#include <brotli/encode.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "base/check.h"

namespace celld {
namespace {

constexpr size_t kStepBytes = 16 << 10;
// Bodies are coded while they are sent: quick rather than small.
constexpr int kGzipLevel = 4;
constexpr uint32_t kBrotliQuality = 4;

class GzipEncoder final : public ContentEncoder {
 public:
  GzipEncoder() {
    CHECK(deflateInit2(&stream_, kGzipLevel, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  }
  ~GzipEncoder() override { deflateEnd(&stream_); }
  GzipEncoder(const GzipEncoder&) = delete;
  GzipEncoder& operator=(const GzipEncoder&) = delete;

  std::string encode(std::string_view in) override {
    std::string out;
    while (in.size() > UINT_MAX) {
      run(in.substr(0, UINT_MAX), Z_NO_FLUSH, out);
      in.remove_prefix(UINT_MAX);
    }
    run(in, Z_SYNC_FLUSH, out);
    return out;
  }

  std::string finish() override {
    std::string out;
    run({}, Z_FINISH, out);
    return out;
  }

 private:
  void run(std::string_view in, int flush, std::string& out) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    do {
      size_t before = out.size();
      out.resize(before + kStepBytes);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
      stream_.avail_out = kStepBytes;
      int code = deflate(&stream_, flush);
      CHECK(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) << "deflate: " << code;
      out.resize(out.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

  z_stream stream_{};
};

class BrotliEncoder final : public ContentEncoder {
 public:
  BrotliEncoder() : state_(BrotliEncoderCreateInstance(nullptr, nullptr, nullptr)) {
    CHECK(state_ != nullptr);
    BrotliEncoderSetParameter(state_, BROTLI_PARAM_QUALITY, kBrotliQuality);
  }
  ~BrotliEncoder() override { BrotliEncoderDestroyInstance(state_); }
  BrotliEncoder(const BrotliEncoder&) = delete;
  BrotliEncoder& operator=(const BrotliEncoder&) = delete;

  std::string encode(std::string_view in) override { return run(in, BROTLI_OPERATION_FLUSH); }
  std::string finish() override { return run({}, BROTLI_OPERATION_FINISH); }

 private:
  std::string run(std::string_view in, BrotliEncoderOperation operation) {
    std::string out;
    size_t in_left = in.size();
    auto* next_in = reinterpret_cast<const uint8_t*>(in.data());
    do {
      size_t before = out.size();
      out.resize(before + kStepBytes);
      size_t out_left = kStepBytes;
      auto* next_out = reinterpret_cast<uint8_t*>(out.data() + before);
      CHECK(BrotliEncoderCompressStream(state_, operation, &in_left, &next_in, &out_left, &next_out,
                                        nullptr));
      out.resize(out.size() - out_left);
    } while (in_left > 0 || BrotliEncoderHasMoreOutput(state_));
    return out;
  }

  BrotliEncoderState* state_;
};

}  // namespace

std::unique_ptr<ContentEncoder> ContentEncoder::make(std::string_view content_encoding) {
  std::string coding;
  for (char c : content_encoding) {
    if (c != ' ' && c != '\t') {
      coding += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (coding == "gzip") return std::make_unique<GzipEncoder>();
  if (coding == "br") return std::make_unique<BrotliEncoder>();
  return nullptr;
}

}  // namespace celld
