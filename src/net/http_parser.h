// HTTP/1.x requests from bytes (RFC 9112). Strict: what two implementations could read in two ways
// (bare LF, folded lines, both Content-Length and Transfer-Encoding, ...) is refused.
//
// Pure functions over bytes; no thread, no clock, no socket.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "net/http_message.h"

namespace celld {

enum class ParseStatus : uint8_t { kNeedMore, kDone, kError };

// Parses one request head.
class RequestParser {
 public:
  explicit RequestParser(const HttpLimits& limits) : limits_(limits) {}

  // Starts over; the next head is written to `into`, which outlives the parse.
  void reset(RequestHead* into);

  // `data` starts at the first byte of the head and holds all that has arrived; a longer call
  // repeats the bytes of the ones before. Work is linear in the bytes over all calls.
  //
  //   kDone   the head is complete; it is consumed() bytes long
  //   kError  answer error_status() with error_message() and close
  ParseStatus parse(std::string_view data);

  size_t consumed() const { return line_start_; }
  bool started() const { return scanned_ > 0; }
  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

  // Valid after kDone.
  bool chunked() const { return chunked_; }
  bool expect_continue() const { return expect_continue_; }
  bool http_1_0() const { return minor_version_ == 0; }

 private:
  ParseStatus fail(int status, std::string message);
  bool parse_request_line(std::string_view line);
  bool parse_header(std::string_view line);
  bool note_header(std::string_view name, std::string_view value);
  bool note_connection(std::string_view value);
  bool complete();

  const HttpLimits& limits_;
  RequestHead* head_ = nullptr;
  size_t line_start_ = 0;  // of the line not yet complete
  size_t scanned_ = 0;     // bytes known to hold no line end after line_start_
  bool have_request_line_ = false;
  int blank_lines_ = 0;
  uint8_t minor_version_ = 1;
  bool have_host_ = false;
  bool have_transfer_encoding_ = false;
  bool chunked_ = false;
  bool expect_continue_ = false;
  bool connection_close_ = false;
  bool connection_keep_alive_ = false;
  bool connection_upgrade_ = false;
  bool upgrade_websocket_ = false;
  int error_status_ = 0;
  std::string error_message_;
};

// Undoes Transfer-Encoding: chunked. Trailers are checked and dropped.
class ChunkedDecoder {
 public:
  void reset() { *this = ChunkedDecoder(); }

  // Appends the data in `in` to `out` and returns how many bytes of `in` were used: all of them,
  // unless the body ended or is malformed.
  size_t decode(std::string_view in, std::string& out);

  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }
  std::string_view error() const { return error_; }

 private:
  enum class State : uint8_t {
    kSize,
    kExtension,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,
    kTrailer,
    kTrailerLf,
    kEndLf,
    kDone,
    kFailed
  };
  size_t fail(size_t at, std::string_view why);

  State state_ = State::kSize;
  uint8_t digits_ = 0;
  uint32_t line_bytes_ = 0;     // of this size line
  uint32_t trailer_bytes_ = 0;  // of all trailers
  uint64_t left_ = 0;           // of this chunk
  std::string_view error_;
};

}  // namespace celld
