// The thread of a loop, and what another does that takes its place.
#include <pthread.h>

#include "node/loop.h"
#include "node/resident.h"

namespace celld {

namespace {

// How often somebody who waits for the end of a thread looks whether it was lost.
constexpr auto kLookWhileWaiting = std::chrono::milliseconds(20);

// What a lost thread may still touch, and what V8 would have to be asked for: kept to the end of the
// process.
struct Graveyard {
  std::mutex mutex;
  std::vector<std::unique_ptr<js::IsolateHost>> isolates;
  std::vector<std::unique_ptr<CellStorage>> storages;
};

Graveyard& graveyard() {
  static Graveyard* one = new Graveyard;
  return *one;
}

void bury(std::unique_ptr<js::IsolateHost> isolate) {
  Graveyard& g = graveyard();
  std::lock_guard lock(g.mutex);
  g.isolates.push_back(std::move(isolate));
}

void bury(std::unique_ptr<CellStorage> storage) {
  Graveyard& g = graveyard();
  std::lock_guard lock(g.mutex);
  g.storages.push_back(std::move(storage));
}

}  // namespace

void Loop::start() {
  thread_ = std::thread([this] { run(std::nullopt); });
}

void Loop::succeed(js::Tenure::Loss loss) {
  thread_.detach();
  thread_ = std::thread([this, loss] { run(loss); });
}

void Loop::run(std::optional<js::Tenure::Loss> after) {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  auto tenure = js::Tenure::begin([this](js::Tenure::Loss loss, const std::string& detail) {
    control_.thread_lost(*this, loss, detail);
  });
  {
    std::lock_guard lock(thread_mutex_);
    tenure_ = tenure;
  }
  if (after) {
    take_over(*after);
  } else {
    server_ = std::make_unique<HttpServer>(
        io_, options_.http, [this](std::shared_ptr<HttpExchange> e) { serve(std::move(e)); });
    fetch_client_ = std::make_unique<FetchClient>(io_);
    if (identity_) begin_peers();
  }
  tick();
  io_.run();
  // Everything of V8 ends on the thread it lived on.
  cells_.clear();
  fetches_.clear();
  old_.clear();
  current_.reset();
  server_.reset();
  internal_server_.reset();
  fetch_client_.reset();
  peers_.reset();
  tenure->end();
  std::lock_guard lock(thread_mutex_);
  ended_ = true;
  thread_ended_.notify_all();
}

void Loop::stop_thread() {
  post([this] {
    work_.reset();
    io_.stop();
  });
}

void Loop::join() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(thread_mutex_);
    while (!ended_ && !(tenure_ && tenure_->lost())) thread_ended_.wait_for(lock, kLookWhileWaiting);
    if (!ended_) {
      tenure_->forget();
      abandon_isolates(js::Tenure::Loss::kFatal);
      thread_.detach();
      return;
    }
  }
  thread_.join();
}

void Loop::abandon_isolates(js::Tenure::Loss loss) {
  auto unsound = [this](js::Cell& cell) {
    bury(std::move(cell.storage));
    cell.state = js::Cell::State::kLoading;
  };
  std::vector<std::unique_ptr<js::IsolateHost>> lost;
  if (current_) lost.push_back(std::move(current_));
  for (auto& [host, since] : old_) {
    if (host) lost.push_back(std::move(host));
  }
  old_.clear();
  for (auto& host : lost) {
    host->abandon(loss, unsound);
    bury(std::move(host));
  }
}

void Loop::take_over(js::Tenure::Loss loss) {
  world_.cancel(next_tick_);
  abandon_isolates(loss);
  server_->resume();
  if (internal_server_) internal_server_->resume();
  auto held = std::exchange(in_hand_, std::nullopt);
  if (held) (void)resident(held->first).cell.enqueue(std::move(held->second));
  auto loaded = std::exchange(loaded_, nullptr);
  auto making = std::exchange(making_, nullptr);
  if (loaded) {
    loaded(fail(Error::invalid("the start-up of the Worker does not end, or needs too much memory")));
  }
  if (stopping_) return stop_cells(std::exchange(cells_stopped_, nullptr));
  for (auto& [id, r] : cells_) {
    if (r->cell.state == js::Cell::State::kLoading && !r->activating) begin_activation(*r);
  }
  if (!code_) return;
  if (making == code_) {
    make_stand_in("its start-up does not end, or needs too much memory");
  } else {
    make_current();
  }
  for (auto& [id, r] : cells_) {
    if (!r->cell.waiting.empty()) post_pump(id);
  }
}

}  // namespace celld
