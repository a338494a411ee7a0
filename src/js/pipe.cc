#include "js/pipe.h"

#include <atomic>
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
  Callback told;  // not called: the writer is done
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
    told = std::exchange(on_cancelled_, nullptr);
  }
  run(std::move(wake));
  return complete;
}

void Pipe::abort(JsError error) {
  Callback wake;
  Callback told;  // not called: the writer is done
  {
    std::lock_guard lock(mutex_);
    if (closed_ || cancelled_ || error_) return;
    error_ = std::move(error);
    wake = std::exchange(on_readable_, nullptr);
    told = std::exchange(on_cancelled_, nullptr);
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
  Callback reader;
  std::deque<Blob> dropped;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    dropped.swap(chunks_);
    buffered_ = 0;
    wake = std::exchange(on_room_, nullptr);
    reader = std::exchange(on_readable_, nullptr);
    told = std::exchange(on_cancelled_, nullptr);
  }
  run(std::move(wake));
  run(std::move(told));
  run(std::move(reader));
}

void Pipe::on_cancelled(Callback callback) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || error_) return;
    if (!cancelled_) {
      on_cancelled_ = std::move(callback);
      return;
    }
  }
  callback();
}

PipeReader& PipeReader::operator=(PipeReader&& other) noexcept {
  if (this != &other) {
    reset();
    pipe_ = std::move(other.pipe_);
  }
  return *this;
}

void PipeReader::reset() {
  if (auto pipe = std::move(pipe_)) pipe->cancel();
}

PipeWriter& PipeWriter::operator=(PipeWriter&& other) noexcept {
  if (this != &other) {
    reset();
    pipe_ = std::move(other.pipe_);
  }
  return *this;
}

void PipeWriter::reset() {
  if (auto pipe = std::move(pipe_)) {
    pipe->abort(JsError{"Error", "The stream ended early: its writer has gone away.", {}, 0});
  }
}

std::pair<PipeWriter, PipeReader> make_pipe(std::optional<uint64_t> length) {
  auto pipe = std::make_shared<Pipe>(length);
  return {PipeWriter(pipe), PipeReader(pipe)};
}

namespace {

// What feeds two pipes from one. Runs in callbacks of one pipe after the other, never twice at once.
struct Tee {
  PipeReader source;
  PipeWriter a;
  PipeWriter b;

  // Moves chunks until one of them has to wait.
  static void feed(std::unique_ptr<Tee> tee);
};

void Tee::feed(std::unique_ptr<Tee> tee) {
  while (true) {
    Pipe::Read r = tee->source->read();
    switch (r.state) {
      case Pipe::Read::State::kPending: {
        auto pipe = tee->source.pipe();
        pipe->on_readable([tee = std::move(tee)]() mutable { feed(std::move(tee)); });
        return;
      }
      case Pipe::Read::State::kEnd:
        tee->a->close();
        tee->b->close();
        return;
      case Pipe::Read::State::kError:
        tee->a->abort(r.error);
        tee->b->abort(std::move(r.error));
        return;
      case Pipe::Read::State::kData: {
        Pipe::Write wa = tee->a->write(r.data);
        Pipe::Write wb = tee->b->write(std::move(r.data));
        if (wa == Pipe::Write::kReaderGone && wb == Pipe::Write::kReaderGone) return;
        if (wa == Pipe::Write::kFull || wb == Pipe::Write::kFull) {
          auto first = tee->a.pipe();
          first->on_room([tee = std::move(tee)]() mutable {
            auto second = tee->b.pipe();
            second->on_room([tee = std::move(tee)]() mutable { feed(std::move(tee)); });
          });
          return;
        }
      }
    }
  }
}

}  // namespace

std::pair<PipeReader, PipeReader> tee(PipeReader source) {
  auto [writer_a, reader_a] = make_pipe(source->length());
  auto [writer_b, reader_b] = make_pipe(source->length());
  // While the source is silent nobody writes, so nobody would notice that both readers are gone.
  auto left = std::make_shared<std::atomic<int>>(2);
  for (const auto& pipe : {writer_a.pipe(), writer_b.pipe()}) {
    pipe->on_cancelled([left, weak = std::weak_ptr(source.pipe())] {
      if (--*left > 0) return;
      if (auto pipe = weak.lock()) pipe->cancel();
    });
  }
  auto all = std::make_unique<Tee>(std::move(source), std::move(writer_a), std::move(writer_b));
  Tee::feed(std::move(all));
  return {std::move(reader_a), std::move(reader_b)};
}

Journey* journey_of(CellEvent& event) {
  if (auto* fetch = std::get_if<CellFetch>(&event)) return &fetch->journey;
  if (auto* rpc = std::get_if<CellRpc>(&event)) return &rpc->journey;
  return nullptr;
}

void fail_event(CellEvent& event, const JsError& error) {
  std::visit([&](auto& e) { if (e.reply) e.reply(std::unexpected(error)); }, event);
}

}  // namespace celld::js
