#include "js/pipe.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace celld::js {
namespace {

using State = Pipe::Read::State;

Blob bytes(size_t n, char c = 'x') { return Blob(std::string(n, c)); }

std::string read_all(Pipe& pipe) {
  std::string all;
  while (true) {
    Pipe::Read r = pipe.read();
    if (r.state != State::kData) return all;
    all += r.data.view();
  }
}

JsError boom() { return JsError{"Error", "boom", {}, 0}; }

TEST(Pipe, carries_chunks_in_order_to_the_end) {
  auto [writer, reader] = make_pipe();
  EXPECT_EQ(reader->read().state, State::kPending);
  EXPECT_EQ(writer->write(Blob(std::string("ab"))), Pipe::Write::kRoom);
  EXPECT_EQ(writer->write(Blob()), Pipe::Write::kRoom);
  EXPECT_EQ(writer->write(Blob(std::string("cd"))), Pipe::Write::kRoom);
  EXPECT_TRUE(writer->close());
  Pipe::Read r = reader->read();
  EXPECT_EQ(r.data.view(), "abcd");
  EXPECT_EQ(reader->read().state, State::kEnd);
  EXPECT_EQ(reader->read().state, State::kEnd);
}

TEST(Pipe, a_full_pipe_asks_its_writer_to_wait_until_there_is_room) {
  auto [writer, reader] = make_pipe();
  EXPECT_EQ(writer->write(bytes(Pipe::kHighWater)), Pipe::Write::kFull);
  int room = 0;
  writer->on_room([&] { ++room; });
  EXPECT_EQ(room, 0);
  EXPECT_EQ(reader->read().data.size(), Pipe::kHighWater);
  EXPECT_EQ(room, 1);
  writer->on_room([&] { ++room; });
  EXPECT_EQ(room, 2);
}

TEST(Pipe, an_error_comes_after_what_was_written_before_it) {
  auto [writer, reader] = make_pipe();
  writer->write(bytes(3));
  writer->abort(boom());
  EXPECT_EQ(writer->write(bytes(1)), Pipe::Write::kReaderGone);
  EXPECT_EQ(reader->read().data.size(), 3u);
  Pipe::Read r = reader->read();
  EXPECT_EQ(r.state, State::kError);
  EXPECT_EQ(r.error.message, "boom");
}

TEST(Pipe, a_length_that_is_not_kept_is_an_error_for_both_sides) {
  auto [longer, reader] = make_pipe(4);
  EXPECT_EQ(longer->write(bytes(5)), Pipe::Write::kTooLong);
  EXPECT_EQ(longer->write(bytes(4)), Pipe::Write::kRoom);
  EXPECT_TRUE(longer->close());
  EXPECT_EQ(read_all(*reader.pipe()).size(), 4u);

  auto [shorter, reader_of_shorter] = make_pipe(4);
  shorter->write(bytes(3));
  EXPECT_FALSE(shorter->close());
  EXPECT_EQ(reader_of_shorter->read().data.size(), 3u);
  EXPECT_EQ(reader_of_shorter->read().state, State::kError);
}

TEST(Pipe, a_dropped_reader_tells_the_writer) {
  auto [writer, reader] = make_pipe();
  writer->write(bytes(Pipe::kHighWater));
  int room = 0, gone = 0;
  writer->on_room([&] { ++room; });
  writer->on_cancelled([&] { ++gone; });
  reader.reset();
  EXPECT_EQ(room, 1);
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(writer->write(bytes(1)), Pipe::Write::kReaderGone);
  writer->on_cancelled([&] { ++gone; });
  EXPECT_EQ(gone, 2) << "it is told also when it asks late";
}

TEST(Pipe, a_dropped_writer_ends_the_stream_with_an_error) {
  auto [writer, reader] = make_pipe();
  int readable = 0;
  reader->on_readable([&] { ++readable; });
  writer.reset();
  EXPECT_EQ(readable, 1);
  EXPECT_EQ(reader->read().state, State::kError);
}

TEST(Pipe, after_the_end_nobody_is_told_of_a_dropped_end) {
  auto [writer, reader] = make_pipe();
  int gone = 0;
  writer->on_cancelled([&] { ++gone; });
  writer->close();
  writer.reset();
  EXPECT_EQ(reader->read().state, State::kEnd);
  reader.reset();
  EXPECT_EQ(gone, 0);
}

// The symptom was a fetch() that kept its connection state for ever: a pipe held by its own
// callback.
TEST(Pipe, callbacks_that_hold_their_own_pipe_go_with_its_end) {
  std::weak_ptr<Pipe> closed, cancelled, dropped;
  {
    auto [writer, reader] = make_pipe();
    closed = writer.pipe();
    writer->on_cancelled([pipe = writer.pipe()] {});
    writer->close();
  }
  EXPECT_TRUE(closed.expired());
  {
    auto [writer, reader] = make_pipe();
    cancelled = writer.pipe();
    reader->on_readable([pipe = reader.pipe()] {});
    reader.reset();
  }
  EXPECT_TRUE(cancelled.expired());
  {
    auto [writer, reader] = make_pipe();
    dropped = writer.pipe();
    auto pipe = reader.pipe();
    pipe->on_readable([reader = std::move(reader)]() mutable { reader.reset(); });
  }
  EXPECT_TRUE(dropped.expired());
}

TEST(PipeTee, both_readers_get_everything_at_the_pace_of_the_slower) {
  auto [writer, reader] = make_pipe();
  auto [a, b] = tee(std::move(reader));
  size_t written = 0;
  while (writer->write(bytes(64 << 10)) == Pipe::Write::kRoom) {
    written += 64 << 10;
    ASSERT_LE(written, 4 * Pipe::kHighWater) << "nobody reads, so it must end";
    if (written > 2 * Pipe::kHighWater) break;
    (void)a->read();
  }
  writer->close();
  std::string from_b;
  for (int i = 0; i < 100; ++i) {
    (void)a->read();
    Pipe::Read r = b->read();
    if (r.state == State::kData) from_b += r.data.view();
    if (r.state == State::kEnd) break;
  }
  EXPECT_EQ(b->read().state, State::kEnd);
  EXPECT_EQ(a->read().state, State::kEnd);
  EXPECT_GE(from_b.size(), written);
}

TEST(PipeTee, goes_on_for_one_reader_when_the_other_has_gone) {
  auto [writer, reader] = make_pipe();
  auto [a, b] = tee(std::move(reader));
  a.reset();
  size_t total = 0;
  for (int i = 0; i < 20; ++i) {
    writer->write(bytes(128 << 10));
    total += b->read(1 << 20).data.size();
  }
  writer->close();
  total += read_all(*b.pipe()).size();
  EXPECT_EQ(total, 20u * (128 << 10));
}

TEST(PipeTee, a_silent_source_is_told_when_both_readers_have_gone) {
  auto [writer, reader] = make_pipe();
  std::weak_ptr<Pipe> source = writer.pipe();
  int gone = 0;
  writer->on_cancelled([&] { ++gone; });
  {
    auto [a, b] = tee(std::move(reader));
    a.reset();
    EXPECT_EQ(gone, 0);
  }
  EXPECT_EQ(gone, 1);
  writer.reset();
  EXPECT_TRUE(source.expired());
}

TEST(PipeTee, an_error_of_the_source_reaches_both) {
  auto [writer, reader] = make_pipe();
  auto [a, b] = tee(std::move(reader));
  writer->write(bytes(2));
  writer->abort(boom());
  for (PipeReader* r : {&a, &b}) {
    EXPECT_EQ((*r)->read().data.size(), 2u);
    EXPECT_EQ((*r)->read().state, State::kError);
  }
}

// A callback may only wake whoever waits.
class Wake {
 public:
  void set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return set_; });
    set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

