#include "store/s3_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/s3_xml.h"

namespace celld {
namespace {

using ::testing::HasSubstr;

std::string error_xml(const std::string& code) {
  return "<?xml version=\"1.0\"?><Error><Code>" + code +
         "</Code><Message>the &lt;message&gt;</Message></Error>";
}

TEST(Xml, reads_what_stores_send) {
  auto root = parse_xml(
      "\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- hi -->"
      "<s3:A xmlns:s3='urn:x' b = \"c>d\">\n <K>a&amp;b&#x3bb;&#65; </K><E/><E "
      "x='1'></E>t</s3:A>\n");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->name, "A");
  EXPECT_EQ(root->child_text("K"),
            "a&b\xce\xbb"
            "A ");
  EXPECT_EQ(root->children.size(), 3u);
  EXPECT_EQ(root->child_text("none"), "");
}

TEST(Xml, refuses_everything_else) {
  std::string deep;
  for (int i = 0; i < 17; ++i) deep += "<a>";
  for (const std::string& text : {std::string(),
                                  std::string("x"),
                                  std::string("<a>"),
                                  std::string("<a></b>"),
                                  std::string("<a/><b/>"),
                                  std::string("<a>&nbsp;</a>"),
                                  std::string("<a>&#xd800;</a>"),
                                  std::string("<a>&#0;</a>"),
                                  std::string("<a>&amp</a>"),
                                  std::string("<a b></a>"),
                                  std::string("<a b=c></a>"),
                                  std::string("<a b='c></a>"),
                                  std::string("<a><![CDATA[x]]></a>"),
                                  std::string("<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"),
                                  std::string("<a>\x01</a>"),
                                  std::string("<a"),
                                  std::string("<a/"),
                                  std::string("<?xml"),
                                  std::string("<!--"),
                                  std::string("<html><br></html>"),
                                  deep}) {
    auto root = parse_xml(text);
    ASSERT_FALSE(root) << text;
    EXPECT_EQ(root.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(root.error().message, HasSubstr("at byte "));
  }
}

TEST(Xml, bounds_the_number_of_elements) {
  std::string many = "<a>";
  for (int i = 0; i < 100'000; ++i) many += "<b/>";
  EXPECT_FALSE(parse_xml(many + "</a>"));
}

TEST(S3Reply, only_the_stores_own_word_makes_an_object_missing) {
  EXPECT_EQ(s3_error({404, {}, error_xml("NoSuchKey")}).code, ErrorCode::kNotFound);
  EXPECT_EQ(s3_error({404, {}, error_xml("NoSuchBucket")}).code, ErrorCode::kInvalid);
  EXPECT_EQ(s3_error({404, {}, ""}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(s3_error({404, {}, "<html>not found</html>"}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(s3_error({404, {}, error_xml("SomethingElse")}).code, ErrorCode::kUnavailable);
}

TEST(S3Reply, errors_say_what_the_caller_may_do) {
  EXPECT_EQ(s3_error({403, {}, error_xml("AccessDenied")}).code, ErrorCode::kForbidden);
  EXPECT_EQ(s3_error({403, {}, ""}).code, ErrorCode::kForbidden);
  EXPECT_EQ(s3_error({400, {}, error_xml("InvalidRequest")}).code, ErrorCode::kInvalid);
  EXPECT_EQ(s3_error({400, {}, error_xml("RequestTimeout")}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(s3_error({400, {}, error_xml("ExpiredToken")}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(s3_error({500, {}, ""}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(s3_error({501, {}, ""}).code, ErrorCode::kUnsupported);
  EXPECT_EQ(s3_error({429, {}, ""}).code, ErrorCode::kUnavailable);
  Error slow = s3_error({503, {{"retry-after", "7"}}, error_xml("SlowDown")});
  EXPECT_EQ(slow.code, ErrorCode::kUnavailable);
  EXPECT_EQ(slow.retry_after_ms, 7000u);
  EXPECT_THAT(slow.message, ::testing::AllOf(HasSubstr("503"), HasSubstr("SlowDown"),
                                             HasSubstr("the <message>")));
  EXPECT_EQ(s3_error({503, {{"retry-after", "tomorrow"}}, ""}).retry_after_ms, 0u);
  Error moved =
      s3_error({301, {{"x-amz-bucket-region", "eu-west-1"}}, error_xml("PermanentRedirect")});
  EXPECT_EQ(moved.code, ErrorCode::kInvalid);
  EXPECT_THAT(moved.message, HasSubstr("eu-west-1"));
  EXPECT_THAT(s3_error({403, {}, error_xml("RequestTimeTooSkewed")}).message, HasSubstr("clock"));
}

TEST(S3Reply, a_conditional_write_has_three_outcomes) {
  const Condition create = Condition::create();
  const Condition swap = Condition::swap(Version{"v"});
  const HeaderList etag = {{"etag", "\"abc\""}};
  SwapResult applied = s3_swap_result({200, etag, ""}, create);
  EXPECT_EQ(applied.outcome, SwapOutcome::kApplied);
  EXPECT_EQ(applied.version.token, "abc");
  EXPECT_EQ(s3_swap_result({412, {}, ""}, create).outcome, SwapOutcome::kRejected);
  EXPECT_EQ(s3_swap_result({412, {}, ""}, swap).outcome, SwapOutcome::kRejected);
  EXPECT_EQ(s3_swap_result({409, {}, ""}, create).outcome, SwapOutcome::kRejected);
  EXPECT_EQ(s3_swap_result({409, {}, ""}, swap).outcome, SwapOutcome::kAmbiguous);
  for (int status : {200, 204, 301, 400, 403, 404, 500, 501, 503}) {
    EXPECT_EQ(s3_swap_result({status, {}, ""}, create).outcome, SwapOutcome::kAmbiguous) << status;
    EXPECT_EQ(s3_swap_result({status, {}, ""}, swap).outcome, SwapOutcome::kAmbiguous) << status;
  }
}

TEST(S3Reply, versions_lose_their_quotes_and_must_be_strong) {
  EXPECT_EQ(s3_version({200, {{"etag", "\"a-2\""}}, ""})->token, "a-2");
  EXPECT_EQ(s3_version({200, {{"etag", "a-2"}}, ""})->token, "a-2");
  for (const char* bad : {"", "\"\"", "W/\"a\"", "\"a", "a b", "a\"b", "a\r\nx: y"}) {
    EXPECT_FALSE(s3_version({200, {{"etag", bad}}, ""})) << bad;
  }
  EXPECT_FALSE(s3_version({200, {}, ""}));
}

TEST(S3Reply, content_range_must_be_what_was_asked) {
  EXPECT_EQ(parse_content_range("bytes 2-4/10", 2, 3), 10u);
  for (const char* bad : {"bytes 2-4/10", "bytes 3-4/10", "bytes 2-5/10", "bytes 2-4/4",
                          "bytes 2-4/*", "items 2-4/10", "bytes 2/10", "", "bytes 4-2/10"}) {
    if (bad == std::string("bytes 2-4/10")) continue;
    EXPECT_FALSE(parse_content_range(bad, 2, 3)) << bad;
  }
}

TEST(S3Reply, times) {
  EXPECT_EQ(parse_iso8601("1970-01-01T00:00:00Z"), WallMs{0});
  EXPECT_EQ(parse_iso8601("2013-05-24T00:00:00.250Z"), WallMs{1369353600250});
  EXPECT_EQ(parse_iso8601("2024-02-29T23:59:59.9+00:00"), WallMs{1709251199900});
  for (const char* bad :
       {"", "yesterday", "2023-02-29T00:00:00Z", "2023-01-01T24:00:00Z", "2023-01-01T00:00:00",
        "2023-01-01T00:00:00+02:00", "2023-13-01T00:00:00Z"}) {
    EXPECT_FALSE(parse_iso8601(bad)) << bad;
  }
}

std::string list_xml(const std::string& inside) {
  return "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" + inside +
         "</ListBucketResult>";
}
std::string entry(const std::string& key) {
  return "<Contents><Key>" + key +
         "</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified><Size>3</Size></Contents>";
}

TEST(S3List, reads_entries_prefixes_and_encodings) {
  ListRequest request;
  auto page =
      s3_list_page(list_xml("<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>" +
                            entry("a%2Bb+c%CE%BB") + entry("b") +
                            "<CommonPrefixes><Prefix>c%20d%2F</Prefix></CommonPrefixes>"),
                   request);
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(page->objects[0].key, "a+b c\xce\xbb");
  EXPECT_EQ(page->objects[0].bytes, 3u);
  EXPECT_EQ(page->objects[0].modified, WallMs{1369353600000});
  EXPECT_EQ(page->common_prefixes[0], "c d/");
  EXPECT_TRUE(page->more);
  EXPECT_EQ(page->next_start_after, "c d/");
  auto plain =
      s3_list_page(list_xml("<IsTruncated>false</IsTruncated>" + entry("a%2Bb+c&amp;")), request);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->objects[0].key, "a%2Bb+c&");
}

TEST(S3List, a_store_that_lies_is_found_out) {
  ListRequest request;
  request.prefix = "p/";
  request.start_after = "p/b";
  const std::string end = "<IsTruncated>false</IsTruncated>";
  EXPECT_TRUE(s3_list_page(list_xml(end + entry("p/c")), request));
  for (const std::string& bad :
       {list_xml(end + entry("p/a")), list_xml(end + entry("p/b")), list_xml(end + entry("q")),
        list_xml(end + entry("p/d") + entry("p/c")), list_xml(end + entry("p/c") + entry("p/c")),
        list_xml(entry("p/c")), list_xml("<IsTruncated>true</IsTruncated>"),
        list_xml(end + "<Contents><Key>p/c</Key></Contents>"), std::string("<Other/>"),
        std::string("<html><body>hello"), std::string()}) {
    EXPECT_FALSE(s3_list_page(bad, request)) << bad;
  }
}

TEST(S3List, start_after_skips_the_whole_folded_prefix) {
  ListRequest request;
  request.start_after = "a/b";
  EXPECT_EQ(s3_start_after(request), "a/b");
  request.delimiter = "/";
  EXPECT_EQ(s3_start_after(request), "a/\xf4\x8f\xbf\xbf");
  request.prefix = "a/";
  EXPECT_EQ(s3_start_after(request), "a/b");
}

TEST(S3Throttling, asks_for_a_pause_with_or_without_saying_how_long) {
  auto pause = [](int status, HeaderList headers, std::string code) {
    return s3_error({status, std::move(headers), "<Error><Code>" + code + "</Code></Error>"})
        .retry_after_ms;
  };
  EXPECT_EQ(pause(503, {{"retry-after", "2"}}, "SlowDown"), 2000u);
  EXPECT_EQ(pause(503, {}, "SlowDown"), kPauseUnsaidMs);
  EXPECT_EQ(pause(429, {}, "TooManyRequests"), kPauseUnsaidMs);
  EXPECT_EQ(pause(500, {}, "InternalError"), 0u);
}

TEST(S3DeleteMany, keys_that_xml_cannot_carry_are_told_apart) {
  for (const char* good : {"a/b", "<&>\"'", "\u00e9 \u65e5\u672c \U0001d11e", "\x7e"}) {
    EXPECT_TRUE(s3_key_fits_xml(good)) << good;
  }
  for (const char* bad : {"a\x01", "a\n", "a\r\n", "\x7f", "\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80",
                          "\xef\xbf\xbf", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_FALSE(s3_key_fits_xml(bad)) << bad;
  }
}

}  // namespace
}  // namespace celld
