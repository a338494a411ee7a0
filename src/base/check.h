// Broken invariants end the process: CHECK is always on and prints the values.
#pragma once

#include <sstream>

namespace celld {

// Prints "CHECK failed: <file>:<line>: <condition> <message>" and aborts when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return out_; }

 private:
  std::ostringstream out_;
};

}  // namespace celld

#define CHECK(cond) \
  if (cond) [[likely]] {} else ::celld::CheckFailure(__FILE__, __LINE__, #cond).stream() << " "
