#include "net/fetch_client.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cctype>
#include <cstring>

#include "base/check.h"
#include "net/content_decoder.h"
#include "net/curl_engine.h"
#include "net/http_message.h"

namespace celld {

namespace asio = boost::asio;
using namespace net_detail;

struct FetchClient::State {
  State(asio::io_context& io, FetchOptions o)
      : options(o),
        engine(std::make_shared<CurlEngine>(
            io, PoolOptions{.connections_per_host_max = o.connections_per_host_max,
                            .connections_idle_max = std::max(o.connections_per_host_max, 64l),
                            .proxy_from_environment = o.proxy_from_environment})) {}
  const FetchOptions options;
  std::shared_ptr<CurlEngine> engine;
};

namespace {

constexpr size_t kHeldBytesMax = 256 << 10;  // received and not yet passed on; then curl pauses
constexpr size_t kPieceBytesMax = 64 << 10;  // of decompressed data passed on in one go
constexpr size_t kReplyHeadBytesMax = 256 << 10;

class Call final : public FetchCall, public CurlCall, public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<CurlEngine> engine, FetchRequest request, FetchHandlers handlers)
      : engine_(std::move(engine)), request_(std::move(request)), handlers_(std::move(handlers)) {}

  ~Call() override {
    if (easy_) engine_->release(easy_);
  }

  void start(bool http2) {
    auto prepared = prepare(http2);
    if (prepared) prepared = engine_->add(easy_, shared_from_this());
    if (prepared) return;
    finish_curl(std::move(prepared));
  }

  void pause() override { paused_ = true; }

  void resume() override {
    paused_ = false;
    schedule();
  }

  void cancel() override {
    if (over_) return;
    over_ = true;
    engine_->remove(easy_);
    give_back();
    // Not from here: one of them may be running.
    asio::post(engine_->io(), [self = shared_from_this()] {
      self->handlers_ = {};
      self->request_.pull = nullptr;
    });
  }

  // The client goes away.
  void abandon() {
    give_back();
    finish_curl(fail(Error::cancelled(name() + ": the client was closed")));
  }

  void curl_done(CURLcode code) override {
    give_back();
    if (refused_) {
      finish_curl(fail(std::move(*refused_)));
    } else if (code != CURLE_OK) {
      Error e = curl_error(code, detail_, name());
      if (sends_ == 0 && e.code != ErrorCode::kInvalid) e.retry = Retry::kNow;
      finish_curl(fail(std::move(e)));
    } else if (!head_complete_) {  // to curl that is a reply
      finish_curl(fail(Error::unavailable(name() + ": the head of the reply is cut short")));
    } else {
      finish_curl({});
    }
  }

 private:
  std::string name() const { return request_.method + " " + origin_of(request_.url); }

