// A process that writes to a directory is killed before each of its system calls, one after the
// other, by counting them with ptrace. Whatever it was about to do: no object is torn or half
// visible, what was acknowledged is there, lists work, and the next process goes on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "store/file_disk.h"
#include "store/file_temp_dir.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

const Abandoned kWanted{false};

std::string body_of_size(char c, size_t bytes) { return std::string(bytes, c); }
const std::string kOld = body_of_size('o', 9'000);
const std::string kNew = body_of_size('n', 70'000);

struct KilledRun {
  bool finished = false;        // it was not killed
  std::set<long> system_calls;  // that it made
  size_t acknowledged = 0;      // operations
  size_t entered = 0;           // system calls it began
};

// Runs `child` (given what to call after each operation) and kills it before its system call number
// `kill_before`, from 1.
KilledRun run_killed(size_t kill_before,
                     const std::function<void(const std::function<void()>&)>& child) {
  int acknowledgements[2];
  EXPECT_EQ(::pipe2(acknowledgements, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    child([&] {
      if (::write(acknowledgements[1], "+", 1) != 1) ::_exit(9);
    });
    ::_exit(0);
  }
  ::close(acknowledgements[1]);
  KilledRun run;
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSTOPPED(status)) << "ptrace is not allowed here";
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  size_t entered = 0;
  bool inside = false;
  long signal = 0;
  while (true) {
    if (::ptrace(PTRACE_SYSCALL, pid, nullptr, signal) != 0) break;
    if (::waitpid(pid, &status, 0) != pid) break;
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      run.finished = true;
      break;
    }
    if (WIFSIGNALED(status)) {
      ADD_FAILURE() << "ended by signal " << WTERMSIG(status);
      break;
    }
    signal = 0;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      signal = WSTOPSIG(status);
      continue;
    }
    inside = !inside;
    if (!inside) continue;
    if (++entered == kill_before) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      break;
    }
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0) {
      run.system_calls.insert(static_cast<long>(info.entry.nr));
    }
  }
  char byte;
  while (::read(acknowledgements[0], &byte, 1) == 1) ++run.acknowledged;
  ::close(acknowledgements[0]);
  run.entered = entered;
  return run;
}

std::unique_ptr<FileDisk> open_disk(const std::string& path, Fsync fsync,
                                    std::string boot = this_boot()) {
  auto disk = FileDisk::open(path, fsync, std::move(boot));
  CHECK(disk) << disk.error().message;
  return std::move(*disk);
}

std::string content(FileDisk& disk, std::string_view key) {
  auto object = disk.read(key, nullptr);
  if (object) return std::string(object->body.view());
  EXPECT_EQ(object.error().code, ErrorCode::kNotFound) << object.error().message;
  return "";
}

// What is listed is there with its size, and nothing else is.
void expect_consistent_list(FileDisk& disk, const std::map<std::string, std::string>& present) {
  auto page = disk.list(ListRequest{});
  ASSERT_TRUE(page) << page.error().message;
  std::map<std::string, uint64_t> listed, expected;
  for (const auto& object : page->objects) listed[object.key] = object.bytes;
  for (const auto& [key, body] : present) {
    if (!body.empty()) expected[key] = body.size();
  }
  EXPECT_EQ(listed, expected);
}

void expect_nothing_left_over(const std::string& path) {
  for (const auto& entry : fs::recursive_directory_iterator(path + "/tmp")) {
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  }
}

