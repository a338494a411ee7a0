#include "net/curl_engine.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdlib>
#include <mutex>

#include "base/check.h"

namespace celld::net_detail {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

namespace {

constexpr size_t kSpareHandlesMax = 64;
constexpr long kConnectTimeoutMs = 30'000;
constexpr long kReceiveBufferBytes = 64 << 10;
// Idle connections older than this are not reused: many servers close at 60 s.
constexpr long kIdleSecondsMax = 50;

void curl_init_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    // OpenSSL writes to sockets without MSG_NOSIGNAL, and with CURLOPT_NOSIGNAL curl leaves the
    // signal to the program: a server that hangs up would end the process.
    struct sigaction now;
    if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
      signal(SIGPIPE, SIG_IGN);
    }
  });
}

}  // namespace

// A socket curl waits for. Registered with the loop for as long as it is open, so that one more
// request on an open connection costs no registration.
struct CurlEngine::Socket {
  Socket(asio::io_context& io, curl_socket_t fd) : descriptor(io, fd) {}
  ~Socket() { leave(); }
  // Before the descriptor is closed: its number may be another's right after.
  void leave() {
    if (descriptor.is_open()) descriptor.release();
  }
  Descriptor descriptor;
  bool opened_here = false;  // by open_socket: stays until close_socket
  int wanted = 0;            // CURL_POLL_IN | CURL_POLL_OUT
  bool reading = false;      // a wait is outstanding
  bool writing = false;
};

CurlEngine::CurlEngine(asio::io_context& io, PoolOptions options)
    : io_(io), options_(options), timer_(io) {
  curl_init_once();
  // The curl program honours SSL_CERT_FILE, the library does not.
  if (const char* file = std::getenv("SSL_CERT_FILE")) ca_file_ = file;
  if (options_.proxy_from_environment) {
    for (const char* name : {"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"}) {
      const char* value = std::getenv(name);
      proxies_ |= value != nullptr && *value != '\0';
    }
  }
  multi_ = curl_multi_init();
  CHECK(multi_ != nullptr);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &CurlEngine::on_socket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &CurlEngine::on_timer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
  curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, options_.connections_per_host_max);
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, options_.connections_idle_max);
}

CurlEngine::~CurlEngine() {
  remove_all();
  for (CURL* easy : spare_) curl_easy_cleanup(easy);
  curl_multi_cleanup(multi_);
}

CURL* CurlEngine::acquire() {
  if (!spare_.empty()) {
    CURL* easy = spare_.back();
    spare_.pop_back();
    return easy;
  }
  CURL* easy = curl_easy_init();
  CHECK(easy != nullptr);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
  curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
  curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, kIdleSecondsMax);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &CurlEngine::open_socket);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &CurlEngine::close_socket);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, this);
  if (!ca_file_.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file_.c_str());
  if (!proxies_) curl_easy_setopt(easy, CURLOPT_PROXY, "");
  return easy;
}

void CurlEngine::release(CURL* easy) {
  if (spare_.size() < kSpareHandlesMax) {
    spare_.push_back(easy);
  } else {
    curl_easy_cleanup(easy);
  }
}

void CurlEngine::set_url(CURL* easy, const std::string& url, const std::string& target,
                         bool direct) {
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  // curl would encode bytes above 0x7f. A proxy must see the whole URL instead.
  const bool through_proxy = proxies_ && !direct;
  curl_easy_setopt(easy, CURLOPT_REQUEST_TARGET, through_proxy ? nullptr : target.c_str());
  if (proxies_) curl_easy_setopt(easy, CURLOPT_PROXY, direct ? "" : nullptr);
}

Result<void> CurlEngine::add(CURL* easy, std::shared_ptr<CurlCall> call) {
  CHECK(!acting_) << "a transfer is added inside a callback of curl";
  calls_.emplace(easy, std::move(call));
  auto code = curl_multi_add_handle(multi_, easy);
  if (code == CURLM_OK) return {};
  calls_.erase(easy);
  return fail(Error::internal(std::string("curl: ") + curl_multi_strerror(code)));
}

void CurlEngine::remove(CURL* easy) {
  CHECK(!acting_) << "a transfer is removed inside a callback of curl";
  auto it = calls_.find(easy);
  if (it == calls_.end()) return;
  auto keep = std::move(it->second);
  calls_.erase(it);
  curl_multi_remove_handle(multi_, easy);
}

std::vector<std::shared_ptr<CurlCall>> CurlEngine::remove_all() {
  std::vector<std::shared_ptr<CurlCall>> out;
  while (!calls_.empty()) {
    out.push_back(calls_.begin()->second);
    remove(calls_.begin()->first);
  }
  return out;
}

void CurlEngine::unpause(CURL* easy) {
  CHECK(!acting_) << "a transfer is unpaused inside a callback of curl";
  acting_ = true;
  curl_easy_pause(easy, CURLPAUSE_CONT);
  acting_ = false;
  // What that made of the transfer shows up in the next action, for which curl has set its timer.
}

void CurlEngine::act(curl_socket_t fd, int events) {
  int running = 0;
  acting_ = true;
  curl_multi_socket_action(multi_, fd, events, &running);
  acting_ = false;
  collect();
}

// Tells the transfers that have ended.
void CurlEngine::collect() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* easy = message->easy_handle;
    CURLcode code = message->data.result;
    auto it = calls_.find(easy);
    CHECK(it != calls_.end()) << "an unknown transfer has ended";
    auto call = std::move(it->second);
    calls_.erase(it);
    curl_multi_remove_handle(multi_, easy);
    call->curl_done(code);
  }
}

