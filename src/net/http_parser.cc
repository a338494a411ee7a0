#include "net/http_parser.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace celld {
namespace {

constexpr int kBlankLinesMax = 2;  // before a request line, as old clients send after a body
constexpr size_t kMethodBytesMax = 64;
constexpr uint32_t kChunkLineBytesMax = 4096;
constexpr uint32_t kTrailerBytesMax = 16 << 10;

// For each byte the lower-case form when it may stand in a token, else 0 (RFC 9110, 5.6.2).
constexpr auto kToken = [] {
  std::array<char, 256> t{};
  for (int c = '0'; c <= '9'; ++c) t[c] = static_cast<char>(c);
  for (int c = 'a'; c <= 'z'; ++c) t[c] = static_cast<char>(c);
  for (int c = 'A'; c <= 'Z'; ++c) t[c] = static_cast<char>(c - 'A' + 'a');
  for (char c : {'!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~'}) {
    t[static_cast<uint8_t>(c)] = c;
  }
  return t;
}();

// Bytes that may stand in a field value: visible, space, tab, and above 0x7f.
constexpr auto kValue = [] {
  std::array<bool, 256> t{};
  for (int c = 0x20; c < 0x100; ++c) t[c] = c != 0x7f;
  t['\t'] = true;
  return t;
}();

// Bytes of a request target: no space and no control character.
constexpr auto kTarget = [] {
  std::array<bool, 256> t{};
  for (int c = 0x21; c < 0x100; ++c) t[c] = c != 0x7f;
  return t;
}();

// Bytes of a Host value: what a reg-name, an address, a port may hold (RFC 3986, 3.2).
constexpr auto kHost = [] {
  std::array<bool, 256> t{};
  for (int c = '0'; c <= '9'; ++c) t[c] = true;
  for (int c = 'a'; c <= 'z'; ++c) t[c] = t[c - 'a' + 'A'] = true;
  for (char c : {'-', '.', '_', '~', '%', '!', '$', '&', '\'', '(', ')', '*', '+', ',', ';', '=',
                 ':', '[', ']'}) {
    t[static_cast<uint8_t>(c)] = true;
  }
  return t;
}();

template <class Table>
bool all_in(const Table& table, std::string_view text) {
  bool ok = true;
  for (char c : text) ok &= static_cast<bool>(table[static_cast<uint8_t>(c)]);
  return ok;
}

bool equals_lower(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c != lower[i]) return false;
  }
  return true;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls `each` with every member of a comma-separated list.
