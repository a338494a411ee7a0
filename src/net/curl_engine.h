// libcurl's multi interface on an io_context: one connection pool, no thread. Internal to
// CurlTransport and FetchClient.
#pragma once

#include <curl/curl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace celld::net_detail {

struct PoolOptions {
  long connections_per_host_max = 0;  // 0 = no bound
  long connections_idle_max = 64;
  bool proxy_from_environment = false;
};

// A transfer: owns an easy handle while it runs.
class CurlCall {
 public:
  virtual ~CurlCall() = default;
  // The transfer has ended. Never inside a callback of curl.
  virtual void curl_done(CURLcode code) = 0;
};

class CurlEngine : public std::enable_shared_from_this<CurlEngine> {
 public:
  CurlEngine(boost::asio::io_context& io, PoolOptions options);
  ~CurlEngine();

  // An easy handle with everything that does not change from request to request set. Given back
  // with release(); what the user sets must be set (or unset) by every user.
  CURL* acquire();
  void release(CURL* easy);

  // Sets the URL, whose `target` is sent byte for byte unless a proxy may have to see the whole.
  // `direct`: without a proxy in any case.
  void set_url(CURL* easy, const std::string& url, const std::string& target, bool direct = false);

  // `call` is kept until its curl_done or remove().
  Result<void> add(CURL* easy, std::shared_ptr<CurlCall> call);
  // Ends a transfer without curl_done. Not inside a callback of curl.
  void remove(CURL* easy);
  // Lets a paused transfer go on. Not inside a callback of curl.
  void unpause(CURL* easy);
  // Takes every transfer off and returns their calls.
  std::vector<std::shared_ptr<CurlCall>> remove_all();

  boost::asio::io_context& io() { return io_; }

 private:
  struct Socket;

  static int on_socket(CURL*, curl_socket_t fd, int what, void* engine, void* socket);
  static int on_timer(CURLM*, long timeout_ms, void* engine);
  static curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address);
  static int close_socket(void* engine, curl_socket_t fd);
  void watch(const std::shared_ptr<Socket>& socket);
  void forget(curl_socket_t fd);
  void act(curl_socket_t fd, int events);
  void collect();

  boost::asio::io_context& io_;
  const PoolOptions options_;
  std::string ca_file_;
  bool proxies_ = false;  // the environment counts and names one
  CURLM* multi_ = nullptr;
  boost::asio::steady_timer timer_;
  uint64_t timer_generation_ = 0;
  bool acting_ = false;
  std::unordered_map<curl_socket_t, std::shared_ptr<Socket>> sockets_;
  std::unordered_map<CURL*, std::shared_ptr<CurlCall>> calls_;
  std::vector<CURL*> spare_;
};

// Builds a curl_slist whose lines stay valid until clear().
class HeaderLines {
 public:
  ~HeaderLines() { clear(); }
  // False when the name is no token or the value holds a line break or a zero byte.
  bool add(std::string_view name, std::string_view value);
  // Keeps curl from sending a header of its own.
  void suppress(const char* name_and_colon) { append(name_and_colon); }
  void clear();
  curl_slist* list() { return list_; }

 private:
  void append(const char* line);
  curl_slist* list_ = nullptr;
};

// The path and query of an absolute http(s) URL, byte for byte; "/" when there is none. Nothing
// when the URL is not one or holds a byte that a request line cannot carry.
std::optional<std::string> request_target(std::string_view url);

// An error for a transfer that brought no complete reply; `what` names it.
Error curl_error(CURLcode code, const char* detail, std::string_view what);

// "scheme://host[:port]" of a URL: errors name this, since a query may hold secrets.
std::string origin_of(std::string_view url);

}  // namespace celld::net_detail
