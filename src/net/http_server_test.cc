#include "net/http_server.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <fstream>

#include "net/loop_testing.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using net_testing::Loop;
using net_testing::Raw;
using Exchange = std::shared_ptr<HttpExchange>;

constexpr std::string_view kText = "content-type\ntext/plain\n";

class HttpServerTest : public testing::Test {
 protected:
  void serve(HttpLimits limits = {}) {
    server = std::make_unique<HttpServer>(loop.io, limits, [this](Exchange e) {
      ++handled;
      handler(std::move(e));
    });
    std::vector<Acceptor::Sink> sinks;
    sinks.push_back([this](int fd) { server->adopt(fd); });
    auto listening = Acceptor::listen(loop.io, "127.0.0.1", 0, std::move(sinks));
    ASSERT_TRUE(listening) << listening.error().message;
    acceptor = std::move(*listening);
  }
  Raw client(int receive_buffer = 0) { return Raw::connect(acceptor->port(), receive_buffer); }

  // Sends `request` on a connection of its own and returns all that comes back before the end.
  std::string ask_until_close(std::string_view request) {
    Raw c = client();
    c.send(loop, request);
    EXPECT_TRUE(c.receive_to_end(loop)) << request.substr(0, 200);
    return c.received;
  }

  // Reads the whole body, then calls `done`.
  static void collect(Exchange e, std::string so_far,
                      std::function<void(Exchange, Result<std::string>)> done) {
    auto& ref = *e;
    ref.read_body([e = std::move(e), so_far = std::move(so_far),
                   done = std::move(done)](Result<Blob> piece) mutable {
      if (!piece) return done(std::move(e), fail(piece.error()));
      if (piece->empty()) return done(std::move(e), std::move(so_far));
      so_far += piece->view();
      collect(std::move(e), std::move(so_far), std::move(done));
    });
  }

  Loop loop;
  int handled = 0;
  std::function<void(Exchange)> handler = [](Exchange e) {
    e->respond(200, "", kText, Blob("target " + e->head().target));
  };
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<Acceptor> acceptor;
};

size_t count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

std::string get(std::string_view target) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

TEST_F(HttpServerTest, answers_several_requests_on_one_connection) {
  serve();
  Raw c = client();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(c.send(loop, get("/" + std::to_string(i))));
    ASSERT_TRUE(c.receive_until(loop, "target /" + std::to_string(i)));
  }
  EXPECT_TRUE(c.received.starts_with(
      "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9\r\ndate: "));
  EXPECT_EQ(server->open_connections(), 1u);
  c.close();
  EXPECT_TRUE(loop.run_until([&] { return server->open_connections() == 0; }));
}

TEST_F(HttpServerTest, pipelined_requests_are_answered_in_order) {
  // Every second one is answered later than asked.
  handler = [&](Exchange e) {
    auto answer = [e] { e->respond(200, "", "", Blob("[" + e->head().target + "]")); };
    if (handled % 2) {
      boost::asio::post(loop.io, answer);
    } else {
      answer();
    }
  };
  serve();
  Raw c = client();
  std::string all, expected;
  for (int i = 0; i < 500; ++i) all += get("/" + std::to_string(i));
  ASSERT_TRUE(c.send(loop, all));
  ASSERT_TRUE(c.receive_until(loop, "[/499]"));
  size_t at = 0;
  for (int i = 0; i < 500; ++i) {
    at = c.received.find("[/" + std::to_string(i) + "]", at);
    ASSERT_NE(at, c.received.npos) << i;
  }
}

