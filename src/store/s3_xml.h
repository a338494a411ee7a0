// The XML that S3 answers with: a small strict parser, bounded in depth and size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace celld {

struct XmlElement {
  std::string name;  // without namespace prefix
  std::string text;  // of this element alone, entities resolved; blanks kept
  std::vector<XmlElement> children;

  // The first child of that name, or null.
  const XmlElement* child(std::string_view child_name) const;
  // Its text, or "".
  std::string_view child_text(std::string_view child_name) const;
};

// The root element. kCorrupt with the byte where it went wrong: not well formed, a DOCTYPE or
// CDATA, an unknown entity, deeper than 16 elements, more than 100,000 of them.
Result<XmlElement> parse_xml(std::string_view text);

}  // namespace celld
