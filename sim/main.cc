// The simulator's command line; see sim/README.md.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "sim/marks.h"
#include "sim/workers.h"

namespace celld::sim {
namespace {

constexpr size_t kBatch = 16;  // runs of one process: what they leave in memory goes with it

struct Options {
  std::string mode;
  std::string root;  // the folder sim/
  uint64_t seeds = 100;
  uint64_t first_seed = 1;
  bool one_seed = false;
  std::vector<std::string> scenarios;
  std::map<std::string, double> overrides;
  unsigned jobs = 2;
  double minutes = 1;
  std::string only;  // a mutant
  bool coverage = false;
  bool twice = false;
  bool shrink = false;
  bool everything = false;
  bool kept = false;  // the runs of regressions.txt
  size_t lines = 120;
};

[[noreturn]] void usage(const std::string& why) {
  std::cerr << "sim: " << why << "\n"
            << "  run     [--seeds N] [--from S] [--seed S] [--scenario FILE]... [--set section.key=value]...\n"
            << "          [--jobs J] [--coverage] [--twice] [--shrink] [--lines N] [--everything] [--mutant NAME]\n"
            << "          [--kept]\n"
            << "  mutants [--seeds N] [--only NAME] [--jobs J]\n"
            << "  soak    [--minutes M] [--jobs J]\n";
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options o;
  if (argc < 3) usage("no mode");
  o.root = argv[1];
  o.mode = argv[2];
  if (o.mode == "mutants") o.seeds = 400;
  for (int i = 3; i < argc; ++i) {
    std::string arg = argv[i];
    auto value = [&]() -> std::string {
      if (++i == argc) usage(arg + " needs a value");
      return argv[i];
    };
    if (arg == "--seeds") {
      o.seeds = std::stoull(value());
    } else if (arg == "--from") {
      o.first_seed = std::stoull(value());
    } else if (arg == "--seed") {
      o.first_seed = std::stoull(value());
      o.one_seed = true;
    } else if (arg == "--scenario") {
      o.scenarios.push_back(value());
    } else if (arg == "--set") {
      std::string text = value();
      size_t at = text.find('=');
      Settings known;
      if (at == text.npos || !known.find(text.substr(0, at))) usage(text + " sets nothing");
      o.overrides[text.substr(0, at)] = std::stod(text.substr(at + 1));
    } else if (arg == "--jobs") {
      o.jobs = static_cast<unsigned>(std::stoul(value()));
    } else if (arg == "--minutes") {
      o.minutes = std::stod(value());
    } else if (arg == "--only" || arg == "--mutant") {
      o.only = value();
    } else if (arg == "--lines") {
      o.lines = std::stoull(value());
    } else if (arg == "--coverage") {
      o.coverage = true;
    } else if (arg == "--twice") {
      o.twice = true;
    } else if (arg == "--kept") {
      o.kept = true;
    } else if (arg == "--shrink") {
      o.shrink = true;
    } else if (arg == "--everything") {
      o.everything = true;
    } else {
      usage("unknown option " + arg);
    }
  }
  return o;
}

std::vector<Scenario> load_scenarios(const Options& o) {
  std::vector<std::string> files;
  for (const std::string& name : o.scenarios) {
    files.push_back(std::filesystem::exists(name) ? name : o.root + "/scenarios/" + name + ".toml");
  }
  if (files.empty()) {
    for (auto& entry : std::filesystem::directory_iterator(o.root + "/scenarios")) {
      if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
  }
  std::vector<Scenario> out;
  for (const std::string& file : files) {
    Result<Scenario> scenario = Scenario::load(file);
    if (!scenario) usage(scenario.error().message);
    out.push_back(std::move(*scenario));
  }
  if (out.empty()) usage("no scenarios");
  return out;
}

std::string command_of(const Job& job) {
  std::string out = "sim/run --seed " + std::to_string(job.seed) + " --scenario " + job.scenario->name();
  for (const auto& [name, value] : job.overrides) {
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", value);  // exactly what ran
    out += " --set " + name + "=" + text;
  }
  if (!job.mutant.empty()) out += " --mutant " + job.mutant;
  return out;
}

void print_violation(const JobResult& r) {
  const Violation& v = *r.run.violation;
  std::cout << "FAILED " << v.invariant << (v.cell.empty() ? "" : " of " + v.cell) << " after "
            << static_cast<double>(v.at.since_start.count()) / 1e9 << " s: " << v.text << "\n  " << command_of(r.job)
            << std::endl;
}

struct Totals {
  uint64_t runs = 0, failed = 0;
  double virtual_seconds = 0;
  uint64_t events = 0, requests = 0, commits = 0, acknowledgements = 0, restores = 0, alarms = 0;
  uint64_t answered = 0, deaths = 0, stale_reads = 0, undecided = 0, faults = 0;
  std::array<uint64_t, 12> by_fault{};

  void add(const RunResult& r) {
    ++runs;
    failed += r.violation.has_value();
    virtual_seconds += r.virtual_seconds;
    events += r.events, requests += r.requests, commits += r.commits, acknowledgements += r.acknowledgements;
    restores += r.restores, alarms += r.alarms, answered += r.answered, deaths += r.deaths;
    stale_reads += r.stale_reads, undecided += r.undecided;
    for (size_t i = 0; i < r.faults.size(); ++i) faults += r.faults[i], by_fault[i] += r.faults[i];
  }
};

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print_totals(const Totals& t, double seconds) {
  std::cout << "  " << t.requests << " requests to the bucket, " << t.commits << " commits, " << t.acknowledgements
            << " acknowledgements, " << t.answered << " answers, " << t.restores << " restores, " << t.alarms
            << " alarms, " << t.deaths << " deaths of nodes\n  faults:";
  for (size_t i = 0; i < t.by_fault.size(); ++i) std::cout << " " << kFaultNames[i] << " " << t.by_fault[i];
  std::cout << "\n  stale reads under clocks that lie: " << t.stale_reads
            << "; histories not decided: " << t.undecided << "\n";
  std::printf("  %.1f virtual hours in %.0f s: %.2f virtual hours per second\n", t.virtual_seconds / 3600, seconds,
              t.virtual_seconds / 3600 / seconds);
  std::fflush(stdout);
}

// Prints what was reached how often; false when a mark of the catalogue was not, or one is unknown.
bool report_coverage(const Options& o, const std::map<std::string, uint64_t>& counts) {
  auto catalogue = load_catalogue(o.root + "/marks.txt");
  if (!catalogue) usage(catalogue.error().message);
  bool all = true;
  std::set<std::string> known;
  for (const CatalogueEntry& entry : *catalogue) {
    known.insert(entry.name);
    auto it = counts.find(entry.name);
    uint64_t n = it == counts.end() ? 0 : it->second;
    std::printf("  %10llu  %s%s\n", static_cast<unsigned long long>(n), entry.name.c_str(),
                n ? "" : "   NEVER REACHED");
    all = all && n > 0;
  }
  for (const auto& [name, count] : counts) {
    if (known.contains(name)) continue;
    std::printf("  %s is not in marks.txt\n", name.c_str());
    all = false;
  }
  return all;
}

// A smaller run that breaks the same invariant.
Job shrink(const Job& start, const std::string& invariant, unsigned processes) {
  constexpr uint64_t kSeedsToTry = 30;
  Job best = start;
  auto fails = [&](const Job& candidate) -> std::optional<Job> {
    std::vector<Job> tries = {candidate};
    for (uint64_t seed = 1; seed <= kSeedsToTry; ++seed) {
      tries.push_back(candidate);
      tries.back().seed = seed;
    }
    std::optional<Job> found;
    size_t at = 0;
    run_jobs(
        processes, 1,
        [&](Job* job) {
          if (found || at == tries.size()) return false;
          *job = tries[at++];
          return true;
        },
        [&](JobResult r) {
          if (r.run.violation && r.run.violation->invariant == invariant && !found) found = r.job;
        },
        nullptr);
    return found;
  };
  for (bool better = true; better;) {
    better = false;
    for (const std::string& name : Settings::names()) {
      Settings now = best.scenario->draw(best.seed, best.overrides);
      double value = *now.find(name);
      bool size = name.starts_with("world.");
      if (value == 0 || name.starts_with("knobs.") || name == "world.settle_s" || name == "work.think_ms" ||
          name == "work.deadline_s" || name == "faults.latency_ms" || name == "faults.list_page") {
        continue;
      }
      double smaller = size ? std::max(1.0, static_cast<double>(static_cast<int>(value / 2))) : 0;
      if (smaller == value) continue;
      Job candidate = best;
      candidate.overrides[name] = smaller;
      // The other values stay as they are, whatever the seed.
      for (const std::string& other : Settings::names()) {
        if (!candidate.overrides.contains(other)) candidate.overrides[other] = *now.find(other);
      }
      if (auto found = fails(candidate)) {
        best = *found;
        better = true;
        std::cout << "  still fails with " << name << " = " << smaller << " (seed " << best.seed << ")" << std::endl;
      }
    }
  }
  return best;
}

int run(const Options& o) {
  std::vector<Scenario> scenarios = load_scenarios(o);
  auto began = std::chrono::steady_clock::now();
  std::vector<Job> jobs;
  if (o.kept) {
    auto kept = load_catalogue(o.root + "/regressions.txt");
    if (!kept) usage(kept.error().message);
    for (const CatalogueEntry& entry : *kept) {
      auto scenario = std::find_if(scenarios.begin(), scenarios.end(),
                                   [&](const Scenario& s) { return s.name() == entry.name; });
      if (scenario == scenarios.end() || entry.scenarios.size() != 1) usage("regressions.txt: " + entry.name);
      jobs.push_back(Job{&*scenario, std::stoull(entry.scenarios[0]), {}, o.only});
    }
  }
  for (uint64_t seed = o.first_seed; !o.kept && seed < o.first_seed + (o.one_seed ? 1 : o.seeds); ++seed) {
    for (size_t i = 0; i < scenarios.size(); ++i) {
      if (!o.one_seed && scenarios.size() > 1 && seed % scenarios.size() != i) continue;
      for (int k = 0; k < (o.twice ? 2 : 1); ++k) jobs.push_back(Job{&scenarios[i], seed, o.overrides, o.only});
    }
  }
  Totals totals;
  std::map<std::string, uint64_t> coverage;
  std::vector<JobResult> failed;
  std::map<std::pair<std::string, uint64_t>, uint64_t> traces;
  uint64_t differ = 0;
  size_t at = 0;
  // Twice: not in the same process.
  run_jobs(
      o.jobs, o.twice ? 1 : kBatch,
      [&](Job* job) {
        if (at == jobs.size() || failed.size() >= 5) return false;
        *job = jobs[at++];
        return true;
      },
      [&](JobResult r) {
        totals.add(r.run);
        auto [it, fresh] = traces.try_emplace({r.job.scenario->name(), r.job.seed}, r.run.trace);
        if (it->second != r.run.trace) {
          ++differ;
          std::cout << "DIFFERENT: " << command_of(r.job) << " gave traces " << std::hex << it->second << " and "
                    << r.run.trace << std::dec << "\n";
        }
        if (o.one_seed)
          std::cout << r.job.scenario->name() << " seed " << r.job.seed << " trace " << std::hex << r.run.trace
                    << std::dec << "\n";
        if (!r.run.violation) return;
        print_violation(r);
        failed.push_back(std::move(r));
      },
      &coverage);
  if (!failed.empty()) {
    std::cout << "what led to the first:\n";
    print_timeline(failed[0].job, o.lines, o.everything);
    if (o.shrink) {
      Job small = shrink(failed[0].job, failed[0].run.violation->invariant, o.jobs);
      std::cout << "smaller:\n";
      print_timeline(small, o.lines, o.everything);
      std::cout << command_of(small) << "\n";
    }
  } else if (o.one_seed && o.everything) {
    print_timeline(jobs[0], o.lines, true);
  }
  print_totals(totals, since(began));
  bool covered = true;
  if (o.coverage) covered = report_coverage(o, coverage);
  bool good = failed.empty() && differ == 0 && covered;
  std::cout << "sim: " << totals.runs << " runs of " << scenarios.size() << " scenarios, " << totals.failed
            << " failed" << (o.twice ? ", " + std::to_string(differ) + " differ" : "")
            << (o.coverage ? covered ? ", every mark reached" : ", marks not reached" : "")
            << (good ? ": ok" : ": NOT OK") << std::endl;
  return good ? 0 : 1;
}

int mutants(const Options& o) {
  std::vector<Scenario> scenarios = load_scenarios(o);
  auto catalogue = load_catalogue(o.root + "/mutants.txt");
  if (!catalogue) usage(catalogue.error().message);
  struct Hunt {
    CatalogueEntry entry;
    std::vector<const Scenario*> where;
    uint64_t next_seed = 1;
    uint64_t runs = 0;
    bool reached = false;
    std::optional<JobResult> caught;
  };
  std::vector<Hunt> hunts;
  for (CatalogueEntry& entry : *catalogue) {
    if (!o.only.empty() && entry.name != o.only) continue;
    Hunt hunt;
    for (const Scenario& s : scenarios) {
      bool named = std::find(entry.scenarios.begin(), entry.scenarios.end(), s.name()) != entry.scenarios.end();
      if (named || entry.scenarios.empty()) hunt.where.push_back(&s);
    }
    if (hunt.where.empty()) usage("mutant " + entry.name + " names no scenario there is");
    hunt.entry = std::move(entry);
    hunts.push_back(std::move(hunt));
  }
  auto began = std::chrono::steady_clock::now();
  std::map<std::string, Hunt*> by_name;
  for (Hunt& h : hunts) by_name[h.entry.name] = &h;
  size_t turn = 0;
  // Mutants take turns of kBatch seeds, so that those that are hard to catch do not come last.
  size_t left_of_turn = kBatch;
  run_jobs(
      o.jobs, kBatch,
      [&](Job* job) {
        for (size_t tries = 0; tries <= hunts.size(); ++tries) {
          Hunt& h = hunts[turn % hunts.size()];
          if (h.caught || h.next_seed > o.seeds || left_of_turn == 0) {
            ++turn;
            left_of_turn = kBatch;
            continue;
          }
          --left_of_turn;
          *job = Job{h.where[h.next_seed % h.where.size()], h.next_seed, o.overrides, h.entry.name};
          ++h.next_seed;
          return true;
        }
        return false;
      },
      [&](JobResult r) {
        Hunt& h = *by_name.at(r.job.mutant);
        ++h.runs;
        h.reached = h.reached || r.mutant_reached;
        if (!r.run.violation || h.caught) return;
        h.caught = r;
        std::printf("  %-32s caught by %s, run %llu of %s\n", h.entry.name.c_str(),
                    r.run.violation->invariant.c_str(), static_cast<unsigned long long>(r.job.seed),
                    r.job.scenario->name().c_str());
        std::fflush(stdout);
      },
      nullptr);
  size_t caught = 0;
  for (const Hunt& h : hunts) {
    caught += h.caught.has_value();
    if (h.caught) continue;
    std::printf("SURVIVED %s: %s%s\n", h.entry.name.c_str(), h.entry.about.c_str(),
                h.reached ? "" : " (the code never asked for it)");
  }
  std::printf("mutants: %zu of %zu caught within %llu runs each, %.0f s%s\n", caught, hunts.size(),
              static_cast<unsigned long long>(o.seeds), since(began), caught == hunts.size() ? ": ok" : ": NOT OK");
  return caught == hunts.size() ? 0 : 1;
}

int soak(const Options& o) {
  std::vector<Scenario> scenarios = load_scenarios(o);
  auto began = std::chrono::steady_clock::now();
  uint64_t seed =
      o.first_seed > 1
          ? o.first_seed
          : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) / 1'000'000;
  std::cout << "soak: from seed " << seed << std::endl;
  Totals totals;
  std::map<std::string, uint64_t> coverage;
  std::vector<JobResult> failed;
  double last_line = 0;
  run_jobs(
      o.jobs, kBatch,
      [&](Job* job) {
        if (since(began) > o.minutes * 60 || failed.size() >= 20) return false;
        *job = Job{&scenarios[seed % scenarios.size()], seed, o.overrides, ""};
        ++seed;
        return true;
      },
      [&](JobResult r) {
        totals.add(r.run);
        if (r.run.violation) {
          print_violation(r);
          failed.push_back(std::move(r));
        }
        if (since(began) - last_line < 60) return;
        last_line = since(began);
        std::printf("soak: %.0f min, %llu runs, %llu failed, %.2f virtual hours per second, %llu faults\n",
                    last_line / 60, static_cast<unsigned long long>(totals.runs),
                    static_cast<unsigned long long>(totals.failed), totals.virtual_seconds / 3600 / last_line,
                    static_cast<unsigned long long>(totals.faults));
        std::fflush(stdout);
      },
      &coverage);
  if (!failed.empty()) print_timeline(failed[0].job, o.lines, o.everything);
  print_totals(totals, since(began));
  size_t reached = 0;
  for (const auto& [name, count] : coverage) reached += count > 0;
  std::printf(
      "soak: %llu runs, %llu failed, %.2f virtual hours per second, %llu faults injected, %zu marks reached%s\n",
      static_cast<unsigned long long>(totals.runs), static_cast<unsigned long long>(totals.failed),
      totals.virtual_seconds / 3600 / since(began), static_cast<unsigned long long>(totals.faults), reached,
      failed.empty() ? ": ok" : ": NOT OK");
  return failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace celld::sim

int main(int argc, char** argv) {
  using namespace celld::sim;
  Options o = parse(argc, argv);
  if (o.mode == "run") return run(o);
  if (o.mode == "mutants") return mutants(o);
  if (o.mode == "soak") return soak(o);
  usage("unknown mode " + o.mode);
}
