#include "sim/workers.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>
#include <sstream>

#include "base/check.h"
#include "sim/marks.h"

namespace celld::sim {

namespace {

constexpr unsigned kRunSecondsMax = 120;  // of real time

struct Worker {
  pid_t pid = 0;
  int out = -1;
  int errors = -1;  // what it printed to stderr
  std::vector<Job> jobs;
  size_t finished = 0;
  std::string buffer;
};

std::string on_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return text;
}

std::string serialised(const RunResult& r, bool reached) {
  std::ostringstream out;
  out << "R\t" << r.trace << "\t" << r.virtual_seconds << "\t" << r.events << "\t" << r.requests << "\t" << r.commits
      << "\t" << r.acknowledgements << "\t" << r.restores << "\t" << r.alarms << "\t" << r.answered << "\t"
      << r.deaths << "\t" << r.stale_reads << "\t" << r.undecided << "\t" << reached;
  for (uint64_t n : r.faults) out << "\t" << n;
  if (r.violation) {
    out << "\t!" << r.violation->invariant << "\t" << on_one_line(r.violation->cell) << "\t"
        << r.violation->at.since_start.count() << "\t" << on_one_line(r.violation->text);
  }
  return out.str() + "\n";
}

JobResult parsed(const std::string& line) {
  std::istringstream in(line);
  JobResult out;
  RunResult& r = out.run;
  std::string tag;
  in >> tag >> r.trace >> r.virtual_seconds >> r.events >> r.requests >> r.commits >> r.acknowledgements >>
      r.restores >> r.alarms >> r.answered >> r.deaths >> r.stale_reads >> r.undecided >> out.mutant_reached;
  for (uint64_t& n : r.faults) in >> n;
  std::string rest;
  std::getline(in, rest);
  if (rest.size() < 2) return out;
  std::vector<std::string> parts;
  std::istringstream fields(rest.substr(2));
  for (std::string part; std::getline(fields, part, '\t');) parts.push_back(part);
  parts.resize(4);
  r.violation = Violation{parts[0], parts[1], parts[3], MonoTime{Duration(std::atoll(parts[2].c_str()))}};
  return out;
}

void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) _exit(9);
    at += static_cast<size_t>(n);
  }
}

[[noreturn]] void work(const std::vector<Job>& jobs, int out, int errors) {
  dup2(errors, 2);
  if (!jobs[0].mutant.empty()) activate_mutant(jobs[0].mutant);
  for (const Job& job : jobs) {
    alarm(kRunSecondsMax);
    RunResult r = run_simulation(job.seed, job.scenario->draw(job.seed, job.overrides), false);
    write_all(out, serialised(r, !job.mutant.empty() && mutant_was_reached()));
    if (r.violation && !job.mutant.empty()) break;
  }
  std::string coverage;
  for (const auto& [name, count] : coverage_counts()) coverage += "C\t" + std::to_string(count) + "\t" + name + "\n";
  write_all(out, coverage);
  _exit(0);
}

Worker begin(std::vector<Job> jobs) {
  Worker worker;
  worker.jobs = std::move(jobs);
  int ends[2];
  CHECK(pipe(ends) == 0);
  worker.errors = memfd_create("stderr", 0);
  fflush(stdout);
  worker.pid = fork();
  CHECK(worker.pid >= 0) << "fork";
  if (worker.pid == 0) {
    ::close(ends[0]);
    work(worker.jobs, ends[1], worker.errors);
  }
  ::close(ends[1]);
  worker.out = ends[0];
  return worker;
}

std::string last_words(int fd) {
  std::string text(4096, '\0');
  off_t size = lseek(fd, 0, SEEK_END);
  ssize_t n = pread(fd, text.data(), text.size(), std::max<off_t>(0, size - 4096));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  size_t check = text.find("CHECK failed");
  return on_one_line(check == text.npos ? text : text.substr(check));
}

}  // namespace

