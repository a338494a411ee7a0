#include "net/fetch_client.h"

#include <brotli/encode.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <boost/asio/post.hpp>

#include "net/content_decoder.h"
#include "net/http_server.h"
#include "net/loop_testing.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using net_testing::Loop;
using net_testing::LyingServer;
using net_testing::Raw;

std::string deflate_with(std::string_view text, int window_bits) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, 0);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string gzip(std::string_view text) { return deflate_with(text, 15 + 16); }
std::string brotli(std::string_view text) {
  size_t size = BrotliEncoderMaxCompressedSize(text.size()) + 64;
  std::string out(size, 0);
  EXPECT_TRUE(BrotliEncoderCompress(5, 22, BROTLI_MODE_GENERIC, text.size(),
                                    reinterpret_cast<const uint8_t*>(text.data()), &size,
                                    reinterpret_cast<uint8_t*>(out.data())));
  out.resize(size);
  return out;
}

TEST(ContentDecoder, decodes_in_pieces_of_every_size) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * i);
  for (auto& [coding, data] : std::vector<std::pair<std::string, std::string>>{
           {"gzip", gzip(text)},
           {"X-GZip", gzip(text.substr(0, 100)) + gzip(text.substr(100)) + "trailing garbage"},
           {"deflate", deflate_with(text, 15)},
           {"deflate", deflate_with(text, -15)},
           {"br", brotli(text)}}) {
    for (size_t step : {1ul, 7ul, 1ul << 20}) {
      for (size_t room : {1ul, 100ul, 1ul << 20}) {
        auto decoder = ContentDecoder::make(coding);
        std::string out;
        std::string_view rest = data;
        bool full = false;
        while (!rest.empty() || full) {
          size_t before = out.size();
          auto used = decoder->decode(rest.substr(0, step), out, room);
          ASSERT_TRUE(used) << coding << used.error().message;
          rest.remove_prefix(*used);
          full = out.size() - before == room;
          ASSERT_LE(out.size() - before, room);
        }
        EXPECT_TRUE(out == text) << coding << step << room;
        EXPECT_TRUE(decoder->complete());
      }
    }
  }
  EXPECT_EQ(ContentDecoder::make("identity"), nullptr);
  EXPECT_EQ(ContentDecoder::make("zstd"), nullptr);
  EXPECT_EQ(ContentDecoder::make("gzip, br"), nullptr);
}

class FetchClientTest : public testing::Test {
 protected:
  FetchClientTest() {
    server = std::make_unique<HttpServer>(loop.io, HttpLimits{},
                                          [this](auto e) { handler(std::move(e)); });
    std::vector<Acceptor::Sink> sinks;
    sinks.push_back([this](int fd) { server->adopt(fd); });
    acceptor = *Acceptor::listen(loop.io, "127.0.0.1", 0, std::move(sinks));
    client = std::make_unique<FetchClient>(loop.io);
  }
  std::string url(std::string_view path = "/") {
    return "http://127.0.0.1:" + std::to_string(acceptor->port()) + std::string(path);
  }

  struct Seen {
    int status = 0;
    std::string status_text, block, body;
    int pieces = 0;
    size_t largest = 0;
    std::optional<Result<void>> end;
  };
  std::shared_ptr<FetchCall> begin(FetchRequest request, std::shared_ptr<Seen> seen) {
    return client->start(std::move(request),
                         {.on_head =
                              [seen](int status, std::string text, std::string block) {
                                EXPECT_EQ(seen->status, 0);
                                seen->status = status;
                                seen->status_text = std::move(text);
                                seen->block = std::move(block);
                              },
                          .on_body =
                              [seen](Blob piece) {
                                EXPECT_NE(seen->status, 0);
                                EXPECT_FALSE(piece.empty());
                                seen->body += piece.view();
                                ++seen->pieces;
                                seen->largest = std::max(seen->largest, piece.size());
                              },
                          .on_end =
                              [seen](Result<void> end) {
                                EXPECT_FALSE(seen->end);
                                seen->end = std::move(end);
                              }});
  }
  std::shared_ptr<Seen> fetch(FetchRequest request, LyingServer* liar = nullptr) {
    auto seen = std::make_shared<Seen>();
    begin(std::move(request), seen);
    EXPECT_TRUE(loop.run_until([&] {
      if (liar) liar->serve();
      return seen->end.has_value();
    }));
    return seen;
  }
  // Answers with the request body.
  static void echo(std::shared_ptr<HttpExchange> e) {
    e->start_response(200, "", "x-request\n" + e->head().method + "\n", std::nullopt);
    echo_more(std::move(e));
  }
  static void echo_more(std::shared_ptr<HttpExchange> e) {
    auto& ref = *e;
    ref.read_body([e = std::move(e)](Result<Blob> piece) mutable {
      if (!piece) return e->abort();
      if (piece->empty()) return e->finish();
      auto& ref = *e;
      ref.write_body(std::move(*piece), [e = std::move(e)](Result<void> done) mutable {
        if (done) echo_more(std::move(e));
      });
    });
  }

