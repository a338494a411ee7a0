#include "js/cell.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace celld::js {

namespace {

std::string before_colon(const std::string& id) { return id.substr(0, id.find(':')); }
std::string after_colon(const std::string& id) {
  size_t colon = id.find(':');
  return colon == std::string::npos ? std::string() : id.substr(colon + 1);
}

}  // namespace

Cell::Cell(CellId cell_id)
    : id(std::move(cell_id)), class_name(before_colon(id.value)), hex(after_colon(id.value)) {}

Cell::~Cell() = default;

// --- the queue ---

namespace {

size_t bytes_of(const CellEvent& event) {
  struct Visitor {
    size_t operator()(const CellFetch& e) const {
      auto* blob = std::get_if<Blob>(&e.request.body);
      return e.request.url.size() + e.request.headers.size() + (blob ? blob->size() : 0);
    }
    size_t operator()(const CellRpc& e) const { return e.method.size() + e.arguments.size(); }
    size_t operator()(const CellAlarm&) const { return 0; }
  };
  return std::visit(Visitor(), event);
}

}  // namespace

bool Cell::enqueue(CellEvent event) {
  size_t bytes = bytes_of(event);
  if (waiting.size() + active.size() >= kEventsMax ||
      (!waiting.empty() && waiting_bytes_ + bytes > kWaitingBytesMax)) {
    fail_event(event, JsError{"Error", "Durable Object is overloaded. Too many requests queued.", {},
                              kOverloaded});
    return false;
  }
  waiting_bytes_ += bytes;
  waiting.push_back(std::move(event));
  return true;
}

CellEvent Cell::dequeue() {
  CHECK(!waiting.empty()) << id << " has no event that waits";
  CellEvent event = std::move(waiting.front());
  waiting.pop_front();
  waiting_bytes_ -= bytes_of(event);
  return event;
}

std::deque<CellEvent> Cell::take_waiting() {
  waiting_bytes_ = 0;
  return std::exchange(waiting, {});
}

// --- the input gate ---

void Cell::open_section(uint32_t section, TimerId limit) {
  sections_.push_back(Section{section, limit});
}

std::optional<TimerId> Cell::close_section(uint32_t section) {
  auto it = std::ranges::find(sections_, section, &Section::id);
  if (it == sections_.end()) return std::nullopt;
  TimerId limit = it->limit;
  if (it != sections_.begin()) ended_inside_.emplace(section, std::prev(it)->id);
  sections_.erase(it);
  if (sections_.empty()) ended_inside_.clear();
  return limit;
}

bool Cell::section_open(uint32_t section) const {
  return std::ranges::find(sections_, section, &Section::id) != sections_.end();
}

uint32_t Cell::open_ancestor(uint32_t section) const {
  for (auto it = ended_inside_.find(section); it != ended_inside_.end();
       it = ended_inside_.find(section)) {
    section = it->second;
  }
  return section;
}

bool Cell::admits(uint32_t section) const {
  if (must_wait()) return false;
  return sections_.empty() || sections_.back().id == open_ancestor(section);
}

void Cell::hold(uint32_t section, std::move_only_function<void()> run) {
  held_.push_back(Held{section, std::move(run)});
}

// Also what is admitted waits behind what was held before it.
bool Cell::holds_back(uint32_t section) const {
  if (!admits(section)) return true;
  return std::ranges::any_of(held_, [&](const Held& h) { return admits(h.section); });
}

std::move_only_function<void()> Cell::next_held() {
  auto it = std::ranges::find_if(held_, [&](const Held& h) { return admits(h.section); });
  if (it == held_.end()) return nullptr;
  auto run = std::move(it->run);
  held_.erase(it);
  return run;
}

std::vector<TimerId> Cell::reset_gate() {
  std::vector<TimerId> limits;
  for (const Section& s : sections_) limits.push_back(s.limit);
  sections_.clear();
  ended_inside_.clear();
  held_.clear();
  return limits;
}

// --- the output gate ---

void Cell::gate(Effect effect) {
  if (gated_.empty() && proven >= committed) {
    let_out(std::move(effect));
    return;
  }
  gated_.push_back(Gated{committed, std::move(effect)});
}

void Cell::on_proven(Txid txid) {
  if (txid > proven) proven = txid;
  while (!gated_.empty() && gated_.front().position <= proven) {
    Effect effect = std::move(gated_.front().effect);
    gated_.pop_front();
    let_out(std::move(effect));
  }
}

size_t Cell::expire_gate(MonoTime now, MonoTime before, const JsError& error) {
  for (auto it = gated_.rbegin(); it != gated_.rend() && it->since == MonoTime::max(); ++it) it->since = now;
  size_t expired = 0;
  while (!gated_.empty() && gated_.front().since <= before) {
    Effect effect = std::move(gated_.front().effect);
    gated_.pop_front();
    ++expired;
    effect(&error);
  }
  return expired;
}

bool Cell::has_authority() const {
  if (!authority_until_ns) return true;
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() <
         authority_until_ns->load(std::memory_order_acquire);
}

void Cell::let_out(Effect effect) {
  if (has_authority()) return effect(nullptr);
  const JsError lost{"Error", "Durable Object is unavailable: this node has lost its lease.", {},
                     kRetryable | kObjectReset};
  effect(&lost);
}

void Cell::fail_gate(const JsError& error) {
  auto gated = std::exchange(gated_, {});
  for (Gated& g : gated) g.effect(&error);
}

}  // namespace celld::js
