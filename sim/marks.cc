#include "sim/marks.h"

#include <fstream>

#include "base/marks.h"

namespace celld::sim {

namespace {

std::map<std::string, uint64_t>& counts() {
  static auto* all = new std::map<std::string, uint64_t>();
  return *all;
}
struct Flag {
  bool on = false;
  bool asked = false;
};
std::map<std::string, Flag>& flags() {
  static auto* all = new std::map<std::string, Flag>();
  return *all;
}
std::string g_active;

std::string trimmed(const std::string& text) {
  size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == text.npos ? std::string() : text.substr(begin, end - begin + 1);
}

}  // namespace

Result<std::vector<CatalogueEntry>> load_catalogue(const std::string& path) {
  std::ifstream in(path);
  if (!in) return fail(Error::invalid(path + ": cannot be read"));
  std::vector<CatalogueEntry> out;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (trimmed(line).empty() || line[0] == '#') continue;
    size_t a = line.find('|'), b = line.find('|', a + 1);
    if (a == line.npos || b == line.npos)
      return fail(Error::invalid(path + ":" + std::to_string(number) + ": not three columns"));
    CatalogueEntry entry;
    entry.name = trimmed(line.substr(0, a));
    entry.about = trimmed(line.substr(b + 1));
    std::string names = trimmed(line.substr(a + 1, b - a - 1)) + " ";
    for (size_t at = 0, next; names != "* " && (next = names.find(' ', at)) != names.npos; at = next + 1) {
      if (next > at) entry.scenarios.push_back(names.substr(at, next - at));
    }
    out.push_back(std::move(entry));
  }
  return out;
}

void activate_mutant(const std::string& name) {
  g_active = name;
  flags()[name].on = true;
}

bool mutant_was_reached() { return flags()[g_active].asked; }

std::map<std::string, uint64_t> coverage_counts() { return counts(); }

}  // namespace celld::sim

#ifdef CELLD_MARKS
namespace celld::marks {

uint64_t& count_of(const char* name) { return sim::counts()[name]; }
const bool& mutant(const char* name) {
  sim::Flag& flag = sim::flags()[name];
  flag.asked = true;
  return flag.on;
}

}  // namespace celld::marks
#endif
