// Time and chance of the machine, for threads that are not the world's. Any thread.
//
// Code of the layers under `world` takes these as values (a struct of functions), never by name,
// so that the simulator can give its own.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace celld {

// The machine's wall clock.
WallMs host_wall_now();
// Fills `out` with unpredictable bytes from the kernel. Aborts when the kernel refuses.
void host_random(std::span<uint8_t> out);

}  // namespace celld
