// Outgoing HTTP on libcurl, for object stores and peers.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>

#include "world/http_transport.h"

namespace celld {

struct CurlTransportOptions {
  // Connections to one host; further calls wait for one, within their deadline. 0 = no bound.
  long connections_per_host_max = 128;
  // Whether HTTPS_PROXY, http_proxy, ALL_PROXY and NO_PROXY count, as for the curl program.
  bool proxy_from_environment = false;
};

// HTTP/1.1 with keep-alive and TLS against the system's trust store (or SSL_CERT_FILE). The path
// of a URL is sent byte for byte. A reply's "content-encoding" is not undone.
//
// A request is sent once, on one connection: also where a kept connection turns out to be dead,
// which is kUnavailable. `io` and `world` are of one thread and outlive this; calls still running
// when it is destroyed end with kCancelled.
class CurlTransport final : public HttpTransport {
 public:
  CurlTransport(boost::asio::io_context& io, World& world, CurlTransportOptions options = {});
  ~CurlTransport() override;

  Task<Result<HttpReply>> perform(HttpCall call) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace celld
