// For tests: the strict S3 server of tests/servers, as a child process.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/s3_store.h"

namespace celld::testing {

// Runs from the constructor to the destructor. Tests run in the root of the tree.
class S3Server {
 public:
  explicit S3Server(std::vector<std::string> options = {}) {
    int to_child[2];
    int from_child[2];
    CHECK(::pipe2(to_child, O_CLOEXEC) == 0 && ::pipe2(from_child, O_CLOEXEC) == 0);
    std::vector<std::string> words = {"node", "tests/servers/s3_server.mjs"};
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
    std::string line;
    char c;
    while (::read(from_child[0], &c, 1) == 1 && c != '\n') line += c;
    ::close(from_child[0]);
    CHECK(!line.empty()) << "tests/servers/s3_server.mjs did not start";
    port_ = line;
  }
  ~S3Server() {
    ::close(stdin_);
    ::waitpid(pid_, nullptr, 0);
  }
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  std::string endpoint() const { return "http://127.0.0.1:" + port_; }

  S3Options options(std::string bucket) const {
    S3Options out;
    out.bucket = std::move(bucket);
    out.endpoint = endpoint();
    out.credentials = fixed_credentials({"test", "secret", ""});
    return out;
  }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  std::string port_;
};

}  // namespace celld::testing
