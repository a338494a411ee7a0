#include "sim/settings.h"

#include <toml++/toml.h>

#include "base/check.h"
#include "sim/random.h"

namespace celld::sim {

namespace {

struct Place {
  const char* name;
  double Settings::*member;
  double low;
  double high;
};

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
#define X(section, key, low, high) {#section "." #key, &Settings::section##_##key, low, high},
      CELLD_SIM_SETTINGS(X)
#undef X
  };
  return all;
}

}  // namespace

double* Settings::find(const std::string& name) {
  for (const Place& place : places()) {
    if (name == place.name) return &(this->*place.member);
  }
  return nullptr;
}

std::vector<std::string> Settings::names() {
  std::vector<std::string> out;
  for (const Place& place : places()) out.push_back(place.name);
  return out;
}

Result<Scenario> Scenario::load(const std::string& path) {
  Scenario out;
  out.path_ = path;
  size_t slash = path.rfind('/');
  out.name_ = path.substr(slash == path.npos ? 0 : slash + 1);
  out.name_ = out.name_.substr(0, out.name_.rfind(".toml"));
  for (const Place& place : places()) out.ranges_[place.name] = Range{1, place.low, place.high};
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    return fail(Error::invalid(path + ": " + std::string(e.description())));
  }
  for (auto&& [section, content] : file) {
    if (section.str() == "about") {
      out.about_ = content.value_or(std::string());
      continue;
    }
    const toml::table* table = content.as_table();
    if (!table) return fail(Error::invalid(path + ": " + std::string(section.str()) + " is no section"));
    for (auto&& [key, value] : *table) {
      std::string name = std::string(section.str()) + "." + std::string(key.str());
      auto it = out.ranges_.find(name);
      if (it == out.ranges_.end()) return fail(Error::invalid(path + ": " + name + " is no setting"));
      Range& range = it->second;
      const toml::array* pair = value.as_array();
      const toml::table* odds = value.as_table();
      if (auto number = value.value<double>()) {
        range = Range{1, *number, *number};
      } else if (pair && pair->size() == 2) {
        range = Range{1, pair->at(0).value_or(0.0), pair->at(1).value_or(0.0)};
      } else if (odds) {
        range = Range{(*odds)["odds"].value_or(1.0), (*odds)["from"].value_or(0.0), (*odds)["to"].value_or(0.0)};
      } else {
        return fail(Error::invalid(path + ": " + name + " is neither a number nor a range"));
      }
      if (range.low > range.high) return fail(Error::invalid(path + ": the range of " + name + " is empty"));
    }
  }
  return out;
}

Settings Scenario::draw(uint64_t seed, const std::map<std::string, double>& overrides) const {
  Settings out;
  for (const auto& [name, range] : ranges_) {
    // A stream for each: an override leaves the others as they were.
    Rng rng(seed, name);
    bool on = rng.unit() < range.odds;
    double value = rng.between(range.low, range.high);
    *out.find(name) = on ? value : 0;
  }
  for (const auto& [name, value] : overrides) {
    double* place = out.find(name);
    CHECK(place) << name << " is no setting";
    *place = value;
  }
  return out;
}

}  // namespace celld::sim
