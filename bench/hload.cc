// Closed-loop HTTP/1.1 load on a server of this machine: every connection sends its next request
// when the answer to the last one is there. One JSON object on one line goes to stdout; exit status
// 1 when any request failed.
//
//   hload --url 'http://127.0.0.1:8080/do/incr?n=k{i}' -c 32 (-n REQUESTS | -d SECONDS)
//         [--mod N] [--pid PID[,PID]] [--label NAME] [--seed N] [--quiet SECONDS] [--limit SECONDS]
//
// In the path, {i} counts up and {r} is drawn at random; both stay below --mod. With --pid the line
// tells the server's CPU time per request and its memory, and other_cores: what neither server nor
// client used, so that a run that neighbours disturbed can be told from a clean one. --quiet waits
// up to that long for an idle machine. links: base
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "hload: %s\n", message.c_str());
  std::exit(2);
}

// Latencies in buckets, 64 per power of two: errors stay below 1.6 %.
class Histogram {
 public:
  void add(nanoseconds latency) {
    uint64_t v = static_cast<uint64_t>(latency.count());
    ++count_;
    sum_ += v;
    max_ = std::max(max_, v);
    ++buckets_[index(v)];
  }
  uint64_t count() const { return count_; }
  double mean_us() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / 1e3 / static_cast<double>(count_);
  }
  double max_us() const { return static_cast<double>(max_) / 1e3; }
  double percentile_us(double p) const {
    uint64_t wanted = static_cast<uint64_t>(p / 100 * static_cast<double>(count_));
    uint64_t seen = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen > wanted) return static_cast<double>(middle(i)) / 1e3;
    }
    return max_us();
  }

 private:
  static size_t index(uint64_t v) {
    if (v < 64) return v;
    unsigned e = static_cast<unsigned>(std::bit_width(v)) - 1;
    return (e - 5) * 64 + ((v >> (e - 6)) & 63);
  }
  static uint64_t middle(size_t i) {
    if (i < 64) return i;
    size_t e = i / 64 + 5;
    return (uint64_t{1} << e) + (uint64_t{i % 64} << (e - 6)) + (uint64_t{1} << (e - 6)) / 2;
  }
  std::vector<uint64_t> buckets_ = std::vector<uint64_t>(64 * 64);
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t max_ = 0;
};

// CPU seconds and memory of processes and of the machine, from /proc.
struct Usage {
  double server_s = 0;
  double machine_s = 0;
  double self_s = 0;
};

class Meter {
 public:
  explicit Meter(std::vector<int> pids) : pids_(std::move(pids)) {}
  bool watching() const { return !pids_.empty(); }

  Usage usage() const {
    Usage u;
    double tick = static_cast<double>(sysconf(_SC_CLK_TCK));
    for (int pid : pids_) {
      std::string stat = read("/proc/" + std::to_string(pid) + "/stat");
      size_t at = stat.rfind(')');
      if (at == std::string::npos)
        die("the server process " + std::to_string(pid) + " is not there");
      std::istringstream fields(stat.substr(at + 2));
      std::string skipped;
      for (int i = 0; i < 11; ++i) fields >> skipped;
      double user = 0;
      double system = 0;
      fields >> user >> system;
      u.server_s += (user + system) / tick;
    }
    std::istringstream cpu(read("/proc/stat"));
    std::string name;
    double user, nice, system, idle, iowait, irq, softirq;
    cpu >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq;
    u.machine_s = (user + nice + system + irq + softirq) / tick;
    rusage self;
    getrusage(RUSAGE_SELF, &self);
    u.self_s = static_cast<double>(self.ru_utime.tv_sec + self.ru_stime.tv_sec) +
               static_cast<double>(self.ru_utime.tv_usec + self.ru_stime.tv_usec) / 1e6;
    return u;
  }
  long rss_kb() const {
    long sum = 0;
    for (int pid : pids_) {
      std::string status = read("/proc/" + std::to_string(pid) + "/status");
      size_t at = status.find("VmRSS:");
      if (at != std::string::npos) sum += std::atol(status.c_str() + at + 6);
    }
    return sum;
  }
  void wait_for_quiet(double seconds_max) const {
    constexpr double kCoresQuiet = 0.25;
    auto end = Clock::now() + std::chrono::duration<double>(seconds_max);
    while (Clock::now() < end) {
      double before = usage().machine_s;
      auto start = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      double took = std::chrono::duration<double>(Clock::now() - start).count();
      if ((usage().machine_s - before) / took < kCoresQuiet) return;
    }
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<int> pids_;
};

struct Options {
  std::string host = "127.0.0.1";
  uint16_t port = 80;
  std::string path = "/";
  std::string label;
  size_t connections = 1;
  uint64_t requests_max = UINT64_MAX;
  double seconds = 0;
  uint64_t mod = UINT64_MAX;
  uint64_t seed = 1;
  double quiet_s = 0;
  double limit_s = 300;
  std::vector<int> pids;
};

void parse_url(std::string_view url, Options& o) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) die("the URL does not begin with http://");
  url.remove_prefix(kScheme.size());
  size_t slash = url.find('/');
  std::string authority(url.substr(0, slash));
  if (slash != std::string_view::npos) o.path = url.substr(slash);
  size_t colon = authority.find(':');
  if (colon != std::string::npos)
    o.port = static_cast<uint16_t>(std::atoi(authority.c_str() + colon + 1));
  o.host = authority.substr(0, colon);
  if (o.host == "localhost") o.host = "127.0.0.1";
  if (!o.host.starts_with("127.")) die("a target that is not loopback is refused: " + o.host);
}

