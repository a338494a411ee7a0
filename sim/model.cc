#include "sim/model.h"

#include <algorithm>
#include <cstring>

#include "core/commit.h"
#include "ltx/ltx.h"

namespace celld::sim {

namespace {

bool is_zero(const PageRef& page) {
  if (!page) return true;
  const uint8_t* bytes = page.data();
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, kPageSize - 1) == 0;
}

uint64_t sum_of(Pgno pgno, const PageRef& page) { return page ? page_checksum(pgno, page.bytes()) : 0; }

std::string text_of(const StateRef& state) {
  if (!state) return "the empty database";
  return "TXID " + std::to_string(state->txid.value) + " of epoch " + std::to_string(state->epoch.value);
}

}  // namespace

uint64_t chained(uint64_t hash, uint64_t op) {
  TraceHash h;
  h.mix(hash);
  h.mix(op);
  return h.value() >> 2;  // fits SQLite's signed integers
}

bool Model::contains(StateRef state, const StateRef& older) {
  if (!older) return true;
  while (state && state->txid > older->txid) state = state->parent;
  return state == older;
}

StateRef Model::committed(const CellId& cell, const NodeId& node, Epoch epoch, StateRef parent,
                          std::span<const NumberedPage> pages, uint32_t page_count, std::optional<AlarmChange> alarm,
                          uint64_t op, const Content& content) {
  auto next = std::make_shared<State>();
  if (parent) {
    next->pages = parent->pages;
    next->sum = parent->sum;
    next->alarm = parent->alarm;
    next->alarm_by = parent->alarm_by;
    next->txid = parent->txid;
  }
  next->txid = next->txid.next();
  next->epoch = epoch;
  next->op = op;
  next->content = content;
  if (alarm) next->alarm = alarm->at, next->alarm_by = node;
  for (size_t i = page_count; i < next->pages.size(); ++i) {
    next->sum ^= sum_of(static_cast<Pgno>(i + 1), next->pages[i]);
  }
  next->pages.resize(page_count);
  for (const NumberedPage& page : pages) {
    if (page.pgno < 1 || page.pgno > page_count) {
      verdict_.broken("page-out-of-range", cell, "page " + std::to_string(page.pgno));
      continue;
    }
    PageRef& place = next->pages[page.pgno - 1];
    next->sum ^= sum_of(page.pgno, place);
    place = is_zero(page.page) ? PageRef() : page.page;
    next->sum ^= sum_of(page.pgno, place);
  }
  next->parent = std::move(parent);
  states_[cell].emplace(next->sum, next);
  ++commits;
  verdict_.note(node.value, cell.value, "commit " + text_of(next) + " op " + std::to_string(op));
  return next;
}

void Model::acknowledged(const CellId& cell, Epoch epoch, const NodeId& node, StateRef state) {
  auto [it, fresh] = acker_.try_emplace({cell, epoch}, node);
  if (it->second != node) {
    verdict_.broken(
        "two-acknowledgers", cell,
        node.value + " and " + it->second.value + " both acknowledge in epoch " + std::to_string(epoch.value));
  }
  Known& known = known_[cell];
  verdict_.note(node.value, cell.value, "acknowledges " + text_of(state));
  if (known.restored_epoch > epoch && !contains(known.restored, state)) {
    verdict_.broken("acknowledged-write-lost", cell,
                    node.value + " acknowledges " + text_of(state) + " after epoch " +
                        std::to_string(known.restored_epoch.value) + " was restored without it");
  }
  if (!known.acked || known.acked->txid < state->txid) {
    if (!contains(state, known.acked)) {
      verdict_.broken("acknowledged-write-lost", cell,
                      node.value + " acknowledges " + text_of(state) + ", which does not hold " +
                          text_of(known.acked) + " that was acknowledged before");
    }
    known.acked = std::move(state);
    known.acked_epoch = epoch;
  }
  ++acknowledgements;
}

StateRef Model::restored(const CellId& cell, const NodeId& node, const Activation& activation) {
  std::string where = node.value + " restores epoch " + std::to_string(activation.epoch.value) + " at TXID " +
                      std::to_string(activation.txid.value);
  verdict_.note(node.value, cell.value, where);
  ++restores;
  StateRef state;
  if (activation.txid == Txid(0)) {
    if (activation.image.page_count != 0) verdict_.broken("bytes-differ", cell, where + ": pages without a commit");
  } else {
    uint64_t sum = 0;
    std::vector<PageRef> pages(activation.image.page_count);
    for (const NumberedPage& page : activation.image.pages) {
      if (page.pgno < 1 || page.pgno > pages.size() || is_zero(page.page)) continue;
      pages[page.pgno - 1] = page.page;
      sum ^= sum_of(page.pgno, page.page);
    }
    auto [begin, end] = states_[cell].equal_range(sum);
    for (auto it = begin; it != end && !state; ++it) {
      const State& candidate = *it->second;
      if (candidate.txid != activation.txid || candidate.pages.size() != pages.size()) continue;
      bool equal = true;
      for (size_t i = 0; i < pages.size() && equal; ++i) {
        const PageRef& a = candidate.pages[i];
        const PageRef& b = pages[i];
        equal = a == b || (a && b && std::memcmp(a.data(), b.data(), kPageSize) == 0);
      }
      if (equal) state = it->second;
    }
    if (!state) {
      verdict_.broken("bytes-differ", cell, where + ": to something that was never committed");
      return nullptr;
    }
  }
  if (inquest_) inquest_->try_emplace(cell, state);
  Known& known = known_[cell];
  // An owner that was taken over and does not know it yet may look at what it had; nothing that
  // follows from that is ever acknowledged.
  bool overtaken = activation.epoch < known.acked_epoch;
  if (!overtaken && !contains(state, known.acked)) {
    verdict_.broken("acknowledged-write-lost", cell, where + "; acknowledged was " + text_of(known.acked));
  }
  if (activation.epoch >= known.restored_epoch) {
    known.restored_epoch = activation.epoch;
    known.restored = state;
  }
  return state;
}

bool Model::overtaken(const CellId& cell, Epoch epoch) const {
  auto it = known_.find(cell);
  return it != known_.end() && it->second.restored_epoch > epoch;
}

StateRef Model::found(const CellId& cell) const {
  auto it = inquest_->find(cell);
  if (it != inquest_->end()) return it->second;
  // Resident all the while. A commit that nobody heard of may have been restored and so count.
  StateRef acked = newest_acknowledged(cell), restored = last_restored(cell);
  return restored && (!acked || restored->txid > acked->txid) ? restored : acked;
}

StateRef Model::newest_acknowledged(const CellId& cell) const {
  auto it = known_.find(cell);
  return it == known_.end() ? nullptr : it->second.acked;
}

StateRef Model::last_restored(const CellId& cell) const {
  auto it = known_.find(cell);
  return it == known_.end() ? nullptr : it->second.restored;
}

}  // namespace celld::sim
