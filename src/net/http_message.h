// What a request looks like to its handler, and the bounds of the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace celld {

struct RequestHead {
  std::string method;        // as sent
  std::string target;        // origin-form or absolute-form, as sent
  std::string header_block;  // "name\nvalue\nname\nvalue\n...", names in lower case, in order
  std::string host;          // the Host header, "" when absent (HTTP/1.0)
  std::optional<uint64_t> content_length;
  bool has_body = false;           // a Content-Length above 0, or chunked
  bool keep_alive = true;          // what the client asked for
  bool upgrade_websocket = false;  // GET with Connection: upgrade and Upgrade: websocket
  std::string peer_address;        // IP address of the client without port, "" when not IP

  // Empties the strings but keeps their memory.
  void clear();
};

// The value of the first header `name` (lower case) in a header block.
std::optional<std::string_view> find_header(std::string_view header_block, std::string_view name);

// The customary reason phrase of a status, "" for an unknown one.
std::string_view default_reason(int status);

// Bounds of one HttpServer. Each has its status or its way of ending a connection.
struct HttpLimits {
  size_t request_line_bytes_max = 32 << 10;          // 414
  size_t head_bytes_max = 64 << 10;                  // 431; request line and headers together
  uint64_t body_bytes_max = 1 << 30;                 // 413
  size_t connections_max = 10'000;                   // 503, then closed
  uint64_t requests_per_connection_max = 1'000'000;  // "Connection: close" on the last one
  // Of a request body that nobody read, this much is read and dropped to keep the connection.
  uint64_t drain_bytes_max = 256 << 10;
  // Before a connection is closed, this much of what the client still sends is read and dropped,
  // so that it can read the last response.
  uint64_t linger_bytes_max = 2ull << 30;

  std::chrono::milliseconds head_timeout{30'000};    // 408; from the first byte, or from accept
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds body_timeout{60'000};    // no byte of a body that is waited for; 408
  std::chrono::milliseconds write_timeout{120'000};  // no byte of a response taken by the client
  std::chrono::milliseconds linger_timeout{2'000};   // no byte of what is dropped; at most 10 times
  // A client that has closed its sending side mostly is gone, which shows only when something is
  // sent to it. So long it is waited for the next byte of a response.
  std::chrono::milliseconds half_closed_timeout{30'000};
};

}  // namespace celld
