#include "store/file_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "store/file_temp_dir.h"
#include "store/store_testing.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::RealWorld;
using testing::TempDir;

FileStore::Options no_fsync() {
  FileStore::Options options;
  options.fsync = Fsync::kOff;
  return options;
}

std::unique_ptr<FileStore> open_or_die(RealWorld& real, const std::string& dir) {
  auto opened = FileStore::open(real.world(), dir, no_fsync());
  CHECK(opened) << opened.error().message;
  return std::move(*opened);
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string error_of_open(const std::string& dir) {
  RealWorld real;
  auto opened = FileStore::open(real.world(), dir, no_fsync());
  return opened ? "" : opened.error().message;
}

size_t files_below(const std::string& dir) {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) files += entry.is_regular_file();
  return files;
}

TEST(FileStoreOpen, makes_a_missing_directory_but_not_its_parent) {
  TempDir dir;
  EXPECT_EQ(error_of_open(dir.path() + "/new"), "");
  EXPECT_EQ(error_of_open(dir.path() + "/new"), "");
  EXPECT_THAT(error_of_open(dir.path() + "/no/new"), HasSubstr("parent directory does not exist"));
  EXPECT_FALSE(fs::exists(dir.path() + "/no"));
}

TEST(FileStoreOpen, refuses_foreign_contents_and_names_them) {
  TempDir dir;
  write_file(dir.path() + "/thesis.txt", "do not touch");
  EXPECT_THAT(error_of_open(dir.path()),
              ::testing::AllOf(HasSubstr(dir.path()), HasSubstr("thesis.txt"),
                               HasSubstr("not made by celld")));
  EXPECT_EQ(files_below(dir.path()), 1u);
}

TEST(FileStoreOpen, refuses_a_foreign_marker_and_a_newer_format) {
  TempDir dir;
  write_file(dir.path() + "/celld-store", "something else");
  EXPECT_THAT(error_of_open(dir.path()), HasSubstr("not the marker"));
  write_file(dir.path() + "/celld-store", "celld file store, format 3\n");
  EXPECT_THAT(error_of_open(dir.path()), HasSubstr("format 3"));
}

TEST(FileStoreOpen, names_a_path_that_is_no_directory) {
  TempDir dir;
  write_file(dir.path() + "/file", "x");
  EXPECT_THAT(error_of_open(dir.path() + "/file"), HasSubstr("not a directory"));
  EXPECT_THAT(error_of_open(dir.path() + "/file/below"), HasSubstr("not a directory"));
  EXPECT_THAT(error_of_open("relative"), HasSubstr("not an absolute path"));
}

TEST(FileStoreOpen, names_a_directory_that_may_not_be_read) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  TempDir dir;
  fs::permissions(dir.path(), fs::perms::none);
  EXPECT_THAT(error_of_open(dir.path()), HasSubstr("Permission denied"));
  fs::permissions(dir.path(), fs::perms::owner_all);
}

TEST(FileStoreOpen, goes_on_where_a_process_died_while_it_made_the_store) {
  TempDir dir;
  write_file(dir.path() + "/.celld-store-0011223344556677", "celld fi");
  fs::create_directory(dir.path() + "/lost+found");
  EXPECT_EQ(error_of_open(dir.path()), "");
}

TEST(FileStoreOpen, sweeps_temporary_files_of_the_dead_and_only_of_the_dead) {
  TempDir dir;
  RealWorld real;
  auto living = open_or_die(real, dir.path());
  fs::create_directory(dir.path() + "/tmp/dead");
  write_file(dir.path() + "/tmp/dead/7", "half an obj");
  ASSERT_EQ(std::distance(fs::directory_iterator(dir.path() + "/tmp"), {}), 2);
  auto second = open_or_die(real, dir.path());
  EXPECT_FALSE(fs::exists(dir.path() + "/tmp/dead"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path() + "/tmp"), {}), 2);
  EXPECT_TRUE(real.run(living->put("k", Blob("x"), Deadline::never())));
}

