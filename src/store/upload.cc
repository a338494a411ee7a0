#include "store/upload.h"

#include <utility>

#include "store/key.h"

namespace celld {

Result<void> check_part_bytes(uint64_t part_bytes) {
  if (part_bytes >= kPartBytesMin && part_bytes <= kPartBytesMax) return {};
  return fail(Error::invalid("parts of " + std::to_string(part_bytes) + " bytes; allowed are " +
                             std::to_string(kPartBytesMin) + " to " +
                             std::to_string(kPartBytesMax)));
}

Result<void> PartSizes::check(uint32_t number, uint64_t bytes) const {
  const std::string part = "part " + std::to_string(number);
  if (number == 0 || number > kPartsMax) {
    return fail(Error::invalid(part + ": parts are numbered 1 to " + std::to_string(kPartsMax)));
  }
  if (bytes == 0 || bytes > part_bytes_) {
    return fail(Error::invalid(part + ": " + std::to_string(bytes) + " bytes in an upload of parts of " +
                               std::to_string(part_bytes_)));
  }
  if (bytes < part_bytes_ && !sizes_.empty() && sizes_.rbegin()->first > number) {
    return fail(Error::invalid(part + " is short, but not the last"));
  }
  return {};
}

Result<void> PartSizes::complete() const {
  if (sizes_.empty()) return fail(Error::invalid("an upload without parts cannot be finished"));
  uint32_t expected = 0;
  for (const auto& [number, bytes] : sizes_) {
    if (number != ++expected) {
      return fail(Error::invalid("part " + std::to_string(expected) + " was never sent"));
    }
    if (bytes != part_bytes_ && number != sizes_.rbegin()->first) {
      return fail(Error::invalid("part " + std::to_string(number) + " is short, but not the last"));
    }
  }
  return {};
}

uint64_t PartSizes::total_bytes() const {
  uint64_t total = 0;
  for (const auto& [number, bytes] : sizes_) total += bytes;
  return total;
}

namespace {

class BufferedUpload final : public Upload {
 public:
  BufferedUpload(ObjectStore& store, std::string key, uint64_t part_bytes)
      : store_(store), key_(std::move(key)), sizes_(part_bytes) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline) override {
    if (auto ok = sizes_.check(number, body.size()); !ok) co_return fail(ok.error().at(where()));
    auto old = parts_.find(number);
    const uint64_t others = sizes_.total_bytes() - (old == parts_.end() ? 0 : old->second.size());
    if (others + body.size() > kBufferedUploadBytesMax) {
      co_return fail(Error::overloaded(where() + ": this store takes objects of at most " +
                                       std::to_string(kBufferedUploadBytesMax) + " bytes"));
    }
    sizes_.sent(number, body.size());
    parts_[number] = std::move(body);
    co_return Result<void>{};
  }

  Task<Result<Version>> finish(Deadline deadline) override {
    if (auto ok = sizes_.complete(); !ok) co_return fail(ok.error().at(where()));
    std::string whole;
    whole.reserve(sizes_.total_bytes());
    for (const auto& [number, body] : parts_) whole += body.view();
    std::string key = key_;
    Blob body(std::move(whole));
    co_return co_await store_.put(std::move(key), std::move(body), deadline);
  }

  Task<Result<void>> abort(Deadline) override {
    parts_.clear();
    co_return Result<void>{};
  }

 private:
  std::string where() const { return store_.describe() + ": put '" + printable_key(key_) + "'"; }

  ObjectStore& store_;
  const std::string key_;
  PartSizes sizes_;
  std::map<uint32_t, Blob> parts_;
};

// Cuts what a source yields into pieces of one size.
class Cutter {
 public:
  Cutter(BlobSource& source, uint64_t piece_bytes) : source_(source), piece_bytes_(piece_bytes) {}

  // The next piece: `piece_bytes`, or less at the end of the content, or nothing behind it.
  Task<Result<Blob>> next(Deadline deadline) {
    if (left_.empty() && !ended_) {  // a piece that fits is not copied
      CO_TRY(co_await fill(deadline));
      if (left_.size() == piece_bytes_) {
        Blob whole = std::exchange(left_, Blob());
        co_return whole;
      }
    }
    std::string piece;
    while (piece.size() < piece_bytes_) {
      if (left_.empty() && !ended_) CO_TRY(co_await fill(deadline));
      if (left_.empty()) break;
      const std::string_view unread = left_.view().substr(read_);
      const std::string_view taken = unread.substr(0, piece_bytes_ - piece.size());
      if (piece.empty()) piece.reserve(taken.size());
      piece += taken;
      read_ += taken.size();
      if (read_ == left_.size()) {
        left_ = Blob();
        read_ = 0;
      }
    }
    co_return Blob(std::move(piece));
  }

