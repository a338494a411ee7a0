// The steps of the probe. Internal to probe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/dialect.h"
#include "store/object_store.h"

namespace celld {

// One run over keys that nobody else uses. On the world's thread.
class ProbeRun {
 public:
  struct Step {
    std::string_view name;
    std::string_view meaning;  // of a store that breaks it
    bool at_start;
    bool writes;
    // kUnsupported: the promise is broken.
    Task<Result<void>> (ProbeRun::*run)();
  };
  static std::span<const Step> steps();

  // `key` names the main object; others are below "<key>/". What is referred to outlives the run.
  ProbeRun(World& world, ObjectStore& store, std::shared_ptr<StoreDialect> dialect, std::string key)
      : world_(world), store_(store), dialect_(std::move(dialect)), key_(std::move(key)) {}

  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  // What `step` needs has succeeded.
  bool possible(const Step& step) const;
  // Removes what was written.
  Task<Result<void>> clean_up();

 private:
  Task<Result<void>> create();
  Task<Result<void>> reject_create();
  Task<Result<void>> update();
  Task<Result<void>> reject_stale();
  Task<Result<void>> read_after_write();
  Task<Result<void>> ranged_read();
  Task<Result<void>> list_after_write();
  Task<Result<void>> list_order();
  Task<Result<void>> list_after_delete();
  Task<Result<void>> racing_creates();
  Task<Result<void>> racing_swaps();
  Task<Result<void>> large_object();
  Task<Result<void>> read_only_list();
  Task<Result<void>> read_only_read();

  Task<SwapResult> write(std::string_view text, Condition condition);
  Task<Result<void>> expect(std::string_view text, Version version);
  Task<Result<void>> race(std::string key, Condition condition);

  World& world_;
  ObjectStore& store_;
  const std::shared_ptr<StoreDialect> dialect_;
  const std::string key_;
  Deadline deadline_;
  std::optional<Version> first_, second_;  // of the main object
  std::vector<std::string> written_;
};

}  // namespace celld
