// Outgoing fetch(): from an isolate's message to the network and back.
#include <boost/asio/post.hpp>
#include <charconv>

#include "js/pipe.h"
#include "node/loop.h"

namespace celld {

// One call. Ended by on_end, by the reader of the reply's body, or by the isolate.
class Loop::OutgoingFetch : public std::enable_shared_from_this<Loop::OutgoingFetch> {
 public:
  OutgoingFetch(Loop& loop, uint64_t handle, js::Reply<js::HttpResponseMessage> reply)
      : loop_(loop), handle_(handle), reply_(std::move(reply)) {}

  void start(js::HttpRequestMessage message) {
    FetchRequest request;
    head_only_ = message.method == "HEAD";
    request.method = std::move(message.method);
    request.url = std::move(message.url);
    request.header_block = std::move(message.headers);
    if (auto* blob = std::get_if<Blob>(&message.body)) {
      request.body = std::move(*blob);
    } else if (auto* pipe = std::get_if<js::PipeReader>(&message.body)) {
      upload_ = std::move(*pipe);
      request.pull_bytes = upload_->length();
      request.pull = [self = shared_from_this()](auto done) { self->pull(std::move(done)); };
    }
    FetchHandlers handlers;
    auto self = shared_from_this();
    handlers.on_head = [self](int status, std::string text, std::string headers) {
      self->head(status, std::move(text), std::move(headers));
    };
    handlers.on_body = [self](Blob chunk) { self->body(std::move(chunk)); };
    handlers.on_end = [self](Result<void> result) { self->end(std::move(result)); };
    call_ = loop_.fetch_client_->start(std::move(request), std::move(handlers));
  }

  void cancel() {
    if (call_) call_->cancel();
    upload_.reset();
    if (download_) download_->abort(js::JsError{"AbortError", "The operation was aborted", {}, 0});
    reply_ = nullptr;
    loop_.fetches_.erase(handle_);
  }

 private:
  void pull(std::move_only_function<void(Result<Blob>)> done) {
    if (!upload_) return done(fail(Error::cancelled("the call has ended")));
    js::Pipe::Read r = upload_->read();
    switch (r.state) {
      case js::Pipe::Read::State::kData: return done(std::move(r.data));
      case js::Pipe::Read::State::kEnd: return done(Blob());
      case js::Pipe::Read::State::kError:
        return done(fail(Error::cancelled("the request body failed: " + r.error.message)));
      case js::Pipe::Read::State::kPending:
        upload_->on_readable([self = shared_from_this(), done = std::move(done)]() mutable {
          Loop& loop = self->loop_;
          loop.post([self = std::move(self), done = std::move(done)]() mutable {
            self->pull(std::move(done));
          });
        });
    }
  }

  void head(int status, std::string text, std::string headers) {
    js::HttpResponseMessage m;
    m.status = status;
    m.status_text = std::move(text);
    m.headers = std::move(headers);
    bool no_body = head_only_ || status == 204 || status == 205 || status == 304 || status == 101;
    if (!no_body) {
      auto [writer, reader] = js::make_pipe(known_length(m.headers));
      download_ = std::move(writer);
      m.body = std::move(reader);
      download_->on_cancelled([self = shared_from_this()] {
        Loop& loop = self->loop_;
        loop.post([self] { self->cancel(); });
      });
    }
    if (reply_) std::exchange(reply_, nullptr)(std::move(m));
  }

  // The length of the body as it will be read: not known when it is decompressed on the way.
  static std::optional<uint64_t> known_length(std::string_view headers) {
    if (find_header(headers, "content-encoding")) return std::nullopt;
    auto text = find_header(headers, "content-length");
    uint64_t length = 0;
    if (!text) return std::nullopt;
    auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), length);
    if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
    return length;
  }

  void body(Blob chunk) {
    if (!download_) return;
    if (download_->write(std::move(chunk)) != js::Pipe::Write::kFull) return;
    call_->pause();
    download_->on_room([self = shared_from_this()] {
      Loop& loop = self->loop_;
      loop.post([self] { self->call_->resume(); });
    });
  }

  void end(Result<void> result) {
    if (result) {
      if (download_) download_->close();
    } else {
      // Name and text are workerd's; what happened stands where a stack would name a function.
      js::JsError error{"Error", "Network connection lost.",
                        "Error: Network connection lost.\n    at fetch (" + result.error().message + ")",
                        js::kRetryable};
      if (download_) download_->abort(error);
      if (reply_) std::exchange(reply_, nullptr)(std::unexpected(std::move(error)));
    }
    upload_.reset();
    loop_.fetches_.erase(handle_);
  }

  Loop& loop_;
  const uint64_t handle_;
  bool head_only_ = false;
  js::Reply<js::HttpResponseMessage> reply_;
  std::shared_ptr<FetchCall> call_;
  js::PipeReader upload_;
  js::PipeWriter download_;
};

uint64_t Loop::fetch(js::HttpRequestMessage request, js::Reply<js::HttpResponseMessage> reply) {
  uint64_t handle = ++last_fetch_;
  auto outgoing = std::make_shared<OutgoingFetch>(*this, handle, std::move(reply));
  fetches_.emplace(handle, outgoing);
  outgoing->start(std::move(request));
  return handle;
}

void Loop::cancel_fetch(uint64_t handle) {
  auto it = fetches_.find(handle);
  if (it == fetches_.end()) return;
  auto outgoing = it->second;
  outgoing->cancel();
}

}  // namespace celld
