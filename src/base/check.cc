#include "base/check.h"

#include <cstdlib>
#include <iostream>

namespace celld {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  out_ << "CHECK failed: " << file << ":" << line << ": " << condition;
}

CheckFailure::~CheckFailure() {
  std::cerr << out_.str() << std::endl;
  std::abort();
}

}  // namespace celld
