#include "store/token_source.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace celld {

namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// A request that starts with a token must be able to end with it.
constexpr Duration kValidMin = seconds(10);
constexpr Duration kFetchTimeout = seconds(30);
constexpr Duration kPauseAfterFailure = seconds(1);

}  // namespace

struct TokenCache::State {
  State(World& w, std::shared_ptr<TokenSource> s) : world(w), source(std::move(s)), changed(w) {}

  World& world;
  const std::shared_ptr<TokenSource> source;
  Signal changed;
  bool fetching = false;
  std::optional<AccessToken> token;
  MonoTime renew_at;
  std::optional<Error> failure;  // of the last fetch
  MonoTime failed_at;

  bool valid() const { return token && token->expires - world.now() >= kValidMin; }
};

TokenCache::TokenCache(World& world, std::shared_ptr<TokenSource> source)
    : state_(std::make_shared<State>(world, std::move(source))) {}

std::string TokenCache::describe() const { return state_->source->describe(); }

Task<void> TokenCache::refresh(std::shared_ptr<State> state) {
  const MonoTime begin = state->world.now();
  Result<AccessToken> fetched =
      co_await state->source->fetch(state->world.deadline_in(kFetchTimeout));
  state->fetching = false;
  if (fetched) {
    const Duration life = fetched->expires - begin;
    state->renew_at = fetched->expires -
                      (life > minutes(10) ? std::max<Duration>(life / 10, minutes(5)) : life / 10);
    state->token = std::move(*fetched);
    state->failure.reset();
  } else {
    state->failure = std::move(fetched).error().at(state->source->describe());
    state->failed_at = state->world.now();
  }
  state->changed.notify_all();
}

Task<Result<std::string>> TokenCache::get(Deadline deadline) {
  std::shared_ptr<State> state = state_;  // outlives this when the store goes meanwhile
  bool fetched = false;                   // for this call
  while (true) {
    const MonoTime now = state->world.now();
    const bool pause = state->failure && now - state->failed_at < kPauseAfterFailure;
    const bool valid = state->valid();
    if ((!valid || now >= state->renew_at) && !state->fetching && !pause) {
      // A second round, when what was fetched is not valid long enough, would never end.
      if (fetched && !valid && state->token && !state->failure) {
        co_return fail(
            Error::unavailable(state->source->describe() + ": gives tokens that have expired"));
      }
      fetched = true;
      state->fetching = true;
      state->world.spawn(refresh(state));
      continue;
    }
    if (valid) co_return state->token->value;
    if (!state->fetching) co_return fail(*state->failure);
    fetched = true;
    bool notified = co_await state->changed.wait_until(deadline);
    if (!notified) {
      co_return fail(deadline.error(state->source->describe() + ": no token in time"));
    }
  }
}

void TokenCache::invalidate(const std::string& refused) {
  if (state_->token && state_->token->value == refused) state_->token.reset();
}

}  // namespace celld
