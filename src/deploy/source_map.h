// Source maps, version 3: from a place in a bundle back to the file a person wrote.
//
// Pure; any thread. A parsed map is immutable and may be shared by threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace celld {

inline constexpr size_t kSourceMapBytesMax = 64 << 20;

// A place in a source file; both counted from 1, as V8 prints them.
struct SourcePlace {
  std::string_view source;  // lives as long as the map
  std::string_view name;    // of the function or variable there; empty when the map has none
  uint32_t line = 1;
  uint32_t column = 1;
};

class SourceMap {
 public:
  // kInvalid for anything that is not a map of version 3. Maps with "sections" are kUnsupported.
  // Segments beyond 8 million are kOverloaded. Costs 20 bytes of memory a segment.
  static Result<SourceMap> parse(std::string_view text);

  // What lies at `line` and `column` (from 1) of the generated file: the last mapping at or before
  // it on the same line. Nothing when there is none or it belongs to no source.
  std::optional<SourcePlace> find(uint32_t line, uint32_t column) const;

  const std::vector<std::string>& sources() const { return sources_; }

 private:
  struct Segment {
    uint32_t column = 0;
    int32_t source = -1;  // -1: generated code without a source
    uint32_t source_line = 0;
    uint32_t source_column = 0;
    int32_t name = -1;
  };
  Result<void> decode_mappings(std::string_view text);

  std::vector<std::string> sources_;
  std::vector<std::string> names_;
  std::vector<Segment> segments_;   // by line, then by column
  std::vector<uint32_t> line_ends_;  // index past the last segment of each line
};

// Source maps by the name of the module they belong to ("index.js").
using SourceMaps = std::map<std::string, std::shared_ptr<const SourceMap>, std::less<>>;

// `stack`, the text of an Error's stack as V8 writes it, with every place of a mapped module replaced
// by its original place: "at f (index.js:12:5)" becomes "at f (src/index.ts:3:9)". A module is
// recognised by its name, with or without "file://", "./" or folders before it. Text that is not
// understood stays as it is; beyond 64 KiB nothing is replaced.
std::string remap_stack(std::string_view stack, const SourceMaps& maps);

}  // namespace celld
