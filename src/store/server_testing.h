// For tests: a server of tests/servers as a child process.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace celld::testing {

// Runs `node SCRIPT OPTIONS...` from the constructor to the destructor. Tests run in the root of
// the tree.
class ServerProcess {
 public:
  explicit ServerProcess(std::string script, std::vector<std::string> options = {}) {
    int to_child[2];
    int from_child[2];
    CHECK(::pipe2(to_child, O_CLOEXEC) == 0 && ::pipe2(from_child, O_CLOEXEC) == 0);
    std::vector<std::string> words = {"node", script};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(to_child[0], 0);
      ::dup2(from_child[1], 1);
      ::execvp("node", argv.data());
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    stdin_ = to_child[1];
    char c;
    while (::read(from_child[0], &c, 1) == 1 && c != '\n') port_ += c;
    ::close(from_child[0]);
    CHECK(!port_.empty()) << script << " did not start";
  }
  ~ServerProcess() {
    ::close(stdin_);
    ::waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  std::string endpoint() const { return "http://127.0.0.1:" + port_; }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  std::string port_;
};

}  // namespace celld::testing
