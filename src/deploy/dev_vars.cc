#include "deploy/dev_vars.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

namespace celld {
namespace {

constexpr size_t kBytesMax = 1 << 20;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

std::string expand_escapes(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 1 < s.size() && (s[i + 1] == 'n' || s[i + 1] == 'r')) {
      out += s[++i] == 'n' ? '\n' : '\r';
    } else {
      out += s[i];
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Var>> parse_dev_vars(std::string_view text, std::string_view file) {
  if (text.size() > kBytesMax) {
    return fail(Error::invalid(fmt::format("{}: larger than {} bytes", file, kBytesMax)));
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<Var> out;
  size_t at = 0;
  auto line_of = [&](size_t offset) {
    return 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n');
  };
  while (at < text.size()) {
    size_t begin = at;
    size_t end = std::min(text.find('\n', at), text.size());
    auto line = trim(text.substr(at, end - at));
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("export ")) line = trim(line.substr(7));
    size_t equals = line.find('=');
    auto name = trim(line.substr(0, std::min(equals, line.size())));
    if (equals == line.npos || !is_binding_name(name)) {
      return fail(Error::invalid(
          fmt::format("{}:{}: not of the form NAME=value", file, line_of(begin))));
    }
    auto value = trim(line.substr(equals + 1));
    std::string result;
    char quote = value.empty() ? '\0' : value[0];
    if (quote == '"' || quote == '\'' || quote == '`') {
      // The value may go on over the following lines, up to the closing quote.
      size_t open = static_cast<size_t>(value.data() - text.data());
      size_t close = open + 1;
      while (close < text.size() && text[close] != quote) close += text[close] == '\\' ? 2 : 1;
      if (close >= text.size()) {
        return fail(Error::invalid(
            fmt::format("{}:{}: the quote of '{}' is not closed", file, line_of(begin), name)));
      }
      auto inner = text.substr(open + 1, close - open - 1);
      result = quote == '"' ? expand_escapes(inner) : std::string(inner);
      end = std::min(text.find('\n', close), text.size());
      auto rest = trim(text.substr(close + 1, end - close - 1));
      if (!rest.empty() && rest[0] != '#') {
        return fail(Error::invalid(fmt::format("{}:{}: unexpected text after the value of '{}'",
                                               file, line_of(close), name)));
      }
      at = end + 1;
    } else {
      result = std::string(trim(value.substr(0, std::min(value.find('#'), value.size()))));
    }
    out = override_vars(std::move(out), {Var{std::string(name), VarKind::kText, result}});
  }
  return out;
}

Result<std::vector<Var>> read_dev_vars(const std::filesystem::path& project_dir) {
  auto file = project_dir / ".dev.vars";
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) return std::vector<Var>{};
  std::ifstream in(file, std::ios::binary);
  std::string text;
  text.resize(kBytesMax + 1);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) {
    return fail(Error::invalid(fmt::format("{}: cannot be read", file.string())));
  }
  text.resize(static_cast<size_t>(in.gcount()));
  return parse_dev_vars(text, ".dev.vars");
}

std::vector<Var> override_vars(std::vector<Var> base, const std::vector<Var>& overrides) {
  for (const auto& var : overrides) {
    auto it = std::ranges::find(base, var.name, &Var::name);
    if (it != base.end()) {
      *it = var;
    } else {
      base.push_back(var);
    }
  }
  return base;
}

}  // namespace celld