void run_jobs(unsigned processes, size_t batch, const std::function<bool(Job*)>& next,
              const std::function<void(JobResult)>& done, std::map<std::string, uint64_t>* coverage) {
  std::vector<Worker> workers;
  std::vector<Job> again;  // left over by a worker that died
  std::optional<Job> spare;
  auto take = [&](Job* job) {
    if (!again.empty()) {
      *job = std::move(again.back());
      again.pop_back();
      return true;
    }
    if (spare) {
      *job = std::move(*spare);
      spare.reset();
      return true;
    }
    return next(job);
  };
  auto finished = [&](Worker& worker, JobResult result) {
    result.job = worker.jobs[worker.finished++];
    done(std::move(result));
  };
  for (;;) {
    while (workers.size() < processes) {
      std::vector<Job> jobs;
      Job job;
      while (jobs.size() < batch && take(&job)) {
        if (!jobs.empty() && jobs[0].mutant != job.mutant) {
          spare = std::move(job);
          break;
        }
        jobs.push_back(std::move(job));
      }
      if (jobs.empty()) break;
      workers.push_back(begin(std::move(jobs)));
    }
    if (workers.empty()) return;
    std::vector<pollfd> polls;
    for (Worker& w : workers) polls.push_back({w.out, POLLIN, 0});
    poll(polls.data(), polls.size(), -1);
    for (size_t i = workers.size(); i-- > 0;) {
      if (polls[i].revents == 0) continue;
      Worker& w = workers[i];
      char bytes[65536];
      ssize_t n = read(w.out, bytes, sizeof bytes);
      if (n > 0) {
        w.buffer.append(bytes, static_cast<size_t>(n));
        size_t end;
        while ((end = w.buffer.find('\n')) != w.buffer.npos) {
          std::string line = w.buffer.substr(0, end);
          w.buffer.erase(0, end + 1);
          if (line[0] == 'R') finished(w, parsed(line));
          size_t name = line.rfind('\t');
          if (line[0] == 'C' && coverage) (*coverage)[line.substr(name + 1)] += std::stoull(line.substr(2));
        }
        continue;
      }
      int status = 0;
      waitpid(w.pid, &status, 0);
      if (status != 0 && w.finished < w.jobs.size()) {
        JobResult dead;
        dead.mutant_reached = true;
        bool slow = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        dead.run.violation = Violation{
            slow ? "hang" : "abort",
            "",
            slow ? "no end within " + std::to_string(kRunSecondsMax) + " s of real time" : last_words(w.errors),
            {}};
        finished(w, std::move(dead));
        again.insert(again.end(), w.jobs.begin() + static_cast<ptrdiff_t>(w.finished), w.jobs.end());
      }
      ::close(w.out);
      ::close(w.errors);
      workers.erase(workers.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

// --- timelines ---

namespace {

size_t g_lines_max = 0;
bool g_everything = false;

void print(const std::deque<TimelineEntry>& timeline, const std::string& cell, size_t lines_max, bool everything) {
  std::set<std::string> nodes;
  for (const TimelineEntry& e : timeline) {
    if (!cell.empty() && e.cell == cell && !e.node.empty()) nodes.insert(e.node);
  }
  std::vector<const TimelineEntry*> lines;
  for (const TimelineEntry& e : timeline) {
    bool of_cell = cell.empty() ? !e.node.empty() || !e.cell.empty() : e.cell == cell;
    bool of_node =
        e.cell.empty() && (cell.empty() || nodes.contains(e.node)) && e.text.find("record: seq") == e.text.npos;
    bool of_bucket =
        e.node.empty() && e.cell.empty() && !cell.empty() && e.text.find("/" + cell + "/ltx") != e.text.npos;
    if (everything || of_cell || (of_node && !e.node.empty()) || of_bucket) lines.push_back(&e);
  }
  size_t from = lines.size() > lines_max ? lines.size() - lines_max : 0;
  if (from > 0) std::cout << "  ... " << from << " lines before\n";
  for (size_t i = from; i < lines.size(); ++i) {
    const TimelineEntry& e = *lines[i];
    char time[32];
    std::snprintf(time, sizeof time, "%10.3f ms", static_cast<double>(e.at.since_start.count()) / 1e6);
    std::cout << "  " << time << "  " << e.node << (e.node.empty() ? "" : "  ") << e.cell
              << (e.cell.empty() ? "" : "  ") << e.text << "\n";
  }
  std::cout.flush();
}

}  // namespace

void print_timeline(const Job& job, size_t lines_max, bool everything) {
  std::cout.flush();
  pid_t pid = fork();
  CHECK(pid >= 0) << "fork";
  if (pid != 0) {
    waitpid(pid, nullptr, 0);
    return;
  }
  g_lines_max = lines_max;
  g_everything = everything;
  signal(SIGABRT, [](int) {
    if (running_verdict()) print(running_verdict()->timeline(), "", g_lines_max, g_everything);
    _exit(1);
  });
  alarm(kRunSecondsMax);
  if (!job.mutant.empty()) activate_mutant(job.mutant);
  RunResult r = run_simulation(job.seed, job.scenario->draw(job.seed, job.overrides), true);
  print(r.timeline, r.violation ? r.violation->cell : "", lines_max, everything);
  _exit(0);
}

}  // namespace celld::sim