Options parse(int argc, char** argv) {
  Options o;
  bool bounded = false;
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    if (++i == argc) die("missing value of " + std::string(name));
    const char* value = argv[i];
    if (name == "--url") {
      parse_url(value, o);
    } else if (name == "-c") {
      o.connections = std::strtoull(value, nullptr, 10);
    } else if (name == "-n") {
      o.requests_max = std::strtoull(value, nullptr, 10);
      bounded = true;
    } else if (name == "-d") {
      o.seconds = std::atof(value);
      bounded = bounded || o.seconds > 0;
    } else if (name == "--mod") {
      o.mod = std::max<uint64_t>(1, std::strtoull(value, nullptr, 10));
    } else if (name == "--seed") {
      o.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--label") {
      o.label = value;
    } else if (name == "--quiet") {
      o.quiet_s = std::atof(value);
    } else if (name == "--limit") {
      o.limit_s = std::atof(value);
    } else if (name == "--pid") {
      std::istringstream list(value);
      for (std::string pid; std::getline(list, pid, ',');) o.pids.push_back(std::atoi(pid.c_str()));
    } else {
      die("unknown option " + std::string(name));
    }
  }
  if (!bounded) die("-n or -d bounds the run");
  return o;
}

struct Connection {
  int fd = -1;
  std::string out;
  size_t sent = 0;
  std::string in;
  size_t head_bytes = 0;  // 0: the head is not complete
  size_t body_bytes = 0;
  bool chunked = false;
  bool closes = false;
  int status = 0;
  bool busy = false;
  Clock::time_point began;
};

class Load {
 public:
  explicit Load(const Options& o)
      : options_(o), meter_(o.pids), random_(o.seed), connections_(o.connections) {}
  int run();

 private:
  bool may_send() const { return issued_ < options_.requests_max && Clock::now() < end_; }
  void open(size_t i);
  void send_request(Connection& c);
  void flush(size_t i);
  void readable(size_t i);
  bool complete(Connection& c);
  void answered(size_t i);
  void broke(size_t i);
  void print(double seconds, const Usage& used, long rss_before, long rss_after) const;

  const Options& options_;
  Meter meter_;
  std::mt19937_64 random_;
  std::vector<Connection> connections_;
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  Clock::time_point end_ = Clock::time_point::max();
  uint64_t issued_ = 0;
  size_t active_ = 0;
  uint64_t errors_ = 0;
  uint64_t not_2xx_ = 0;
  uint64_t bytes_ = 0;
  long rss_peak_kb_ = 0;
  std::string first_error_;
  Histogram latencies_;
};

void Load::open(size_t i) {
  Connection& c = connections_[i];
  if (c.fd >= 0) close(c.fd);
  c.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c.fd < 0) die(std::string("socket: ") + std::strerror(errno));
  int on = 1;
  setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(options_.port);
  inet_pton(AF_INET, options_.host.c_str(), &to.sin_addr);
  if (connect(c.fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) {
    die(std::string("connect: ") + std::strerror(errno));
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  event.data.u64 = i;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, c.fd, &event);
}

void Load::send_request(Connection& c) {
  std::string path;
  std::string_view rest = options_.path;
  for (size_t at; (at = rest.find('{')) != std::string_view::npos && at + 2 < rest.size();) {
    path += rest.substr(0, at);
    uint64_t n = rest[at + 1] == 'r' ? random_() : issued_;
    path += std::to_string(n % options_.mod);
    rest.remove_prefix(at + 3);
  }
  path += rest;
  c.out = "GET " + path + " HTTP/1.1\r\nHost: " + options_.host + ":" +
          std::to_string(options_.port) + "\r\n\r\n";
  c.sent = 0;
  c.in.clear();
  c.head_bytes = 0;
  c.busy = true;
  c.began = Clock::now();
  ++issued_;
  ++active_;
}

