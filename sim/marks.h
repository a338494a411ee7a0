// The catalogues of coverage marks and mutants, and their state in this process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace celld::sim {

struct CatalogueEntry {
  std::string name;
  std::vector<std::string> scenarios;  // that hunt it; empty: all
  std::string about;
};
// Lines "name | scenarios or * | what it is about"; "#" begins a comment. kInvalid names the line.
Result<std::vector<CatalogueEntry>> load_catalogue(const std::string& path);

// Makes the code wrong in one way, for the rest of the process.
void activate_mutant(const std::string& name);
// Whether the code ever asked for it.
bool mutant_was_reached();
std::map<std::string, uint64_t> coverage_counts();

}  // namespace celld::sim