  Loop loop;
  std::string seen_headers;
  std::function<void(std::shared_ptr<HttpExchange>)> handler = [this](auto e) {
    seen_headers = e->head().header_block;
    e->respond(200, "Fine", "x-a\n1\nx-a\n2\n", Blob(e->head().target));
  };
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<FetchClient> client;
};

TEST_F(FetchClientTest, a_reply_comes_as_head_body_end) {
  auto seen = fetch(
      {.method = "GET", .url = url("/x/../y?z"), .header_block = "x-b\nc\ncontent-length\n99\n"});
  ASSERT_TRUE(*seen->end) << seen->end->error().message;
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->status_text, "Fine");
  EXPECT_TRUE(seen->block.starts_with("x-a\n1\nx-a\n2\ncontent-length\n9\ndate\n")) << seen->block;
  EXPECT_EQ(seen->body, "/x/../y?z");
  EXPECT_EQ(seen_headers, "host\n" + url("").substr(7) + "\nx-b\nc\naccept-encoding\nbr, gzip\n");
}

TEST_F(FetchClientTest, a_redirect_is_a_reply) {
  handler = [](auto e) { e->respond(301, "", "location\n/y\n", Blob("moved")); };
  auto seen = fetch({.method = "GET", .url = url()});
  EXPECT_EQ(seen->status, 301);
  EXPECT_EQ(seen->body, "moved");
}

