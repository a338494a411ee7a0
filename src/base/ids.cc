#include "base/ids.h"

#include <algorithm>

namespace celld {

namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::optional<CellId> parse_cell_id(std::string_view text) {
  if (text.empty() || text.size() > 255 || text == "." || text == "..") return std::nullopt;
  auto allowed = [](char c) {
    return is_alnum(c) || c == '_' || c == '.' || c == ':' || c == '$' || c == '-';
  };
  if (!std::all_of(text.begin(), text.end(), allowed)) return std::nullopt;
  return CellId(std::string(text));
}

std::optional<NodeId> parse_node_id(std::string_view text) {
  if (text.empty() || text.size() > 64) return std::nullopt;
  auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (!std::all_of(text.begin(), text.end(), allowed)) return std::nullopt;
  return NodeId(std::string(text));
}

}  // namespace celld
