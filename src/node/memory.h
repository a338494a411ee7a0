// How much memory the process uses, and may use.
#pragma once

#include <cstdint>

namespace celld {

// Resident bytes of this process; 0 if that cannot be found out.
uint64_t resident_bytes();
// What the machine, or the control group that the process is in, has.
uint64_t memory_bytes();

}  // namespace celld
