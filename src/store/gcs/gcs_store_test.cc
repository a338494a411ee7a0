#include "store/gcs/gcs_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "net/curl_transport.h"
#include "store/file_temp_dir.h"
#include "store/gcs/gcs_reply.h"
#include "store/gcs/gcs_server_testing.h"
#include "store/gcs/google_tokens.h"
#include "store/probe.h"
#include "store/scripted_transport_testing.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::AllOf;
using testing::GcsServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RealWorld;
using testing::ScriptedTransport;
using testing::VirtualWorld;

using Variables = std::map<std::string, std::string>;

Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// What Google's documentation shows its replies to be.
struct GcsStoreTest : ::testing::Test {
  VirtualWorld world;
  std::shared_ptr<ScriptedTransport> transport = std::make_shared<ScriptedTransport>();
  std::unique_ptr<GcsStore> store;

  std::string open(Variables variables, std::string endpoint = "") {
    auto made = open_gcs(world, transport, "cells", std::move(endpoint),
                         environment_of(std::move(variables)));
    if (!made) return made.error().message;
    store = std::move(*made);
    return "";
  }
  void SetUp() override { ASSERT_EQ(open({{"STORAGE_EMULATOR_HOST", "localhost:9023"}}), ""); }
  void reply(int status, HeaderList headers = {}, std::string body = {}) {
    transport->reply(status, std::move(headers), std::move(body));
  }
  SwapResult write(Condition condition) {
    return world.run(store->put_if("a/b c", Blob("x"), std::move(condition), Deadline::never()));
  }
  static std::string error_json(int code, const std::string& message) {
    return R"({"error":{"code":)" + std::to_string(code) + R"(,"message":")" + message +
           R"(","errors":[{"message":")" + message + R"(","domain":"global","reason":"r"}]}})";
  }
};

TEST_F(GcsStoreTest, conditions_are_generations_with_three_outcomes) {
  reply(200, {}, R"({"generation":"1700000000000001","size":"1"})");
  SwapResult created = write(Condition::create());
  EXPECT_EQ(created.outcome, SwapOutcome::kApplied);
  EXPECT_EQ(created.version.token, "1700000000000001");
  EXPECT_EQ(transport->calls.back().url,
            "http://localhost:9023/upload/storage/v1/b/cells/o?uploadType=media&name=a%2Fb%20c&"
            "fields=generation%2Csize&ifGenerationMatch=0");
  EXPECT_EQ(transport->calls.back().method, "POST");
  reply(412, {}, error_json(412, "At least one of the pre-conditions you specified did not hold."));
  EXPECT_EQ(write(Condition::swap(created.version)).outcome, SwapOutcome::kRejected);
  EXPECT_THAT(transport->calls.back().url, HasSubstr("ifGenerationMatch=1700000000000001"));
  for (int status : {304, 400, 404, 408, 409, 429, 500, 503}) {
    reply(status, {}, error_json(status, "why"));
    SwapResult result = write(Condition::create());
    EXPECT_EQ(result.outcome, SwapOutcome::kAmbiguous) << status;
    EXPECT_THAT(result.error.message, AllOf(HasSubstr("gs://cells"), HasSubstr("why")));
  }
  reply(200, {}, "{}");
  EXPECT_EQ(write(Condition::create()).outcome, SwapOutcome::kAmbiguous);
}

TEST_F(GcsStoreTest, a_version_of_another_store_never_creates) {
  for (const char* token : {"0", "", "\"etag\"", "01"}) {
    EXPECT_EQ(write(Condition::swap(Version{token})).outcome, SwapOutcome::kAmbiguous);
  }
  EXPECT_TRUE(transport->calls.empty());
}

TEST_F(GcsStoreTest, only_a_missing_object_is_not_found) {
  auto code = [&](std::string body) {
    reply(404, {}, std::move(body));
    return world.run(store->get("k", Deadline::never())).error().code;
  };
  EXPECT_EQ(code("No such object: cells/k"), ErrorCode::kNotFound);
  EXPECT_EQ(code(error_json(404, "No such object: cells/k")), ErrorCode::kNotFound);
  EXPECT_EQ(code(error_json(404, "The specified bucket does not exist.")), ErrorCode::kInvalid);
  EXPECT_EQ(code("<html>not here"), ErrorCode::kUnavailable);
  reply(404, {}, error_json(404, "No such object: cells/k"));
  EXPECT_TRUE(world.run(store->remove("k", Deadline::never())));
}

