#include "net/curl_transport.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/check.h"
#include "net/curl_engine.h"

namespace celld {

using namespace net_detail;

namespace {

constexpr size_t kReplyHeadBytesMax = 256 << 10;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// One call, with the easy handle it borrows.
struct Transfer final : CurlCall {
  Transfer(CurlEngine& e, World& world, HttpCall c)
      : engine(e), call(std::move(c)), outcome(world) {}

  CurlEngine& engine;
  HttpCall call;
  OneShot<Result<HttpReply>> outcome;
  HttpReply reply;
  HeaderLines lines;
  CURL* easy = nullptr;
  size_t head_bytes = 0;
  bool interim = false;  // the head coming in is of a 1xx
  bool head_complete = false;
  int sends = 0;
  std::optional<Error> refused;  // why a callback stopped the transfer
  char detail[CURL_ERROR_SIZE] = "";

  std::string name() const { return call.method + " " + origin_of(call.url); }

  void curl_done(CURLcode code) override {
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, nullptr);
    engine.release(std::exchange(easy, nullptr));
    if (refused) {
      outcome.set(fail(refused->at(name())));
    } else if (code != CURLE_OK) {
      outcome.set(fail(curl_error(code, detail, name())));
    } else if (!head_complete) {  // to curl that is a reply
      outcome.set(fail(Error::unavailable(name() + ": the head of the reply is cut short")));
    } else {
      reply.status = static_cast<int>(status);
      outcome.set(std::move(reply));
    }
  }

  // The caller has cancelled.
  void give_up() {
    if (easy == nullptr) return;  // it has ended meanwhile
    engine.remove(easy);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, nullptr);
    engine.release(std::exchange(easy, nullptr));
    outcome.set(fail(call.deadline.error(name())));
  }

  static size_t on_header(char* data, size_t, size_t size, void* self) {
    auto& t = *static_cast<Transfer*>(self);
    std::string_view line(data, size);
    t.head_bytes += size;
    if (t.head_bytes > kReplyHeadBytesMax) {
      t.refused = Error::overloaded("the head of the reply is larger than 256 KiB");
      return 0;
    }
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // an interim response came before
      t.reply.headers.clear();
      size_t status = line.find(' ');
      t.interim = status != line.npos && line.substr(status + 1, 1) == "1";
      return size;
    }
    if (line.empty()) t.head_complete |= !t.interim;
    size_t colon = line.find(':');
    if (colon == line.npos) return size;
    auto value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    t.reply.headers.emplace_back(lower(line.substr(0, colon)), std::string(value));
    return size;
  }

  static size_t on_body(char* data, size_t, size_t size, void* self) {
    auto& t = *static_cast<Transfer*>(self);
    if (t.reply.body.size() + size > t.call.reply_bytes_max) {
      t.refused = Error::overloaded("the reply is larger than " +
                                    std::to_string(t.call.reply_bytes_max) + " bytes");
      return 0;
    }
    if (t.reply.body.empty()) {
      curl_off_t length = -1;
      curl_easy_getinfo(t.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
      if (length > 0 && static_cast<uint64_t>(length) <= t.call.reply_bytes_max) {
        // What a server announces is not yet a reason to hold that much memory.
        t.reply.body.reserve(std::min<size_t>(static_cast<size_t>(length), 8 << 20));
      }
    }
    t.reply.body.append(data, size);
    return size;
  }

  // Called before each time curl sends the request. A second time means that a kept connection was
  // dead: the server may have acted all the same.
  static int on_send(void* self, char*, char*, int, int) {
    auto& t = *static_cast<Transfer*>(self);
    if (++t.sends == 1) return CURL_PREREQFUNC_OK;
    t.refused = Error::unavailable("the server closed the connection without a reply");
    return CURL_PREREQFUNC_ABORT;
  }

  Result<void> prepare(World& world) {
    auto target = request_target(call.url);
    if (!target || !(call.url.starts_with("http://") || call.url.starts_with("https://"))) {
      return fail(Error::invalid(name() + ": not an http or https URL"));
    }
    if (call.deadline.passed(world.now())) return fail(call.deadline.error(name()));
    long timeout_ms = 0;
    if (call.deadline.at != MonoTime::max()) {
      auto left = call.deadline.at - world.now();
      auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      timeout_ms = static_cast<long>(std::clamp<int64_t>(ms, 1, 24ll * 3600 * 1000));
    }
    bool has_type = false;
    bool has_accept = false;
    for (auto& [header, value] : call.headers) {
      std::string key = lower(header);
      if (key == "content-length") continue;  // of the body, which curl counts
      has_type |= key == "content-type";
      has_accept |= key == "accept";
      if (!lines.add(header, value)) {
        return fail(Error::invalid(name() + ": header \"" + header + "\" cannot be sent"));
      }
    }
    lines.suppress("Expect:");
    if (!has_accept) lines.suppress("Accept:");
    if (!has_type) lines.suppress("Content-Type:");

    easy = engine.acquire();
    auto set = [this](auto option, auto value) { curl_easy_setopt(easy, option, value); };
    engine.set_url(easy, call.url, *target, call.direct);
    bool bodiless = call.body.empty() && call.method != "POST" && call.method != "PUT" &&
                    call.method != "PATCH";
    if (call.method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else {
      set(CURLOPT_NOBODY, 0L);
      if (bodiless) {
        set(CURLOPT_HTTPGET, 1L);
      } else {
        set(CURLOPT_POST, 1L);
        // Not copied: the call keeps it.
        set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
        set(CURLOPT_POSTFIELDS, call.body.empty() ? "" : call.body.view().data());
      }
    }
    set(CURLOPT_CUSTOMREQUEST, call.method.c_str());
    set(CURLOPT_HTTPHEADER, lines.list());
    set(CURLOPT_TIMEOUT_MS, timeout_ms);
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_PREREQFUNCTION, &Transfer::on_send);
    set(CURLOPT_PREREQDATA, this);
    set(CURLOPT_ERRORBUFFER, detail);
    return {};
  }
};

}  // namespace