// Every operation of the write path, on old objects, new ones and new and emptied directories.
TEST(FileCrash, killed_before_each_system_call_of_every_write_leaves_whole_objects) {
  size_t kills = 0;
  for (size_t number = 1;; ++number) {
    SCOPED_TRACE("killed before system call " + std::to_string(number));
    TempDir dir;
    Version counter;
    {
      auto disk = open_disk(dir.path(), Fsync::kOff);
      counter = disk->create("shared/counter", Blob(kOld), kWanted).version;
      ASSERT_TRUE(disk->replace("deep/er/x", Blob(kOld), kWanted));
      ASSERT_TRUE(disk->replace("going/away/one", Blob(kOld), kWanted));
    }
    KilledRun run = run_killed(number, [&](const std::function<void()>& done) {
      auto disk = open_disk(dir.path(), Fsync::kOn);
      done();
      if (disk->create("new/folder/a", Blob(kNew), kWanted).outcome != SwapOutcome::kApplied)
        ::_exit(1);
      done();
      if (disk->swap("shared/counter", Blob(kNew), counter, kWanted).outcome !=
          SwapOutcome::kApplied)
        ::_exit(2);
      done();
      if (!disk->replace("deep/er/x", Blob(kNew), kWanted)) ::_exit(3);
      done();
      if (!disk->remove("going/away/one", kWanted)) ::_exit(4);
      done();
      if (disk->create("new/folder/a", Blob(kOld), kWanted).outcome != SwapOutcome::kRejected)
        ::_exit(5);
      done();
    });

    auto disk = open_disk(dir.path(), Fsync::kOff);
    std::map<std::string, std::string> now;
    for (const char* key : {"new/folder/a", "shared/counter", "deep/er/x", "going/away/one"}) {
      now[key] = content(*disk, key);
    }
    // Whole, old or new, and new when acknowledged.
    EXPECT_TRUE(now["new/folder/a"] == kNew ||
                (now["new/folder/a"].empty() && run.acknowledged < 2));
    EXPECT_TRUE(now["shared/counter"] == kNew ||
                (now["shared/counter"] == kOld && run.acknowledged < 3));
    EXPECT_TRUE(now["deep/er/x"] == kNew || (now["deep/er/x"] == kOld && run.acknowledged < 4));
    EXPECT_TRUE(now["going/away/one"].empty() ||
                (now["going/away/one"] == kOld && run.acknowledged < 5));
    expect_consistent_list(*disk, now);
    expect_nothing_left_over(dir.path());
    // The next process goes on where this one was.
    SwapResult created = disk->create("new/folder/a", Blob(kOld), kWanted);
    EXPECT_EQ(created.outcome,
              now["new/folder/a"].empty() ? SwapOutcome::kApplied : SwapOutcome::kRejected);
    auto current = disk->read("shared/counter", nullptr);
    ASSERT_TRUE(current);
    EXPECT_EQ(disk->swap("shared/counter", Blob("next"), current->version, kWanted).outcome,
              SwapOutcome::kApplied);
    EXPECT_TRUE(disk->remove("going/away/one", kWanted));
    EXPECT_TRUE(disk->replace("going/away/one", Blob("again"), kWanted));
    EXPECT_EQ(content(*disk, "going/away/one"), "again");
    if (HasFailure()) return;
    if (run.finished) {
      EXPECT_EQ(run.acknowledged, 6u);
      for (long needed : {SYS_openat, SYS_write, SYS_fsync, SYS_renameat2, SYS_renameat,
                          SYS_unlinkat, SYS_flock}) {
        EXPECT_TRUE(run.system_calls.contains(needed))
            << needed << " is not among what was counted";
      }
      break;
    }
    ++kills;
  }
  std::printf("killed %zu times\n", kills);
  EXPECT_GE(kills, 60u);
}

// The same with a log; and also when the machine goes down with the process.
TEST(FileCrash, killed_before_each_system_call_with_a_log_leaves_whole_objects) {
  const std::string large = body_of_size('L', FileLog::kBodyBytesMax + 1);
  auto warm_up = [](FileDisk& disk) {
    for (int i = 0; i < 20; ++i) {
      if (!disk.replace("warm", Blob("up"), kWanted)) ::_exit(10);
    }
  };
  size_t before = 0;  // system calls until there is a log and a first object in it
  size_t kills = 0;
  for (size_t number = 1;; ++number) {
    SCOPED_TRACE("killed before system call " + std::to_string(number));
    TempDir dir;
    KilledRun run =
        run_killed(before == 0 ? SIZE_MAX : number, [&](const std::function<void()>& done) {
          auto disk = open_disk(dir.path(), Fsync::kOn);
          warm_up(*disk);
          const Version version = disk->create("a/swapped", Blob(kOld), kWanted).version;
          if (!disk->replace("a/removed", Blob(kOld), kWanted)) ::_exit(1);
          if (before == 0) {
            disk.release();
            return;
          }
          done();
          if (disk->create("b/new", Blob(kNew), kWanted).outcome != SwapOutcome::kApplied)
            ::_exit(2);
          done();
          if (disk->swap("a/swapped", Blob(kNew), version, kWanted).outcome !=
              SwapOutcome::kApplied)
            ::_exit(3);
          done();
          if (!disk->remove("a/removed", kWanted)) ::_exit(4);
          done();
          if (!disk->replace("b/new", Blob(large), kWanted)) ::_exit(5);
          done();
        });
    if (before == 0) {
      EXPECT_TRUE(fs::exists(dir.path() + "/log"));
      before = number = run.entered;
      continue;
    }
    TempDir copy;
    fs::copy(dir.path(), copy.path(), fs::copy_options::recursive);
    for (const auto& [path, boot] :
         {std::pair(dir.path(), this_boot()),
          std::pair(copy.path(), std::string("another-boot-of-this-machine-0000000"))}) {
      SCOPED_TRACE(boot);
      auto disk = open_disk(path, Fsync::kOff, boot);
      std::map<std::string, std::string> now;
      for (const char* key : {"warm", "a/swapped", "a/removed", "b/new"})
        now[key] = content(*disk, key);
      EXPECT_TRUE(now["b/new"] == large || (now["b/new"] == kNew && run.acknowledged < 5) ||
                  (now["b/new"].empty() && run.acknowledged < 2));
      if (run.acknowledged > 0) {
        EXPECT_TRUE(now["a/swapped"] == kNew || (now["a/swapped"] == kOld && run.acknowledged < 3));
        EXPECT_TRUE(now["a/removed"].empty() || (now["a/removed"] == kOld && run.acknowledged < 4));
      }
      expect_consistent_list(*disk, now);
      expect_nothing_left_over(path);
    }
    if (HasFailure()) return;
    if (run.finished) {
      EXPECT_EQ(run.acknowledged, 5u);
      break;
    }
    ++kills;
  }
  std::printf("killed %zu times\n", kills);
  EXPECT_GE(kills, 40u);
}

