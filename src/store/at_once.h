// Several requests at a time, for stores that have none for many keys.
#pragma once

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "store/object_store.h"

namespace celld {

// remove() for each key, `at_once` at a time; outcomes in order. `world` and `store` outlive the
// task.
inline Task<std::vector<Result<void>>> remove_at_once(World& world, ObjectStore& store,
                                                      std::vector<std::string> keys, size_t at_once,
                                                      Deadline deadline) {
  std::vector<Result<void>> outcomes;
  outcomes.reserve(keys.size());
  for (size_t at = 0; at < keys.size();) {
    std::vector<Task<Result<void>>> some;
    for (; at < keys.size() && some.size() < at_once; ++at) {
      some.push_back(store.remove(std::move(keys[at]), deadline));
    }
    std::vector<Result<void>> done = co_await join_all(world, std::move(some));
    std::move(done.begin(), done.end(), std::back_inserter(outcomes));
  }
  co_return outcomes;
}

}  // namespace celld