void consume(PipeReader reader, uint64_t* total, bool* error) {
  Wake wake;
  while (true) {
    Pipe::Read r = reader->read();
    if (r.state == State::kPending) {
      reader->on_readable([&wake] { wake.set(); });
      wake.wait();
    } else if (r.state == State::kData) {
      for (char c : r.data.view()) *total += static_cast<unsigned char>(c);
    } else {
      *error = r.state == State::kError;
      return;
    }
  }
}

TEST(Pipe, writer_readers_and_tee_may_sit_on_different_threads) {
  for (int round = 0; round < 20; ++round) {
    auto [writer, reader] = make_pipe();
    auto [a, b] = tee(std::move(reader));
    uint64_t total_a = 0, total_b = 0, expected = 0;
    bool error_a = false, error_b = false;
    std::thread reads_a([&, a = std::move(a)]() mutable { consume(std::move(a), &total_a, &error_a); });
    std::thread reads_b([&, b = std::move(b)]() mutable { consume(std::move(b), &total_b, &error_b); });
    Wake wake;
    for (int i = 0; i < 100; ++i) {
      std::string chunk(static_cast<size_t>(1 + i * 701 % 30'000), static_cast<char>(i));
      expected += static_cast<uint64_t>(i) * chunk.size();
      if (writer->write(Blob(std::move(chunk))) == Pipe::Write::kFull) {
        writer->on_room([&wake] { wake.set(); });
        wake.wait();
      }
    }
    if (round % 2 == 0) writer->close();
    writer.reset();
    reads_a.join();
    reads_b.join();
    EXPECT_EQ(error_a, round % 2 == 1);
    EXPECT_EQ(error_b, round % 2 == 1);
    if (round % 2 == 0) {
      EXPECT_EQ(total_a, expected);
      EXPECT_EQ(total_b, expected);
    }
  }
}

TEST(Pipe, readers_that_vanish_at_any_moment_free_the_writer) {
  for (int round = 0; round < 50; ++round) {
    auto [writer, reader] = make_pipe();
    std::thread reads([round, reader = std::move(reader)]() mutable {
      for (int i = 0; i < round; ++i) (void)reader->read(1 << 10);
    });
    Wake wake;
    while (true) {
      Pipe::Write w = writer->write(bytes(16 << 10));
      if (w == Pipe::Write::kReaderGone) break;
      if (w == Pipe::Write::kFull) {
        writer->on_room([&wake] { wake.set(); });
        wake.wait();
      }
    }
    reads.join();
  }
}

}  // namespace
}  // namespace celld::js
