#include "node/peer_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace celld {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const std::string kCell = "Counter:" + std::string(64, 'a');

js::CellAddress cell(std::optional<std::string> name = {}) {
  return {CellId(kCell), std::move(name)};
}

std::string every_byte() {
  std::string out;
  for (int i = 0; i < 256; ++i) out += static_cast<char>(i);
  return out;
}

// No header has a name or value that would be another one on the wire.
void expect_plain(const std::string& block) {
  for (char c : block)
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << static_cast<int>(c);
}

TEST(PeerWire, a_fetch_arrives_as_it_was_sent) {
  js::HttpRequestMessage request;
  request.method = "PROPFIND";
  request.url = "http://example.com/a%20b?c=\xc3\xa9";
  request.headers = "accept\n*/*\nx-celld-cell\nnot ours\nh-h\n1\nh-h\n2\nempty\n\n";
  request.cf = R"({"a":"b c"})";
  request.body = Blob("12");
  std::string block = encode_peer_fetch(cell(every_byte()), request);
  auto got = decode_peer_fetch(block);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->to.cell.value, kCell);
  EXPECT_EQ(got->to.name, every_byte());
  EXPECT_EQ(got->request.method, request.method);
  EXPECT_EQ(got->request.url, request.url);
  EXPECT_EQ(got->request.headers, request.headers);
  EXPECT_EQ(got->request.cf, request.cf);
  EXPECT_TRUE(got->has_body);
  expect_plain(block);
}

TEST(PeerWire, no_body_and_a_body_of_no_bytes_differ) {
  js::HttpRequestMessage request;
  request.method = "GET";
  request.url = "http://x/";
  EXPECT_FALSE(decode_peer_fetch(encode_peer_fetch(cell(), request))->has_body);
  EXPECT_EQ(decode_peer_fetch(encode_peer_fetch(cell(), request))->to.name, std::nullopt);
  request.body = Blob("");
  EXPECT_TRUE(decode_peer_fetch(encode_peer_fetch(cell(""), request))->has_body);
  EXPECT_EQ(decode_peer_fetch(encode_peer_fetch(cell(""), request))->to.name, "");
}

TEST(PeerWire, a_call_arrives_as_it_was_sent) {
  std::string block = encode_peer_rpc(cell("n"), every_byte());
  auto got = decode_peer_rpc(block);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->to.cell.value, kCell);
  EXPECT_EQ(got->to.name, "n");
  EXPECT_EQ(got->method, every_byte());
  expect_plain(block);
}

TEST(PeerWire, headers_of_the_connection_are_not_passed_on) {
  js::HttpRequestMessage request;
  request.method = "GET";
  request.url = "http://x/";
  request.headers = "a\nb\n";
  auto got = decode_peer_fetch("host\n10.0.0.1\ncontent-length\n4\n" +
                               encode_peer_fetch(cell(), request) + "te\nx\n");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->request.headers, "a\nb\n");
}

TEST(PeerWire, what_is_missing_repeated_or_malformed_is_named) {
  js::HttpRequestMessage request;
  request.method = "GET";
  request.url = "http://x/";
  std::string good = encode_peer_fetch(cell("n"), request);
  auto without = [&](const std::string& name) {
    size_t from = good.find("x-celld-" + name + "\n");
    size_t to = good.find('\n', good.find('\n', from) + 1) + 1;
    return good.substr(0, from) + good.substr(to);
  };
  for (const char* name : {"cell", "method", "url", "body"}) {
    auto got = decode_peer_fetch(without(name));
    ASSERT_FALSE(got) << name;
    EXPECT_THAT(got.error().message, HasSubstr(std::string("x-celld-") + name));
  }
  for (const char* more : {"x-celld-cell\nx\n", "x-celld-url\nhttp://y/\n", "x-celld-body\nnone\n",
                           "x-celld-name\nn\n"}) {
    EXPECT_FALSE(decode_peer_fetch(good + more)) << more;
  }
  for (const char* bad : {"x-celld-cell\n\n", "x-celld-cell\n../own\n", "x-celld-cell\na b\n"}) {
    EXPECT_FALSE(decode_peer_fetch(without("cell") + bad)) << bad;
  }
  for (const char* bad : {"%", "%4", "%zz", "a b", "\x01", "\xff"}) {
    EXPECT_FALSE(decode_peer_fetch(without("url") + "x-celld-url\n" + bad + "\n")) << bad;
  }
  EXPECT_FALSE(decode_peer_fetch(without("body") + "x-celld-body\nall\n"));
  EXPECT_FALSE(decode_peer_rpc("x-celld-method\nm\n"));
  EXPECT_FALSE(decode_peer_rpc(""));
}

TEST(PeerWire, a_response_arrives_as_it_was_sent) {
  js::HttpResponseMessage response;
  response.status = 418;
  response.status_text = "Short and stout";
  response.headers = "set-cookie\na\nset-cookie\nb\nx-celld-reply\npong\n";
  response.body = Blob("x");
  auto got = decode_peer_reply(encode_peer_response(response, milliseconds(1'234)));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->kind, PeerReply::Kind::kFetch);
  EXPECT_EQ(got->authority, milliseconds(1'234));
  EXPECT_EQ(got->response.status, 418);
  EXPECT_EQ(got->response.status_text, response.status_text);
  EXPECT_EQ(got->response.headers, response.headers);
  EXPECT_EQ(got->body, PeerReply::BodyKind::kBytes);
}

TEST(PeerWire, other_replies_arrive_as_they_were_sent) {
  for (auto kind : {PeerReply::Kind::kValue, PeerReply::Kind::kError, PeerReply::Kind::kPong}) {
    auto got = decode_peer_reply(encode_peer_reply(kind, milliseconds(-5)));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->kind, kind);
    EXPECT_EQ(got->authority, milliseconds(0));
  }
}

TEST(PeerWire, replies_that_are_none_are_refused) {
  for (const char* bad : {"", "x-celld-reply\npong\n", "x-celld-authority-ms\n5\n",
                          "x-celld-reply\npong\nx-celld-authority-ms\n-5\n",
                          "x-celld-reply\npong\nx-celld-authority-ms\n99999999999\n",
                          "x-celld-reply\npong\nx-celld-reply\npong\nx-celld-authority-ms\n5\n",
                          "x-celld-reply\nping\nx-celld-authority-ms\n5\n",
                          "x-celld-reply\nfetch\nx-celld-authority-ms\n5\n",
                          "x-celld-reply\nfetch\nx-celld-authority-ms\n5\nx-celld-status\n1000\nx-"
                          "celld-body\nnone\n"}) {
    EXPECT_FALSE(decode_peer_reply(bad)) << bad;
  }
}

TEST(PeerWire, an_error_arrives_as_it_was_sent_and_nothing_else_does) {
  js::JsError error{"RangeError", "m\xc3\xa9", "at x\n at y", js::kRetryable | js::kElsewhere};
  error.packed = every_byte();
  std::string bytes = encode_peer_error(error);
  auto got = decode_peer_error(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->name, error.name);
  EXPECT_EQ(got->message, error.message);
  EXPECT_EQ(got->stack, error.stack);
  EXPECT_EQ(got->packed, error.packed);
  EXPECT_EQ(got->flags, error.flags);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_peer_error(bytes.substr(0, size))) << size;
  EXPECT_FALSE(decode_peer_error(bytes + "x"));
  EXPECT_FALSE(decode_peer_error("\x02" + bytes.substr(1)));
}

}  // namespace
}  // namespace celld