void Load::flush(size_t i) {
  Connection& c = connections_[i];
  while (c.sent < c.out.size()) {
    ssize_t n = send(c.fd, c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
    if (n <= 0) return;  // a broken connection shows when it is read
    c.sent += static_cast<size_t>(n);
  }
}

bool Load::complete(Connection& c) {
  if (c.head_bytes == 0) {
    size_t end = c.in.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    c.head_bytes = end + 4;
    c.status = std::atoi(c.in.c_str() + 9);
    std::string head = c.in.substr(0, end);
    std::transform(head.begin(), head.end(), head.begin(),
                   [](unsigned char b) { return std::tolower(b); });
    size_t length = head.find("\r\ncontent-length:");
    c.body_bytes =
        length == std::string::npos ? 0 : std::strtoull(head.c_str() + length + 17, nullptr, 10);
    c.chunked = head.find("\r\ntransfer-encoding: chunked") != std::string::npos;
    c.closes = head.find("\r\nconnection: close") != std::string::npos;
  }
  if (c.chunked) return c.in.size() >= c.head_bytes + 5 && c.in.ends_with("0\r\n\r\n");
  return c.in.size() >= c.head_bytes + c.body_bytes;
}

void Load::answered(size_t i) {
  Connection& c = connections_[i];
  latencies_.add(Clock::now() - c.began);
  bytes_ += c.in.size();
  c.busy = false;
  --active_;
  if (c.status < 200 || c.status > 299) {
    ++not_2xx_;
    if (first_error_.empty())
      first_error_ = std::to_string(c.status) + " " + c.in.substr(c.head_bytes, 120);
  }
  if (!may_send()) return;
  if (c.closes) open(i);
  send_request(c);
  flush(i);
}

void Load::broke(size_t i) {
  constexpr uint64_t kErrorsMax = 100;
  Connection& c = connections_[i];
  if (!c.busy) return;
  ++errors_;
  --active_;
  c.busy = false;
  if (first_error_.empty()) first_error_ = "connection closed";
  if (errors_ >= kErrorsMax || !may_send()) return;
  open(i);
  send_request(c);
}

void Load::readable(size_t i) {
  Connection& c = connections_[i];
  char buffer[65536];
  for (;;) {
    ssize_t n = recv(c.fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return broke(i);
    c.in.append(buffer, static_cast<size_t>(n));
    if (c.busy && complete(c)) return answered(i);
  }
}

int Load::run() {
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (options_.quiet_s > 0) meter_.wait_for_quiet(options_.quiet_s);

  auto to_clock = [](double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  };
  long rss_before = meter_.rss_kb();
  rss_peak_kb_ = rss_before;
  Usage before = meter_.usage();
  Clock::time_point begin = Clock::now();
  if (options_.seconds > 0) end_ = begin + to_clock(options_.seconds);
  Clock::time_point limit = begin + to_clock(options_.limit_s);
  Clock::time_point next_sample = begin;
  for (size_t i = 0; i < connections_.size(); ++i) {
    open(i);
    if (may_send()) send_request(connections_[i]);
  }
  epoll_event events[512];
  while (active_ > 0) {
    int n = epoll_wait(epoll_, events, 512, 100);
    Clock::time_point now = Clock::now();
    if (now > limit) {
      errors_ += active_;
      first_error_ = "time limit";
      break;
    }
    if (meter_.watching() && now >= next_sample) {
      rss_peak_kb_ = std::max(rss_peak_kb_, meter_.rss_kb());
      next_sample = now + std::chrono::milliseconds(50);
    }
    for (int k = 0; k < n; ++k) {
      size_t i = events[k].data.u64;
      if (events[k].events & EPOLLOUT) flush(i);
      if (events[k].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) readable(i);
    }
  }
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Usage after = meter_.usage();
  Usage used{after.server_s - before.server_s, after.machine_s - before.machine_s,
             after.self_s - before.self_s};
  print(seconds, used, rss_before, meter_.rss_kb());
  return errors_ > 0 || not_2xx_ > 0 ? 1 : 0;
}

void Load::print(double seconds, const Usage& used, long rss_before, long rss_after) const {
  double n = static_cast<double>(latencies_.count());
  std::printf(
      "{\"label\":\"%s\",\"path\":\"%s\",\"conns\":%zu,\"requests\":%.0f,\"secs\":%.3f,\"rps\":%."
      "0f",
      options_.label.c_str(), options_.path.c_str(), options_.connections, n, seconds, n / seconds);
  std::printf(",\"mean_us\":%.1f", latencies_.mean_us());
  for (auto [name, p] : {std::pair{"p50", 50.0}, {"p90", 90.0}, {"p99", 99.0}, {"p999", 99.9}}) {
    std::printf(",\"%s_us\":%.1f", name, latencies_.percentile_us(p));
  }
  std::printf(
      ",\"max_us\":%.1f,\"errors\":%lu,\"non2xx\":%lu,\"resp_bytes\":%lu,\"client_cores\":%.2f",
      latencies_.max_us(), errors_, not_2xx_, bytes_, used.self_s / seconds);
  if (meter_.watching()) {
    double other = std::max(0.0, used.machine_s - used.self_s - used.server_s);
    std::printf(",\"other_cores\":%.2f,\"server_cpu_us_per_req\":%.2f,\"server_cores\":%.2f",
                other / seconds, n > 0 ? used.server_s * 1e6 / n : 0.0, used.server_s / seconds);
    std::printf(",\"rss_before_kb\":%ld,\"rss_after_kb\":%ld,\"rss_peak_kb\":%ld", rss_before,
                rss_after, std::max(rss_peak_kb_, rss_after));
  }
  if (!first_error_.empty()) {
    std::string safe = first_error_;
    for (char& ch : safe) {
      if (ch == '"' || ch == '\\' || static_cast<unsigned char>(ch) < 32) ch = ' ';
    }
    std::printf(",\"first_error\":\"%s\"", safe.c_str());
  }
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  return Load(options).run();
}
