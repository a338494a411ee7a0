#include "store/aws/config_file.h"

#include <algorithm>
#include <utility>

namespace celld {

namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Without a comment that begins behind a blank.
std::string_view uncommented(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if ((text[i] == '#' || text[i] == ';') && blank(text[i - 1])) return text.substr(0, i);
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string single_blanks(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (!blank(c)) {
      out += c;
    } else if (!out.ends_with(' ')) {
      out += ' ';
    }
  }
  return out;
}

Error bad_line(size_t number, std::string_view what) {
  return Error::invalid("line " + std::to_string(number) + ": " + std::string(what));
}

}  // namespace

Result<std::map<std::string, AwsSettings, std::less<>>> parse_aws_file(std::string_view text) {
  std::map<std::string, AwsSettings, std::less<>> sections;
  AwsSettings* section = nullptr;
  bool may_nest = false;  // below a name without a value
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::string_view content = trim(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.find('\0') != std::string_view::npos) return fail(bad_line(number, "a NUL byte"));
    if (content.front() == '[' && !blank(line.front())) {
      const std::string_view header = trim(uncommented(content));
      if (header.size() < 3 || header.back() != ']') {
        return fail(bad_line(number, "a section without ']'"));
      }
      const std::string name = single_blanks(trim(header.substr(1, header.size() - 2)));
      if (name.empty()) return fail(bad_line(number, "a section without a name"));
      section = &sections[name];
      may_nest = false;
      continue;
    }
    if (blank(line.front()) && may_nest) continue;
    const size_t equals = content.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return fail(bad_line(number, "neither a section nor NAME = VALUE"));
    }
    if (section == nullptr) return fail(bad_line(number, "a setting outside of any section"));
    const std::string_view value = trim(uncommented(content.substr(equals)).substr(1));
    (*section)[lower(trim(content.substr(0, equals)))] = std::string(value);
    may_nest = value.empty();
  }
  return sections;
}

Result<AwsConfig> AwsConfig::parse(std::string_view config, std::string_view credentials) {
  constexpr std::string_view kProfile = "profile ", kSession = "sso-session ";
  AwsConfig out;
  auto in_config = parse_aws_file(config);
  if (!in_config) return fail(in_config.error().at("the AWS config file"));
  for (auto& [name, settings] : *in_config) {
    if (name.starts_with(kSession)) {
      out.sso_sessions_[name.substr(kSession.size())] = settings;
    } else if (name.starts_with(kProfile)) {
      out.profiles_[name.substr(kProfile.size())] = settings;
    } else if (name == "default" && !in_config->contains("profile default")) {
      out.profiles_[name] = settings;
    }
  }
  auto in_credentials = parse_aws_file(credentials);
  if (!in_credentials) return fail(in_credentials.error().at("the AWS credentials file"));
  for (auto& [name, settings] : *in_credentials) {
    for (auto& [key, value] : settings) out.profiles_[name][key] = value;
    if (settings.empty()) out.profiles_[name];
  }
  return out;
}

const AwsSettings* AwsConfig::profile(std::string_view name) const {
  auto it = profiles_.find(name);
  return it == profiles_.end() ? nullptr : &it->second;
}

const AwsSettings* AwsConfig::sso_session(std::string_view name) const {
  auto it = sso_sessions_.find(name);
  return it == sso_sessions_.end() ? nullptr : &it->second;
}

std::optional<std::string> find_setting(const AwsSettings& settings, std::string_view name) {
  auto it = settings.find(name);
  if (it == settings.end() || it->second.empty()) return std::nullopt;
  return it->second;
}

}  // namespace celld