// Stops a process before its `stop_before`th call of renameat or renameat2, where it has the lock
// of the key it writes to, and lets it go on when `meanwhile` is done. Its exit code.
int run_stopped(size_t stop_before, const std::function<int()>& child,
                const std::function<void()>& meanwhile) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(child());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  size_t renames = 0;
  while (true) {
    if (::ptrace(PTRACE_SYSCALL, pid, nullptr, 0) != 0) break;
    if (::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) break;
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0) continue;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    if (info.entry.nr != SYS_renameat2 && info.entry.nr != SYS_renameat) continue;
    if (++renames == stop_before) meanwhile();
  }
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// A process that is stopped while it has a lock must not keep others from the keys of that lock,
// and must not undo what they did when it goes on.
TEST(FileCrash, a_process_that_is_stopped_with_a_lock_is_gone_on_without) {
  using std::chrono::milliseconds;
  for (const char* what : {"swap", "put", "remove"}) {
    SCOPED_TRACE(what);
    TempDir dir;
    auto disk = *FileDisk::open(dir.path(), Fsync::kOn, this_boot(), milliseconds(50));
    const Version version = disk->create("k", Blob(kOld), kWanted).version;
    ASSERT_TRUE(disk->replace("other", Blob(kOld), kWanted));
    const std::string operation = what;
    int exit_code = run_stopped(
        1,
        [&] {
          auto mine = open_disk(dir.path(), Fsync::kOn);
          bool done = false;
          if (operation == "swap") {
            done = mine->swap("k", Blob("late"), version, kWanted).outcome == SwapOutcome::kApplied;
          } else if (operation == "put") {
            done = mine->replace("k", Blob("late"), kWanted).has_value();
          } else {
            done = mine->remove("k", kWanted).has_value();
          }
          // Nor does anything else it does count, whichever key.
          const bool more =
              mine->replace("other", Blob("late"), kWanted).has_value() ||
              mine->create("new", Blob("late"), kWanted).outcome == SwapOutcome::kApplied;
          return (done ? 1 : 0) + (more ? 2 : 0);
        },
        [&] {
          EXPECT_EQ(disk->swap("k", Blob(kNew), version, kWanted).outcome, SwapOutcome::kApplied);
          EXPECT_EQ(content(*disk, "k"), kNew);
        });
    EXPECT_EQ(exit_code, 0)
        << "it says that it has done what it was stopped in, or something since";
    EXPECT_EQ(content(*disk, "k"), kNew);
    EXPECT_EQ(content(*disk, "other"), kOld);
    EXPECT_EQ(content(*disk, "new"), "");
    EXPECT_TRUE(disk->remove("k", kWanted));
  }
}

TEST(FileCrash, killed_before_each_system_call_of_the_first_opening_leaves_a_store) {
  size_t kills = 0;
  for (size_t number = 1;; ++number) {
    SCOPED_TRACE("killed before system call " + std::to_string(number));
    TempDir dir;
    KilledRun run = run_killed(number, [&](const std::function<void()>& done) {
      (void)open_disk(dir.path() + "/store", Fsync::kOn);
      done();
    });
    auto disk = open_disk(dir.path() + "/store", Fsync::kOff);
    EXPECT_EQ(disk->create("k", Blob("x"), kWanted).outcome, SwapOutcome::kApplied);
    expect_consistent_list(*disk, {{"k", "x"}});
    if (HasFailure()) return;
    if (run.finished) break;
    ++kills;
  }
  EXPECT_GE(kills, 20u);
}

TEST(FileCrash, killed_before_each_system_call_of_a_sweep_leaves_the_rest_to_the_next) {
  size_t kills = 0;
  for (size_t number = 1;; ++number) {
    SCOPED_TRACE("killed before system call " + std::to_string(number));
    TempDir dir;
    {
      auto disk = open_disk(dir.path(), Fsync::kOff);
      ASSERT_TRUE(disk->replace("k", Blob(kOld), kWanted));
    }
    for (const char* session : {"dead-1", "dead-2"}) {
      fs::create_directory(dir.path() + "/tmp/" + session);
      for (const char* name : {"1", "2"}) {
        std::FILE* file = std::fopen((dir.path() + "/tmp/" + session + "/" + name).c_str(), "w");
        ASSERT_NE(file, nullptr);
        std::fclose(file);
      }
    }
    KilledRun run = run_killed(number, [&](const std::function<void()>& done) {
      (void)open_disk(dir.path(), Fsync::kOn);
      done();
    });
    auto disk = open_disk(dir.path(), Fsync::kOff);
    EXPECT_EQ(content(*disk, "k"), kOld);
    expect_consistent_list(*disk, {{"k", kOld}});
    expect_nothing_left_over(dir.path());
    if (HasFailure()) return;
    if (run.finished) break;
    ++kills;
  }
  EXPECT_GE(kills, 20u);
}

}  // namespace
}  // namespace celld
