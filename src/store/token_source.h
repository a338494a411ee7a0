// Access tokens that expire: where they come from, and keeping one that is valid.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "world/task.h"
#include "world/world.h"

namespace celld {

struct AccessToken {
  std::string value;
  MonoTime expires;  // never later than what its issuer said
};

// One way to get a token. On the world's thread.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Asks for a new one. Errors say who refused and why, without secrets.
  virtual Task<Result<AccessToken>> fetch(Deadline deadline) = 0;
  // "managed identity (IMDS)": for messages.
  virtual std::string describe() const = 0;
};

// Keeps one valid token, for everything that talks to one bucket. On the world's thread.
//
// Single flight: however many wait, one request is under way. In the last tenth of a token's life,
// and at least five minutes before its end if it lives longer than ten, a new one is fetched while
// the old one is still given out.
class TokenCache {
 public:
  TokenCache(World& world, std::shared_ptr<TokenSource> source);

  // A token that is valid for at least a few seconds. Otherwise the error of the last fetch, or
  // kDeadline; a failed fetch is not repeated within a second.
  Task<Result<std::string>> get(Deadline deadline);

  // The store refused this token: fetch another one next time.
  void invalidate(const std::string& refused);

  std::string describe() const;

 private:
  struct State;
  static Task<void> refresh(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

}  // namespace celld