  void give_back() {
    if (!easy_) return;
    curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, nullptr);
    engine_->release(std::exchange(easy_, nullptr));
  }

  void finish_curl(Result<void> result) {
    if (over_) return;
    result_ = std::move(result);
    schedule();
  }

  Result<void> prepare(bool http2) {
    std::string& url = request_.url;
    size_t scheme_end = url.find(':');
    std::string scheme = url.substr(0, scheme_end);
    for (char& c : scheme) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (scheme_end == url.npos || (scheme != "http" && scheme != "https")) {
      return fail(Error::invalid("Fetch API cannot load: " + url.substr(0, 256) +
                                 " (only http and https URLs can be fetched)"));
    }
    auto target = request_target(url);
    if (!target) return fail(Error::invalid(name() + ": malformed URL"));
    auto token = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("!#$%&'*+-.^_`|~", c);
    };
    if (request_.method.empty() || request_.method.size() > 64 ||
        !std::ranges::all_of(request_.method, token) || request_.method == "CONNECT") {
      return fail(Error::invalid(name() + ": not a method that can be sent"));
    }
    bool has_type = false, has_accept = false, has_encoding = false;
    std::string_view block = request_.header_block;
    while (!block.empty()) {
      size_t name_end = block.find('\n');
      if (name_end == block.npos) return fail(Error::invalid(name() + ": malformed header block"));
      size_t value_end = std::min(block.find('\n', name_end + 1), block.size());
      auto key = block.substr(0, name_end);
      auto value = block.substr(name_end + 1, value_end - name_end - 1);
      block.remove_prefix(std::min(block.size(), value_end + 1));
      if (key == "content-length" || key == "transfer-encoding" || key == "expect" ||
          key == "connection") {
        continue;
      }
      has_type |= key == "content-type";
      has_accept |= key == "accept";
      has_encoding |= key == "accept-encoding";
      if (!lines_.add(key, value)) {
        return fail(Error::invalid(name() + ": header \"" + std::string(key.substr(0, 100)) +
                                   "\" cannot be sent"));
      }
    }
    lines_.suppress("Expect:");
    if (!has_accept) lines_.suppress("Accept:");
    if (!has_type) lines_.suppress("Content-Type:");
    if (request_.decompress && !has_encoding) lines_.add("accept-encoding", "br, gzip");

    easy_ = engine_->acquire();
    auto set = [this](auto option, auto value) { curl_easy_setopt(easy_, option, value); };
    engine_->set_url(easy_, url, *target);
    set(CURLOPT_HTTP_VERSION,
        static_cast<long>(http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    set(CURLOPT_NOBODY, 0L);
    set(CURLOPT_UPLOAD, 0L);
    set(CURLOPT_READFUNCTION, &Call::on_read);
    set(CURLOPT_READDATA, this);
    bool sends_empty = request_.method != "GET" && request_.method != "HEAD";
    if (request_.pull) {
      set(CURLOPT_UPLOAD, 1L);
      set(CURLOPT_INFILESIZE_LARGE,
          request_.pull_bytes ? static_cast<curl_off_t>(*request_.pull_bytes) : curl_off_t(-1));
    } else if (request_.body || sends_empty) {
      if (!request_.body) request_.body = Blob();
      set(CURLOPT_POST, 1L);
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body->size()));
      set(CURLOPT_POSTFIELDS, request_.body->empty() ? "" : request_.body->view().data());
    } else if (request_.method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else {
      set(CURLOPT_HTTPGET, 1L);
    }
    set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
    set(CURLOPT_HTTPHEADER, lines_.list());
    set(CURLOPT_HEADERFUNCTION, &Call::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Call::on_write);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_PREREQFUNCTION, &Call::on_send);
    set(CURLOPT_PREREQDATA, this);
    set(CURLOPT_ERRORBUFFER, detail_);
    return {};
  }

  // ---- called by curl; nothing of the user's runs inside

  static size_t on_header(char* data, size_t, size_t size, void* self) {
    auto& c = *static_cast<Call*>(self);
    std::string_view line(data, size);
    c.head_bytes_ += size;
    if (c.head_bytes_ > kReplyHeadBytesMax) {
      c.refused_ = Error::overloaded(c.name() + ": the head of the reply is larger than 256 KiB");
      return 0;
    }
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    if (c.head_complete_) return size;  // a trailer
    if (line.starts_with("HTTP/")) {
      c.block_.clear();
      size_t status = line.find(' ');
      size_t text = status == line.npos ? line.npos : line.find(' ', status + 1);
      c.status_ =
          status == line.npos ? 0 : std::atoi(std::string(line.substr(status + 1, 3)).c_str());
      c.status_text_ = text == line.npos ? "" : std::string(line.substr(text + 1));
      return size;
    }
    if (line.empty()) {
      if (c.status_ >= 200) {
        c.head_complete_ = true;
        c.schedule();
      }
      return size;
    }
    size_t colon = line.find(':');
    if (colon == line.npos) return size;
    for (char k : line.substr(0, colon)) {
      c.block_ += static_cast<char>(std::tolower(static_cast<unsigned char>(k)));
    }
    auto value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    c.block_.append("\n").append(value).append("\n");
    return size;
  }

  static size_t on_write(char* data, size_t, size_t size, void* self) {
    auto& c = *static_cast<Call*>(self);
    if (c.held_.size() >= kHeldBytesMax) {
      c.curl_paused_ = true;
      return CURL_WRITEFUNC_PAUSE;
    }
    c.held_.append(data, size);
    c.schedule();
    return size;
  }

  static size_t on_read(char* out, size_t, size_t room, void* self) {
    auto& c = *static_cast<Call*>(self);
    auto rest = c.piece_.view().substr(c.piece_used_);
    if (!rest.empty()) {
      size_t n = std::min(room, rest.size());
      std::memcpy(out, rest.data(), n);
      c.piece_used_ += n;
      c.sent_bytes_ += n;
      return n;
    }
    auto& expected = c.request_.pull_bytes;
    if (!c.refused_ && expected &&
        (c.sent_bytes_ > *expected || (c.pull_ended_ && c.sent_bytes_ < *expected))) {
      c.refused_ =
          Error::invalid(c.name() + ": the request body does not have its announced length of " +
                         std::to_string(*expected) + " bytes");
    }
    if (c.refused_) return CURL_READFUNC_ABORT;
    if (c.pull_ended_) return 0;
    c.schedule_pull();
    return CURL_READFUNC_PAUSE;
  }

  // A kept connection may be dead: curl then sends again, which is right only for requests that do
  // nothing twice.
  static int on_send(void* self, char*, char*, int, int) {
    auto& c = *static_cast<Call*>(self);
    bool repeatable = c.request_.repeatable || ((c.request_.method == "GET" || c.request_.method == "HEAD") &&
                                                !c.request_.pull && !c.request_.body);
    if (++c.sends_ == 1 || repeatable) return CURL_PREREQFUNC_OK;
    c.refused_ =
        Error::unavailable(c.name() + ": the server closed the connection without a reply");
    return CURL_PREREQFUNC_ABORT;
  }

  // ---- outside of curl

  void schedule_pull() {
    if (pulling_) return;
    pulling_ = true;
    asio::post(engine_->io(), [self = shared_from_this()] {
      if (self->over_ || !self->easy_) return;
      self->request_.pull([self](Result<Blob> piece) { self->pulled(std::move(piece)); });
    });
  }

  void pulled(Result<Blob> piece) {
    pulling_ = false;
    if (over_ || !easy_) return;
    if (!piece) {
      refused_ = std::move(piece).error();
    } else if (piece->empty()) {
      pull_ended_ = true;
    } else {
      piece_ = std::move(*piece);
      piece_used_ = 0;
    }
    // Not from here: the pull may answer within a callback of another call.
    asio::post(engine_->io(), [self = shared_from_this()] {
      if (self->easy_) self->engine_->unpause(self->easy_);
    });
  }

  void schedule() {
    if (scheduled_ || over_) return;
    scheduled_ = true;
    asio::post(engine_->io(), [self = shared_from_this()] {
      self->scheduled_ = false;
      self->pump();
    });
  }

  // Passes on one thing: the head, a piece of the body, or the end.
  void pump() {
    if (over_) return;
    if (head_complete_ && !head_told_) {
      head_told_ = true;
      if (request_.decompress && request_.method != "HEAD") {
        decoder_ = ContentDecoder::make(find_header(block_, "content-encoding").value_or(""));
      }
      schedule();
      if (handlers_.on_head) handlers_.on_head(status_, std::move(status_text_), std::move(block_));
      return;
    }
    if (paused_) return;
    std::string piece;
    if (!decoder_) {
      piece = std::exchange(held_, {});
    } else if (!held_.empty() || decoder_full_) {
      auto used = decoder_->decode(held_, piece, kPieceBytesMax);
      if (!used) {
        held_.clear();
        decoder_.reset();
        if (easy_) engine_->remove(easy_);
        give_back();
        return end(fail(used.error().at(name())));
      }
      held_.erase(0, *used);
      decoder_full_ = piece.size() == kPieceBytesMax;
    }
    if (curl_paused_ && held_.size() <= kHeldBytesMax / 2 && easy_) {
      curl_paused_ = false;
      engine_->unpause(easy_);
    }
    if (!piece.empty()) {
      schedule();
      if (handlers_.on_body) handlers_.on_body(Blob(std::move(piece)));
      return;
    }
    if (!result_) return;
    if (*result_ && decoder_ && !decoder_->complete()) {
      return end(fail(Error::invalid(name() + ": the compressed body is truncated")));
    }
    end(std::move(*result_));
  }

  void end(Result<void> result) {
    over_ = true;
    auto handlers = std::move(handlers_);
    handlers_ = {};
    request_.pull = nullptr;
    if (handlers.on_end) handlers.on_end(std::move(result));
  }

  const std::shared_ptr<CurlEngine> engine_;
  FetchRequest request_;
  FetchHandlers handlers_;
  HeaderLines lines_;
  CURL* easy_ = nullptr;  // while curl works on it
  char detail_[CURL_ERROR_SIZE] = "";
  std::optional<Error> refused_;        // why a callback stopped the transfer
  std::optional<Result<void>> result_;  // what curl made of it
  int sends_ = 0;

  int status_ = 0;
  std::string status_text_;
  std::string block_;
  size_t head_bytes_ = 0;
  bool head_complete_ = false;
  bool head_told_ = false;

  std::string held_;  // received, not yet passed on
  std::unique_ptr<ContentDecoder> decoder_;
  bool decoder_full_ = false;  // it may have more without more input
  bool curl_paused_ = false;
  bool paused_ = false;
  bool scheduled_ = false;
  bool over_ = false;  // nothing more is called

  Blob piece_;  // of the request body
  size_t piece_used_ = 0;
  uint64_t sent_bytes_ = 0;
  bool pulling_ = false;
  bool pull_ended_ = false;
};

}  // namespace

FetchClient::FetchClient(asio::io_context& io, FetchOptions options)
    : state_(std::make_shared<State>(io, options)) {}

FetchClient::~FetchClient() {
  for (auto& call : state_->engine->remove_all()) static_cast<Call&>(*call).abandon();
}

std::shared_ptr<FetchCall> FetchClient::start(FetchRequest request, FetchHandlers handlers) {
  auto call = std::make_shared<Call>(state_->engine, std::move(request), std::move(handlers));
  call->start(state_->options.http2);
  return call;
}

}  // namespace celld
