// Marks for the simulator: rare branches that its runs must reach, and faults that it must notice.
//
// Both compile to nothing unless CELLD_MARKS is defined, which only the simulator's second build of
// this code does (sim/CMakeLists.txt). Names are listed in sim/marks.txt and sim/mutants.txt.
#pragma once

#ifdef CELLD_MARKS

#include <cstdint>

namespace celld::marks {
// Defined by the simulator. References stay valid for ever.
uint64_t& count_of(const char* name);
const bool& mutant(const char* name);
}  // namespace celld::marks

// This place was reached.
#define COVERAGE_MARK(name)                                           \
  do {                                                                \
    static uint64_t& mark_count_ = ::celld::marks::count_of(name);    \
    ++mark_count_;                                                    \
  } while (0)
// Whether the code is to be wrong in the way that `name` says.
#define MUTANT(name)                                                  \
  ([] {                                                               \
    static const bool& mutant_on_ = ::celld::marks::mutant(name);     \
    return mutant_on_;                                                \
  }())

#else

#define COVERAGE_MARK(name) static_cast<void>(0)
#define MUTANT(name) false

#endif
