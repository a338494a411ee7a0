// Outgoing TLS: a certificate counts only if the trust store knows its issuer and it names the
// host.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "net/curl_transport.h"
#include "net/loop_testing.h"
#include "world/asio_world.h"

namespace celld {
namespace {

using namespace std::chrono_literals;
using net_testing::Loop;

// Serves "ok" to every request of every TLS connection, on a thread of its own.
class TlsServer {
 public:
  explicit TlsServer(const char* names) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME* name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_EXTENSION* san = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names);
    X509_add_ext(cert, san, -1);
    X509_EXTENSION_free(san);
    X509_sign(cert, key, EVP_sha256());
    context_ = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context_, cert);
    SSL_CTX_use_PrivateKey(context_, key);
    char path[] = "/tmp/celld_tls_XXXXXX";
    int fd = mkstemp(path);
    FILE* file = fdopen(fd, "w");
    PEM_write_X509(file, cert);
    fclose(file);
    trust_file = path;
    X509_free(cert);
    EVP_PKEY_free(key);

    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(listen(listener_, 16) == 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TlsServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    SSL_CTX_free(context_);
    std::remove(trust_file.c_str());
  }

  std::string trust_file;
  uint16_t port = 0;
  std::atomic<int> handshakes = 0;

 private:
  void serve() {
    while (true) {
      int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      SSL* tls = SSL_new(context_);
      SSL_set_fd(tls, fd);
      if (SSL_accept(tls) == 1) {
        ++handshakes;
        char request[4096];
        while (SSL_read(tls, request, sizeof request) > 0) {
          std::string reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
          if (SSL_write(tls, reply.data(), static_cast<int>(reply.size())) <= 0) break;
        }
      }
      SSL_free(tls);
      close(fd);
    }
  }

  SSL_CTX* context_ = nullptr;
  int listener_ = -1;
  std::thread thread_;
};

Result<HttpReply> get(Loop& loop, AsioWorld& world, CurlTransport& transport, std::string url,
                      bool direct = false) {
  std::optional<Result<HttpReply>> outcome;
  auto run = [&](HttpCall call) -> Task<void> {
    outcome.emplace(co_await transport.perform(std::move(call)));
  };
  HttpCall call{.method = "GET", .url = std::move(url), .deadline = world.deadline_in(8s)};
  call.direct = direct;
  start(run(std::move(call)));
  EXPECT_TRUE(loop.run_until([&] { return outcome.has_value(); }));
  if (!outcome) return fail(Error::internal("no outcome"));
  return std::move(*outcome);
}

// A proxy that makes tunnels, one at a time.
class TunnelProxy {
 public:
  TunnelProxy() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(listen(listener_, 16) == 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TunnelProxy() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port); }

  uint16_t port = 0;
  std::atomic<int> tunnels = 0;

 private:
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void serve() {
    while (true) {
      int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      std::string head;
      char c;
      while (!head.ends_with("\r\n\r\n") && read(client, &c, 1) == 1) head += c;
      int port_asked = 0;
      if (std::sscanf(head.c_str(), "CONNECT 127.0.0.1:%d HTTP/1.1", &port_asked) == 1) {
        ++tunnels;
        tunnel(client, static_cast<uint16_t>(port_asked));
      }
      close(client);
    }
  }
  static void tunnel(int client, uint16_t to) {
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(to);
    CHECK(connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const std::string_view ok = "HTTP/1.1 200 Connection established\r\n\r\n";
    CHECK(write(client, ok.data(), ok.size()) == static_cast<ssize_t>(ok.size()));
    pollfd both[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    char buffer[16 << 10];
    while (poll(both, 2, 10'000) > 0) {
      const int from = both[0].revents != 0 ? client : server;
      ssize_t n = read(from, buffer, sizeof buffer);
      if (n <= 0 || write(from == client ? server : client, buffer, static_cast<size_t>(n)) != n) break;
    }
    close(server);
  }

  int listener_ = -1;
  std::thread thread_;
};

TEST(Proxy, tunnels_go_where_the_environment_says) {
  TlsServer server("IP:127.0.0.1");
  TunnelProxy proxy;
  const std::string url = "https://127.0.0.1:" + std::to_string(server.port) + "/a%20b";
  setenv("SSL_CERT_FILE", server.trust_file.c_str(), 1);
  setenv("HTTPS_PROXY", proxy.url().c_str(), 1);
  Loop loop;
  AsioWorld world(loop.io);
  CurlTransportOptions from_environment;
  from_environment.proxy_from_environment = true;
  {
    CurlTransport transport(loop.io, world, from_environment);
    auto reply = get(loop, world, transport, url);
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->body, "ok");
    EXPECT_EQ(proxy.tunnels, 1);
  }
  {
    CurlTransport transport(loop.io, world, from_environment);
    auto reply = get(loop, world, transport, url, true);
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(proxy.tunnels, 1) << "a direct call";
  }
  {
    CurlTransport transport(loop.io, world);
    ASSERT_TRUE(get(loop, world, transport, url));
    EXPECT_EQ(proxy.tunnels, 1) << "the environment does not count";
  }
  setenv("NO_PROXY", "example.com,127.0.0.1", 1);
  {
    CurlTransport transport(loop.io, world, from_environment);
    ASSERT_TRUE(get(loop, world, transport, url));
    EXPECT_EQ(proxy.tunnels, 1) << "NO_PROXY";
  }
  unsetenv("NO_PROXY");
  unsetenv("HTTPS_PROXY");
  unsetenv("SSL_CERT_FILE");
}

TEST(Tls, a_trusted_certificate_is_accepted_and_the_connection_kept) {
  TlsServer server("IP:127.0.0.1");
  setenv("SSL_CERT_FILE", server.trust_file.c_str(), 1);
  Loop loop;
  AsioWorld world(loop.io);
  {
    CurlTransport transport(loop.io, world);
    for (int i = 0; i < 3; ++i) {
      auto reply = get(loop, world, transport, "https://127.0.0.1:" + std::to_string(server.port));
      ASSERT_TRUE(reply) << reply.error().message;
      EXPECT_EQ(reply->body, "ok");
    }
    EXPECT_EQ(server.handshakes, 1);
  }
  unsetenv("SSL_CERT_FILE");
}

TEST(Tls, an_unknown_issuer_and_another_name_are_refused) {
  TlsServer server("DNS:other.example");
  Loop loop;
  AsioWorld world(loop.io);
  std::string url = "https://127.0.0.1:" + std::to_string(server.port);
  {
    CurlTransport transport(loop.io, world);
    auto reply = get(loop, world, transport, url);
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(reply.error().message.find("certificate"), std::string::npos);
  }
  setenv("SSL_CERT_FILE", server.trust_file.c_str(), 1);
  {
    CurlTransport transport(loop.io, world);
    auto reply = get(loop, world, transport, url);
    ASSERT_FALSE(reply);
    EXPECT_NE(reply.error().message.find("127.0.0.1"), std::string::npos);
  }
  unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace celld
