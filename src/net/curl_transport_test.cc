#include "net/curl_transport.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "net/http_server.h"
#include "net/loop_testing.h"
#include "world/asio_world.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using net_testing::Loop;
using net_testing::LyingServer;
using net_testing::Raw;

class CurlTransportTest : public testing::Test {
 protected:
  CurlTransportTest() {
    server = std::make_unique<HttpServer>(loop.io, HttpLimits{},
                                          [this](auto e) { handler(std::move(e)); });
    std::vector<Acceptor::Sink> sinks;
    sinks.push_back([this](int fd) {
      ++accepted;
      server->adopt(fd);
    });
    acceptor = *Acceptor::listen(loop.io, "127.0.0.1", 0, std::move(sinks));
    reopen({});
  }
  void reopen(CurlTransportOptions options) {
    transport = std::make_unique<CurlTransport>(loop.io, world, options);
  }
  std::string url(std::string_view path = "/") {
    return "http://127.0.0.1:" + std::to_string(acceptor->port()) + std::string(path);
  }

  using Outcome = std::shared_ptr<std::optional<Result<HttpReply>>>;
  Outcome begin(HttpCall call) {
    auto outcome = std::make_shared<std::optional<Result<HttpReply>>>();
    if (call.deadline.at == MonoTime::max()) call.deadline = world.deadline_in(8s);
    auto run = [](CurlTransport& t, HttpCall c, Outcome out) -> Task<void> {
      out->emplace(co_await t.perform(std::move(c)));
    };
    start(run(*transport, std::move(call), outcome));
    return outcome;
  }
  Result<HttpReply> perform(HttpCall call, LyingServer* liar = nullptr) {
    auto outcome = begin(std::move(call));
    EXPECT_TRUE(loop.run_until([&] {
      if (liar) liar->serve();
      return outcome->has_value();
    }));
    if (!outcome->has_value()) return fail(Error::internal("no outcome"));
    return std::move(**outcome);
  }

  Loop loop;
  AsioWorld world{loop.io};
  int accepted = 0;
  std::function<void(std::shared_ptr<HttpExchange>)> handler = [](auto e) {
    e->respond(200, "", "x-method\n" + e->head().method + "\n", Blob(e->head().target));
  };
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<CurlTransport> transport;
};

std::string_view header(const HttpReply& reply, std::string_view name) {
  for (auto& [n, v] : reply.headers) {
    if (n == name) return v;
  }
  return "(none)";
}

TEST_F(CurlTransportTest, performs_every_method_on_one_connection) {
  std::string seen;
  handler = [&](std::shared_ptr<HttpExchange> e) {
    seen = e->head().header_block;
    e->read_body([e](Result<Blob> b) {
      ASSERT_TRUE(b);
      e->respond(200, "", "X-Method\n" + e->head().method + "\netag\n\"x\"\n",
                 Blob("got " + std::string(b->view())));
    });
  };
  for (std::string method :
       {"GET", "PUT", "HEAD", "POST", "DELETE", "GET", "PROPFIND", "PUT", "HEAD", "GET"}) {
    HttpCall call{
        .method = method, .url = url("/k"), .headers = {{"X-Empty", ""}, {"X-Case", "a b"}}};
    if (method == "PUT") call.body = Blob("payload");
    auto reply = perform(std::move(call));
    ASSERT_TRUE(reply) << method << reply.error().message;
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(header(*reply, "x-method"), method);
    EXPECT_EQ(reply->body, method == "HEAD" ? "" : method == "PUT" ? "got payload" : "got ");
    std::string expected = "host\n" + url("").substr(7) + "\nx-empty\n\nx-case\na b\n";
    if (method == "PUT") expected += "content-length\n7\n";
    if (method == "POST") expected += "content-length\n0\n";
    EXPECT_EQ(seen, expected) << "nothing is sent that was not asked for";
  }
  EXPECT_EQ(accepted, 1);
}

TEST_F(CurlTransportTest, the_path_is_sent_byte_for_byte) {
  for (std::string path : {"/a/../b/./c", "/%2f%2F%41%zz", "//x//", "/a+b%20c?q=%2f&&r=+~",
                           "/caf\xc3\xa9", "/;a=1?", "/?x", "/a'()*!$,:@[]|\"<>^`{}\\"}) {
    auto reply = perform({.method = "GET", .url = url(path)});
    ASSERT_TRUE(reply) << path << reply.error().message;
    EXPECT_EQ(reply->body, path);
  }
}

