#include "store/aws/host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "store/file_dirs.h"
#include "store/key.h"

extern char** environ;

namespace celld {

namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kOutputBytesMax = 64 << 10;
constexpr size_t kComplaintBytesMax = 512;  // of standard error, in messages
constexpr int kLookMs = 20;                 // how soon an abandoned command is noticed

// One run of a command, on a thread of its own.
struct Run {
  explicit Run(World& w) : world(w), done(w) {}
  World& world;
  OneShot<Result<std::string>> done;  // on the world's thread
  std::atomic<bool> abandoned{false};
  std::atomic<bool> ended{false};
  std::thread thread;
};

Error spawn_error(int code) {
  return Error::invalid(std::string("cannot be started: ") + std::strerror(code));
}

// Reads what is there; false at the end of the stream.
bool drain(int fd, std::string& into, size_t bytes_max) {
  char buffer[4096];
  ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  const size_t room = bytes_max - std::min(into.size(), bytes_max);
  into.append(buffer, std::min(static_cast<size_t>(n), room));
  return n > 0;
}

bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Result<std::string> run_now(const std::string& command, const std::atomic<bool>& abandoned) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return fail(spawn_error(errno));
  UniqueFd out_read(out[0]), out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return fail(spawn_error(errno));
  UniqueFd err_read(err[0]), err_write(err[1]);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out_write.get(), 1);
  posix_spawn_file_actions_adddup2(&files, err_write.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);  // leads a group, which is killed whole
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  const char* argv[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t pid = -1;
  int failed = ::posix_spawn(&pid, "/bin/sh", &files, &attributes, const_cast<char**>(argv), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return fail(spawn_error(failed));
  out_write = UniqueFd();
  err_write = UniqueFd();

  // Not O_NONBLOCK: poll says when a read gives something.
  std::string output, complaint;
  bool out_open = true, err_open = true, killed = false;
  int status = 0;
  bool reaped = false;
  while (out_open || err_open) {
    const bool flood = output.size() > kOutputBytesMax;
    if (!killed && (flood || abandoned.load(std::memory_order_relaxed))) {
      ::kill(-pid, SIGKILL);
      killed = true;
    }
    // Children that left the group may hold the pipes open for ever.
    if (!reaped && ::waitpid(pid, &status, WNOHANG) == pid) reaped = true;
    pollfd polled[2] = {{out_open ? out_read.get() : -1, POLLIN, 0},
                        {err_open ? err_read.get() : -1, POLLIN, 0}};
    const int ready = ::poll(polled, 2, kLookMs);
    if (ready == 0 && reaped) break;
    if (polled[0].revents != 0) out_open = drain(out_read.get(), output, kOutputBytesMax + 1);
    if (polled[1].revents != 0) err_open = drain(err_read.get(), complaint, kComplaintBytesMax);
  }
  // It may close its streams and go on.
  while (!reaped) {
    if (::waitpid(pid, &status, WNOHANG) == pid) break;
    if (!killed && abandoned.load(std::memory_order_relaxed)) {
      ::kill(-pid, SIGKILL);
      killed = true;
    }
    ::poll(nullptr, 0, kLookMs);
  }
  if (output.size() > kOutputBytesMax) return fail(Error::invalid("printed more than 64 KiB"));
  if (killed) return fail(Error::deadline("did not end in time and was killed"));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string how = WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                                          : "ended with status " + std::to_string(WEXITSTATUS(status));
    if (!complaint.empty()) how += ": " + printable_key(complaint);
    return fail(Error::invalid(std::move(how)));
  }
  return output;
}

class ThisMachine final : public AwsHost {
 public:
  ThisMachine(World& world, Environment environment)
      : world_(world), environment_(std::move(environment)) {}
  ~ThisMachine() override {
    for (auto& run : runs_) run->abandoned.store(true);
    for (auto& run : runs_) run->thread.join();
  }

  std::optional<std::string> variable(const std::string& name) const override {
    return environment_(name);
  }

  Result<std::string> read_file(const std::string& path) const override {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat st;
    if (!fd && (errno == ENOENT || errno == ENOTDIR)) {
      return fail(Error::not_found(path + ": no such file"));
    }
    if (!fd || ::fstat(fd.get(), &st) != 0) {
      return fail(Error::invalid(path + ": " + std::strerror(errno)));
    }
    if (!S_ISREG(st.st_mode)) return fail(Error::invalid(path + ": not a file"));
    std::string text;
    char buffer[4096];
    while (true) {
      ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(Error::invalid(path + ": " + std::strerror(errno)));
      if (n == 0) return text;
      text.append(buffer, static_cast<size_t>(n));
      if (text.size() > kFileBytesMax) return fail(Error::invalid(path + ": larger than 1 MiB"));
    }
  }

  Result<void> replace_file(const std::string& path, std::string_view text) override {
    // The name is nobody else's, also when another process writes the same file.
    std::string temporary = path + ".XXXXXX";
    UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));  // with mode 0600
    if (!fd) return fail(Error::invalid(path + ": " + std::strerror(errno)));
    const bool written = write_whole(fd.get(), text) && ::fsync(fd.get()) == 0;
    if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
      Error error = Error::invalid(path + ": " + std::strerror(errno));
      ::unlink(temporary.c_str());
      return fail(std::move(error));
    }
    return {};
  }

  Task<Result<std::string>> run_command(std::string command, Deadline deadline) override {
    if (deadline.passed(world_.now())) co_return fail(deadline.error("credential_process"));
    std::erase_if(runs_, [](auto& run) {
      if (!run->ended.load()) return false;
      run->thread.join();
      return true;
    });
    auto run = std::make_shared<Run>(world_);
    runs_.push_back(run);
    // The thread is joined by this object, so it never outlives the world.
    run->thread = std::thread([run = run.get(), weak = std::weak_ptr(run), command] {
      auto result = run_now(command, run->abandoned);
      run->world.post_from_any_thread([weak, result = std::move(result)]() mutable {
        if (auto waiting = weak.lock()) waiting->done.set(std::move(result));
      });
      run->ended.store(true);
    });
    TimerId timer = 0;
    if (deadline.at != MonoTime::max()) {
      timer = world_.call_at(deadline.at, [run] { run->abandoned.store(true); });
    }
    Cancellation::Listener cancelled;
    cancelled.attach(deadline.cancellation, [run] { run->abandoned.store(true); });
    World& world = world_;
    Result<std::string> result = co_await run->done.take();
    if (timer != 0) world.cancel(timer);
    co_return result;
  }

 private:
  World& world_;
  const Environment environment_;
  std::list<std::shared_ptr<Run>> runs_;
};

}  // namespace

std::unique_ptr<AwsHost> aws_host(World& world, Environment environment) {
  return std::make_unique<ThisMachine>(world, std::move(environment));
}

}  // namespace celld
