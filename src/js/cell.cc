#include "js/cell.h"

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
    effect(nullptr);
    return;
  }
  gated_.push_back(Gated{committed, std::move(effect)});
}

void Cell::on_proven(Txid txid) {
  if (txid > proven) proven = txid;
  while (!gated_.empty() && gated_.front().position <= proven) {
    Effect effect = std::move(gated_.front().effect);
    gated_.pop_front();
    effect(nullptr);
  }
}

void Cell::fail_gate(const JsError& error) {
  auto gated = std::exchange(gated_, {});
  for (Gated& g : gated) g.effect(&error);
}

}  // namespace celld::js
