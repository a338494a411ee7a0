#include "deploy/source_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <limits>

namespace celld {
namespace {

namespace json = boost::json;

constexpr size_t kSegmentsMax = 8'000'000;
constexpr size_t kLinesMax = 8'000'000;
constexpr size_t kStackBytesMax = 64 << 10;

constexpr std::array<int8_t, 256> base64_values() {
  std::array<int8_t, 256> out{};
  for (auto& v : out) v = -1;
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) {
    out[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return out;
}
constexpr auto kBase64 = base64_values();

// One base64 VLQ number (ECMA-426): five bits a digit, least significant first, the lowest bit is the
// sign. Nothing when it is malformed or beyond 32 bits.
std::optional<int64_t> read_vlq(std::string_view text, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 5) {
    if (at >= text.size() || shift > 30) return std::nullopt;
    int digit = kBase64[static_cast<unsigned char>(text[at])];
    if (digit < 0) return std::nullopt;
    ++at;
    value |= static_cast<uint64_t>(digit & 31) << shift;
    if ((digit & 32) == 0) break;
  }
  auto magnitude = static_cast<int64_t>(value >> 1);
  if (magnitude > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return (value & 1) != 0 ? -magnitude : magnitude;
}

std::vector<std::string> texts(const json::value* list) {
  std::vector<std::string> out;
  if (list == nullptr || !list->is_array()) return out;
  for (const auto& v : list->get_array()) {
    out.emplace_back(v.is_string() ? std::string_view(v.get_string()) : std::string_view());
  }
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A module's place within a stack trace: `file`:`line`:`column`.
struct Frame {
  size_t begin = 0;  // of the file's name in the text
  size_t end = 0;    // past the column
  std::string_view file;
  uint32_t line = 0;
  uint32_t column = 0;
};

// Reads ":<digits>" that ends at `end`; moves `end` before it.
std::optional<uint32_t> number_before(std::string_view text, size_t& end) {
  size_t at = end;
  while (at > 0 && is_digit(text[at - 1])) --at;
  if (at == end || at == 0 || text[at - 1] != ':') return std::nullopt;
  uint32_t value = 0;
  auto [stop, ec] = std::from_chars(text.data() + at, text.data() + end, value);
  if (ec != std::errc() || stop != text.data() + end) return std::nullopt;
  end = at - 1;
  return value;
}

// The place in one line "    at f (index.js:1:2)" or "    at index.js:1:2".
std::optional<Frame> find_frame(std::string_view line) {
  size_t at = line.find("at ");
  if (at == line.npos || line.find_first_not_of(" \t") != at) return std::nullopt;
  Frame frame;
  size_t end = line.size();
  while (end > 0 && (line[end - 1] == ')' || line[end - 1] == ' ' || line[end - 1] == '\r')) --end;
  frame.end = end;
  auto column = number_before(line, end);
  if (!column) return std::nullopt;
  auto row = number_before(line, end);
  if (!row) return std::nullopt;
  size_t open = line.rfind('(', end);
  if (open != line.npos && open > at) {
    frame.begin = open + 1;
  } else {
    frame.begin = at + 3;
    if (line.substr(frame.begin).starts_with("async ")) frame.begin += 6;
  }
  if (frame.begin >= end) return std::nullopt;
  frame.file = line.substr(frame.begin, end - frame.begin);
  frame.line = *row;
  frame.column = *column;
  return frame;
}

const SourceMap* map_of(std::string_view file, const SourceMaps& maps) {
  if (auto exact = maps.find(file); exact != maps.end()) return exact->second.get();
  for (const auto& [name, map] : maps) {
    if (file.size() > name.size() && file.ends_with(name) &&
        file[file.size() - name.size() - 1] == '/') {
      return map.get();
    }
  }
  return nullptr;
}

}  // namespace

Result<SourceMap> SourceMap::parse(std::string_view text) {
  if (text.size() > kSourceMapBytesMax) {
    return fail(Error::invalid(fmt::format("source map: more than {} bytes", kSourceMapBytesMax)));
  }
  json::error_code ec;
  json::value root = json::parse(text, ec);
  const json::object* map = ec ? nullptr : root.if_object();
  if (map == nullptr) return fail(Error::invalid("source map: not a JSON object"));
  if (map->contains("sections")) {
    return fail(Error::unsupported("source map: maps with sections are not supported yet"));
  }
  const json::value* version = map->if_contains("version");
  if (version == nullptr || !version->is_int64() || version->get_int64() != 3) {
    return fail(Error::invalid("source map: not of version 3"));
  }
  const json::value* mappings = map->if_contains("mappings");
  if (mappings == nullptr || !mappings->is_string()) {
    return fail(Error::invalid("source map: no mappings"));
  }
  SourceMap out;
  out.sources_ = texts(map->if_contains("sources"));
  out.names_ = texts(map->if_contains("names"));
  if (auto* base = map->if_contains("sourceRoot"); base != nullptr && base->is_string()) {
    std::string prefix(std::string_view(base->get_string()));
    if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
    for (auto& s : out.sources_) s.insert(0, prefix);
  }
  TRY(out.decode_mappings(mappings->get_string()));
  return out;
}

Result<void> SourceMap::decode_mappings(std::string_view text) {
  auto malformed = [&](size_t at) {
    return fail(Error::invalid(fmt::format("source map: malformed mappings at offset {}", at)));
  };
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  int64_t column = 0, source = 0, line = 0, source_column = 0, name = 0;
  size_t at = 0;
  while (true) {
    if (at >= text.size() || text[at] == ';') {
      if (line_ends_.size() >= kLinesMax) {
        return fail(Error::overloaded("source map: too many lines"));
      }
      line_ends_.push_back(static_cast<uint32_t>(segments_.size()));
      column = 0;
      if (at >= text.size()) break;
      ++at;
      continue;
    }
    if (text[at] == ',') {
      ++at;
      continue;
    }
    if (segments_.size() >= kSegmentsMax) {
      return fail(Error::overloaded("source map: too many segments"));
    }
    int64_t fields[5];
    int count = 0;
    while (at < text.size() && text[at] != ',' && text[at] != ';') {
      auto value = read_vlq(text, at);
      if (!value || count == 5) return malformed(at);
      fields[count++] = *value;
    }
    if (count != 1 && count != 4 && count != 5) return malformed(at);
    Segment segment;
    column += fields[0];
    if (column < 0 || column > kMax) return malformed(at);
    segment.column = static_cast<uint32_t>(column);
    if (count >= 4) {
      source += fields[1];
      line += fields[2];
      source_column += fields[3];
      if (source < 0 || source >= static_cast<int64_t>(sources_.size()) || line < 0 ||
          line >= kMax || source_column < 0 || source_column >= kMax) {
        return malformed(at);
      }
      segment.source = static_cast<int32_t>(source);
      segment.source_line = static_cast<uint32_t>(line);
      segment.source_column = static_cast<uint32_t>(source_column);
    }
    if (count == 5) {
      name += fields[4];
      if (name < 0 || name >= static_cast<int64_t>(names_.size())) return malformed(at);
      segment.name = static_cast<int32_t>(name);
    }
    segments_.push_back(segment);
  }
  // Columns ascend within a line; the format does not insist.
  uint32_t begin = 0;
  for (uint32_t end : line_ends_) {
    std::stable_sort(segments_.begin() + begin, segments_.begin() + end,
                     [](const Segment& a, const Segment& b) { return a.column < b.column; });
    begin = end;
  }
  segments_.shrink_to_fit();
  return {};
}

std::optional<SourcePlace> SourceMap::find(uint32_t line, uint32_t column) const {
  if (line == 0 || column == 0 || line > line_ends_.size()) return std::nullopt;
  auto begin = segments_.begin() + (line == 1 ? 0 : line_ends_[line - 2]);
  auto end = segments_.begin() + line_ends_[line - 1];
  auto after = std::upper_bound(begin, end, column - 1,
                                [](uint32_t c, const Segment& s) { return c < s.column; });
  if (after == begin) return std::nullopt;
  const Segment& segment = *std::prev(after);
  if (segment.source < 0) return std::nullopt;
  SourcePlace out;
  out.source = sources_[static_cast<size_t>(segment.source)];
  if (segment.name >= 0) out.name = names_[static_cast<size_t>(segment.name)];
  out.line = segment.source_line + 1;
  out.column = segment.source_column + 1;
  return out;
}

std::string remap_stack(std::string_view stack, const SourceMaps& maps) {
  if (stack.size() > kStackBytesMax || maps.empty()) return std::string(stack);
  std::string out;
  while (true) {
    size_t newline = stack.find('\n');
    std::string_view line = stack.substr(0, newline);
    auto frame = find_frame(line);
    const SourceMap* map = frame ? map_of(frame->file, maps) : nullptr;
    auto place = map ? map->find(frame->line, frame->column) : std::nullopt;
    if (place) {
      out += line.substr(0, frame->begin);
      out += fmt::format("{}:{}:{}", place->source, place->line, place->column);
      out += line.substr(frame->end);
    } else {
      out += line;
    }
    if (newline == stack.npos) return out;
    out += '\n';
    stack.remove_prefix(newline + 1);
  }
}

}  // namespace celld
