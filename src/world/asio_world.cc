#include "world/asio_world.h"

#include <sys/random.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <thread>
#include <unordered_map>

#include "base/check.h"
#include "world/work_pool.h"

namespace celld {

// All timers share one Asio timer, armed for the earliest of them.
struct AsioWorld::Timers {
  explicit Timers(boost::asio::io_context& io) : timer(io) {}

  boost::asio::steady_timer timer;
  std::map<std::pair<MonoTime, TimerId>, Callback> queue;
  std::unordered_map<TimerId, MonoTime> due;
  TimerId last_id = 0;
  std::optional<MonoTime> armed_for;
};

AsioWorld::AsioWorld(boost::asio::io_context& io)
    : io_(io), timers_(std::make_unique<Timers>(io)) {}

AsioWorld::~AsioWorld() = default;

MonoTime AsioWorld::now() {
  return MonoTime{std::chrono::steady_clock::now().time_since_epoch()};
}

WallMs AsioWorld::wall_now() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return WallMs{std::chrono::duration_cast<std::chrono::milliseconds>(since).count()};
}

void AsioWorld::random(std::span<uint8_t> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    ssize_t n = getrandom(out.data() + filled, out.size() - filled, 0);
    CHECK(n > 0) << "getrandom failed";
    filled += static_cast<size_t>(n);
  }
}

namespace {

// Arms the Asio timer for the head of the queue and runs what is due when it fires.
template <class Timers>
void arm(Timers& t, AsioWorld& world) {
  if (t.queue.empty()) return;
  MonoTime first = t.queue.begin()->first.first;
  if (t.armed_for && *t.armed_for <= first) return;
  t.armed_for = first;
  t.timer.expires_at(std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(first.since_start)));
  t.timer.async_wait([&t, &world](const boost::system::error_code& ec) {
    if (ec) return;
    t.armed_for.reset();
    MonoTime now = world.now();
    while (!t.queue.empty() && t.queue.begin()->first.first <= now) {
      auto node = t.queue.extract(t.queue.begin());
      t.due.erase(node.key().second);
      node.mapped()();
    }
    arm(t, world);
  });
}

}  // namespace

TimerId AsioWorld::call_at(MonoTime at, Callback callback) {
  TimerId id = ++timers_->last_id;
  timers_->queue.emplace(std::pair(at, id), std::move(callback));
  timers_->due.emplace(id, at);
  arm(*timers_, *this);
  return id;
}

void AsioWorld::cancel(TimerId timer) {
  auto it = timers_->due.find(timer);
  if (it == timers_->due.end()) return;
  timers_->queue.erase(std::pair(it->second, timer));
  timers_->due.erase(it);
}

void AsioWorld::post(Callback callback) { boost::asio::post(io_, std::move(callback)); }

void AsioWorld::post_from_any_thread(Callback callback) {
  boost::asio::post(io_, std::move(callback));
}

void AsioWorld::run_aside(Urgency urgency, Callback work, Callback done) {
  if (!aside_) aside_ = std::make_unique<WorkPool>(std::max(2u, std::thread::hardware_concurrency() / 2));
  // The io_context does not run dry while something is under way.
  auto guard = boost::asio::make_work_guard(io_);
  aside_->submit(urgency, [this, guard = std::move(guard), work = std::move(work),
                           done = std::move(done)]() mutable {
    work();
    work = nullptr;
    boost::asio::post(io_, std::move(done));
  });
}

}  // namespace celld
