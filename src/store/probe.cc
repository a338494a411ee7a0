#include "store/probe.h"

#include <utility>

#include "base/hex.h"
#include "store/probe_steps.h"

namespace celld {

namespace {

std::string fresh_key(World& world) { return "probe/" + hex_fixed(world.random_u64(), 16); }

bool passing(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadline ||
         error.code == ErrorCode::kOverloaded;
}

Error violation(const ObjectStore& store, const ProbeRun::Step& step, const Error& error) {
  return Error::unsupported(store.describe() + ": the store breaks its contract at step '" +
                            std::string(step.name) + "': " + error.message +
                            "; what it would mean: " + std::string(step.meaning));
}

// The steps of a start, up to the first that does not succeed.
Task<Result<void>> run_start(ObjectStore& store, ProbeRun& run) {
  for (const ProbeRun::Step& step : ProbeRun::steps()) {
    if (!step.at_start) continue;
    Result<void> done = co_await (run.*step.run)();
    if (done) continue;
    if (done.error().code == ErrorCode::kUnsupported)
      co_return fail(violation(store, step, done.error()));
    co_return done;
  }
  co_return Result<void>{};
}

Task<Result<void>> attempt(World& world, ObjectStore& store, const ProbeOptions& options) {
  ProbeRun run(world, store, options.dialect, fresh_key(world));
  run.set_deadline(world.deadline_in(options.attempt_timeout));
  Result<void> result = co_await run_start(store, run);
  // Whatever happened, the key goes; a store that cannot delete it keeps one tiny object.
  Result<void> removed = co_await run.clean_up();
  if (result && !removed) co_return removed;
  co_return result;
}

}  // namespace

Task<Result<void>> probe_store(World& world, ObjectStore& store, ProbeOptions options) {
  Duration backoff = options.backoff_first;
  for (uint32_t attempts = 1;; ++attempts) {
    Result<void> result = co_await attempt(world, store, options);
    if (result || !passing(result.error())) co_return result;
    if (attempts >= options.attempts_max) {
      Error error = result.error();
      error.message = store.describe() + ": the store could not be probed in " +
                      std::to_string(attempts) + " attempts: " + error.message;
      co_return fail(std::move(error));
    }
    co_await sleep_for(world, backoff);
    backoff *= 2;
  }
}

Task<bool> diagnose_store(World& world, ObjectStore& store, DiagnoseOptions options) {
  ProbeRun run(world, store, options.dialect, fresh_key(world));
  bool good = true;
  for (const ProbeRun::Step& step : ProbeRun::steps()) {
    ProbeLine line;
    line.step = step.name;
    if (step.writes && options.read_only) {
      line.detail = "it writes";
    } else if (!run.possible(step)) {
      line.detail = "an earlier step did not succeed";
    } else {
      run.set_deadline(world.deadline_in(options.step_timeout));
      const MonoTime begin = world.now();
      Result<void> done = co_await (run.*step.run)();
      line.took = world.now() - begin;
      line.outcome = ProbeOutcome::kKept;
      if (!done) {
        good = false;
        const bool is_broken = done.error().code == ErrorCode::kUnsupported;
        line.outcome = is_broken ? ProbeOutcome::kBroken : ProbeOutcome::kFailed;
        line.detail = done.error().message;
        if (is_broken) line.detail += "; what it would mean: " + std::string(step.meaning);
      }
    }
    if (options.on_line) options.on_line(line);
  }
  if (options.read_only) co_return good;
  run.set_deadline(world.deadline_in(options.step_timeout));
  ProbeLine last;
  last.step = "delete";
  Result<void> removed = co_await run.clean_up();
  last.outcome = removed ? ProbeOutcome::kKept : ProbeOutcome::kFailed;
  if (!removed) last.detail = removed.error().message;
  if (options.on_line) options.on_line(last);
  co_return good&& removed;
}

}  // namespace celld
