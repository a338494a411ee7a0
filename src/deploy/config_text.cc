#include "deploy/config_text.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <toml++/toml.h>

namespace celld {
namespace {

namespace json = boost::json;

constexpr int kDepthMax = 32;

int line_at(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + offset, '\n'));
}

// Walks JSON that is known to be well formed and notes where keys and elements begin.
class LineScanner {
 public:
  LineScanner(std::string_view text, ConfigTree& tree) : text_(text), tree_(tree) {}

  void scan() { value(""); }
  // The first key that an object has twice: parsers disagree about which one counts.
  struct Duplicate {
    int line;
    std::string what;
  };
  const std::optional<Duplicate>& duplicate() const { return duplicate_; }

 private:
  bool more() const { return at_ < text_.size(); }

  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }

  void skip_blank() {
    while (more()) {
      char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        advance();
      } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
        while (more() && text_[at_] != '\n') advance();
      } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '*') {
        at_ += 2;
        while (more() && !text_.substr(at_).starts_with("*/")) advance();
        at_ = std::min(at_ + 2, text_.size());
      } else {
        return;
      }
    }
  }

  std::string_view quoted() {
    size_t begin = ++at_;
    while (more() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    auto out = text_.substr(begin, at_ - begin);
    if (more()) ++at_;
    return out;
  }

  static std::string unescaped(std::string_view key) {
    if (!key.contains('\\')) return std::string(key);
    json::error_code ec;
    json::value parsed = json::parse(fmt::format("\"{}\"", key), ec);
    return ec || !parsed.is_string() ? std::string(key) : std::string(parsed.get_string());
  }

  void value(const std::string& path) {
    skip_blank();
    if (!more()) return;
    if (!path.empty()) tree_.lines.try_emplace(path, line_);
    switch (text_[at_]) {
      case '{': return members(path);
      case '[': return elements(path);
      case '"': quoted(); return;
      default:
        while (more() && !std::string_view(",]} \t\r\n/").contains(text_[at_])) ++at_;
    }
  }

  void members(const std::string& path) {
    ++at_;
    std::map<std::string, int> seen;
    while (true) {
      skip_blank();
      if (!more()) return;
      if (text_[at_] == ',') {
        ++at_;
      } else if (text_[at_] == '"') {
        int line = line_;
        auto key = quoted();
        auto [first, added] = seen.try_emplace(unescaped(key), line);
        if (!added && !duplicate_) {
          duplicate_ = Duplicate{line, fmt::format("key '{}'{} is there twice, first in line {}", first->first,
                                                   path.empty() ? "" : fmt::format(" of '{}'", path), first->second)};
        }
        std::string child = path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
        tree_.lines.insert_or_assign(child, line);
        skip_blank();
        if (more()) ++at_;  // the colon
        value(child);
      } else {
        ++at_;
        return;
      }
    }
  }

  void elements(const std::string& path) {
    ++at_;
    for (size_t index = 0;;) {
      skip_blank();
      if (!more()) return;
      if (text_[at_] == ',') {
        ++at_;
      } else if (text_[at_] == ']') {
        ++at_;
        return;
      } else {
        size_t before = at_;
        value(fmt::format("{}[{}]", path, index++));
        if (at_ == before) return;
      }
    }
  }

  std::string_view text_;
  ConfigTree& tree_;
  size_t at_ = 0;
  int line_ = 1;
  std::optional<Duplicate> duplicate_;
};

