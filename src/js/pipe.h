// A one-way byte stream between two parties that may sit on different threads.
//
// Bounded: a writer that is told kFull waits for on_room. One writer, one reader. Every method may
// be called on any thread; a callback runs on the thread whose call caused it, outside the lock,
// so it should only post to where it belongs.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/blob.h"
#include "js/messages.h"

namespace celld::js {

class Pipe : public std::enable_shared_from_this<Pipe> {
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
  // The reader is gone: what follows is thrown away and the writer is told.
  void cancel();
  // For the writer: calls back once when the reader is gone before the end.
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

// Two pipes that each carry what `source` carries; the slower reader sets the pace.
std::pair<std::shared_ptr<Pipe>, std::shared_ptr<Pipe>> tee(std::shared_ptr<Pipe> source);

}  // namespace celld::js
