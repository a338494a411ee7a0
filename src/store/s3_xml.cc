#include "store/s3_xml.h"

#include <charconv>
#include <cstdint>

namespace celld {

namespace {

constexpr int kDepthMax = 16;
constexpr size_t kElementsMax = 100'000;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool name_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<XmlElement> run() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    TRY(skip_misc());
    if (!take("<")) return bad("no root element");
    XmlElement root;
    TRY(element(root, 1));
    TRY(skip_misc());
    if (at_ != text_.size()) return bad("something follows the root element");
    return root;
  }

 private:
  Unexpected bad(std::string_view what) const {
    return fail(Error::corrupt("XML: " + std::string(what) + " at byte " + std::to_string(at_)));
  }

  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void skip_blanks() {
    while (at_ < text_.size() && blank(text_[at_])) ++at_;
  }

  Result<void> skip_past(std::string_view end, std::string_view what) {
    size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return bad(what);
    at_ = found + end.size();
    return {};
  }

  // Blanks, comments and processing instructions.
  Result<void> skip_misc() {
    while (true) {
      skip_blanks();
      if (take("<?")) {
        TRY(skip_past("?>", "unfinished processing instruction"));
      } else if (take("<!--")) {
        TRY(skip_past("-->", "unfinished comment"));
      } else {
        return {};
      }
    }
  }

  Result<std::string_view> name() {
    size_t start = at_;
    while (at_ < text_.size() && name_char(text_[at_])) ++at_;
    if (at_ == start) return bad("a name is missing");
    return text_.substr(start, at_ - start);
  }

  // After "<".
  Result<void> element(XmlElement& out, int depth) {
    if (depth > kDepthMax) return bad("too deep");
    if (++elements_ > kElementsMax) return bad("too many elements");
    TRY_ASSIGN(std::string_view full_name, name());
    out.name = full_name.substr(full_name.rfind(':') + 1);
    while (true) {
      size_t before = at_;
      skip_blanks();
      if (take("/>")) return {};
      if (take(">")) break;
      if (before == at_) return bad("malformed tag");
      TRY(attribute());
    }
    while (true) {
      if (at_ >= text_.size()) return bad("unfinished element");
      if (take("</")) {
        TRY_ASSIGN(std::string_view closing, name());
        if (closing != full_name) return bad("mismatched end tag");
        skip_blanks();
        if (!take(">")) return bad("malformed end tag");
        return {};
      }
      if (take("<!--")) {
        TRY(skip_past("-->", "unfinished comment"));
      } else if (take("<?")) {
        TRY(skip_past("?>", "unfinished processing instruction"));
      } else if (take("<")) {
        out.children.emplace_back();
        TRY(element(out.children.back(), depth + 1));
      } else if (take("&")) {
        TRY(entity(out.text));
      } else {
        if (static_cast<unsigned char>(text_[at_]) < 0x20 && !blank(text_[at_])) {
          return bad("control character");
        }
        out.text += text_[at_++];
      }
    }
  }

  Result<void> attribute() {
    TRY(name());
    skip_blanks();
    if (!take("=")) return bad("attribute without a value");
    skip_blanks();
    char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '"' && quote != '\'') return bad("attribute value without quotes");
    ++at_;
    return skip_past(std::string_view(&quote, 1), "unfinished attribute");
  }

  // After "&".
  Result<void> entity(std::string& out) {
    size_t end = text_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > 10) return bad("unfinished entity");
    std::string_view body = text_.substr(at_, end - at_);
    if (body == "amp") {
      out += '&';
    } else if (body == "lt") {
      out += '<';
    } else if (body == "gt") {
      out += '>';
    } else if (body == "quot") {
      out += '"';
    } else if (body == "apos") {
      out += '\'';
    } else if (body.starts_with('#')) {
      bool hex = body.starts_with("#x");
      std::string_view digits = body.substr(hex ? 2 : 1);
      uint32_t code = 0;
      auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
      bool whole = error == std::errc() && stop == digits.data() + digits.size();
      if (!whole || code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return bad("impossible character reference");
      }
      append_utf8(out, code);
    } else {
      return bad("unknown entity");
    }
    at_ = end + 1;
    return {};
  }

  const std::string_view text_;
  size_t at_ = 0;
  size_t elements_ = 0;
};

}  // namespace

const XmlElement* XmlElement::child(std::string_view child_name) const {
  for (const auto& c : children) {
    if (c.name == child_name) return &c;
  }
  return nullptr;
}

std::string_view XmlElement::child_text(std::string_view child_name) const {
  const XmlElement* found = child(child_name);
  return found != nullptr ? std::string_view(found->text) : std::string_view();
}

Result<XmlElement> parse_xml(std::string_view text) { return Parser(text).run(); }

}  // namespace celld