TEST_F(HttpServerTest, a_request_may_be_split_at_every_byte) {
  handler = [](Exchange e) {
    collect(std::move(e), "", [](Exchange e, Result<std::string> body) {
      ASSERT_TRUE(body) << body.error().message;
      e->respond(200, "", "", Blob("<" + *body + ">"));
    });
  };
  serve();
  for (std::string request :
       {std::string("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
        std::string("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "2\r\nhe\r\n3;x\r\nllo\r\n0\r\nT: u\r\n\r\n")}) {
    Raw c = client();
    for (size_t split = 1; split < request.size(); ++split) {
      c.received.clear();
      ASSERT_TRUE(c.send(loop, request.substr(0, split)));
      loop.settle();
      ASSERT_TRUE(c.send(loop, request.substr(split)));
      ASSERT_TRUE(c.receive_until(loop, "<hello>")) << split << c.received;
    }
  }
}

TEST_F(HttpServerTest, each_limit_has_its_status_and_names_itself) {
  serve({.request_line_bytes_max = 1000, .head_bytes_max = 4000, .body_bytes_max = 100'000});
  std::string answer =
      ask_until_close("GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 414 URI Too Long\r\n")) << answer;
  EXPECT_NE(answer.find("longer than 1000 bytes\n"), answer.npos);
  EXPECT_NE(answer.find("connection: close\r\n"), answer.npos);
  answer =
      ask_until_close("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(100'000, 'a') + "\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 431 ")) << answer;
  // The body comes along, and the client reads the answer only when all of it is sent.
  answer = ask_until_close("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n" +
                           std::string(8'000'000, 'x'));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n")) << answer;
  EXPECT_NE(answer.find("limit of 100000 bytes"), answer.npos);
  EXPECT_EQ(handled, 0);
}

TEST_F(HttpServerTest, a_chunked_body_over_the_limit_is_answered_413_whatever_the_handler_does) {
  std::optional<Error> seen;
  handler = [&](Exchange e) {
    collect(std::move(e), "", [&](Exchange e, Result<std::string> body) {
      ASSERT_FALSE(body);
      seen = body.error();
      e->respond(500, "", "", Blob("handler failed"));
    });
  };
  serve({.body_bytes_max = 100'000});
  std::string chunk = "2710\r\n" + std::string(10'000, 'x') + "\r\n";
  std::string request = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i) request += chunk;
  std::string answer = ask_until_close(request + "0\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer;
  EXPECT_EQ(count(answer, "HTTP/1.1"), 1u);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code, ErrorCode::kOverloaded);
}

TEST_F(HttpServerTest, a_malformed_chunked_body_is_answered_400) {
  handler = [&](Exchange e) {
    collect(std::move(e), "", [](Exchange, Result<std::string> body) { EXPECT_FALSE(body); });
  };
  serve();
  std::string answer = ask_until_close(
      "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
}

TEST_F(HttpServerTest, a_smuggled_request_is_never_handled) {
  serve();
  for (std::string headers :
       {"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Content-Length: 0\r\nContent-Length: 30\r\n", "Transfer-Encoding : chunked\r\n"}) {
    std::string answer = ask_until_close("POST / HTTP/1.1\r\nHost: a\r\n" + headers +
                                         "\r\n0\r\n\r\n" + get("/smuggled"));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << headers << answer;
    EXPECT_EQ(count(answer, "HTTP/1.1"), 1u);
  }
  EXPECT_EQ(handled, 0);
}

TEST_F(HttpServerTest, a_client_that_does_not_read_holds_the_writer_back) {
  constexpr size_t kChunk = 64 << 10, kTotal = 64 << 20;
  size_t written = 0;
  std::function<void(Exchange)> more = [&](Exchange e) {
    if (written == kTotal) return e->finish();
    auto& ref = *e;
    ref.write_body(Blob(std::string(kChunk, 'x')), [&, e](Result<void> done) {
      ASSERT_TRUE(done);
      written += kChunk;
      more(e);
    });
  };
  handler = [&](Exchange e) {
    e->start_response(200, "", kText, kTotal);
    more(e);
  };
  serve();
  Raw c = client(/*receive_buffer=*/32 << 10);
  ASSERT_TRUE(c.send(loop, get("/")));
  size_t before = 1;
  while (before != written) {
    before = written;
    loop.settle();
  }
  EXPECT_LT(written, 16u << 20) << "the rest waits for the client";
  size_t got = 0;
  ASSERT_TRUE(loop.run_until([&] {
    c.receive();
    got += c.received.size();
    c.received.clear();
    return got > kTotal;
  }));
  EXPECT_EQ(written, kTotal);
}

TEST_F(HttpServerTest, a_body_nobody_reads_stays_with_the_client) {
  Exchange held;
  handler = [&](Exchange e) { held = std::move(e); };
  serve();
  Raw c = client();
  constexpr size_t kTotal = 64 << 20;
  ASSERT_TRUE(c.send(
      loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(kTotal) + "\r\n\r\n"));
  std::string piece(256 << 10, 'x');
  size_t sent = 0;
  for (size_t before = 1; before != sent;) {
    before = sent;
    while (size_t n = c.send_some(
               std::string_view(piece).substr(0, std::min(piece.size(), kTotal - sent))))
      sent += n;
    loop.settle();
  }
  EXPECT_LT(sent, 16u << 20) << "16 KiB in the server, the rest in the kernel";
  size_t got = 0;
  bool ended = false;
  std::function<void()> pull = [&] {
    held->read_body([&](Result<Blob> p) {
      ASSERT_TRUE(p) << p.error().message;
      ASSERT_LE(p->size(), 128u << 10);
      got += p->size();
      if (!p->empty()) return pull();
      ended = true;
      held->respond(200, "", "", Blob("thanks"));
    });
  };
  pull();
  ASSERT_TRUE(loop.run_until([&] {
    if (sent < kTotal)
      sent += c.send_some(std::string_view(piece).substr(0, std::min(piece.size(), kTotal - sent)));
    return ended;
  }));
  EXPECT_EQ(got, kTotal);
  EXPECT_TRUE(c.receive_until(loop, "thanks"));
}

TEST_F(HttpServerTest, an_aborted_response_cannot_be_taken_for_a_whole_one) {
  for (bool known_length : {true, false}) {
    handler = [&](Exchange e) {
      e->start_response(200, "", kText, known_length ? std::optional<uint64_t>(100) : std::nullopt);
      e->write_body(Blob("part"), [e](Result<void>) { e->abort(); });
    };
    serve();
    Raw c = client();
    ASSERT_TRUE(c.send(loop, get("/")));
    ASSERT_TRUE(c.receive_to_end(loop));
    // What was sent arrives; the framing shows that it is not all.
    EXPECT_FALSE(c.reset);
    EXPECT_NE(c.received.find("part"), c.received.npos);
    EXPECT_EQ(c.received.find("0\r\n\r\n"), c.received.npos);
  }
}

TEST_F(HttpServerTest, a_response_shorter_than_announced_ends_the_connection_and_a_longer_one_is_cut) {
  handler = [&](Exchange e) {
    e->start_response(200, "", kText, 6);
    e->write_body(Blob(e->head().target == "/long" ? "0123456789" : "012"),
                  [e](Result<void>) { e->finish(); });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/long")));
  ASSERT_TRUE(c.receive_until(loop, "\r\n\r\n012345"));
  ASSERT_TRUE(c.send(loop, get("/short")));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_FALSE(c.reset);
  EXPECT_EQ(c.received.find("6789"), c.received.npos);
}

TEST_F(HttpServerTest, streams_in_chunks_and_keeps_the_connection) {
  handler = [&](Exchange e) {
    e->start_response(201, "Made", "x-a\n1\nx-a\n2\n", std::nullopt);
    e->write_body(Blob("hello"), [e](Result<void>) {
      e->write_body(Blob(std::string(5000, 'y')), [e](Result<void>) {});
      e->finish();  // with the write outstanding
    });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/") + get("/")));
  ASSERT_TRUE(loop.run_until([&] {
    c.receive();
    return count(c.received, "\r\n0\r\n\r\n") == 2;
  })) << c.received;
  EXPECT_TRUE(c.received.starts_with(
      "HTTP/1.1 201 Made\r\nx-a: 1\r\nx-a: 2\r\ntransfer-encoding: chunked\r\n"));
  EXPECT_NE(c.received.find("\r\n\r\n5\r\nhello\r\n1388\r\nyyy"), c.received.npos);
}

TEST_F(HttpServerTest, the_head_of_a_stream_does_not_wait_for_its_body) {
  Exchange held;
  handler = [&](Exchange e) {
    held = e;
    e->start_response(200, "", "content-type\ntext/event-stream\n", std::nullopt);
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  EXPECT_TRUE(c.receive_until(loop, "event-stream\r\n"));
}

TEST_F(HttpServerTest, continue_is_sent_when_the_body_is_wanted_and_not_before) {
  Exchange held;
  handler = [&](Exchange e) { held = std::move(e); };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(
      loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  loop.settle();
  c.receive();
  EXPECT_EQ(c.received, "");
  std::string body;
  collect(held, "", [&](Exchange e, Result<std::string> b) {
    ASSERT_TRUE(b);
    e->respond(200, "", "", Blob("<" + *b + ">"));
  });
  ASSERT_TRUE(c.receive_until(loop, "HTTP/1.1 100 Continue\r\n\r\n"));
  ASSERT_TRUE(c.send(loop, "hello"));
  ASSERT_TRUE(c.receive_until(loop, "<hello>"));
  EXPECT_EQ(c.received.find("connection: close"), c.received.npos);
}

TEST_F(HttpServerTest, a_refusal_instead_of_continue_closes_the_connection) {
  handler = [](Exchange e) { e->respond(403, "", "", Blob("no")); };
  serve();
  std::string answer = ask_until_close(
      "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 403 ")) << answer;
  EXPECT_NE(answer.find("connection: close\r\n"), answer.npos);
}

TEST_F(HttpServerTest, tells_when_the_client_leaves_before_the_response) {
  for (bool with_reset : {false, true}) {
    Exchange held;
    bool left = false;
    handler = [&](Exchange e) {
      held = e;
      e->on_disconnect([&] { left = true; });
    };
    serve();
    Raw c = client();
    ASSERT_TRUE(c.send(loop, get("/")));
    ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
    loop.settle();
    EXPECT_FALSE(left);
    with_reset ? c.close_with_reset() : c.close();
    ASSERT_TRUE(loop.run_until([&] { return left; }));
    // Everything is still allowed.
    bool late = false;
    held->on_disconnect([&] { late = true; });
    held->respond(200, "", "", Blob("x"));
    std::optional<Result<Blob>> read;
    held->read_body([&](Result<Blob> r) { read = std::move(r); });
    ASSERT_TRUE(loop.run_until([&] { return late && read; }));
    held.reset();
    EXPECT_TRUE(loop.run_until([&] { return server->open_connections() == 0; }));
  }
}

TEST_F(HttpServerTest, tells_when_the_client_leaves_with_its_body_unread) {
  Exchange held;
  bool left = false;
  handler = [&](Exchange e) {
    held = e;
    e->on_disconnect([&] { left = true; });
  };
  serve({.head_timeout = 200ms});  // looks every 50 ms
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" +
                               std::string(100'000, 'x')));
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  c.close();
  EXPECT_TRUE(loop.run_until([&] { return left; }));
}

TEST_F(HttpServerTest, a_streaming_response_ends_when_the_client_leaves) {
  std::optional<Error> error;
  bool left = false;
  std::function<void(Exchange)> more = [&](Exchange e) {
    e->write_body(Blob(std::string(100'000, 'x')), [&, e](Result<void> done) {
      if (done) return more(e);
      error = done.error();
    });
  };
  handler = [&](Exchange e) {
    e->on_disconnect([&] { left = true; });
    e->start_response(200, "", "", std::nullopt);
    more(e);
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  ASSERT_TRUE(c.receive_until(loop, "xxx"));
  c.close();
  ASSERT_TRUE(loop.run_until([&] { return error && left; }));
  EXPECT_EQ(error->code, ErrorCode::kCancelled);
}

// The symptom was a stream that nobody wrote to any more, kept for ever for a client that had gone.
TEST_F(HttpServerTest, a_client_that_went_away_in_silence_is_given_up) {
  Exchange held;
  int gone = 0;
  bool left = false;
  handler = [&](Exchange e) {
    held = e;
    e->on_disconnect([&] { left = true; });
    e->on_gone([&] { ++gone; });
    e->start_response(200, "", "", std::nullopt);
    e->on_gone([&] { ++gone; });
  };
  serve({.half_closed_timeout = 300ms});
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  ASSERT_TRUE(c.receive_until(loop, "chunked"));
  c.shut_write();
  ASSERT_TRUE(loop.run_until([&] { return left; }));
  EXPECT_EQ(gone, 0);
  ASSERT_TRUE(loop.run_until([&] { return gone == 2; }));
  EXPECT_EQ(server->open_connections(), 0u);
  held->on_gone([&] { ++gone; });
  ASSERT_TRUE(loop.run_until([&] { return gone == 3; })) << "it is told also when it asks late";
}

TEST_F(HttpServerTest, a_client_that_closed_its_sending_side_gets_a_slow_stream) {
  Exchange held;
  int gone = 0;
  handler = [&](Exchange e) {
    held = e;
    e->on_gone([&] { ++gone; });
    e->start_response(200, "", "", std::nullopt);
  };
  serve({.half_closed_timeout = 400ms});
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  c.shut_write();
  for (int i = 0; i < 10; ++i) {
    auto end = std::chrono::steady_clock::now() + 100ms;
    ASSERT_TRUE(loop.run_until([&] { return std::chrono::steady_clock::now() > end; }));
    held->write_body(Blob("x"), [](Result<void>) {});
  }
  EXPECT_EQ(gone, 0);
  held->finish();
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.received.ends_with("1\r\nx\r\n0\r\n\r\n")) << c.received;
  loop.settle();
  EXPECT_EQ(gone, 0) << "the response had ended";
}

TEST_F(HttpServerTest, a_body_cut_short_is_an_error_not_an_end) {
  std::optional<Result<std::string>> body;
  handler = [&](Exchange e) {
    collect(std::move(e), "", [&](Exchange, Result<std::string> b) { body = std::move(b); });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345"));
  loop.settle();
  c.close();
  ASSERT_TRUE(loop.run_until([&] { return body.has_value(); }));
  ASSERT_FALSE(*body);
  EXPECT_EQ(body->error().code, ErrorCode::kCancelled);
}

TEST_F(HttpServerTest, a_client_that_closed_its_sending_side_gets_all_responses) {
  handler = [&](Exchange e) {
    boost::asio::post(loop.io,
                      [e] { e->respond(200, "", "", Blob("[" + e->head().target + "]")); });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/1") + get("/2") + get("/3")));
  c.shut_write();
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.ended);
  EXPECT_NE(c.received.find("[/3]"), c.received.npos) << c.received;
}

TEST_F(HttpServerTest, responses_without_a_body) {
  handler = [](Exchange e) {
    auto& target = e->head().target;
    if (target == "/204") return e->respond(204, "", "content-length\n5\n", Blob("wrong"));
    if (target == "/304") return e->respond(304, "", "content-length\n77\netag\n\"x\"\n", Blob());
    if (target == "/stream") {
      e->start_response(200, "", "", std::nullopt);
      e->write_body(Blob("12345"), [e](Result<void>) { e->finish(); });
      return;
    }
    e->respond(200, "", "", Blob("12345"));
  };
  serve();
  auto head = [](std::string target) { return "HEAD " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"; };
  Raw c = client();
  ASSERT_TRUE(c.send(loop, head("/") + head("/stream") + get("/204") + get("/304") + get("/end")));
  ASSERT_TRUE(c.receive_until(loop, "12345"));
  EXPECT_EQ(count(c.received, "12345"), 1u);
  EXPECT_EQ(count(c.received, "wrong"), 0u);
  EXPECT_EQ(count(c.received, "content-length: 5\r\n"), 2u) << c.received;
  EXPECT_EQ(count(c.received, "content-length: 77\r\n"), 1u);
  EXPECT_EQ(count(c.received, "transfer-encoding: chunked\r\n"), 1u);
}

TEST_F(HttpServerTest, http_1_0_gets_no_chunks) {
  handler = [](Exchange e) {
    if (e->head().target == "/whole") return e->respond(200, "", "", Blob("whole"));
    e->start_response(200, "", "", std::nullopt);
    e->write_body(Blob("stream"), [e](Result<void>) { e->finish(); });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "GET /whole HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  ASSERT_TRUE(c.receive_until(loop, "whole"));
  EXPECT_NE(c.received.find("connection: keep-alive\r\n"), c.received.npos);
  ASSERT_TRUE(c.send(loop, "GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.received.ends_with("\r\n\r\nstream"));
}

TEST_F(HttpServerTest, an_exchange_that_is_dropped_is_answered) {
  handler = [](Exchange e) {
    if (e->head().target == "/started") {
      e->start_response(200, "", "", 10);
      e->write_body(Blob("123"), [e](Result<void>) {});
    }
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  ASSERT_TRUE(c.receive_until(loop, "HTTP/1.1 500 Internal Server Error\r\n"));
  ASSERT_TRUE(c.send(loop, get("/started")));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.reset);
}

TEST_F(HttpServerTest, an_unread_body_is_dropped_if_short_and_ends_the_connection_if_long) {
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "PUT /short HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"));
  ASSERT_TRUE(c.receive_until(loop, "target /short"));
  ASSERT_TRUE(c.send(loop, std::string(100'000, 'x') + get("/next")));
  ASSERT_TRUE(c.receive_until(loop, "target /next")) << c.received;
  ASSERT_TRUE(c.send(loop,
                     "PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" +
                         get("/last")));
  ASSERT_TRUE(c.receive_until(loop, "target /last"));
  ASSERT_TRUE(c.send(loop, "PUT /long HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" +
                               std::string(10'000'000, 'x')));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.ended) << "the response can be read, no reset";
  EXPECT_NE(c.received.find("target /long"), c.received.npos);
}

TEST_F(HttpServerTest, a_slow_head_is_answered_408_and_an_idle_connection_closed) {
  serve({.head_timeout = 80ms, .idle_timeout = 120ms});
  Raw slow = client(), silent = client(), idle = client();
  ASSERT_TRUE(slow.send(loop, "GET / HTT"));
  ASSERT_TRUE(idle.send(loop, get("/")));
  ASSERT_TRUE(slow.receive_to_end(loop));
  EXPECT_TRUE(slow.received.starts_with("HTTP/1.1 408 ")) << slow.received;
  ASSERT_TRUE(silent.receive_to_end(loop));
  EXPECT_EQ(silent.received, "");
  ASSERT_TRUE(idle.receive_to_end(loop));
  EXPECT_TRUE(idle.received.ends_with("target /"));
}

TEST_F(HttpServerTest, a_stalled_body_is_answered_408_and_a_stalled_reader_is_cut_off) {
  handler = [&](Exchange e) {
    if (e->head().method == "PUT") {
      collect(std::move(e), "", [](Exchange, Result<std::string> body) {
        ASSERT_FALSE(body);
        EXPECT_EQ(body.error().code, ErrorCode::kDeadline);
      });
    } else {
      e->respond(200, "", "", Blob(std::string(64 << 20, 'x')));
    }
  };
  serve({.body_timeout = 80ms, .write_timeout = 80ms});
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n123"));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.received.starts_with("HTTP/1.1 408 ")) << c.received;
  c.close();
  Raw d = client();
  ASSERT_TRUE(d.send(loop, get("/")));
  ASSERT_TRUE(loop.run_until([&] { return server->open_connections() == 0; }));
}

TEST_F(HttpServerTest, stop_closes_idle_connections_and_lets_busy_ones_finish) {
  Exchange held;
  handler = [&](Exchange e) {
    if (e->head().target == "/held") {
      held = std::move(e);
    } else {
      e->respond(200, "", "", Blob("quick"));
    }
  };
  serve();
  Raw idle = client(), busy = client(), just_sent = client();
  ASSERT_TRUE(idle.send(loop, get("/")));
  ASSERT_TRUE(idle.receive_until(loop, "quick"));
  ASSERT_TRUE(just_sent.send(loop, get("/")));
  ASSERT_TRUE(just_sent.receive_until(loop, "quick"));
  ASSERT_TRUE(busy.send(loop, get("/held")));
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  just_sent.received.clear();
  just_sent.send_some(get("/"));  // arrived, not yet read by the server
  bool empty = false;
  server->stop([&] { empty = true; });
  ASSERT_TRUE(idle.receive_to_end(loop));
  ASSERT_TRUE(just_sent.receive_to_end(loop));
  EXPECT_NE(just_sent.received.find("connection: close\r\n"), just_sent.received.npos);
  EXPECT_FALSE(empty);
  held->respond(200, "", "", Blob("late"));
  ASSERT_TRUE(busy.receive_to_end(loop));
  EXPECT_TRUE(busy.received.ends_with("late"));
  EXPECT_NE(busy.received.find("connection: close\r\n"), busy.received.npos);
  busy.close(), idle.close(), just_sent.close();
  EXPECT_TRUE(loop.run_until([&] { return empty; }));
  EXPECT_EQ(server->open_connections(), 0u);
}

TEST_F(HttpServerTest, stop_ends_a_connection_whose_response_had_promised_to_keep_it) {
  Exchange held;
  handler = [&](Exchange e) {
    held = e;
    e->start_response(200, "", "", std::nullopt);
    e->write_body(Blob("first"), [](Result<void>) {});
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  ASSERT_TRUE(c.receive_until(loop, "first"));
  server->stop([] {});
  held->finish();
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.ended);
  EXPECT_TRUE(c.received.ends_with("\r\n0\r\n\r\n"));
}

TEST_F(HttpServerTest, a_long_refused_upload_can_read_its_answer) {
  serve({.linger_timeout = 100ms});
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741825\r\n\r\n"));
  std::string piece(4 << 20, 'x');
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(c.send(loop, piece));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_TRUE(c.received.starts_with("HTTP/1.1 413 ")) << c.received;
  EXPECT_NE(c.received.find("limit of 1073741824 bytes"), c.received.npos);
}

TEST_F(HttpServerTest, bounds_connections_and_requests_per_connection) {
  serve({.connections_max = 1, .requests_per_connection_max = 2});
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/1")));
  ASSERT_TRUE(c.receive_until(loop, "target /1"));
  EXPECT_EQ(c.received.find("connection: close"), c.received.npos);
  Raw refused = client();
  ASSERT_TRUE(refused.receive_to_end(loop));
  EXPECT_TRUE(refused.received.starts_with("HTTP/1.1 503 ")) << refused.received;
  ASSERT_TRUE(c.send(loop, get("/2")));
  ASSERT_TRUE(c.receive_to_end(loop));
  EXPECT_NE(c.received.find("connection: close"), c.received.npos);
}

TEST_F(HttpServerTest, a_header_value_cannot_forge_another_header) {
  handler = [](Exchange e) {
    e->respond(200, "OK\r\nx-forged: 1", "x-a\nb\r\rx-forged: 1\nconnection\nclose\ndate\nnever\n",
               Blob("body"));
  };
  serve();
  std::string answer = ask_until_close(get("/"));
  EXPECT_EQ(answer.find("\r\nx-forged"), answer.npos) << answer;
  EXPECT_EQ(answer.find("\rx-forged"), answer.npos);
  EXPECT_NE(answer.find("\r\ndate: never\r\n"), answer.npos);
  EXPECT_EQ(count(answer, "\r\ndate: "), 1u);
  EXPECT_NE(answer.find("\r\nconnection: close\r\n"), answer.npos);
}

TEST_F(HttpServerTest, the_body_is_cut_off_when_the_response_ends_first) {
  std::optional<Result<Blob>> read;
  handler = [&](Exchange e) {
    e->read_body([&](Result<Blob> r) { read = std::move(r); });
    boost::asio::post(loop.io, [e] { e->respond(200, "", "", Blob("early")); });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"));
  ASSERT_TRUE(c.receive_until(loop, "early"));
  ASSERT_TRUE(loop.run_until([&] { return read.has_value(); }));
  ASSERT_FALSE(*read);
  EXPECT_EQ(read->error().code, ErrorCode::kCancelled);
}

TEST_F(HttpServerTest, the_socket_can_be_taken_over) {
  std::optional<Result<TakenSocket>> taken;
  handler = [&](Exchange e) {
    EXPECT_TRUE(e->head().upgrade_websocket);
    e->take_over([&](Result<TakenSocket> t) { taken = std::move(t); });
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(
      loop, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst"));
  ASSERT_TRUE(loop.run_until([&] { return taken.has_value(); }));
  ASSERT_TRUE(*taken) << taken->error().message;
  EXPECT_EQ((*taken)->unread, "first");
  EXPECT_EQ(server->open_connections(), 0u);
  Raw other((*taken)->fd);
  ASSERT_TRUE(c.send(loop, "more"));
  EXPECT_TRUE(other.receive_until(loop, "more"));
  other.send_some("back");
  EXPECT_TRUE(c.receive_until(loop, "back"));
}

TEST_F(HttpServerTest, a_server_may_go_while_exchanges_are_held) {
  Exchange held;
  handler = [&](Exchange e) { held = std::move(e); };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  server.reset();
  held->respond(200, "", "", Blob("x"));
  held.reset();
  EXPECT_TRUE(c.receive_to_end(loop));
}

TEST_F(HttpServerTest, the_peer_address_is_told) {
  std::string peer;
  handler = [&](Exchange e) {
    peer = e->head().peer_address;
    e->respond(200, "", "", Blob());
  };
  serve();
  Raw c = client();
  ASSERT_TRUE(c.send(loop, get("/")));
  ASSERT_TRUE(c.receive_until(loop, "content-length: 0\r\n"));
  EXPECT_EQ(peer, "127.0.0.1");
}

TEST(Acceptor, hands_sockets_out_in_turn_and_names_a_taken_address) {
  Loop loop;
  std::vector<int> first, second;
  std::vector<Acceptor::Sink> sinks;
  sinks.push_back([&](int fd) { first.push_back(fd); });
  sinks.push_back([&](int fd) { second.push_back(fd); });
  auto a = Acceptor::listen(loop.io, "127.0.0.1", 0, std::move(sinks));
  ASSERT_TRUE(a);
  std::vector<Raw> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(Raw::connect((*a)->port()));
  EXPECT_TRUE(loop.run_until([&] { return first.size() == 3 && second.size() == 3; }));
  std::vector<Acceptor::Sink> more;
  more.push_back([](int) {});
  auto b = Acceptor::listen(loop.io, "127.0.0.1", (*a)->port(), std::move(more));
  ASSERT_FALSE(b);
  EXPECT_NE(b.error().message.find("127.0.0.1:" + std::to_string((*a)->port())), std::string::npos);
  for (int fd : first) close(fd);
  for (int fd : second) close(fd);
}

}  // namespace
}  // namespace celld
