#include "store/file_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace celld {
namespace {

std::string joined(std::string_view key) {
  KeyPath path = key_path(key);
  std::string out;
  for (const auto& name : path.directories) out += name + "/";
  return out + path.leaf;
}

// The key that a path stands for, by the rules of parse_layout_name.
std::string key_of(const KeyPath& path) {
  std::string key;
  for (const auto& name : path.directories) {
    auto parsed = parse_layout_name(name);
    EXPECT_TRUE(parsed) << name;
    key += parsed->part;
    if (parsed->kind == LayoutName::Kind::kDirectory) key += '/';
  }
  auto leaf = parse_layout_name(path.leaf);
  EXPECT_TRUE(leaf) << path.leaf;
  EXPECT_EQ(leaf->kind, LayoutName::Kind::kObject);
  return key + leaf->part;
}

TEST(FileLayout, ordinary_keys_stay_readable) {
  EXPECT_EQ(joined("cells/Counter:00ff/own.json"), "cells/Counter:00ff/own.json@");
  EXPECT_EQ(joined("journal/n-1/0000000000000001.jnl"), "journal/n-1/0000000000000001.jnl@");
}

TEST(FileLayout, no_key_leaves_the_tree) {
  EXPECT_EQ(joined("../../etc/passwd"), "%2E%2E/%2E%2E/etc/passwd@");
  EXPECT_EQ(joined("/etc/passwd"), "%/etc/passwd@");
  EXPECT_EQ(joined("."), "%2E@");
  EXPECT_EQ(joined(".."), "%2E%2E@");
  EXPECT_EQ(joined("a//b/"), "a/%/b/%@");
  EXPECT_EQ(joined(std::string_view("a\0b\n", 4)), "a%00b%0A@");
  EXPECT_EQ(joined("a@/b^"), "a%40/b%5E@");
}

TEST(FileLayout, random_keys_have_paths_of_their_own_that_fit_a_file_system) {
  std::mt19937 random(1);
  const std::string alphabet = "ab/.%@^ :\xff";
  std::map<std::string, std::string> seen;
  for (int i = 0; i < 20'000; ++i) {
    std::string key;
    size_t length = i % 50 == 0 ? 900 + random() % 125 : 1 + random() % 6;
    for (size_t j = 0; j < length; ++j) key += alphabet[random() % alphabet.size()];
    if (i % 7 == 0) key = std::string(80 + random() % 10, 'n') + key.substr(0, 100);
    KeyPath path = key_path(key);
    std::string whole = joined(key);
    ASSERT_LT(whole.size(), 3500u);
    for (const auto& name : path.directories) ASSERT_LE(name.size(), 255u);
    ASSERT_LE(path.leaf.size(), 255u);
    ASSERT_EQ(key_of(path), key);
    auto [it, fresh] = seen.emplace(whole, key);
    ASSERT_EQ(it->second, key);
  }
}

TEST(FileLayout, names_of_other_programs_are_not_ours) {
  for (const char* name : {"", "@", "^", "a b", "a%2g@", "a%2", "a%61@", "a%2f@", "%2e@", ".", "..",
                           "a%2Fb@", "short^", "über@"}) {
    EXPECT_FALSE(parse_layout_name(name)) << name;
  }
  EXPECT_FALSE(parse_layout_name(std::string(kChunkBytes, 'a') + "@"));
  EXPECT_FALSE(parse_layout_name(std::string(kChunkBytes, 'a')));
  EXPECT_TRUE(parse_layout_name(std::string(kChunkBytes, 'a') + "^"));
}

TEST(FileLayout, header_round_trips_and_damage_is_named) {
  ObjectHeader header{"0123456789abcdef0123456789abcdef", 0x123456789abcd};
  std::string text = encode_object_header(header);
  ASSERT_EQ(text.size(), kObjectHeaderBytes);
  EXPECT_EQ(text.back(), '\n');
  auto back = decode_object_header(text + "body");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->token, header.token);
  EXPECT_EQ(back->body_bytes, header.body_bytes);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = '~';
    auto result = decode_object_header(damaged);
    ASSERT_FALSE(result) << i;
    EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_EQ(decode_object_header(text.substr(0, 63)).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(decode_object_header("").error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace celld