TEST_F(GcsStoreTest, throttling_says_when_to_come_again) {
  reply(429, {{"retry-after", "2"}}, error_json(429, "The object exceeded the rate limit"));
  Error error = world.run(store->get("k", Deadline::never())).error();
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(error.retry_after_ms, 2000u);
  reply(429, {}, error_json(429, "The object exceeded the rate limit"));
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().retry_after_ms, kPauseUnsaidMs);
}

TEST_F(GcsStoreTest, an_upload_whose_finish_was_not_answered_is_found_finished) {
  auto begun = [&] {
    reply(200, {}, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>");
    reply(200, {{"etag", "\"p\""}});
    auto upload = world.run(store->begin_upload("k", kPartBytesMin, Deadline::never()));
    EXPECT_TRUE(upload) << upload.error().message;
    EXPECT_TRUE(world.run((*upload)->put_part(1, Blob("abc"), Deadline::never())));
    return std::move(*upload);
  };
  struct Case {
    int status;  // of the look at the object
    std::string body;
    std::optional<ErrorCode> expected;
  };
  for (const Case& c : {Case{200, R"({"generation":"7","size":"3"})", std::nullopt},
                        Case{200, R"({"generation":"7","size":"4"})", ErrorCode::kCorrupt},
                        Case{404, error_json(404, "No such object: cells/k"), ErrorCode::kUnavailable},
                        Case{403, error_json(403, "no"), ErrorCode::kForbidden}}) {
    auto upload = begun();
    transport->replies.push_back(fail(Error::unavailable("the line broke")));
    EXPECT_FALSE(world.run(upload->finish(Deadline::never())));
    reply(404, {}, "<?xml version='1.0'?><Error><Code>NoSuchUpload</Code></Error>");
    reply(c.status, {}, c.body);
    auto finished = world.run(upload->finish(Deadline::never()));
    ASSERT_EQ(finished.has_value(), !c.expected) << c.body;
    if (finished) {
      EXPECT_EQ(finished->token, "7");
    } else {
      EXPECT_EQ(finished.error().code, *c.expected) << finished.error().message;
    }
  }
}

TEST_F(GcsStoreTest, lists_begin_behind_a_key) {
  ListRequest request;
  request.prefix = "p/";
  request.start_after = "p/1";
  request.keys_max = 2;
  reply(200, {},
        R"({"nextPageToken":"t","items":[)"
        R"({"name":"p/1","size":"1","updated":"2026-11-30T10:00:00.123Z"},)"
        R"({"name":"p/2","size":"2","updated":"2026-11-30T10:00:00.123Z"},)"
        R"({"name":"p/3","size":"3","updated":"2026-11-30T10:00:00.123Z"}]})");
  auto page = world.run(store->list(request, Deadline::never()));
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_THAT(transport->calls.back().url,
              AllOf(HasSubstr("startOffset=p%2F1"), HasSubstr("maxResults=3")));
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[1].key, "p/3");
  EXPECT_EQ(page->objects[1].bytes, 3u);
  EXPECT_TRUE(page->more);
  EXPECT_EQ(page->next_start_after, "p/3");
}

TEST_F(GcsStoreTest, lists_that_break_the_contract_are_refused) {
  auto error = [&](const std::string& names) {
    std::string items;
    for (char name : names) {
      items += (items.empty() ? "" : ",") + std::string(R"({"name":"p/)") + name +
               R"(","size":"1","updated":"2026-11-30T10:00:00Z"})";
    }
    reply(200, {}, R"({"items":[)" + items + "]}");
    ListRequest request;
    request.prefix = "p/";
    request.start_after = "p/b";
    auto page = world.run(store->list(request, Deadline::never()));
    return page ? "" : page.error().message;
  };
  EXPECT_EQ(error("bcd"), "");
  EXPECT_THAT(error("a"), HasSubstr("startOffset"));
  EXPECT_THAT(error("dc"), HasSubstr("byte order"));
  reply(200, {}, R"({"items":[{"name":"q","size":"1","updated":"2026-11-30T10:00:00Z"}]})");
  ListRequest request;
  request.prefix = "p/";
  EXPECT_THAT(world.run(store->list(request, Deadline::never())).error().message,
              HasSubstr("'prefix'"));
  reply(200, {}, "<html>");
  EXPECT_EQ(world.run(store->list(request, Deadline::never())).error().code, ErrorCode::kCorrupt);
}