TEST_F(CurlTransportTest, large_bodies_go_both_ways) {
  handler = [&](std::shared_ptr<HttpExchange> e) {
    auto body = std::make_shared<std::string>();
    auto pull = std::make_shared<std::function<void()>>();
    *pull = [e, body, pull] {
      e->read_body([e, body, pull](Result<Blob> piece) {
        ASSERT_TRUE(piece);
        if (piece->empty()) {
          e->respond(200, "", "", Blob(std::move(*body)));
          *pull = nullptr;
          return;
        }
        *body += piece->view();
        (*pull)();
      });
    };
    (*pull)();
  };
  std::string big(20 << 20, 'x');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7 + i / 251);
  auto reply = perform({.method = "PUT", .url = url(), .body = Blob(big)});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_TRUE(reply->body == big);
}

TEST_F(CurlTransportTest, a_reply_beyond_the_bound_is_an_error) {
  handler = [](auto e) { e->respond(200, "", "", Blob(std::string(100'000, 'x'))); };
  auto reply = perform({.method = "GET", .url = url("/secret?key=1"), .reply_bytes_max = 99'999});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kOverloaded);
  EXPECT_NE(reply.error().message.find("99999 bytes"), std::string::npos);
  EXPECT_EQ(reply.error().message.find("secret"), std::string::npos);
  EXPECT_TRUE(perform({.method = "GET", .url = url(), .reply_bytes_max = 100'000}));
}

TEST_F(CurlTransportTest, the_deadline_ends_a_call) {
  std::shared_ptr<HttpExchange> held;
  handler = [&](auto e) { held = std::move(e); };
  auto reply = perform({.method = "GET", .url = url(), .deadline = world.deadline_in(60ms)});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadline);
  reply = perform({.method = "GET", .url = url(), .deadline = Deadline{world.now()}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadline);
}

TEST_F(CurlTransportTest, a_cancelled_call_ends_and_leaves_the_transport_usable) {
  std::shared_ptr<HttpExchange> held;
  handler = [&](auto e) { held = std::move(e); };
  Cancellation cancellation;
  auto outcome = begin({.method = "PUT",
                        .url = url(),
                        .body = Blob(std::string(1 << 20, 'x')),
                        .deadline = world.deadline_in(8s).cancelled_by(cancellation)});
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  cancellation.cancel();
  EXPECT_FALSE(outcome->has_value()) << "nobody is resumed inside cancel()";
  ASSERT_TRUE(loop.run_until([&] { return outcome->has_value(); }));
  ASSERT_FALSE(**outcome);
  EXPECT_EQ((**outcome).error().code, ErrorCode::kCancelled);
  handler = [](auto e) { e->respond(200, "", "", Blob("next")); };
  auto reply = perform({.method = "GET", .url = url()});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->body, "next");
  EXPECT_EQ(accepted, 2) << "a connection with half a request on it is not used again";
  reply = perform({.method = "GET",
                   .url = url(),
                   .deadline = world.deadline_in(8s).cancelled_by(cancellation)});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kCancelled);
}

TEST_F(CurlTransportTest, redirects_are_replies) {
  handler = [](auto e) { e->respond(302, "", "location\n/elsewhere\n", Blob()); };
  auto reply = perform({.method = "GET", .url = url()});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 302);
  EXPECT_EQ(header(*reply, "location"), "/elsewhere");
}

TEST_F(CurlTransportTest, connections_to_a_host_are_bounded) {
  reopen({.connections_per_host_max = 3});
  std::vector<std::shared_ptr<HttpExchange>> held;
  handler = [&](auto e) { held.push_back(std::move(e)); };
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 20; ++i) outcomes.push_back(begin({.method = "GET", .url = url()}));
  size_t answered = 0;
  ASSERT_TRUE(loop.run_until([&] {
    EXPECT_LE(held.size() - answered, 3u);
    if (held.size() > answered) held[answered++]->respond(200, "", "", Blob("x"));
    return std::ranges::all_of(outcomes, [](auto& o) { return o->has_value(); });
  }));
  EXPECT_LE(accepted, 3);
  for (auto& o : outcomes) EXPECT_TRUE(**o);
}

TEST_F(CurlTransportTest, many_calls_at_once_share_the_pool) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Outcome> outcomes;
    for (int i = 0; i < 50; ++i)
      outcomes.push_back(
          begin({.method = "PUT", .url = url("/" + std::to_string(i)), .body = Blob("b")}));
    ASSERT_TRUE(loop.run_until(
        [&] { return std::ranges::all_of(outcomes, [](auto& o) { return o->has_value(); }); }));
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(**outcomes[i]) << (**outcomes[i]).error().message;
      EXPECT_EQ((**outcomes[i])->body, "/" + std::to_string(i));
    }
  }
  EXPECT_LE(accepted, 50);
}

TEST_F(CurlTransportTest, calls_end_when_the_transport_goes) {
  std::shared_ptr<HttpExchange> held;
  handler = [&](auto e) { held = std::move(e); };
  auto outcome = begin({.method = "GET", .url = url()});
  ASSERT_TRUE(loop.run_until([&] { return held != nullptr; }));
  transport.reset();
  ASSERT_TRUE(loop.run_until([&] { return outcome->has_value(); }));
  ASSERT_FALSE(**outcome);
  EXPECT_EQ((**outcome).error().code, ErrorCode::kCancelled);
}

TEST_F(CurlTransportTest, bad_calls_are_refused_by_name) {
  for (std::string bad : {"ftp://127.0.0.1/", "file:///etc/passwd", "127.0.0.1",
                          "http://127.0.0.1/a b", "http://127.0.0.1/\r\nX: y"}) {
    auto reply = perform({.method = "GET", .url = bad});
    ASSERT_FALSE(reply) << bad;
    EXPECT_EQ(reply.error().code, ErrorCode::kInvalid) << bad;
  }
  auto reply = perform({.method = "GET", .url = url(), .headers = {{"x", "a\r\nforged: 1"}}});
  ASSERT_FALSE(reply);
  EXPECT_NE(reply.error().message.find("\"x\""), std::string::npos);
  reply = perform({.method = "GET", .url = "http://127.0.0.1:1/"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
}

TEST_F(CurlTransportTest, replies_cut_short_or_malformed_are_errors) {
  struct Case {
    std::string reply;
    bool reset;
  };
  for (auto& c : std::vector<Case>{
           {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", false},
           {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", true},
           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", false},
           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false},
           {"HTTP/1.1 200 OK\r\nContent-Le", false},
           {"", false},
           {"", true},
           {"garbage\r\n\r\n", false},
           {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", false},
       }) {
    LyingServer liar(loop, [&](Raw& client) {
      client.send_some(c.reply);
      c.reset ? client.close_with_reset() : client.close();
    });
    auto reply = perform({.method = "GET", .url = liar.url()}, &liar);
    ASSERT_FALSE(reply) << c.reply;
    EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable) << c.reply << reply.error().message;
  }
}

TEST_F(CurlTransportTest, endless_headers_end_in_an_error) {
  std::string line = "X-Padding: " + std::string(1000, 'x') + "\r\n";
  std::vector<Raw*> open;
  LyingServer liar(loop, [&](Raw& client) {
    client.send_some("HTTP/1.1 200 OK\r\n");
    open.push_back(&client);
  });
  auto outcome = begin({.method = "GET", .url = liar.url()});
  ASSERT_TRUE(loop.run_until([&] {
    liar.serve();
    for (auto* c : open) c->send_some(line);
    return outcome->has_value();
  }));
  ASSERT_FALSE(**outcome);
}

// A retry inside would turn a write that was applied into one that seems to have been rejected.
TEST_F(CurlTransportTest, a_request_is_never_sent_twice) {
  for (std::string method : {"GET", "PUT", "DELETE"}) {
    // Answers the first request of a connection, closes after the second.
    std::vector<std::pair<Raw*, int>> seen;
    LyingServer liar(loop, [&](Raw& client) {
      for (auto& [raw, n] : seen) {
        if (raw == &client && ++n > 1) return client.close();
      }
      seen.emplace_back(&client, 1);
      client.send_some("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    HttpCall call{.method = method, .url = liar.url()};
    if (method == "PUT") call.body = Blob("value");
    auto first = perform(call, &liar);
    ASSERT_TRUE(first) << first.error().message;
    auto second = perform(call, &liar);
    ASSERT_FALSE(second) << method;
    EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(liar.requests, 2) << method;
  }
}

TEST_F(CurlTransportTest, a_connection_closed_while_idle_is_not_used) {
  std::vector<Raw*> open;
  LyingServer liar(loop, [&](Raw& client) {
    client.send_some("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    open.push_back(&client);
  });
  ASSERT_TRUE(perform({.method = "PUT", .url = liar.url(), .body = Blob("a")}, &liar));
  open[0]->close();
  loop.settle();
  ASSERT_TRUE(perform({.method = "PUT", .url = liar.url(), .body = Blob("b")}, &liar));
  EXPECT_EQ(liar.accepted, 2);
}

TEST_F(CurlTransportTest, interim_responses_are_passed_over) {
  LyingServer liar(loop, [&](Raw& client) {
    client.send_some(
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nContent-Length: "
        "2\r\n\r\nok");
  });
  auto reply = perform({.method = "GET", .url = liar.url()}, &liar);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->headers, (HeaderList{{"a", "b"}, {"content-length", "2"}}));
}

}  // namespace
}  // namespace celld
