#include "js/cell.h"

#include <chrono>
#include <utility>

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
