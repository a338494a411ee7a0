#include "node/http_bridge.h"

#include <gtest/gtest.h>

#include "net/loop_testing.h"
#include "world/asio_world.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using net_testing::Raw;
using Exchange = std::shared_ptr<HttpExchange>;
using State = js::Pipe::Read::State;

class HttpBridge : public testing::Test {
 protected:
  void serve(HttpServer::Handler handler) {
    server_ = std::make_unique<HttpServer>(loop_.io, HttpLimits{}, std::move(handler));
    std::vector<Acceptor::Sink> sinks;
    sinks.push_back([this](int fd) { server_->adopt(fd); });
    auto listening = Acceptor::listen(loop_.io, "127.0.0.1", 0, std::move(sinks));
    ASSERT_TRUE(listening) << listening.error().message;
    acceptor_ = std::move(*listening);
  }
  Raw client() { return Raw::connect(acceptor_->port()); }

  net_testing::Loop loop_;
  AsioWorld world_{loop_.io};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Acceptor> acceptor_;
  Exchange exchange_;
  js::PipeReader body_;
};

TEST_F(HttpBridge, an_upload_comes_at_the_pace_of_its_reader) {
  serve([this](Exchange e) {
    exchange_ = e;
    body_ = stream_request_body(world_, e);
  });
  constexpr size_t kBytes = 8 << 20;
  Raw c = client();
  std::string request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(kBytes) + "\r\n\r\n";
  ASSERT_TRUE(c.send(loop_, request));
  std::string rest(kBytes, 'x');
  std::string_view left = rest;
  ASSERT_TRUE(loop_.run_until([&] {
    left.remove_prefix(c.send_some(left));
    return exchange_ != nullptr;
  }));
  // Nobody reads: what is taken from the client is what the buffers hold, the kernel's included.
  size_t before = 0;
  ASSERT_TRUE(loop_.run_until([&] {
    size_t sent = c.send_some(left);
    left.remove_prefix(sent);
    before = sent == 0 ? before + 1 : 0;
    return before > 50;
  }));
  EXPECT_GT(left.size(), size_t{0});
  EXPECT_EQ(body_->length(), kBytes);
  size_t got = 0;
  bool ended = false;
  ASSERT_TRUE(loop_.run_until([&] {
    left.remove_prefix(c.send_some(left));
    js::Pipe::Read r = body_->read();
    got += r.data.size();
    ended = r.state == State::kEnd;
    return ended || r.state == State::kError;
  }, 60s));
  EXPECT_TRUE(ended);
  EXPECT_EQ(got, kBytes);
}

TEST_F(HttpBridge, an_upload_that_is_cut_short_is_an_error) {
  serve([this](Exchange e) {
    exchange_ = e;
    body_ = stream_request_body(world_, e);
  });
  Raw c = client();
  ASSERT_TRUE(c.send(loop_, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\npart"));
  ASSERT_TRUE(loop_.run_until([&] { return exchange_ != nullptr; }));
  c.close();
  js::Pipe::Read last;
  ASSERT_TRUE(loop_.run_until([&] {
    last = body_->read();
    return last.state == State::kError || last.state == State::kEnd;
  }));
  EXPECT_EQ(last.state, State::kError);
}

TEST_F(HttpBridge, an_upload_whose_reader_is_gone_holds_nothing) {
  std::weak_ptr<HttpExchange> watched;
  serve([&](Exchange e) {
    watched = e;
    (void)stream_request_body(world_, e);
    e->respond(200, "", "", Blob("no thanks"));
  });
  Raw c = client();
  ASSERT_TRUE(c.send(loop_, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"));
  ASSERT_TRUE(c.send(loop_, std::string(100'000, 'x')));
  ASSERT_TRUE(c.receive_until(loop_, "no thanks"));
  EXPECT_TRUE(loop_.run_until([&] { return watched.expired(); }));
}

TEST_F(HttpBridge, a_stream_goes_out_to_its_end) {
  auto [writer, reader] = js::make_pipe();
  serve([&, reader = std::move(reader)](Exchange e) mutable {
    e->start_response(200, "", "", std::nullopt);
    stream_response_body(world_, std::move(e), std::move(reader));
  });
  Raw c = client();
  ASSERT_TRUE(c.send(loop_, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  writer->write(Blob(std::string("one")));
  ASSERT_TRUE(c.receive_until(loop_, "one"));
  writer->write(Blob(std::string("two")));
  writer->close();
  ASSERT_TRUE(c.receive_to_end(loop_));
  EXPECT_TRUE(c.received.ends_with("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")) << c.received;
}

TEST_F(HttpBridge, a_stream_that_fails_does_not_look_whole) {
  auto [writer, reader] = js::make_pipe();
  serve([&, reader = std::move(reader)](Exchange e) mutable {
    e->start_response(200, "", "", std::nullopt);
    stream_response_body(world_, std::move(e), std::move(reader));
  });
  Raw c = client();
  ASSERT_TRUE(c.send(loop_, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  writer->write(Blob(std::string("one")));
  ASSERT_TRUE(c.receive_until(loop_, "one"));
  writer.reset();
  ASSERT_TRUE(c.receive_to_end(loop_));
  EXPECT_FALSE(c.received.ends_with("0\r\n\r\n")) << c.received;
}

TEST_F(HttpBridge, the_writer_of_a_stream_learns_that_the_client_has_gone) {
  auto [writer, reader] = js::make_pipe();
  bool gone = false;
  writer->on_cancelled([&] { gone = true; });
  serve([&, reader = std::move(reader)](Exchange e) mutable {
    e->start_response(200, "", "", std::nullopt);
    stream_response_body(world_, std::move(e), std::move(reader));
  });
  Raw c = client();
  ASSERT_TRUE(c.send(loop_, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  writer->write(Blob(std::string("one")));
  ASSERT_TRUE(c.receive_until(loop_, "one"));
  c.close_with_reset();
  ASSERT_TRUE(loop_.run_until([&] {
    writer->write(Blob(std::string(1000, 'x')));
    return gone;
  }));
}

TEST(RequestUrl, is_that_of_the_host_header_or_of_an_absolute_target) {
  RequestHead head;
  head.target = "/a?b";
  EXPECT_EQ(request_url(head), "http://localhost/a?b");
  head.host = "shop.example:8787";
  EXPECT_EQ(request_url(head), "http://shop.example:8787/a?b");
  head.target = "http://other.example/x";
  EXPECT_EQ(request_url(head), "http://other.example/x");
  head.target = "*";
  EXPECT_EQ(request_url(head), "http://shop.example:8787/*");
}

}  // namespace
}  // namespace celld
