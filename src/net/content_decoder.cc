#include "net/content_decoder.h"

#include <brotli/decode.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "base/check.h"

namespace celld {
namespace {

// gzip of one or several members, zlib, and the bare deflate that some servers mean by "deflate".
class ZlibDecoder final : public ContentDecoder {
 public:
  explicit ZlibDecoder(bool gzip) : gzip_(gzip) { begin(gzip ? 15 + 16 : 15); }
  ~ZlibDecoder() override { inflateEnd(&stream_); }
  ZlibDecoder(const ZlibDecoder&) = delete;
  ZlibDecoder& operator=(const ZlibDecoder&) = delete;

  bool complete() const override { return !started_ || ended_; }

  Result<size_t> decode(std::string_view in, std::string& out, size_t out_max) override {
    if (!in.empty() && !started_) {
      started_ = true;
      // The first nibble of a zlib header is 8 and never that of the deflate block types in use.
      if (!gzip_ && (static_cast<uint8_t>(in[0]) & 0x0f) != 8) begin(-15);
    }
    size_t used = 0;
    size_t before = out.size();
    out.resize(before + out_max);
    size_t made = 0;
    while (made < out_max) {
      if (ended_) {
        // Another member follows, or something that is none of ours.
        if (used == in.size()) break;
        if (!gzip_ || static_cast<uint8_t>(in[used]) != 0x1f) {
          used = in.size();
          break;
        }
        begin(15 + 16);
        ended_ = false;
      }
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()) + used);
      stream_.avail_in = static_cast<uInt>(std::min<size_t>(in.size() - used, UINT_MAX));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before + made);
      stream_.avail_out = static_cast<uInt>(std::min<size_t>(out_max - made, UINT_MAX));
      uInt in_before = stream_.avail_in;
      uInt out_before = stream_.avail_out;
      int code = inflate(&stream_, Z_NO_FLUSH);
      used += in_before - stream_.avail_in;
      made += out_before - stream_.avail_out;
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code == Z_BUF_ERROR) {
        break;
      } else if (code != Z_OK) {
        out.resize(before + made);
        return fail(Error::invalid(std::string("the compressed body is malformed: ") +
                                   (stream_.msg ? stream_.msg : "zlib error")));
      }
    }
    out.resize(before + made);
    return used;
  }

 private:
  void begin(int window_bits) {
    if (initialised_) {
      CHECK(inflateReset2(&stream_, window_bits) == Z_OK);
    } else {
      CHECK(inflateInit2(&stream_, window_bits) == Z_OK);
      initialised_ = true;
    }
  }

  const bool gzip_;
  bool initialised_ = false;
  bool started_ = false;
  bool ended_ = false;
  z_stream stream_{};
};

class BrotliDecoder final : public ContentDecoder {
 public:
  BrotliDecoder() : state_(BrotliDecoderCreateInstance(nullptr, nullptr, nullptr)) {
    CHECK(state_ != nullptr);
  }
  ~BrotliDecoder() override { BrotliDecoderDestroyInstance(state_); }
  BrotliDecoder(const BrotliDecoder&) = delete;
  BrotliDecoder& operator=(const BrotliDecoder&) = delete;

  bool complete() const override { return !started_ || BrotliDecoderIsFinished(state_); }

  Result<size_t> decode(std::string_view in, std::string& out, size_t out_max) override {
    if (!in.empty()) started_ = true;
    if (BrotliDecoderIsFinished(state_)) return in.size();
    size_t before = out.size();
    out.resize(before + out_max);
    size_t in_left = in.size();
    auto* next_in = reinterpret_cast<const uint8_t*>(in.data());
    size_t out_left = out_max;
    auto* next_out = reinterpret_cast<uint8_t*>(out.data() + before);
    auto code =
        BrotliDecoderDecompressStream(state_, &in_left, &next_in, &out_left, &next_out, nullptr);
    out.resize(before + out_max - out_left);
    if (code == BROTLI_DECODER_RESULT_ERROR) {
      return fail(Error::invalid(std::string("the compressed body is malformed: ") +
                                 BrotliDecoderErrorString(BrotliDecoderGetErrorCode(state_))));
    }
    if (code == BROTLI_DECODER_RESULT_SUCCESS) return in.size();
    return in.size() - in_left;
  }

 private:
  bool started_ = false;
  BrotliDecoderState* state_;
};

}  // namespace

std::unique_ptr<ContentDecoder> ContentDecoder::make(std::string_view content_encoding) {
  std::string coding;
  for (char c : content_encoding) {
    if (c != ' ' && c != '\t') {
      coding += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (coding == "gzip" || coding == "x-gzip") return std::make_unique<ZlibDecoder>(true);
  if (coding == "deflate") return std::make_unique<ZlibDecoder>(false);
  if (coding == "br") return std::make_unique<BrotliDecoder>();
  return nullptr;
}

}  // namespace celld
