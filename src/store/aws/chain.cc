#include "store/aws/chain.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "store/aws/providers.h"

namespace celld {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kFetchTimeout = seconds(30);
constexpr Duration kWindowMax = minutes(15);
// Between two fetches while there are keys: a source may answer the old ones for some minutes.
constexpr Duration kPause = seconds(60);
constexpr Duration kPauseWhenRefused = seconds(5);  // by the store
constexpr Duration kPauseAfterFailure = seconds(1);  // doubles up to kPause

Duration ms_between(WallMs from, WallMs to) { return milliseconds(to.value - from.value); }

// What the fetches share with those who wait for them.
struct Kept {
  Kept(World& w, std::shared_ptr<HttpTransport> transport, std::shared_ptr<AwsHost> host)
      : world(w), providers(w, std::move(transport), std::move(host)), fetched(w) {}

  World& world;
  AwsProviders providers;
  std::optional<AwsSource> source;  // that had keys; the only one asked from then on
  std::optional<AwsKeys> keys;
  WallMs refresh_at{0};  // when `keys` expire
  bool stale = false;    // the store has refused them
  std::optional<Error> failed;  // the latest fetch, if it failed
  uint32_t failures = 0;        // in a row
  MonoTime fetched_at{};        // the latest fetch
  MonoTime not_before{};        // the next one
  bool fetching = false;
  Signal fetched;

  bool usable(WallMs now) const { return keys && (!keys->expires || now < *keys->expires); }
  bool due(WallMs now) const {
    return !usable(now) || stale || (keys->expires && now >= refresh_at);
  }
};

Task<Result<AwsKeys>> ask_all(Kept& kept, Deadline deadline) {
  std::string reasons;
  for (AwsSource source : kAwsSources) {
    if (kept.source && *kept.source != source) continue;
    Result<AwsFound> found = co_await kept.providers.ask(source, deadline);
    if (!found) {
      std::string where = "credentials from the " + std::string(to_string(source));
      if (!reasons.empty()) where += " (skipped were: " + reasons + ")";
      co_return fail(found.error().at(where));
    }
    if (found->keys) {
      if (!kept.source) spdlog::info("credentials come from the {}", to_string(source));
      kept.source = source;
      co_return std::move(*found->keys);
    }
    if (!reasons.empty()) reasons += "; ";
    reasons += std::string(to_string(source)) + ": " + found->skipped;
  }
  co_return fail(Error::invalid("no credentials found. " + reasons));
}

Task<void> fetch(std::shared_ptr<Kept> kept) {
  World& world = kept->world;
  Result<AwsKeys> got = co_await ask_all(*kept, world.deadline_in(kFetchTimeout));
  const WallMs now = world.wall_now();
  kept->fetched_at = world.now();
  if (got && got->expires && *got->expires <= now) {
    got = fail(Error::unavailable("credentials from the " + std::string(to_string(*kept->source)) +
                                  ": they have expired already"));
  }
  if (got) {
    kept->keys = std::move(*got);
    kept->stale = false;
    kept->failed.reset();
    kept->failures = 0;
    kept->not_before = world.now() + kPause;
    if (kept->keys->expires) {
      const Duration life = ms_between(now, *kept->keys->expires);
      // A source may give keys that others have used up nearly: there must be new ones when they end.
      kept->not_before = world.now() + std::clamp<Duration>(life / 2, kPauseAfterFailure, kPause);
      const Duration window = std::min(life / 4, kWindowMax);
      const Duration early = window - Duration(static_cast<int64_t>(
                                          static_cast<double>(window.count()) / 4 *
                                          world.random_unit()));
      kept->refresh_at = WallMs{kept->keys->expires->value - early / milliseconds(1)};
    }
  } else {
    const uint32_t doublings = std::min(kept->failures++, 10u);
    const Duration pause = std::min<Duration>(kPauseAfterFailure * (1u << doublings), kPause);
    kept->not_before = world.now() + Duration(static_cast<int64_t>(
                                         static_cast<double>(pause.count()) *
                                         (0.5 + world.random_unit() / 2)));
    kept->failed = got.error();
    if (kept->usable(now)) {
      spdlog::warn("the keys hold, but could not be refreshed: {}", got.error().message);
    }
  }
  kept->fetching = false;
  kept->fetched.notify_all();
}

class AwsChain final : public CredentialSource {
 public:
  explicit AwsChain(std::shared_ptr<Kept> kept) : kept_(std::move(kept)) {}

  Task<Result<S3Credentials>> get(Deadline deadline) override {
    auto kept = kept_;
    World& world = kept->world;
    while (true) {
      const WallMs now = world.wall_now();
      if (kept->due(now) && !kept->fetching && world.now() >= kept->not_before) {
        kept->fetching = true;
        world.spawn(fetch(kept));
      }
      // Keys that the store refused are given only when there will be no others soon.
      if (kept->usable(world.wall_now()) && !(kept->stale && kept->fetching)) {
        co_return kept->keys->keys;
      }
      if (!kept->fetching) {
        if (kept->failed) co_return fail(*kept->failed);
        co_return fail(Error::unavailable("credentials: the keys have expired"));
      }
      bool in_time = co_await kept->fetched.wait_until(deadline);
      if (!in_time) co_return fail(deadline.error("waiting for credentials"));
    }
  }

  void invalidate() override {
    if (kept_->stale) return;
    kept_->stale = true;
    kept_->not_before = std::min(kept_->not_before, kept_->fetched_at + kPauseWhenRefused);
  }

 private:
  const std::shared_ptr<Kept> kept_;
};

}  // namespace

std::shared_ptr<CredentialSource> aws_credentials(World& world,
                                                  std::shared_ptr<HttpTransport> transport,
                                                  std::shared_ptr<AwsHost> host) {
  return std::make_shared<AwsChain>(
      std::make_shared<Kept>(world, std::move(transport), std::move(host)));
}

}  // namespace celld
