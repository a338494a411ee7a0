#include "net/http_parser.h"

#include <gtest/gtest.h>

namespace celld {
namespace {

struct Parsed {
  ParseStatus status = ParseStatus::kNeedMore;
  int error = 0;
  std::string message;
  RequestHead head;
  bool chunked = false;
  bool expect = false;
  size_t consumed = 0;
};

Parsed parse(std::string_view text, HttpLimits limits = {}, size_t step = 1 << 30) {
  Parsed p;
  RequestParser parser(limits);
  parser.reset(&p.head);
  for (size_t end = 0; p.status == ParseStatus::kNeedMore && end < text.size();) {
    end = std::min(text.size(), end + step);
    p.status = parser.parse(text.substr(0, end));
  }
  p.error = parser.error_status();
  p.message = parser.error_message();
  p.chunked = parser.chunked();
  p.expect = parser.expect_continue();
  p.consumed = parser.consumed();
  return p;
}

TEST(RequestParser, reads_a_head_the_same_in_one_piece_and_byte_by_byte) {
  std::string text =
      "POST /a?b=c HTTP/1.1\r\nHost: Example.com:80\r\nX-Two:  b \t\r\nx-two: c\r\nEmpty:\r\n"
      "Content-Length: 12\r\nExpect: 100-Continue\r\n\r\nbody";
  for (size_t step : {1ul, 2ul, 7ul, 1000ul}) {
    auto p = parse(text, {}, step);
    ASSERT_EQ(p.status, ParseStatus::kDone) << p.message;
    EXPECT_EQ(p.head.method, "POST");
    EXPECT_EQ(p.head.target, "/a?b=c");
    EXPECT_EQ(p.head.host, "Example.com:80");
    EXPECT_EQ(p.head.header_block,
              "host\nExample.com:80\nx-two\nb\nx-two\nc\nempty\n\ncontent-length\n12\n"
              "expect\n100-Continue\n");
    EXPECT_EQ(p.head.content_length, 12u);
    EXPECT_TRUE(p.head.has_body);
    EXPECT_TRUE(p.head.keep_alive);
    EXPECT_TRUE(p.expect);
    EXPECT_EQ(p.consumed, text.size() - 4);
  }
}

TEST(RequestParser, knows_who_wants_to_keep_the_connection) {
  auto keeps = [](std::string text) { return parse(text).head.keep_alive; };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

TEST(RequestParser, knows_a_websocket_upgrade) {
  EXPECT_TRUE(parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\n"
                    "Connection: keep-alive, Upgrade\r\n\r\n")
                  .head.upgrade_websocket);
  EXPECT_FALSE(
      parse("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n").head.upgrade_websocket);
  EXPECT_FALSE(parse("POST / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\n\r\n")
                   .head.upgrade_websocket);
}

// What two programs could understand differently, one before the other, is refused.
TEST(RequestParser, refuses_what_could_smuggle_a_request) {
  struct Case {
    const char* text;
    int status;
  };
  const std::string line = "POST / HTTP/1.1\r\nHost: a\r\n";
  for (auto& [headers, status] : std::initializer_list<Case>{
           {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", 400},
           {"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", 400},
           {"Content-Length: 4\r\nContent-Length: 5\r\n", 400},
           {"Content-Length: 4\r\nContent-Length: 4\r\n", 400},
           {"Content-Length: 4, 4\r\n", 400},
           {"Content-Length: +4\r\n", 400},
           {"Content-Length: -4\r\n", 400},
           {"Content-Length: 0x4\r\n", 400},
           {"Content-Length: 4 4\r\n", 400},
           {"Content-Length:\r\n", 400},
           {"Content-Length: 99999999999999999999999999\r\n", 413},
           {"Content-Length: 18446744073709551620\r\n", 413},
           {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
           {"Transfer-Encoding: xchunked\r\n", 501},
           {"Transfer-Encoding: gzip, chunked\r\n", 501},
           {"Transfer-Encoding: chunked, identity\r\n", 501},
           {"Transfer-Encoding: \x0b"
            "chunked\r\n",
            400},
           {"Transfer-Encoding : chunked\r\n", 400},
           {" Transfer-Encoding: chunked\r\n", 400},
           {"X: a\r\n folded\r\n", 400},
           {"Transfer-Encoding: chunked\n", 400},
           {"X: a\rTransfer-Encoding: chunked\r\n", 400},
           {"X\r\n", 400},
           {": a\r\n", 400},
           {"X\x7f: a\r\n", 400},
           {"Host: b\r\n", 400},
           {"Expect: 200-ok\r\n", 417},
       }) {
    auto p = parse(line + headers + "\r\n");
    EXPECT_EQ(p.status, ParseStatus::kError) << headers;
    EXPECT_EQ(p.error, status) << headers << p.message;
    EXPECT_FALSE(p.message.empty());
  }
  using namespace std::string_literals;
  for (auto& [text, status] : std::initializer_list<std::pair<std::string, int>>{
           {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
           {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
           {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
           {"GET / x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
           {"GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n", 400},
           {"GET /\0x HTTP/1.1\r\nHost: a\r\n\r\n"s, 400},
           {"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n"s, 400},
           {"GET /\r\nHost: a\r\n\r\n", 400},
           {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
           {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
           {"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
           {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
           {"GET / HTTP/1.1\nHost: a\n\n", 400},
           {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
           {"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
           {"\x16\x03\x01\x02", 400},  // TLS to a plain port: answered at once
       }) {
    auto p = parse(text);
    EXPECT_EQ(p.status, ParseStatus::kError) << text;
    EXPECT_EQ(p.error, status) << text << p.message;
  }
}

TEST(RequestParser, holds_to_its_limits_before_the_head_is_complete) {
  HttpLimits limits{.request_line_bytes_max = 100, .head_bytes_max = 300, .body_bytes_max = 1000};
  auto p = parse("GET /" + std::string(100, 'a'), limits);
  EXPECT_EQ(p.error, 414);
  EXPECT_NE(p.message.find("100 bytes"), p.message.npos);
  p = parse("GET / HTTP/1.1\r\nX: " + std::string(300, 'a'), limits);
  EXPECT_EQ(p.error, 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 100; ++i) many += "a: b\r\n";
  EXPECT_EQ(parse(many + "\r\n", limits).error, 431);
  p = parse("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", limits);
  EXPECT_EQ(p.error, 413);
  EXPECT_NE(p.message.find("1000 bytes"), p.message.npos);
  EXPECT_EQ(parse("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", limits).status,
            ParseStatus::kDone);
}

std::string decode(std::string_view text, size_t step, bool& done, bool& failed,
                   size_t* used = nullptr) {
  ChunkedDecoder decoder;
  std::string out;
  size_t at = 0;
  while (at < text.size() && !decoder.done() && !decoder.failed()) {
    at += decoder.decode(text.substr(at, step), out);
  }
  done = decoder.done();
  failed = decoder.failed();
  if (used) *used = at;
  return out;
}

TEST(ChunkedDecoder, gives_the_same_bytes_for_every_split) {
  std::string text = "5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: x\r\nB:\r\n\r\nNEXT";
  for (size_t step = 1; step <= text.size(); ++step) {
    bool done, failed;
    size_t used;
    EXPECT_EQ(decode(text, step, done, failed, &used), "hello0123456789") << step;
    EXPECT_TRUE(done);
    EXPECT_EQ(used, text.size() - 4) << "the next request is left alone";
  }
}

TEST(ChunkedDecoder, refuses_malformed_bodies) {
  for (std::string text :
       {"x\r\n", "\r\n", "5\nhello\r\n", "5\r\nhelloX", "5\r\nhello\rX", "5\rX", "-5\r\nhello",
        "+5\r\n", "0x5\r\n", "5 5\x01\r\n", "0\r\n\rX", "0\r\n: x\r\n\r\n", "0\r\nA\x01\r\n",
        "1000000000000000\r\n", "5;\x01\r\nhello\r\n", "0\r\nA: b\rX"}) {
    bool done, failed;
    decode(text, 1, done, failed);
    EXPECT_TRUE(failed) << text;
  }
  bool done, failed;
  decode("5;" + std::string(5000, 'x'), 100, done, failed);
  EXPECT_TRUE(failed) << "endless extension";
  decode("0\r\nA: " + std::string(20000, 'x'), 100, done, failed);
  EXPECT_TRUE(failed) << "endless trailer";
}

TEST(FindHeader, is_the_first_of_that_name) {
  EXPECT_EQ(find_header("a\n1\nb\n2\na\n3\n", "a"), "1");
  EXPECT_EQ(find_header("a\n1\nb\n2\n", "b"), "2");
  EXPECT_EQ(find_header("a\nb\n", "b"), std::nullopt);
  EXPECT_EQ(find_header("", "b"), std::nullopt);
}

}  // namespace
}  // namespace celld
