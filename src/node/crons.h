// Runs scheduled() when a cron expression of the deployment comes due.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/cron.h"
#include "world/world.h"

namespace celld {

// Control thread. Every node of a fleet runs its own crons; there is one node for now.
class Crons {
 public:
  using Fire = std::function<void(const std::string& expression, WallMs scheduled)>;
  Crons(World& world, Fire fire) : world_(world), fire_(std::move(fire)) {}
  ~Crons() { clear(); }
  Crons(const Crons&) = delete;
  Crons& operator=(const Crons&) = delete;

  // Replaces all schedules. Expressions that do not parse are left out and returned.
  std::vector<std::string> set(const std::vector<std::string>& expressions);

 private:
  struct Entry {
    CronSchedule schedule;
    TimerId timer = 0;
  };
  void arm(size_t index, WallMs after);
  void wait(size_t index, WallMs due);
  void clear();

  World& world_;
  Fire fire_;
  std::vector<Entry> entries_;
};

}  // namespace celld
