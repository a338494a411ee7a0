#include "deploy/glob.h"

namespace celld {
namespace {

constexpr int kStepsMax = 100'000;

std::string_view without_dot(std::string_view s) {
  while (s.starts_with("./")) s.remove_prefix(2);
  return s;
}

// Backtracking, with a bound on the work: a pattern that needs more does not match.
class Matcher {
 public:
  bool match(std::string_view g, std::string_view p) {
    while (true) {
      if (++steps_ > kStepsMax) return false;
      if (g.empty()) return p.empty();
      if (g.starts_with("**/")) {
        // No part, or one part and again.
        if (match(g.substr(3), p)) return true;
        size_t slash = p.find('/');
        if (slash == p.npos) return false;
        p.remove_prefix(slash + 1);
        continue;
      }
      if (g == "**") return true;
      if (g[0] == '*') {
        auto rest = g.substr(1);
        for (size_t n = 0;; ++n) {
          if (match(rest, p.substr(n))) return true;
          if (n == p.size() || p[n] == '/') return false;
        }
      }
      if (g[0] == '{') {
        if (size_t close = g.find('}'); close != g.npos) return choice(g, close, p);
      }
      if (p.empty()) return false;
      // "?module"" is the query of an import, not a wildcard.
      bool wildcard = g[0] == '?' && !g.starts_with("?module");
      if (!wildcard && g[0] != p[0]) return false;
      if (wildcard && p[0] == '/') return false;
      g.remove_prefix(1);
      p.remove_prefix(1);
    }
  }

 private:
  bool choice(std::string_view g, size_t close, std::string_view p) {
    auto options = g.substr(1, close - 1);
    auto rest = g.substr(close + 1);
    while (true) {
      size_t comma = options.find(',');
      auto option = options.substr(0, comma);
      if (p.starts_with(option) && match(rest, p.substr(option.size()))) return true;
      if (comma == options.npos) return false;
      options.remove_prefix(comma + 1);
    }
  }

  int steps_ = 0;
};

}  // namespace

bool glob_matches(std::string_view glob, std::string_view path) {
  return Matcher().match(without_dot(glob), without_dot(path));
}

std::string glob_extension(std::string_view glob) {
  auto last = glob.substr(glob.rfind('/') + 1);
  if (last.ends_with("?module")) last.remove_suffix(7);
  if (!last.starts_with("*.")) return "";
  auto extension = last.substr(1);
  if (extension.size() < 2 || extension.find_first_of("*?{}[]!") != extension.npos) return "";
  return std::string(extension);
}

}  // namespace celld
