// LIST over a map, for the stores in memory: those of tests and of the simulator, too.
#pragma once

#include <algorithm>
#include <string>

#include "store/object_store.h"

namespace celld {

// One page of `objects`, a std::map by key whose values have `body` and `modified`.
template <class Map>
ListPage list_map(const Map& objects, const ListRequest& request) {
  ListPage page;
  std::string last;
  auto it = objects.lower_bound(std::max(request.prefix, request.start_after));
  while (it != objects.end() && it->first.starts_with(request.prefix)) {
    const std::string& key = it->first;
    size_t cut = request.delimiter.empty() ? std::string::npos
                                           : key.find(request.delimiter, request.prefix.size());
    std::string shown = cut == std::string::npos ? key : key.substr(0, cut + 1);
    if (shown <= request.start_after) {
      ++it;
      continue;
    }
    if (page.objects.size() + page.common_prefixes.size() == request.keys_max) {
      page.more = true;
      page.next_start_after = last;
      break;
    }
    last = shown;
    if (cut == std::string::npos) {
      page.objects.push_back({key, it->second.body.size(), it->second.modified});
      ++it;
    } else {
      while (it != objects.end() && it->first.starts_with(shown)) ++it;
      page.common_prefixes.push_back(std::move(shown));
    }
  }
  return page;
}

}  // namespace celld