struct CurlTransport::State {
  State(boost::asio::io_context& io, World& w, CurlTransportOptions options)
      : world(w),
        engine(std::make_shared<CurlEngine>(
            io, PoolOptions{.connections_per_host_max = options.connections_per_host_max,
                            .connections_idle_max = std::max(options.connections_per_host_max, 64l),
                            .proxy_from_environment = options.proxy_from_environment})) {}
  World& world;
  std::shared_ptr<CurlEngine> engine;
};

CurlTransport::CurlTransport(boost::asio::io_context& io, World& world,
                             CurlTransportOptions options)
    : state_(std::make_shared<State>(io, world, options)) {}

CurlTransport::~CurlTransport() {
  for (auto& call : state_->engine->remove_all()) {
    auto& transfer = static_cast<Transfer&>(*call);
    transfer.engine.release(std::exchange(transfer.easy, nullptr));
    transfer.outcome.set(fail(Error::cancelled(transfer.name() + ": the transport was closed")));
  }
}

Task<Result<HttpReply>> CurlTransport::perform(HttpCall call) {
  auto state = state_;  // outlives this when the transport is destroyed meanwhile
  const Deadline deadline = call.deadline;
  auto transfer = std::make_shared<Transfer>(*state->engine, state->world, std::move(call));
  CO_TRY(transfer->prepare(state->world));
  if (auto added = state->engine->add(transfer->easy, transfer); !added) {
    state->engine->release(std::exchange(transfer->easy, nullptr));
    co_return fail(std::move(added).error());
  }
  Cancellation::Listener cancelled;
  cancelled.attach(deadline.cancellation, [&world = state->world, weak = std::weak_ptr(transfer)] {
    // Not at once: the caller may stand inside a callback of curl.
    world.post([weak] {
      if (auto running = weak.lock()) running->give_up();
    });
  });
  co_return co_await transfer->outcome.take();
}

}  // namespace celld