template <class F>
void for_each_member(std::string_view list, F each) {
  while (true) {
    size_t comma = list.find(',');
    if (auto member = trim(list.substr(0, comma)); !member.empty()) each(member);
    if (comma == list.npos) return;
    list.remove_prefix(comma + 1);
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void RequestParser::reset(RequestHead* into) {
  head_ = into;
  line_start_ = scanned_ = 0;
  have_request_line_ = false;
  blank_lines_ = 0;
  minor_version_ = 1;
  have_host_ = have_transfer_encoding_ = chunked_ = expect_continue_ = false;
  connection_close_ = connection_keep_alive_ = connection_upgrade_ = upgrade_websocket_ = false;
  error_status_ = 0;
}

ParseStatus RequestParser::fail(int status, std::string message) {
  error_status_ = status;
  error_message_ = std::move(message);
  return ParseStatus::kError;
}

ParseStatus RequestParser::parse(std::string_view data) {
  CHECK(head_ != nullptr && scanned_ <= data.size()) << "scanned " << scanned_;
  while (true) {
    size_t from = std::max(line_start_, scanned_);
    const void* found =
        from < data.size() ? std::memchr(data.data() + from, '\n', data.size() - from) : nullptr;
    size_t end =
        found ? static_cast<size_t>(static_cast<const char*>(found) - data.data()) : data.size();
    if (!have_request_line_ && end - line_start_ > limits_.request_line_bytes_max) {
      return fail(414, "the request line is longer than " +
                           std::to_string(limits_.request_line_bytes_max) + " bytes");
    }
    if (end > limits_.head_bytes_max) {
      return fail(431, "the request head is larger than " + std::to_string(limits_.head_bytes_max) +
                           " bytes");
    }
    if (!found) {
      scanned_ = data.size();
      // What cannot become a request line is refused now: the client may wait for an answer.
      if (!have_request_line_ && line_start_ < data.size()) {
        char c = data[line_start_];
        if (c != '\r' && !kToken[static_cast<uint8_t>(c)]) {
          return fail(400, "the request does not start with a method");
        }
      }
      return ParseStatus::kNeedMore;
    }
    if (end == line_start_ || data[end - 1] != '\r') {
      return fail(400, "a line of the request head does not end with CR LF");
    }
    std::string_view line = data.substr(line_start_, end - 1 - line_start_);
    line_start_ = scanned_ = end + 1;
    if (!have_request_line_) {
      if (line.empty()) {
        if (++blank_lines_ > kBlankLinesMax) return fail(400, "empty lines before the request");
        continue;
      }
      if (!parse_request_line(line)) return ParseStatus::kError;
      have_request_line_ = true;
    } else if (line.empty()) {
      return complete() ? ParseStatus::kDone : ParseStatus::kError;
    } else if (!parse_header(line)) {
      return ParseStatus::kError;
    }
  }
}

bool RequestParser::parse_request_line(std::string_view line) {
  size_t method_end = line.find(' ');
  size_t target_end = line.rfind(' ');
  if (method_end == line.npos || target_end <= method_end) {
    fail(400, "the request line is not \"METHOD TARGET HTTP/1.1\"");
    return false;
  }
  auto method = line.substr(0, method_end);
  auto target = line.substr(method_end + 1, target_end - method_end - 1);
  auto version = line.substr(target_end + 1);
  if (method.empty() || method.size() > kMethodBytesMax || !all_in(kToken, method)) {
    fail(400, "the request method is not a token of at most 64 bytes");
    return false;
  }
  if (target.empty() || !all_in(kTarget, target)) {
    fail(400, "the request target is empty or holds a space or a control character");
    return false;
  }
  if (version == "HTTP/1.1") {
    minor_version_ = 1;
  } else if (version == "HTTP/1.0") {
    minor_version_ = 0;
  } else if (version.starts_with("HTTP/") && version.size() == 8) {
    fail(505, "this server speaks HTTP/1.1 and HTTP/1.0");
    return false;
  } else {
    fail(400, "the request line does not end with an HTTP version");
    return false;
  }
  head_->method.assign(method);
  head_->target.assign(target);
  return true;
}

bool RequestParser::parse_header(std::string_view line) {
  // The name goes to the block in lower case while it is checked.
  auto& block = head_->header_block;
  size_t name_at = block.size();
  size_t i = 0;
  block.resize(name_at + line.size() + 2);
  char* out = block.data() + name_at;
  for (; i < line.size(); ++i) {
    char lower = kToken[static_cast<uint8_t>(line[i])];
    if (lower == 0) break;
    out[i] = lower;
  }
  if (i == 0 || i == line.size() || line[i] != ':') {
    block.resize(name_at);
    fail(400, i == 0 ? "a header line is folded or has no name"
                     : "a header name holds a forbidden character or no colon follows it");
    return false;
  }
  std::string_view value = trim(line.substr(i + 1));
  if (!all_in(kValue, value)) {
    std::string name(out, i);
    block.resize(name_at);
    fail(400, "the value of header \"" + name + "\" holds a control character");
    return false;
  }
  out[i] = '\n';
  std::memcpy(out + i + 1, value.data(), value.size());
  out[i + 1 + value.size()] = '\n';
  block.resize(name_at + i + 1 + value.size() + 1);
  return note_header(std::string_view(block).substr(name_at, i), value);
}

// Keeps what the connection itself must know.
bool RequestParser::note_header(std::string_view name, std::string_view value) {
  switch (name.size()) {
    case 4:
      if (name == "host") {
        if (have_host_) {
          fail(400, "more than one Host header");
          return false;
        }
        if (!all_in(kHost, value)) {
          fail(400, "the Host header is not a host");
          return false;
        }
        have_host_ = true;
        head_->host.assign(value);
      }
      break;
    case 6:
      if (name == "expect") {
        if (!equals_lower(value, "100-continue")) {
          fail(417, "the only expectation this server meets is 100-continue");
          return false;
        }
        expect_continue_ = true;
      }
      break;
    case 7:
      if (name == "upgrade") {
        for_each_member(value, [&](std::string_view member) {
          upgrade_websocket_ |= equals_lower(member, "websocket");
        });
      }
      break;
    case 10:
      if (name == "connection") {
        for_each_member(value, [&](std::string_view member) {
          connection_close_ |= equals_lower(member, "close");
          connection_keep_alive_ |= equals_lower(member, "keep-alive");
          connection_upgrade_ |= equals_lower(member, "upgrade");
        });
      }
      break;
    case 14:
      if (name == "content-length") {
        if (head_->content_length) {
          fail(400, "more than one Content-Length header");
          return false;
        }
        bool digits = !value.empty() &&
                      std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
        if (!digits) {
          fail(400, "the Content-Length header is not a number");
          return false;
        }
        uint64_t length = 0;
        for (char c : value) {
          // Saturates: any such length is over the limit.
          if (length > UINT64_MAX / 10 - 10) {
            length = UINT64_MAX;
            break;
          }
          length = length * 10 + static_cast<uint64_t>(c - '0');
        }
        head_->content_length = length;
      }
      break;
    case 17:
      if (name == "transfer-encoding") {
        if (have_transfer_encoding_) {
          fail(400, "more than one Transfer-Encoding header");
          return false;
        }
        have_transfer_encoding_ = true;
        if (!equals_lower(value, "chunked")) {
          fail(501, "the only transfer coding this server knows is chunked");
          return false;
        }
        chunked_ = true;
      }
      break;
    default:
      break;
  }
  return true;
}

bool RequestParser::complete() {
  if (minor_version_ == 1 && !have_host_) {
    fail(400, "the Host header is missing");
    return false;
  }
  if (chunked_ && head_->content_length) {
    fail(400, "both Content-Length and Transfer-Encoding");
    return false;
  }
  if (chunked_ && minor_version_ == 0) {
    fail(400, "Transfer-Encoding in an HTTP/1.0 request");
    return false;
  }
  if (head_->content_length.value_or(0) > limits_.body_bytes_max) {
    fail(413, "the request body is larger than the limit of " +
                  std::to_string(limits_.body_bytes_max) + " bytes");
    return false;
  }
  head_->has_body = chunked_ || head_->content_length.value_or(0) > 0;
  head_->keep_alive = !connection_close_ && (minor_version_ == 1 || connection_keep_alive_);
  head_->upgrade_websocket = upgrade_websocket_ && connection_upgrade_ && minor_version_ == 1 &&
                             head_->method == "GET" && !head_->has_body;
  expect_continue_ = expect_continue_ && minor_version_ == 1 && head_->has_body;
  return true;
}

size_t ChunkedDecoder::fail(size_t at, std::string_view why) {
  state_ = State::kFailed;
  error_ = why;
  return at;
}

size_t ChunkedDecoder::decode(std::string_view in, std::string& out) {
  size_t i = 0;
  while (i < in.size()) {
    char c = in[i];
    switch (state_) {
      case State::kSize: {
        int digit = hex_digit(c);
        if (digit >= 0) {
          if (digits_ == 15) return fail(i, "a chunk size has more than 15 digits");
          ++digits_;
          left_ = left_ << 4 | static_cast<uint64_t>(digit);
        } else if (digits_ == 0) {
          return fail(i, "a chunk does not start with its size");
        } else if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (c == ';' || c == ' ' || c == '\t') {
          state_ = State::kExtension;
        } else {
          return fail(i, "a chunk size is not a hexadecimal number");
        }
        ++i;
        break;
      }
      case State::kExtension:
        if (++line_bytes_ > kChunkLineBytesMax) return fail(i, "a chunk extension is too long");
        if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (!kValue[static_cast<uint8_t>(c)]) {
          return fail(i, "a chunk extension holds a control character");
        }
        ++i;
        break;
      case State::kSizeLf:
        if (c != '\n') return fail(i, "a chunk size does not end with CR LF");
        state_ = left_ > 0 ? State::kData : State::kTrailerStart;
        digits_ = 0;
        line_bytes_ = 0;
        ++i;
        break;
      case State::kData: {
        size_t n = static_cast<size_t>(std::min<uint64_t>(left_, in.size() - i));
        out.append(in.substr(i, n));
        i += n;
        left_ -= n;
        if (left_ == 0) state_ = State::kDataCr;
        break;
      }
      case State::kDataCr:
        if (c != '\r') return fail(i, "a chunk is longer than its size");
        state_ = State::kDataLf;
        ++i;
        break;
      case State::kDataLf:
        if (c != '\n') return fail(i, "a chunk is longer than its size");
        state_ = State::kSize;
        ++i;
        break;
      case State::kTrailerStart:
        if (c == '\r') {
          state_ = State::kEndLf;
          ++i;
          break;
        }
        if (!kToken[static_cast<uint8_t>(c)]) return fail(i, "a trailer has no name");
        state_ = State::kTrailer;
        break;
      case State::kTrailer:
        if (++trailer_bytes_ > kTrailerBytesMax) return fail(i, "the trailers are too long");
        if (c == '\r') {
          state_ = State::kTrailerLf;
        } else if (!kValue[static_cast<uint8_t>(c)]) {
          return fail(i, "a trailer holds a control character");
        }
        ++i;
        break;
      case State::kTrailerLf:
        if (c != '\n') return fail(i, "a trailer does not end with CR LF");
        state_ = State::kTrailerStart;
        ++i;
        break;
      case State::kEndLf:
        if (c != '\n') return fail(i, "the chunked body does not end with CR LF");
        state_ = State::kDone;
        return i + 1;
      case State::kDone:
      case State::kFailed:
        return i;
    }
  }
  return i;
}

}  // namespace celld
