#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace celld {
namespace {

using ::testing::HasSubstr;

JsonDocument parsed(std::string_view text) {
  auto document = JsonDocument::parse(text, "some/key", ErrorCode::kCorrupt);
  EXPECT_TRUE(document) << document.error().message;
  return *document;
}

std::string parse_error(std::string_view text, JsonLimits limits = {}) {
  auto document = JsonDocument::parse(text, "some/key", ErrorCode::kInvalid, limits);
  if (document) return "no error";
  EXPECT_EQ(document.error().code, ErrorCode::kInvalid);
  return document.error().message;
}

TEST(Json, typed_fields_are_read) {
  JsonDocument d = parsed(
      R"({"t":"x","n":18446744073709551615,"i":-5,"f":true,"o":{"n":1},"a":[{"n":2},{"n":3}],"z":null})");
  JsonFields f = d.fields();
  EXPECT_EQ(f.text("t", 1), "x");
  EXPECT_EQ(f.number("n", 0, UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(f.integer("i", -5, 0), -5);
  EXPECT_TRUE(f.flag_or("f", false));
  EXPECT_EQ(f.object("o").number("n", 0, 9), 1u);
  uint64_t sum = 0;
  f.each("a", 2, [&](JsonFields& e) { sum += e.number("n", 0, 9); });
  EXPECT_EQ(sum, 5u);
  EXPECT_FALSE(f.has("z"));
  EXPECT_FALSE(f.has("absent"));
  EXPECT_EQ(f.text_or("absent", "d", 9), "d");
  EXPECT_EQ(f.number_or("z", 7, 0, 9), 7u);
  f.each("absent", 0, [](JsonFields&) { ADD_FAILURE(); });
  EXPECT_FALSE(f.object_or_empty("absent").has("n"));
  EXPECT_TRUE(f.done());
}

TEST(Json, the_first_wrong_field_is_named_with_its_path) {
  auto error = [](auto read) {
    JsonDocument d = parsed(R"({"t":"text","n":10,"d":1.5,"o":{"a":[{"n":1},{"n":-1}]},"l":[1]})");
    JsonFields f = d.fields();
    read(f);
    f.text("no_such_field", 1);  // never hides the first error
    auto done = f.done();
    EXPECT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::kCorrupt);
    return done.error().message;
  };
  EXPECT_EQ(error([](JsonFields& f) { f.text("n", 9); }), "some/key: n is not a string");
  EXPECT_EQ(error([](JsonFields& f) { f.text("t", 3); }), "some/key: t is longer than 3 bytes");
  EXPECT_EQ(error([](JsonFields& f) { f.number("n", 0, 9); }),
            "some/key: n is not a whole number from 0 to 9");
  EXPECT_THAT(error([](JsonFields& f) { f.number("d", 0, 9); }), HasSubstr("d is not a whole"));
  EXPECT_THAT(error([](JsonFields& f) { f.number("t", 0, 9); }), HasSubstr("t is not a whole"));
  EXPECT_THAT(error([](JsonFields& f) { f.number("absent", 0, 9); }),
              HasSubstr("absent is missing"));
  EXPECT_THAT(error([](JsonFields& f) { f.flag_or("t", true); }),
              HasSubstr("t is not true or false"));
  EXPECT_THAT(error([](JsonFields& f) { f.object("t"); }), HasSubstr("t is not an object"));
  EXPECT_THAT(error([](JsonFields& f) { f.object("x").number("y", 0, 1); }),
              HasSubstr("x is missing"));
  EXPECT_THAT(error([](JsonFields& f) { f.each("t", 1, [](JsonFields&) {}); }), HasSubstr("array"));
  EXPECT_THAT(error([](JsonFields& f) { f.each("l", 1, [](JsonFields&) {}); }),
              HasSubstr("l[0] is not"));
  EXPECT_THAT(error([](JsonFields& f) { f.each("l", 0, [](JsonFields&) {}); }),
              HasSubstr("more than 0"));
  EXPECT_THAT(error([](JsonFields& f) {
                f.object("o").each("a", 9, [](JsonFields& e) { e.number("n", 0, 9); });
              }),
              HasSubstr("some/key: o.a[1].n is not"));
}

TEST(Json, what_is_not_one_object_is_refused) {
  EXPECT_THAT(parse_error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"a\":1,}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"a\":\"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("[]"), HasSubstr("not an object"));
  EXPECT_THAT(parse_error("null"), HasSubstr("not an object"));
  EXPECT_THAT(parse_error(std::string(2000, ' ') + "{}", {.bytes_max = 100}),
              HasSubstr("2002 bytes"));
  EXPECT_THAT(parse_error(R"({"a":{"a":{"a":{}}}})", {.depth_max = 3}),
              HasSubstr("not valid JSON"));
  EXPECT_EQ(parse_error(" {} \n"), "no error");
}

}  // namespace
}  // namespace celld
