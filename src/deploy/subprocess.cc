#include "deploy/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

extern char** environ;

namespace celld {
namespace {

using Clock = std::chrono::steady_clock;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// The recipe of one posix_spawn.
class Spawn {
 public:
  Spawn() {
    CHECK(posix_spawn_file_actions_init(&actions_) == 0);
    CHECK(posix_spawnattr_init(&attributes_) == 0);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  // The error number, or 0.
  int start(const SubprocessCall& call, int output_fd, pid_t& pid) {
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output_fd, STDERR_FILENO);
    if (!call.working_dir.empty()) {
      posix_spawn_file_actions_addchdir_np(&actions_, call.working_dir.c_str());
    }
    // A blocked or ignored signal of ours is no reason for the child to be deaf to it.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                               POSIX_SPAWN_SETSIGDEF);
    std::string program = call.program.string();
    std::vector<char*> argv{program.data()};
    std::vector<std::string> arguments = call.arguments;
    for (auto& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    return posix_spawn(&pid, program.c_str(), &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR) << std::strerror(errno);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<SubprocessResult> run_subprocess(const SubprocessCall& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(Error::overloaded(fmt::format("pipe: {}", std::strerror(errno))));
  }
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  pid_t pid = 0;
  if (int error = Spawn().start(call, write_end.get(), pid); error != 0) {
    return fail(Error::invalid(
        fmt::format("cannot start {}: {}", call.program.string(), std::strerror(error))));
  }
  write_end.reset();

  SubprocessResult result;
  const auto deadline = Clock::now() + call.timeout;
  char buffer[16384];
  while (true) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{read_end.get(), POLLIN, 0};
    int ready = left <= 0 ? 0 : ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready == 0 && Clock::now() >= deadline) {
      ::kill(-pid, SIGKILL);
      wait_for(pid);
      return fail(Error::deadline(fmt::format("{} did not end within {} ms",
                                              call.program.filename().string(),
                                              call.timeout.count())));
    }
    if (ready <= 0) continue;
    ssize_t n = ::read(read_end.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    size_t room = call.output_bytes_max - std::min(result.output.size(), call.output_bytes_max);
    result.output.append(buffer, std::min(static_cast<size_t>(n), room));
  }
  // Its output is closed, so it is ending; should it linger all the same, the deadline still holds.
  while (true) {
    siginfo_t info{};
    int failed = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | WNOHANG);
    if (failed == 0 && info.si_pid == pid) break;
    if (Clock::now() >= deadline) {
      ::kill(-pid, SIGKILL);
      break;
    }
    ::poll(nullptr, 0, 1);
  }
  result.exit_status = wait_for(pid);
  return result;
}

}  // namespace celld
