#include "store/azure/azure_name.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace celld {
namespace {

TEST(AzureName, ordinary_keys_are_named_as_they_are) {
  for (const char* key :
       {"cells/Counter:0123abcd/own.json", "journal/n-1/0000000000000001.jnl", "fleet/format.json",
        "cells/C:1/ltx/e0000000000000001/0/0000000000000001-0000000000000001.ltx",
        "wake/unowned/0000000000000001/C:1@3", "a b/%41+~!", "日本/é"}) {
    EXPECT_EQ(azure_name(key).value(), key);
    EXPECT_EQ(azure_key(key), key);
  }
}

TEST(AzureName, what_azure_would_change_is_escaped) {
  EXPECT_EQ(azure_name("a.").value(), "a.!");
  EXPECT_EQ(azure_name("a./b").value(), "a.!/b");
  EXPECT_EQ(azure_name("../b").value(), ".!.!/b");
  EXPECT_EQ(azure_name("a/").value(), "a/!");
  EXPECT_EQ(azure_name("a\\b").value(), "a[1b");
  EXPECT_EQ(azure_name("a[b").value(), "a[0b");
}

TEST(AzureName, names_of_others_are_no_keys) {
  for (const char* name : {"a/", "a.", "a\\b", "a[", "a[2", "a.!x"})
    EXPECT_FALSE(azure_key(name)) << name;
  EXPECT_EQ(azure_folder_key("a/"), "a/");
}

TEST(AzureName, what_no_blob_can_be_named_is_refused) {
  for (const char* key : {"a\x01", "a\x7f", "a\xff", "a\xc3", "\xed\xa0\x80", "\xef\xbf\xbf",
                          "\xc0\x80", "\xc2\x85"}) {
    EXPECT_EQ(azure_name(key).error().code, ErrorCode::kInvalid) << key;
  }
}

TEST(AzureName, order_prefixes_and_identity_survive) {
  std::mt19937 random(5);
  const std::string alphabet = "!!\"..//-0[\\]a\xc3";
  auto draw = [&] {
    std::string out;
    for (size_t n = random() % 6; n > 0; --n) {
      out += alphabet[random() % alphabet.size()];
      if (out.back() == '\xc3') out += '\xa9';
    }
    return out;
  };
  for (int i = 0; i < 200'000; ++i) {
    const std::string a = draw(), b = draw();
    const std::string name_a = azure_name(a).value(), name_b = azure_name(b).value();
    ASSERT_EQ(azure_key(name_a), a);
    ASSERT_EQ(a < b, name_a < name_b) << a << " " << b << " " << name_a << " " << name_b;
    ASSERT_EQ(b.starts_with(a), name_b.starts_with(azure_prefix(a).value())) << a << " " << b;
    ASSERT_EQ(std::count(a.begin(), a.end(), '/'), std::count(name_a.begin(), name_a.end(), '/'));
    if (!name_a.empty()) {
      ASSERT_TRUE(name_a.back() != '.' && name_a.back() != '/') << name_a;
      ASSERT_EQ(name_a.find("./"), std::string::npos);
      ASSERT_EQ(name_a.find('\\'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace celld