int CurlEngine::on_timer(CURLM*, long timeout_ms, void* engine) {
  auto& self = *static_cast<CurlEngine*>(engine);
  uint64_t generation = ++self.timer_generation_;
  if (timeout_ms < 0) {
    self.timer_.cancel();
    return 0;
  }
  auto fire = [weak = self.weak_from_this(), generation] {
    auto engine = weak.lock();
    if (engine && engine->timer_generation_ == generation) engine->act(CURL_SOCKET_TIMEOUT, 0);
  };
  if (timeout_ms == 0) {
    asio::post(self.io_, std::move(fire));
    return 0;
  }
  self.timer_.expires_after(std::chrono::milliseconds(timeout_ms));
  self.timer_.async_wait([fire = std::move(fire)](const boost::system::error_code& ec) {
    if (!ec) fire();
  });
  return 0;
}

curl_socket_t CurlEngine::open_socket(void*, curlsocktype, curl_sockaddr* address) {
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

void CurlEngine::forget(curl_socket_t fd) {
  auto it = sockets_.find(fd);
  if (it == sockets_.end()) return;
  it->second->leave();
  sockets_.erase(it);
}

int CurlEngine::close_socket(void* engine, curl_socket_t fd) {
  static_cast<CurlEngine*>(engine)->forget(fd);
  return close(fd);
}

int CurlEngine::on_socket(CURL*, curl_socket_t fd, int what, void* engine, void*) {
  auto& self = *static_cast<CurlEngine*>(engine);
  auto it = self.sockets_.find(fd);
  if (what == CURL_POLL_REMOVE) {
    if (it == self.sockets_.end()) return 0;
    it->second->wanted = 0;
    // Not one of ours (the resolver's): it may be closed without another word.
    if (!it->second->opened_here) self.forget(fd);
    return 0;
  }
  if (it == self.sockets_.end()) {
    it = self.sockets_.emplace(fd, std::make_shared<Socket>(self.io_, fd)).first;
    int type = 0;
    socklen_t size = sizeof type;
    sockaddr_storage name{};
    socklen_t name_size = sizeof name;
    // Connections to hosts are closed through close_socket; socket pairs and pipes are not.
    it->second->opened_here =
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&name), &name_size) == 0 &&
        (name.ss_family == AF_INET || name.ss_family == AF_INET6);
  }
  it->second->wanted = what;
  self.watch(it->second);
  return 0;
}

void CurlEngine::watch(const std::shared_ptr<Socket>& socket) {
  auto arm = [&](Descriptor::wait_type type, int poll, int select, bool Socket::*flag) {
    if (!(socket->wanted & poll) || (*socket).*flag) return;
    (*socket).*flag = true;
    socket->descriptor.async_wait(type, [weak = weak_from_this(), socket, poll, select,
                                         flag](const boost::system::error_code& ec) {
      (*socket).*flag = false;
      auto self = weak.lock();
      if (ec || !self || !socket->descriptor.is_open()) return;
      // The wait outlives curl's wish when a connection goes idle; then nobody is told.
      if (!(socket->wanted & poll)) return;
      curl_socket_t fd = socket->descriptor.native_handle();
      self->act(fd, select);
      if (auto it = self->sockets_.find(fd); it != self->sockets_.end() && it->second == socket) {
        self->watch(socket);
      }
    });
  };
  arm(Descriptor::wait_read, CURL_POLL_IN, CURL_CSELECT_IN, &Socket::reading);
  arm(Descriptor::wait_write, CURL_POLL_OUT, CURL_CSELECT_OUT, &Socket::writing);
}

bool HeaderLines::add(std::string_view name, std::string_view value) {
  auto token = [](char c) {
    return c > ' ' && c < 0x7f &&
           std::string_view("\"(),/:;<=>?@[\\]{}").find(c) == std::string_view::npos;
  };
  if (name.empty() || !std::ranges::all_of(name, token)) return false;
  if (value.find_first_of(std::string_view("\r\n\0", 3)) != value.npos) return false;
  std::string line(name);
  if (value.empty()) {
    line += ';';  // curl's way to send a header without a value
  } else {
    line.append(": ").append(value);
  }
  append(line.c_str());
  return true;
}

void HeaderLines::append(const char* line) {
  auto* next = curl_slist_append(list_, line);
  CHECK(next != nullptr);
  list_ = next;
}

void HeaderLines::clear() {
  curl_slist_free_all(list_);
  list_ = nullptr;
}

std::optional<std::string> request_target(std::string_view url) {
  size_t scheme = url.find("://");
  if (scheme == url.npos) return std::nullopt;
  url.remove_prefix(scheme + 3);
  if (auto fragment = url.find('#'); fragment != url.npos) url = url.substr(0, fragment);
  for (char c : url) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) return std::nullopt;
  }
  size_t path = url.find_first_of("/?");
  if (path == url.npos) return "/";
  std::string target(url.substr(path));
  if (target[0] == '?') target.insert(0, "/");
  return target;
}

std::string origin_of(std::string_view url) {
  size_t scheme = url.find("://");
  if (scheme == url.npos) return "(no URL)";
  size_t end = url.find_first_of("/?#", scheme + 3);
  auto authority = url.substr(scheme + 3, end == url.npos ? end : end - scheme - 3);
  if (size_t at = authority.rfind('@'); at != authority.npos) authority.remove_prefix(at + 1);
  return std::string(url.substr(0, scheme + 3)).append(authority);
}

Error curl_error(CURLcode code, const char* detail, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += detail && *detail ? detail : curl_easy_strerror(code);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Error::deadline(std::move(message));
    case CURLE_URL_MALFORMAT:
      return Error::invalid(std::move(message));
    case CURLE_FILESIZE_EXCEEDED:
      return Error::overloaded(std::move(message));
    default:
      return Error::unavailable(std::move(message));
  }
}

}  // namespace celld::net_detail
