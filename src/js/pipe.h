// A one-way byte stream between two parties that may sit on different threads.
//
// Bounded: a writer that is told kFull waits for on_room. One writer, one reader. Every method may
// be called on any thread; a callback runs on the thread whose call caused it, outside the lock,
// so it should only post to where it belongs.
//
// Each party holds its end (PipeWriter here, PipeReader in messages.h) and passes it on with the
// stream. An end that is dropped tells the other side, so that nobody waits for somebody who has
// gone.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/blob.h"
#include "js/messages.h"

namespace celld::js {

class Pipe {
 public:
  // Bytes a pipe holds before it asks its writer to wait.
  static constexpr size_t kHighWater = 256 << 10;

  explicit Pipe(std::optional<uint64_t> length = std::nullopt) : length_(length) {}

  // How many bytes the whole stream has, when the writer said so.
  std::optional<uint64_t> length() const { return length_; }

  enum class Write { kRoom, kFull, kReaderGone, kTooLong };
  // An empty chunk is accepted and ignored.
  Write write(Blob chunk);
  // The end. False when fewer bytes than `length` were written: the reader gets an error.
  bool close();
  // An early end: the reader gets what was written and then the error. Nothing after close().
  void abort(JsError error);
  // Calls back once, when there is room or the reader is gone; at once if so now.
  void on_room(std::move_only_function<void()> callback);

  struct Read {
    enum class State { kData, kEnd, kError, kPending } state;
    Blob data;
    JsError error;
  };
  // Takes what is there (several chunks become one, up to `bytes_max`).
  Read read(size_t bytes_max = 64 << 10);
  // Calls back once, when read() will not be pending; at once if so now.
  void on_readable(std::move_only_function<void()> callback);
  // The reader is gone: what follows is thrown away and the writer is told. read() says kEnd.
  void cancel();
  // For the writer: calls back once when the reader is gone before the end; at once if so now.
  void on_cancelled(std::move_only_function<void()> callback);

 private:
  std::mutex mutex_;
  const std::optional<uint64_t> length_;
  std::deque<Blob> chunks_;
  size_t buffered_ = 0;
  uint64_t written_ = 0;
  bool closed_ = false;
  bool cancelled_ = false;
  std::optional<JsError> error_;
  std::move_only_function<void()> on_room_;
  std::move_only_function<void()> on_readable_;
  std::move_only_function<void()> on_cancelled_;
};

// The writing end. Dropped before close(), it aborts the stream.
class PipeWriter {
 public:
  PipeWriter() = default;
  explicit PipeWriter(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  PipeWriter(PipeWriter&& other) noexcept : pipe_(std::move(other.pipe_)) {}
  PipeWriter& operator=(PipeWriter&& other) noexcept;
  ~PipeWriter() { reset(); }

  explicit operator bool() const { return pipe_ != nullptr; }
  Pipe* operator->() const { return pipe_.get(); }
  // For callbacks that outlive a move of the end; whoever holds only this ends nothing.
  const std::shared_ptr<Pipe>& pipe() const { return pipe_; }
  void reset();

 private:
  std::shared_ptr<Pipe> pipe_;
};

std::pair<PipeWriter, PipeReader> make_pipe(std::optional<uint64_t> length = std::nullopt);

// Two pipes that each carry what `source` carries; the slower reader sets the pace. Ends the source
// when both readers are gone.
std::pair<PipeReader, PipeReader> tee(PipeReader source);

}  // namespace celld::js
