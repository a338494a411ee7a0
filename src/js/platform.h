// V8 for the whole process: started once, before the first isolate.
#pragma once

namespace celld::js {

// Any thread; idempotent. The flags of V8 are fixed here.
void start_v8();

// The time JavaScript of this thread sees: stands still while it runs, moves at I/O.
// Call at the start of every turn.
void advance_javascript_clock();
// Milliseconds, monotonic, with the same stops.
double javascript_performance_now();

}  // namespace celld::js