 private:
  Task<Result<void>> fill(Deadline deadline) {
    CO_TRY_ASSIGN(left_, co_await source_.next(deadline));
    read_ = 0;
    ended_ = left_.empty();
    co_return Result<void>{};
  }

  BlobSource& source_;
  const uint64_t piece_bytes_;
  Blob left_;
  size_t read_ = 0;
  bool ended_ = false;
};

// The parts of one upload that are under way.
struct PartsUnderWay {
  explicit PartsUnderWay(World& world) : ended(world) {}
  Cancellation stop;  // at the first failure
  Signal ended;
  uint32_t count = 0;
  std::optional<Error> failed;
};

Task<void> send_part(Upload& upload, uint32_t number, Blob body, Deadline deadline,
                     PartsUnderWay& parts) {
  Result<void> sent = co_await upload.put_part(number, std::move(body), deadline);
  if (!sent && !parts.failed) {
    parts.failed = std::move(sent).error();
    parts.stop.cancel();
  }
  --parts.count;
  parts.ended.notify_all();
}

// Everything between the begin and the end of an upload. No part is under way at the end.
Task<Result<void>> send_parts(World& world, Upload& upload, Cutter& cutter, Blob first, Blob second,
                              StreamOptions options, Deadline deadline) {
  PartsUnderWay parts(world);
  Cancellation::Listener caller;
  caller.attach(deadline.cancellation, [&parts] { parts.stop.cancel(); });
  std::optional<Error> failed;
  Blob piece = std::move(first);
  Blob following = std::move(second);
  for (uint32_t number = 1; !piece.empty() && !parts.failed; ++number) {
    if (number > kPartsMax) {
      failed = Error::invalid("more than " + std::to_string(kPartsMax) + " parts of " +
                              std::to_string(options.part_bytes) + " bytes");
      parts.stop.cancel();
      break;
    }
    while (parts.count >= options.parallel) co_await parts.ended.wait();
    if (parts.failed) break;
    ++parts.count;
    Deadline of_part = deadline.sooner(world.now() + options.part_timeout).cancelled_by(parts.stop);
    Blob body = std::exchange(piece, std::exchange(following, Blob()));
    start(send_part(upload, number, std::move(body), of_part, parts));
    if (!piece.empty()) continue;
    Result<Blob> next = co_await cutter.next(deadline);
    if (!next) {
      failed = std::move(next).error();
      parts.stop.cancel();
      break;
    }
    piece = std::move(*next);
  }
  while (parts.count > 0) co_await parts.ended.wait();
  if (failed) co_return fail(std::move(*failed));
  if (parts.failed) co_return fail(std::move(*parts.failed));
  co_return Result<void>{};
}

constexpr std::chrono::seconds kAbortTimeout{10};

}  // namespace

std::unique_ptr<Upload> buffered_upload(ObjectStore& store, std::string key, uint64_t part_bytes) {
  return std::make_unique<BufferedUpload>(store, std::move(key), part_bytes);
}

Task<Result<Version>> put_stream(World& world, ObjectStore& store, std::string key,
                                 BlobSource& source, StreamOptions options, Deadline deadline) {
  if (auto ok = check_part_bytes(options.part_bytes); !ok) co_return fail(ok.error());
  if (options.parallel == 0) co_return fail(Error::invalid("uploads with no part at a time"));
  Cutter cutter(source, options.part_bytes);
  CO_TRY_ASSIGN(Blob first, co_await cutter.next(deadline));
  Blob second;
  if (first.size() == options.part_bytes) {
    CO_TRY_ASSIGN(second, co_await cutter.next(deadline));
  }
  if (second.empty()) {
    Deadline of_part = deadline.sooner(world.now() + options.part_timeout);
    co_return co_await store.put(std::move(key), std::move(first), of_part);
  }
  CO_TRY_ASSIGN(std::unique_ptr<Upload> upload,
                co_await store.begin_upload(std::move(key), options.part_bytes, deadline));
  Result<void> sent = co_await send_parts(world, *upload, cutter, std::move(first),
                                          std::move(second), options, deadline);
  Result<Version> done = fail(Error::internal("not finished"));
  if (sent) {
    done = co_await upload->finish(deadline.sooner(world.now() + options.part_timeout));
  } else {
    done = fail(std::move(sent).error());
  }
  if (!done) {
    // Also when the caller is gone and its deadline over. Best effort: the first error counts.
    Result<void> aborted = co_await upload->abort(world.deadline_in(kAbortTimeout));
    (void)aborted;
  }
  co_return done;
}

}  // namespace celld