TEST(FileStore, leaves_nothing_in_its_temporary_directory) {
  TempDir dir;
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  for (int i = 0; i < 3; ++i) {
    (void)real.run(store->put_if("k", Blob("x"), Condition::create(), Deadline::never()));
    Condition stale = Condition::swap(Version{std::string(32, '0')});
    (void)real.run(store->put_if("k", Blob("x"), std::move(stale), Deadline::never()));
    (void)real.run(store->put("k", Blob("x"), Deadline::never()));
  }
  store.reset();
  EXPECT_TRUE(fs::is_empty(dir.path() + "/tmp"));
}

TEST(FileStore, equal_bytes_get_different_versions) {
  TempDir dir;
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  Version first = *real.run(store->put("k", Blob("A"), Deadline::never()));
  ASSERT_TRUE(real.run(store->put("k", Blob("B"), Deadline::never())));
  ASSERT_TRUE(real.run(store->put("k", Blob("A"), Deadline::never())));
  Condition stale = Condition::swap(first);
  SwapResult result = real.run(store->put_if("k", Blob("C"), std::move(stale), Deadline::never()));
  EXPECT_EQ(result.outcome, SwapOutcome::kRejected);
}

TEST(FileStore, damaged_objects_are_named_and_harm_nothing_else) {
  TempDir dir;
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  ASSERT_TRUE(real.run(store->put("a/bad", Blob("0123456789"), Deadline::never())));
  ASSERT_TRUE(real.run(store->put("a/good", Blob("fine"), Deadline::never())));
  fs::resize_file(dir.path() + "/objects/a/bad@", 70);
  auto bad = real.run(store->get("a/bad", Deadline::never()));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(bad.error().message, HasSubstr("a/bad"));
  EXPECT_TRUE(real.run(store->get("a/good", Deadline::never())));
  // A swap does not take a damaged object for a changed one.
  Condition some = Condition::swap(Version{std::string(32, '0')});
  SwapResult swapped =
      real.run(store->put_if("a/bad", Blob("x"), std::move(some), Deadline::never()));
  EXPECT_EQ(swapped.outcome, SwapOutcome::kAmbiguous);
  EXPECT_EQ(swapped.error.code, ErrorCode::kCorrupt);
}

TEST(FileStore, files_of_others_in_the_tree_are_not_listed) {
  TempDir dir;
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  ASSERT_TRUE(real.run(store->put("a/k", Blob("x"), Deadline::never())));
  write_file(dir.path() + "/objects/a/.DS_Store", "x");
  write_file(dir.path() + "/objects/a/notes.txt~", "x");
  auto all = real.run(list_all(*store, "", Deadline::never()));
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 1u);
}

