// ~/.aws/config and ~/.aws/credentials.
//
// https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace celld {

// Values by name in lower case. Nested values (indented lines below a name without a value) are
// left out.
using AwsSettings = std::map<std::string, std::string, std::less<>>;

// The sections of one file by the text between the brackets ("profile x", "default"), blanks made
// single. A section that comes twice is one.
//
// kInvalid names a line that is neither a section, a setting, a comment nor empty, by number only:
// it may hold a key.
Result<std::map<std::string, AwsSettings, std::less<>>> parse_aws_file(std::string_view text);

// Both files as one.
class AwsConfig {
 public:
  // Empty texts for files that are not there. Errors name the file.
  static Result<AwsConfig> parse(std::string_view config, std::string_view credentials);

  // The settings of a profile; where both files say something, that of `credentials` counts. Null
  // when no file names the profile.
  const AwsSettings* profile(std::string_view name) const;
  // Of "[sso-session NAME]"; null when there is none.
  const AwsSettings* sso_session(std::string_view name) const;

 private:
  std::map<std::string, AwsSettings, std::less<>> profiles_;
  std::map<std::string, AwsSettings, std::less<>> sso_sessions_;
};

// The value, or nothing when it is absent or empty.
std::optional<std::string> find_setting(const AwsSettings& settings, std::string_view name);

}  // namespace celld
