// Seeded randomness: the same on every machine, one independent stream per purpose.
#pragma once

#include <cstdint>
#include <string_view>

#include "world/world.h"

namespace celld::sim {

// splitmix64. Streams of one seed with different names do not depend on each other.
class Rng {
 public:
  explicit Rng(uint64_t seed, std::string_view stream = {}) : state_(seed * 0x9e3779b97f4a7c15) {
    for (char c : stream) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    next();
  }
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // Uniform in [0, bound); 0 for a bound of 0.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double p) { return p > 0 && unit() < p; }
  double between(double low, double high) { return low + (high - low) * unit(); }
  Duration between(Duration low, Duration high) {
    return low + Duration(static_cast<int64_t>(below(static_cast<uint64_t>((high - low).count()) + 1)));
  }
  void fill(std::span<uint8_t> out) {
    for (size_t i = 0; i < out.size(); i += 8) {
      uint64_t word = next();
      for (size_t k = i; k < out.size() && k < i + 8; ++k, word >>= 8) out[k] = static_cast<uint8_t>(word);
    }
  }

 private:
  uint64_t state_;
};

// One word that depends on all words mixed in, and on their order.
class TraceHash {
 public:
  void mix(uint64_t word) {
    value_ = (value_ ^ word) * 0x9fb21c651e98df25;
    value_ ^= value_ >> 32;
  }
  void mix(std::string_view text) {
    for (char c : text) value_ = (value_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    mix(text.size());
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace celld::sim
