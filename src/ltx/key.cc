// Names of LTX objects in the bucket.
#include "base/check.h"
#include "base/hex.h"
#include "ltx/ltx.h"

namespace celld {

std::string ltx_prefix(const CellId& cell) { return "cells/" + cell.value + "/ltx/"; }

std::string ltx_key(const CellId& cell, Epoch epoch, unsigned level, Txid min, Txid max) {
  CHECK(!cell.empty() && epoch.value >= 1) << cell << " epoch " << epoch;
  CHECK(level <= 0xffff && min.value >= 1 && min <= max) << level << " " << min << "-" << max;
  return ltx_prefix(cell) + "e" + std::to_string(epoch.value) + "/" + hex_fixed(level, 4) + "/" +
         hex_fixed(min.value, 16) + "-" + hex_fixed(max.value, 16) + ".ltx";
}

std::string ltx_key(const LtxName& name) {
  return ltx_key(name.cell, name.epoch, name.level, name.min, name.max);
}

std::optional<LtxName> parse_ltx_key(std::string_view key) {
  constexpr std::string_view kCells = "cells/";
  constexpr std::string_view kEpochs = "/ltx/e";
  constexpr size_t kFile = 4 + 1 + 16 + 1 + 16 + 4;  // <level>/<min>-<max>.ltx
  if (!key.starts_with(kCells)) return std::nullopt;
  key.remove_prefix(kCells.size());
  size_t cell_end = key.find('/');
  if (cell_end == key.npos) return std::nullopt;
  auto cell = parse_cell_id(key.substr(0, cell_end));
  key.remove_prefix(cell_end);
  if (!cell || !key.starts_with(kEpochs)) return std::nullopt;
  key.remove_prefix(kEpochs.size());
  size_t epoch_end = key.find('/');
  if (epoch_end == key.npos) return std::nullopt;
  auto epoch = parse_decimal(key.substr(0, epoch_end));
  key.remove_prefix(epoch_end + 1);
  if (!epoch || *epoch < 1 || *epoch > kCounterMax || key.size() != kFile) return std::nullopt;
  auto level = parse_hex_fixed(key.substr(0, 4), 4);
  auto min = parse_hex_fixed(key.substr(5, 16), 16);
  auto max = parse_hex_fixed(key.substr(22, 16), 16);
  if (!level || !min || !max || key[4] != '/' || key[21] != '-' || key.substr(38) != ".ltx") {
    return std::nullopt;
  }
  if (*min < 1 || *min > *max || *max > kCounterMax) return std::nullopt;
  return LtxName{*cell, Epoch(*epoch), static_cast<unsigned>(*level), Txid(*min), Txid(*max)};
}

}  // namespace celld
