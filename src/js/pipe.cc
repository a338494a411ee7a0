#include "js/pipe.h"

#include <utility>

namespace celld::js {

namespace {

using Callback = std::move_only_function<void()>;

void run(Callback callback) {
  if (callback) callback();
}

}  // namespace

Pipe::Write Pipe::write(Blob chunk) {
  Callback wake;
  Write result;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_ || closed_ || error_) return Write::kReaderGone;
    if (length_ && written_ + chunk.size() > *length_) return Write::kTooLong;
    if (!chunk.empty()) {
      written_ += chunk.size();
      buffered_ += chunk.size();
      chunks_.push_back(std::move(chunk));
      wake = std::exchange(on_readable_, nullptr);
    }
    result = buffered_ < kHighWater ? Write::kRoom : Write::kFull;
  }
  run(std::move(wake));
  return result;
}

bool Pipe::close() {
  Callback wake;
  bool complete;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || cancelled_ || error_) return true;
    complete = !length_ || written_ == *length_;
    if (complete) {
      closed_ = true;
    } else {
      error_ = JsError{"TypeError",
                       "FixedLengthStream did not see all expected bytes before close().", {}, 0};
    }
    wake = std::exchange(on_readable_, nullptr);
  }
  run(std::move(wake));
  return complete;
}

void Pipe::abort(JsError error) {
  Callback wake;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || cancelled_ || error_) return;
    error_ = std::move(error);
    wake = std::exchange(on_readable_, nullptr);
  }
  run(std::move(wake));
}

void Pipe::on_room(Callback callback) {
  {
    std::lock_guard lock(mutex_);
    if (!cancelled_ && buffered_ >= kHighWater) {
      on_room_ = std::move(callback);
      return;
    }
  }
  callback();
}

Pipe::Read Pipe::read(size_t bytes_max) {
  Callback wake;
  Read result{Read::State::kPending, {}, {}};
  {
    std::lock_guard lock(mutex_);
    if (!chunks_.empty()) {
      result.state = Read::State::kData;
      if (chunks_.size() == 1 || chunks_.front().size() >= bytes_max) {
        result.data = std::move(chunks_.front());
        chunks_.pop_front();
        buffered_ -= result.data.size();
      } else {
        std::string joined;
        while (!chunks_.empty() && joined.size() + chunks_.front().size() <= bytes_max) {
          joined += chunks_.front().view();
          chunks_.pop_front();
        }
        buffered_ -= joined.size();
        result.data = Blob(std::move(joined));
      }
      if (buffered_ < kHighWater) wake = std::exchange(on_room_, nullptr);
    } else if (error_) {
      result.state = Read::State::kError;
      result.error = *error_;
    } else if (closed_ || cancelled_) {
      result.state = Read::State::kEnd;
    }
  }
  run(std::move(wake));
  return result;
}

void Pipe::on_readable(Callback callback) {
  {
    std::lock_guard lock(mutex_);
    if (chunks_.empty() && !closed_ && !error_ && !cancelled_) {
      on_readable_ = std::move(callback);
      return;
    }
  }
  callback();
}

void Pipe::cancel() {
  Callback wake;
  Callback told;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    chunks_.clear();
    buffered_ = 0;
    wake = std::exchange(on_room_, nullptr);
    if (!closed_ && !error_) told = std::exchange(on_cancelled_, nullptr);
  }
  run(std::move(wake));
  run(std::move(told));
}

void Pipe::on_cancelled(Callback callback) {
  std::lock_guard lock(mutex_);
  on_cancelled_ = std::move(callback);
}

namespace {

// Moves chunks from one pipe to two until the end.
void feed_both(std::shared_ptr<Pipe> source, std::shared_ptr<Pipe> a, std::shared_ptr<Pipe> b) {
  while (true) {
    Pipe::Read r = source->read();
    switch (r.state) {
      case Pipe::Read::State::kPending:
        source->on_readable([=] { feed_both(source, a, b); });
        return;
      case Pipe::Read::State::kEnd:
        a->close();
        b->close();
        return;
      case Pipe::Read::State::kError:
        a->abort(r.error);
        b->abort(r.error);
        return;
      case Pipe::Read::State::kData: {
        Pipe::Write wa = a->write(r.data);
        Pipe::Write wb = b->write(r.data);
        if (wa == Pipe::Write::kReaderGone && wb == Pipe::Write::kReaderGone) {
          source->cancel();
          return;
        }
        if (wa == Pipe::Write::kFull || wb == Pipe::Write::kFull) {
          a->on_room([=] { b->on_room([=] { feed_both(source, a, b); }); });
          return;
        }
      }
    }
  }
}

}  // namespace

std::pair<std::shared_ptr<Pipe>, std::shared_ptr<Pipe>> tee(std::shared_ptr<Pipe> source) {
  auto a = std::make_shared<Pipe>(source->length());
  auto b = std::make_shared<Pipe>(source->length());
  feed_both(std::move(source), a, b);
  return {a, b};
}

void fail_event(CellEvent& event, const JsError& error) {
  std::visit([&](auto& e) { if (e.reply) e.reply(std::unexpected(error)); }, event);
}

}  // namespace celld::js