Result<ConfigTree> parse_jsonc(std::string_view text, std::string_view file) {
  json::parse_options options;
  options.allow_comments = true;
  options.allow_trailing_commas = true;
  options.max_depth = kDepthMax;
  json::stream_parser parser({}, options);
  json::error_code ec;
  size_t read = parser.write_some(text.data(), text.size(), ec);
  if (!ec && read < text.size()) {
    // Blanks and comments may follow the value; the parser leaves some of them unread.
    auto rest = text.substr(read);
    while (!rest.empty()) {
      if (std::string_view(" \t\r\n").contains(rest[0])) {
        rest.remove_prefix(1);
      } else if (rest.starts_with("//")) {
        rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
      } else if (rest.starts_with("/*") && rest.find("*/", 2) != rest.npos) {
        rest.remove_prefix(rest.find("*/", 2) + 2);
      } else {
        return fail(Error::invalid(fmt::format("{}:{}: unexpected text after the end of the object",
                                               file, line_at(text, text.size() - rest.size()))));
      }
    }
  }
  if (!ec) parser.finish(ec);
  if (ec) {
    return fail(Error::invalid(
        fmt::format("{}:{}: not valid JSON: {}", file, line_at(text, read), ec.message())));
  }
  json::value root = parser.release();
  if (!root.is_object()) {
    return fail(Error::invalid(fmt::format("{}:1: the file must hold one JSON object", file)));
  }
  ConfigTree tree;
  tree.root = std::move(root.as_object());
  LineScanner scanner(text, tree);
  scanner.scan();
  if (const auto& duplicate = scanner.duplicate()) {
    return fail(Error::invalid(fmt::format("{}:{}: {}", file, duplicate->line, duplicate->what)));
  }
  return tree;
}

class TomlConverter {
 public:
  TomlConverter(ConfigTree& tree, std::string_view file) : tree_(tree), file_(file) {}

  Result<json::object> table(const toml::table& in, const std::string& path, int depth) {
    json::object out;
    for (auto&& [key, node] : in) {
      std::string child = path.empty() ? std::string(key.str())
                                       : fmt::format("{}.{}", path, std::string_view(key.str()));
      tree_.lines.insert_or_assign(child, static_cast<int>(key.source().begin.line));
      auto converted = value(node, child, depth + 1);
      if (!converted) return fail(std::move(converted).error());
      out[std::string_view(key.str())] = std::move(*converted);
    }
    return out;
  }

 private:
  Result<json::value> value(const toml::node& node, const std::string& path, int depth) {
    int line = static_cast<int>(node.source().begin.line);
    if (depth > kDepthMax) {
      return fail(Error::invalid(fmt::format("{}:{}: nested too deeply", file_, line)));
    }
    tree_.lines.try_emplace(path, line);
    if (auto* t = node.as_table()) {
      auto converted = table(*t, path, depth);
      if (!converted) return fail(std::move(converted).error());
      return json::value(std::move(*converted));
    }
    if (auto* a = node.as_array()) {
      json::array out;
      for (size_t i = 0; i < a->size(); ++i) {
        auto converted = value((*a)[i], fmt::format("{}[{}]", path, i), depth + 1);
        if (!converted) return converted;
        out.push_back(std::move(*converted));
      }
      return json::value(std::move(out));
    }
    if (auto* s = node.as_string()) return json::value(json::string(s->get()));
    if (auto* i = node.as_integer()) return json::value(i->get());
    if (auto* b = node.as_boolean()) return json::value(b->get());
    if (auto* f = node.as_floating_point(); f && std::isfinite(f->get())) {
      return json::value(f->get());
    }
    return fail(Error::invalid(fmt::format(
        "{}:{}: key '{}' has a value that JSON cannot express: write it as a string", file_, line,
        path)));
  }

  ConfigTree& tree_;
  std::string_view file_;
};

Result<ConfigTree> parse_toml(std::string_view text, std::string_view file) {
  try {
    toml::table parsed = toml::parse(text, file);
    ConfigTree tree;
    TRY_ASSIGN(tree.root, TomlConverter(tree, file).table(parsed, "", 0));
    return tree;
  } catch (const toml::parse_error& e) {
    return fail(Error::invalid(
        fmt::format("{}:{}: not valid TOML: {}", file, e.source().begin.line, e.description())));
  }
}

}  // namespace

Result<ConfigTree> parse_config_text(std::string_view text, ConfigFormat format,
                                     std::string_view file) {
  if (text.size() > kConfigBytesMax) {
    return fail(Error::invalid(
        fmt::format("{}: {} bytes, the limit is {}", file, text.size(), kConfigBytesMax)));
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return format == ConfigFormat::kJsonc ? parse_jsonc(text, file) : parse_toml(text, file);
}

}  // namespace celld