TEST(FileStore, a_stopped_holder_of_a_lock_costs_the_deadline_and_no_more) {
  TempDir dir;
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  Version version = *real.run(store->put("k", Blob("x"), Deadline::never()));
  std::vector<int> held;
  for (int i = 0; i < 256; ++i) {
    char name[8];
    snprintf(name, sizeof name, "/%02x", i);
    int fd = ::open((dir.path() + "/locks" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
    held.push_back(fd);
  }
  Deadline deadline = real.world().deadline_in(std::chrono::milliseconds(50));
  Condition current = Condition::swap(version);
  SwapResult result = real.run(store->put_if("k", Blob("y"), std::move(current), deadline));
  EXPECT_EQ(result.outcome, SwapOutcome::kAmbiguous);
  EXPECT_EQ(result.error.code, ErrorCode::kDeadline);
  for (int fd : held) ::close(fd);
  // The abandoned swap never lands.
  EXPECT_TRUE(real.run(store->put("other", Blob("x"), Deadline::never())));
  store.reset();
  store = open_or_die(real, dir.path());
  EXPECT_EQ(real.run(store->get("k", Deadline::never()))->body.view(), "x");
}

TEST(FileStore, operations_that_wait_end_when_the_store_closes) {
  TempDir dir;
  RealWorld real;
  FileStore::Options options = no_fsync();
  options.threads = 1;
  auto store = std::move(*FileStore::open(real.world(), dir.path(), options));
  int done = 0;
  auto one = [](ObjectStore& s, int i, int& n) -> Task<void> {
    std::string key = "k" + std::to_string(i);
    Blob body("x");
    Condition condition = Condition::create();
    SwapResult result =
        co_await s.put_if(std::move(key), std::move(body), std::move(condition), Deadline::never());
    EXPECT_NE(result.outcome, SwapOutcome::kRejected);
    ++n;
  };
  for (int i = 0; i < 100; ++i) real.world().spawn(one(*store, i, done));
  store.reset();
  real.run_until([&] { return done == 100; });
}

TEST(FileStore, a_full_queue_is_refused_not_unbounded) {
  TempDir dir;
  RealWorld real;
  FileStore::Options options = no_fsync();
  options.threads = 1;
  options.queue_max = 2;
  auto store = std::move(*FileStore::open(real.world(), dir.path(), options));
  std::vector<Task<Result<Version>>> tasks;
  for (int i = 0; i < 200; ++i) {
    tasks.push_back(
        store->put("k" + std::to_string(i), Blob(std::string(100'000, 'x')), Deadline::never()));
  }
  auto results = real.run(join_all(real.world(), std::move(tasks)));
  size_t refused = 0;
  for (const auto& r : results) refused += !r && r.error().code == ErrorCode::kOverloaded;
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, 200u);
}

TEST(FileStore, a_write_abandoned_in_the_queue_has_no_effect) {
  TempDir dir;
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  Deadline passed{real.world().now() - std::chrono::seconds(1)};
  auto result = real.run(store->put("k", Blob("x"), passed));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadline);
  EXPECT_FALSE(real.run(store->get("k", Deadline::never())));
}

// Runs `body` in `count` child processes and expects each to end with status 0.
void in_processes(int count, const std::function<int(int)>& body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    pid_t pid = ::fork();
    if (pid == 0) ::_exit(body(i));
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(FileStoreProcesses, swaps_of_many_processes_count_every_applied_one_once) {
  TempDir dir;
  constexpr int kProcesses = 6;
  constexpr int kAppliedEach = 40;
  in_processes(kProcesses, [&](int) {
    RealWorld real;
    auto store = open_or_die(real, dir.path());
    for (int applied = 0; applied < kAppliedEach;) {
      auto object = real.run(store->get("counter", Deadline::never()));
      Condition condition = Condition::create();
      int value = 0;
      if (object) {
        condition = Condition::swap(object->version);
        value = std::stoi(std::string(object->body.view()));
      }
      Blob next(std::to_string(value + 1));
      SwapResult result = real.run(
          store->put_if("counter", std::move(next), std::move(condition), Deadline::never()));
      if (result.outcome == SwapOutcome::kAmbiguous) return 1;
      applied += result.outcome == SwapOutcome::kApplied;
    }
    return 0;
  });
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  auto object = real.run(store->get("counter", Deadline::never()));
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->body.view(), std::to_string(kProcesses * kAppliedEach));
}

TEST(FileStoreProcesses, dense_slots_raced_by_many_processes_have_one_creator_each) {
  TempDir dir;
  constexpr int kProcesses = 4;
  constexpr int kSlots = 60;
  in_processes(kProcesses, [&](int me) {
    RealWorld real;
    auto store = open_or_die(real, dir.path());
    int won = 0;
    for (int slot = 0; slot < kSlots; ++slot) {
      std::string key = "journal/n/" + std::to_string(slot);
      SwapResult result = real.run(
          store->put_if(key, Blob(std::to_string(me)), Condition::create(), Deadline::never()));
      if (result.outcome == SwapOutcome::kAmbiguous) return 1;
      won += result.outcome == SwapOutcome::kApplied;
    }
    std::string mine = "won/" + std::to_string(me);
    return real.run(store->put(mine, Blob(std::to_string(won)), Deadline::never())) ? 0 : 1;
  });
  RealWorld real;
  auto store = open_or_die(real, dir.path());
  int won = 0;
  for (int me = 0; me < kProcesses; ++me) {
    auto mine = real.run(store->get("won/" + std::to_string(me), Deadline::never()));
    won += std::stoi(std::string(mine->body.view()));
  }
  EXPECT_EQ(won, kSlots);
}

TEST(FileStoreProcesses, creates_survive_the_removal_of_their_empty_directory) {
  TempDir dir;
  in_processes(4, [&](int me) {
    RealWorld real;
    auto store = open_or_die(real, dir.path());
    for (int i = 0; i < 150; ++i) {
      std::string key = "deep/shared/directory/" + std::to_string(me);
      SwapResult result =
          real.run(store->put_if(key, Blob("x"), Condition::create(), Deadline::never()));
      if (result.outcome != SwapOutcome::kApplied) return 1;
      if (i % 10 == 9) store = open_or_die(real, dir.path());  // forgets what it wrote to
      if (!real.run(store->get(key, Deadline::never()))) return 2;
      if (!real.run(store->remove(key, Deadline::never()))) return 3;
    }
    return 0;
  });
}

std::string self_describing_body(uint32_t seed) {
  std::mt19937 random(seed);
  std::string body = std::to_string(seed) + " ";
  size_t length = random() % 200'000;
  for (size_t i = 0; i < length; ++i) body += static_cast<char>('a' + random() % 26);
  return body;
}

// Kills a writer at random moments; what is visible afterwards is whole, and what the writer had
// been told is there.
TEST(FileStoreProcesses, a_killed_writer_leaves_no_torn_or_lost_object) {
  TempDir dir;
  std::mt19937 random(7);
  for (int round = 0; round < 25; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = ::fork();
    if (pid == 0) {
      RealWorld real;
      auto store = open_or_die(real, dir.path());
      for (uint32_t i = 0;; ++i) {
        uint32_t seed = static_cast<uint32_t>(round) * 100'000 + i;
        std::string key = "r" + std::to_string(round) + "/" + std::to_string(i % 5);
        Blob body(self_describing_body(seed));
        if (i % 3 == 0) {
          key += "-" + std::to_string(i);
          SwapResult result =
              real.run(store->put_if(key, body, Condition::create(), Deadline::never()));
          if (result.outcome != SwapOutcome::kApplied) ::_exit(1);
        } else if (!real.run(store->put(key, body, Deadline::never()))) {
          ::_exit(2);
        }
        std::string line = key + " " + std::to_string(seed) + "\n";
        if (::write(pipe_fds[1], line.data(), line.size()) < 0) ::_exit(3);
      }
    }
    ::close(pipe_fds[1]);
    // Reads acknowledgements until a random number has come, then kills and reads the rest.
    std::string log;
    size_t wanted = random() % 400;
    char buffer[4096];
    while (log.size() < wanted) {
      ssize_t n = ::read(pipe_fds[0], buffer, sizeof buffer);
      ASSERT_GT(n, 0);
      log.append(buffer, static_cast<size_t>(n));
    }
    ::kill(pid, SIGKILL);
    while (true) {
      ssize_t n = ::read(pipe_fds[0], buffer, sizeof buffer);
      if (n <= 0) break;
      log.append(buffer, static_cast<size_t>(n));
    }
    ::close(pipe_fds[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;

    RealWorld real;
    auto store = open_or_die(real, dir.path());
    std::map<std::string, uint32_t> acknowledged;
    std::istringstream lines(log);
    std::string key;
    uint32_t seed;
    while (lines >> key >> seed) acknowledged[key] = seed;
    for (const auto& [k, s] : acknowledged) {
      auto object = real.run(store->get(k, Deadline::never()));
      ASSERT_TRUE(object) << k << ": " << object.error().message;
      ASSERT_GE(std::stoul(std::string(object->body.view().substr(0, 20))), s);
    }
    auto all = real.run(list_all(*store, "r" + std::to_string(round) + "/", Deadline::never()));
    ASSERT_TRUE(all) << all.error().message;
    for (const auto& listed : *all) {
      auto object = real.run(store->get(listed.key, Deadline::never()));
      ASSERT_TRUE(object) << listed.key << ": " << object.error().message;
      uint32_t written = static_cast<uint32_t>(std::stoul(std::string(object->body.view())));
      ASSERT_TRUE(object->body.view() == self_describing_body(written)) << listed.key;
      ASSERT_EQ(listed.bytes, object->body.size());
    }
    EXPECT_EQ(files_below(dir.path() + "/tmp"), 0u);
  }
}

}  // namespace
}  // namespace celld