TEST_F(FetchClientTest, whole_and_pulled_bodies_arrive) {
  handler = echo;
  auto whole = fetch({.method = "POST", .url = url(), .body = Blob("whole body")});
  ASSERT_TRUE(*whole->end) << whole->end->error().message;
  EXPECT_EQ(whole->body, "whole body");
  for (bool known_length : {true, false}) {
    for (bool late : {true, false}) {
      FetchRequest request{.method = "PUT", .url = url()};
      if (known_length) request.pull_bytes = 10 * 30'000;
      request.pull = [&, n = 0](auto done) mutable {
        Blob piece = n < 10 ? Blob(std::string(30'000, static_cast<char>('a' + n))) : Blob();
        ++n;
        if (!late) return done(std::move(piece));
        boost::asio::post(loop.io,
                          [done = std::move(done), piece]() mutable { done(std::move(piece)); });
      };
      auto pulled = fetch(std::move(request));
      ASSERT_TRUE(*pulled->end) << pulled->end->error().message;
      std::string expected;
      for (char c = 'a'; c < 'a' + 10; ++c) expected += std::string(30'000, c);
      EXPECT_TRUE(pulled->body == expected) << known_length << late << pulled->body.size();
    }
  }
}

TEST_F(FetchClientTest, the_pull_is_held_back_by_a_server_that_does_not_read) {
  std::shared_ptr<HttpExchange> held;
  handler = [&](auto e) { held = std::move(e); };
  size_t pulled = 0;
  FetchRequest request{.method = "PUT", .url = url()};
  request.pull = [&](auto done) {
    if (pulled == 64 << 20) return done(Blob());
    pulled += 64 << 10;
    done(Blob(std::string(64 << 10, 'x')));
  };
  auto seen = std::make_shared<Seen>();
  auto call = begin(std::move(request), seen);
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  for (size_t before = 1; before != pulled;) {
    before = pulled;
    loop.settle();
  }
  EXPECT_LT(pulled, 16u << 20);
  held->start_response(200, "", "", std::nullopt);
  size_t got = 0;
  std::function<void()> more = [&] {
    held->read_body([&](Result<Blob> p) {
      ASSERT_TRUE(p);
      got += p->size();
      p->empty() ? held->finish() : more();
    });
  };
  more();
  ASSERT_TRUE(loop.run_until([&] { return seen->end.has_value(); }));
  EXPECT_TRUE(*seen->end);
  EXPECT_EQ(got, 64u << 20);
}

TEST_F(FetchClientTest, a_failed_pull_fails_the_call_and_the_server_sees_it) {
  std::optional<Result<Blob>> read;
  std::shared_ptr<HttpExchange> held;
  handler = [&](std::shared_ptr<HttpExchange> e) {
    held = e;
    e->read_body(
        [&](Result<Blob>) { held->read_body([&](Result<Blob> p) { read = std::move(p); }); });
  };
  FetchRequest request{.method = "PUT", .url = url()};
  request.pull = [&, n = 0](auto done) mutable {
    if (n++ == 0) return done(Blob("part"));
    if (!held)
      return boost::asio::post(loop.io, [done = std::move(done)]() mutable {
        done(fail(Error::internal("stream broke")));
      });
    done(fail(Error::internal("stream broke")));
  };
  auto seen = fetch(std::move(request));
  ASSERT_FALSE(*seen->end);
  EXPECT_EQ(seen->end->error().message, "stream broke");
  ASSERT_TRUE(loop.run_until([&] { return read.has_value() || !held; }));
  if (read) {
    EXPECT_FALSE(*read);
  }
}

TEST_F(FetchClientTest, a_pulled_body_must_have_its_announced_length) {
  handler = echo;
  for (uint64_t announced : {3u, 5u}) {
    FetchRequest request{.method = "PUT", .url = url(), .pull_bytes = announced};
    request.pull = [n = 0](auto done) mutable { done(n++ == 0 ? Blob("four") : Blob()); };
    auto seen = fetch(std::move(request));
    if (announced == 5) {
      ASSERT_FALSE(*seen->end);
      EXPECT_EQ(seen->end->error().code, ErrorCode::kInvalid);
    } else {
      // What is too much is not sent.
      EXPECT_TRUE(!*seen->end || seen->body == "fou") << seen->body;
    }
  }
}

TEST_F(FetchClientTest, a_paused_call_holds_the_server_back) {
  size_t written = 0;
  constexpr size_t kTotal = 64 << 20;
  std::function<void(std::shared_ptr<HttpExchange>)> more = [&](std::shared_ptr<HttpExchange> e) {
    if (written == kTotal) return e->finish();
    auto& ref = *e;
    ref.write_body(Blob(std::string(64 << 10, 'x')), [&, e](Result<void> done) {
      ASSERT_TRUE(done);
      written += 64 << 10;
      more(e);
    });
  };
  handler = [&](auto e) {
    e->start_response(200, "", "", std::nullopt);
    more(e);
  };
  std::shared_ptr<FetchCall> call;
  int pieces = 0;
  size_t got = 0;
  std::optional<Result<void>> end;
  call = client->start({.method = "GET", .url = url()},
                       {.on_head = nullptr,
                        .on_body =
                            [&](Blob piece) {
                              got += piece.size();
                              if (++pieces == 1) call->pause();
                            },
                        .on_end = [&](Result<void> e) { end = std::move(e); }});
  ASSERT_TRUE(loop.run_until([&] { return pieces == 1; }));
  for (size_t before = 1; before != written;) {
    before = written;
    loop.settle();
  }
  EXPECT_EQ(pieces, 1);
  EXPECT_LT(written, 16u << 20);
  call->resume();
  ASSERT_TRUE(loop.run_until([&] { return end.has_value(); }));
  EXPECT_TRUE(*end);
  EXPECT_EQ(got, kTotal);
}

TEST_F(FetchClientTest, compressed_replies_are_undone_in_bounded_pieces) {
  std::string text(20 << 20, 'z');
  for (auto& [coding, data] : std::vector<std::pair<std::string, std::string>>{
           {"gzip", gzip(text)}, {"br", brotli(text)}, {"deflate", deflate_with(text, -15)}}) {
    handler = [&](auto e) {
      e->respond(200, "", "content-encoding\n" + coding + "\n", Blob(data));
    };
    auto seen = fetch({.method = "GET", .url = url()});
    ASSERT_TRUE(*seen->end) << coding << seen->end->error().message;
    EXPECT_TRUE(seen->body == text) << coding;
    EXPECT_LE(seen->largest, 256u << 10) << "a small reply may not become large at once";
    EXPECT_NE(seen->block.find("content-encoding\n" + coding), std::string::npos);
    seen = fetch({.method = "GET", .url = url(), .decompress = false});
    EXPECT_TRUE(seen->body == data);
    handler = [&](auto e) {
      e->respond(200, "", "content-encoding\n" + coding + "\n",
                 Blob(data.substr(0, data.size() / 2)));
    };
    seen = fetch({.method = "GET", .url = url()});
    ASSERT_FALSE(*seen->end) << coding;
    EXPECT_EQ(seen->end->error().code, ErrorCode::kInvalid);
    handler = [&](auto e) {
      e->respond(200, "", "content-encoding\n" + coding + "\n", Blob("no such thing"));
    };
    ASSERT_FALSE(*fetch({.method = "GET", .url = url()})->end) << coding;
    handler = [&](auto e) { e->respond(200, "", "content-encoding\n" + coding + "\n", Blob()); };
    EXPECT_TRUE(*fetch({.method = "GET", .url = url()})->end);
    EXPECT_TRUE(*fetch({.method = "HEAD", .url = url()})->end);
  }
  handler = [&](auto e) { e->respond(200, "", "content-encoding\nzstd\n", Blob("as it is")); };
  EXPECT_EQ(fetch({.method = "GET", .url = url()})->body, "as it is");
}

TEST_F(FetchClientTest, cancel_ends_everything_at_once) {
  bool left = false;
  std::shared_ptr<HttpExchange> held;
  handler = [&](auto e) {
    held = e;
    e->on_disconnect([&] { left = true; });
    e->start_response(200, "", "", std::nullopt);
    e->write_body(Blob("first"), [](Result<void>) {});
  };
  std::shared_ptr<FetchCall> call;
  int called = 0;
  call = client->start({.method = "GET", .url = url()},
                       {.on_head = [&](int, std::string, std::string) { ++called; },
                        .on_body =
                            [&](Blob) {
                              ++called;
                              call->cancel();
                            },
                        .on_end = [&](Result<void>) { ++called; }});
  ASSERT_TRUE(loop.run_until([&] { return left; }));
  loop.settle();
  EXPECT_EQ(called, 2);
  call->cancel();
}

TEST_F(FetchClientTest, bad_requests_end_with_an_error_that_names_them) {
  for (std::string bad : {"ftp://h/", "file:///etc/passwd", "gopher://h", "data:text/plain,x",
                          "relative", "http://a b/"}) {
    auto seen = fetch({.method = "GET", .url = bad});
    ASSERT_FALSE(*seen->end) << bad;
    EXPECT_EQ(seen->end->error().code, ErrorCode::kInvalid);
  }
  for (std::string method : {"", "GE T", "CONNECT", "A\r\nB"}) {
    EXPECT_FALSE(*fetch({.method = method, .url = url()})->end);
  }
  EXPECT_FALSE(*fetch({.method = "GET", .url = url(), .header_block = "a b\nc\n"})->end);
  auto refused = fetch({.method = "GET", .url = "http://127.0.0.1:1/"});
  ASSERT_FALSE(*refused->end);
  EXPECT_EQ(refused->end->error().code, ErrorCode::kUnavailable);
}

TEST_F(FetchClientTest, a_reply_cut_short_ends_with_an_error_after_its_body) {
  LyingServer liar(loop, [&](Raw& c) {
    c.send_some("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
    c.close();
  });
  auto seen = fetch({.method = "GET", .url = liar.url()}, &liar);
  EXPECT_EQ(seen->body, "12345");
  ASSERT_FALSE(*seen->end);
  EXPECT_EQ(seen->end->error().code, ErrorCode::kUnavailable);
}

TEST_F(FetchClientTest, running_calls_end_when_the_client_goes) {
  std::shared_ptr<HttpExchange> held;
  handler = [&](auto e) { held = e; };
  auto seen = std::make_shared<Seen>();
  begin({.method = "GET", .url = url()}, seen);
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  client.reset();
  ASSERT_TRUE(loop.run_until([&] { return seen->end.has_value(); }));
  ASSERT_FALSE(*seen->end);
  EXPECT_EQ(seen->end->error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace celld
