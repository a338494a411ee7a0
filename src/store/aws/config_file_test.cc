#include "store/aws/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace celld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(AwsConfigFile, both_files_make_one) {
  auto config = AwsConfig::parse(
      "# comment\n"
      "[default]\n"
      "region = eu-west-1   # where we are\n"
      "AWS_Access_Key_Id=from-config\r\n"
      "s3 =\n"
      "  max_concurrent_requests = 20\n"
      "  addressing_style = path\n"
      "output = json ; comment\n"
      "[ profile   dev ]\n"
      "role_arn = arn:aws:iam::1:role/x#y\n"
      "source_profile = default\n"
      "[sso-session corp]\n"
      "sso_region = eu-west-1\n"
      "[services local]\n"
      "s3 =\n"
      "  endpoint_url = http://127.0.0.1:1\n"
      "[not-a-profile]\n"
      "region = nowhere\n",
      "[default]\n"
      "aws_access_key_id = from-credentials\n"
      "aws_secret_access_key = a/b+c=\n"
      "[bare]\n");
  ASSERT_TRUE(config) << config.error().message;
  const AwsSettings* main = config->profile("default");
  ASSERT_NE(main, nullptr);
  EXPECT_EQ(find_setting(*main, "region"), "eu-west-1");
  EXPECT_EQ(find_setting(*main, "aws_access_key_id"), "from-credentials");
  EXPECT_EQ(find_setting(*main, "aws_secret_access_key"), "a/b+c=");
  EXPECT_EQ(find_setting(*main, "output"), "json");
  EXPECT_EQ(find_setting(*main, "s3"), std::nullopt);
  EXPECT_EQ(find_setting(*main, "addressing_style"), std::nullopt) << "nested, not of the profile";
  const AwsSettings* dev = config->profile("dev");
  ASSERT_NE(dev, nullptr);
  EXPECT_EQ(find_setting(*dev, "role_arn"), "arn:aws:iam::1:role/x#y") << "no blank, no comment";
  ASSERT_NE(config->sso_session("corp"), nullptr);
  EXPECT_NE(config->profile("bare"), nullptr);
  EXPECT_EQ(config->profile("not-a-profile"), nullptr);
  EXPECT_EQ(config->profile("local"), nullptr);
}

TEST(AwsConfigFile, the_section_profile_default_counts_before_default) {
  auto config = AwsConfig::parse("[default]\nregion=a\n[profile default]\nregion=b\n", "");
  ASSERT_TRUE(config);
  EXPECT_EQ(find_setting(*config->profile("default"), "region"), "b");
}

TEST(AwsConfigFile, a_bad_line_is_named_by_its_number_alone) {
  struct Case {
    const char* text;
    const char* line;
  };
  for (const Case& c : {Case{"[default]\n\nwJalrXUtnFEMI\n", "line 3"},
                        Case{"wJalrXUtnFEMI = x\n", "line 1"},
                        Case{"[default\nwJalrXUtnFEMI = x\n", "line 1"},
                        Case{"[]\n", "line 1"},
                        Case{"[ ]\n", "line 1"},
                        Case{"[a]\n= wJalrXUtnFEMI\n", "line 2"}}) {
    auto parsed = AwsConfig::parse("", c.text);
    ASSERT_FALSE(parsed) << c.text;
    EXPECT_THAT(parsed.error().message, AllOf(HasSubstr("credentials file"), HasSubstr(c.line),
                                              Not(HasSubstr("wJalr"))));
  }
}

TEST(AwsConfigFile, what_is_written_is_read) {
  std::mt19937_64 random(7);
  auto word = [&](std::string_view alphabet) {
    std::string out;
    for (size_t n = 1 + random() % 12; n > 0; --n) out += alphabet[random() % alphabet.size()];
    return out;
  };
  for (int round = 0; round < 300; ++round) {
    std::map<std::string, AwsSettings, std::less<>> written;
    std::string text;
    for (size_t sections = random() % 5; sections > 0; --sections) {
      const std::string section = word("abcXYZ01-_.:/@");
      text += "[" + section + "]" + (random() % 2 ? "  # why" : "") + "\n";
      written[section];
      for (size_t n = random() % 6; n > 0; --n) {
        std::string name = word("abc_0"), value = word("aZ0+/=#;[]\"' ");
        while (value.starts_with(' ')) value.erase(0, 1);
        while (value.ends_with(' ')) value.pop_back();
        if (value.empty() || value.find(" #") != value.npos || value.find(" ;") != value.npos ||
            value.front() == '#' || value.front() == ';') {
          continue;
        }
        written[section][name] = value;
        text += name + (random() % 2 ? " = " : "=") + value + (random() % 3 ? "\n" : "\r\n");
        if (random() % 4 == 0) text += "\n; between\n";
      }
    }
    auto read = parse_aws_file(text);
    ASSERT_TRUE(read) << read.error().message << "\n" << text;
    EXPECT_EQ(*read, written) << text;
  }
}

}  // namespace
}  // namespace celld