TEST_F(GcsStoreTest, bad_settings_are_named) {
  EXPECT_THAT(open({{"GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file"}}),
              AllOf(HasSubstr("GOOGLE_APPLICATION_CREDENTIALS"),
                    HasSubstr("/no/such/file does not exist")));
  EXPECT_THAT(open({}, "http://store.test"), HasSubstr("not https"));
  EXPECT_THAT(open({}, "store.test"), HasSubstr("store.test"));
  EXPECT_THAT(open({{"GCE_METADATA_HOST", "host/path"}}), HasSubstr("GCE_METADATA_HOST"));
}

struct GcsServerTest : ::testing::Test {
  RealWorld real;
  testing::TempDir dir;
  GcsServer server;
  std::shared_ptr<CurlTransport> transport =
      std::make_shared<CurlTransport>(real.io(), real.world());

  std::string http(std::string path) {
    HttpCall call;
    call.method = "GET";
    call.url = server.endpoint() + path;
    call.deadline = Deadline::never();
    auto reply = real.run(transport->perform(std::move(call)));
    CHECK(reply && reply->status == 200);
    return reply->body;
  }
  std::string file(std::string name, const std::string& text) {
    std::string path = dir.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  Result<void> probe(Variables variables, std::string bucket = "bucket") {
    auto made = open_gcs(real.world(), transport, std::move(bucket), server.endpoint(),
                         environment_of(variables));
    if (!made) return fail(made.error());
    ProbeOptions options;
    options.backoff_first = std::chrono::milliseconds(1);
    return real.run(probe_store(real.world(), **made, options));
  }
  std::string probe_error(Variables variables) {
    auto result = probe(std::move(variables));
    return result ? "" : result.error().message;
  }
};

TEST_F(GcsServerTest, a_service_account_signs_for_its_token) {
  EXPECT_EQ(probe_error({{"GOOGLE_APPLICATION_CREDENTIALS", file("key.json", http("/__key"))}}),
            "");
  EXPECT_THAT(http("/__counters"), HasSubstr("\"token\":1"));
}

TEST_F(GcsServerTest, a_key_of_somebody_else_is_refused_without_showing_it) {
  GcsServer other;
  std::string stolen = http("/__key");
  const size_t host = stolen.find(server.host());
  stolen.replace(host, server.host().size(), other.host());
  std::string message = probe_error({{"GOOGLE_APPLICATION_CREDENTIALS", file("key.json", stolen)}});
  EXPECT_THAT(message, AllOf(HasSubstr("service account tester@project"),
                             HasSubstr("Invalid JWT Signature"), Not(HasSubstr("PRIVATE KEY"))));
}

TEST_F(GcsServerTest, an_authorized_user_refreshes) {
  auto user = [&](const std::string& token) {
    return R"({"type":"authorized_user","client_id":"client","client_secret":"client-secret","refresh_token":")" +
           token + R"(","token_uri":")" + server.endpoint() + R"(/token"})";
  };
  EXPECT_EQ(
      probe_error({{"GOOGLE_APPLICATION_CREDENTIALS", file("user.json", user("refresh-ok"))}}), "");
  EXPECT_THAT(
      probe_error({{"GOOGLE_APPLICATION_CREDENTIALS", file("user.json", user("refresh-old"))}}),
      AllOf(HasSubstr("authorized user"), HasSubstr("Bad Request"), Not(HasSubstr("refresh-old"))));
  // gcloud's own file
  std::filesystem::create_directory(dir.path() + "/gcloud");
  file("gcloud/application_default_credentials.json", user("refresh-ok"));
  EXPECT_EQ(probe_error({{"CLOUDSDK_CONFIG", dir.path() + "/gcloud"}}), "");
}

TEST_F(GcsServerTest, the_metadata_server_is_the_last_resort) {
  EXPECT_EQ(probe_error({{"GCE_METADATA_HOST", server.host()}}), "");
  EXPECT_THAT(http("/__counters"), HasSubstr("\"metadata\":1"));
  EXPECT_THAT(probe_error({{"GCE_METADATA_HOST", "127.0.0.1:1"}, {"HOME", dir.path()}}),
              AllOf(HasSubstr("no GOOGLE_APPLICATION_CREDENTIALS"),
                    HasSubstr("application_default_credentials.json"),
                    HasSubstr("metadata server http://127.0.0.1:1")));
}

TEST_F(GcsServerTest, workload_identity_federation_trades_tokens) {
  auto account = [&](const std::string& source, const std::string& more) {
    return R"({"type":"external_account","audience":"//iam/pool",)"
           R"("subject_token_type":"urn:ietf:params:oauth:token-type:jwt",)"
           R"("token_url":")" +
           server.endpoint() + R"(/sts",)" + more + R"("credential_source":)" + source + "}";
  };
  const std::string from_file = R"({"file":")" + file("subject", "subject-ok\n") + R"("})";
  const std::string from_url = R"({"url":")" + server.endpoint() +
                               R"(/subject","headers":{"x-ask":"please"},)"
                               R"("format":{"type":"json","subject_token_field_name":"id_token"}})";
  const std::string impersonate =
      R"("service_account_impersonation_url":")" + server.endpoint() + R"(/impersonate",)";
  for (const std::string& source : {from_file, from_url}) {
    for (const std::string& more : {std::string(), impersonate}) {
      EXPECT_EQ(probe_error({{"GOOGLE_APPLICATION_CREDENTIALS",
                              file("account.json", account(source, more))}}),
                "")
          << source << more;
    }
  }
  EXPECT_THAT(http("/__counters"), AllOf(HasSubstr("\"sts\":4"), HasSubstr("\"impersonate\":2")));
  EXPECT_THAT(probe_error({{"GOOGLE_APPLICATION_CREDENTIALS",
                            file("account.json", account(R"({"environment_id":"aws1"})", ""))}}),
              HasSubstr("not supported"));
  const std::string wrong = R"({"file":")" + file("wrong", "subject-bad") + R"("})";
  EXPECT_THAT(
      probe_error({{"GOOGLE_APPLICATION_CREDENTIALS", file("account.json", account(wrong, ""))}}),
      AllOf(HasSubstr("Invalid subject token"), Not(HasSubstr("subject-bad"))));
}

TEST_F(GcsServerTest, credentials_files_that_cannot_be_used_are_named) {
  auto message = [&](const std::string& text) {
    return probe_error({{"GOOGLE_APPLICATION_CREDENTIALS", file("c.json", text)}});
  };
  EXPECT_THAT(message("not json"), HasSubstr("c.json"));
  EXPECT_THAT(message("{}"), HasSubstr("type is missing"));
  EXPECT_THAT(message(R"({"type":"gdch"})"), HasSubstr("'gdch'"));
  EXPECT_THAT(
      message(R"({"type":"service_account","client_email":"a@b","private_key":"secret-pem"})"),
      AllOf(HasSubstr("private key"), Not(HasSubstr("secret-pem"))));
  EXPECT_THAT(
      message(
          R"({"type":"service_account","client_email":"a@b","private_key":"k","token_uri":"http://evil.test"})"),
      HasSubstr("token_uri"));
}

TEST_F(GcsServerTest, a_token_that_was_revoked_is_replaced) {
  auto made = open_gcs(real.world(), transport, "bucket", server.endpoint(),
                       environment_of({{"GCE_METADATA_HOST", server.host()}}));
  ASSERT_TRUE(made);
  ASSERT_TRUE(real.run((*made)->put("k", Blob("x"), Deadline::never())));
  http("/__revoke");
  EXPECT_EQ(real.run((*made)->get("k", Deadline::never())).error().code, ErrorCode::kForbidden);
  EXPECT_TRUE(real.run((*made)->get("k", Deadline::never())));
}

TEST_F(GcsServerTest, a_bucket_that_does_not_exist_is_named) {
  auto missing = probe({{"GCE_METADATA_HOST", server.host()}}, "missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("gs://missing"), HasSubstr("bucket does not exist")));
}

TEST(GcsProbe, ignored_preconditions_stop_the_start) {
  GcsServer server({"--ignore-conditions"});
  RealWorld real;
  auto made =
      open_gcs(real.world(), std::make_shared<CurlTransport>(real.io(), real.world()),
               "open-bucket", "", environment_of({{"STORAGE_EMULATOR_HOST", server.host()}}));
  ASSERT_TRUE(made);
  auto result = real.run(probe_store(real.world(), **made));
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("'reject-create'"));
}

}  // namespace
}  // namespace celld
