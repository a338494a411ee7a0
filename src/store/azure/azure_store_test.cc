#include "store/azure/azure_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "net/curl_transport.h"
#include "store/azure/azure_open.h"
#include "store/azure/azure_reply.h"
#include "store/azure/azurite_testing.h"
#include "store/digest.h"
#include "store/file_temp_dir.h"
#include "store/key.h"
#include "store/probe.h"
#include "store/scripted_transport_testing.h"
#include "store/store_testing.h"

namespace celld {
namespace {

using ::testing::AllOf;
using testing::Azurite;
using ::testing::ElementsAre;
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

const std::string kKey = base64_encode(std::string(64, 'k'));

struct AzureStoreTest : ::testing::Test {
  VirtualWorld world;
  std::shared_ptr<ScriptedTransport> transport = std::make_shared<ScriptedTransport>();
  std::unique_ptr<AzureStore> store;

  std::string open(Variables variables, std::string endpoint = "") {
    auto made = open_azure(world, transport, "cells", std::move(endpoint),
                           environment_of(std::move(variables)));
    if (!made) return made.error().message;
    store = std::move(*made);
    return "";
  }
  void SetUp() override {
    ASSERT_EQ(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_STORAGE_KEY", kKey}}), "");
  }
  void reply(int status, HeaderList headers = {}, std::string body = {}) {
    transport->reply(status, std::move(headers), std::move(body));
  }
  Task<bool> sleep_task(Duration d) {
    co_await sleep_for(world, d);
    co_return true;
  }
  std::string url() { return transport->calls.back().url; }
  SwapResult write(Condition condition) {
    return world.run(store->put_if("k", Blob("x"), std::move(condition), Deadline::never()));
  }
};

// The example of https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
TEST(AzureSharedKey, signs_what_the_documentation_says) {
  AzureRequest request;
  request.method = "GET";
  request.path = "/mycontainer";
  request.query = {{"restype", "container"}, {"comp", "metadata"}, {"timeout", "20"}};
  request.headers = {{"x-ms-version", "2015-02-21"},
                     {"x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"}};
  EXPECT_EQ(azure_string_to_sign("myaccount", request),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 "
            "GMT\nx-ms-version:2015-02-21\n"
            "/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20");
  EXPECT_EQ(http_date(WallMs{1435361952000}), "Fri, 26 Jun 2015 23:39:12 GMT");
  EXPECT_EQ(parse_http_date("Fri, 26 Jun 2015 23:39:12 GMT")->value, 1435361952000);
  EXPECT_FALSE(parse_http_date("Fri, 26 Jun 2015 23:39:12 GMT+1"));
  EXPECT_FALSE(parse_http_date("Fri, 31 Feb 2015 23:39:12 GMT"));
}

TEST_F(AzureStoreTest, an_account_is_the_host) {
  reply(200, {{"etag", "\"e\""}}, "body");
  ASSERT_TRUE(world.run(store->get("a b/c.", Deadline::never())));
  EXPECT_EQ(url(), "https://acct.blob.core.windows.net/cells/a%20b/c.%21");
  EXPECT_THAT(transport->header("authorization"), HasSubstr("SharedKey acct:"));
}

TEST_F(AzureStoreTest, conditions_and_their_three_outcomes) {
  const Condition create = Condition::create();
  const Condition swap = Condition::swap(Version{"0x8D"});
  reply(201, {{"etag", "\"0x8D9\""}});
  SwapResult result = write(create);
  EXPECT_EQ(result.outcome, SwapOutcome::kApplied);
  EXPECT_EQ(result.version.token, "0x8D9");
  EXPECT_EQ(transport->header("if-none-match"), "*");
  reply(412, {{"x-ms-error-code", "ConditionNotMet"}});
  EXPECT_EQ(write(swap).outcome, SwapOutcome::kRejected);
  EXPECT_EQ(transport->header("if-match"), "\"0x8D\"");
  reply(409, {{"x-ms-error-code", "BlobAlreadyExists"}});
  EXPECT_EQ(write(create).outcome, SwapOutcome::kRejected);
  // Definite refusals of another kind say nothing about the condition.
  struct Case {
    int status;
    const char* code;
    Condition condition;
    ErrorCode expected;
  };
  for (const Case& c : {Case{409, "ContainerBeingDeleted", create, ErrorCode::kUnavailable},
                        Case{409, "BlobAlreadyExists", swap, ErrorCode::kUnavailable},
                        Case{412, "LeaseIdMissing", swap, ErrorCode::kForbidden},
                        Case{500, "InternalError", create, ErrorCode::kUnavailable},
                        Case{503, "ServerBusy", swap, ErrorCode::kUnavailable},
                        Case{404, "ContainerNotFound", create, ErrorCode::kInvalid},
                        Case{403, "AuthenticationFailed", create, ErrorCode::kForbidden}}) {
    reply(c.status, {{"x-ms-error-code", c.code}});
    SwapResult got = write(c.condition);
    EXPECT_EQ(got.outcome, SwapOutcome::kAmbiguous) << c.code;
    EXPECT_EQ(got.error.code, c.expected) << got.error.message;
    EXPECT_THAT(got.error.message, AllOf(HasSubstr("az://cells"), HasSubstr(c.code)));
  }
  reply(201);  // no ETag
  EXPECT_EQ(write(create).outcome, SwapOutcome::kAmbiguous);
}

TEST_F(AzureStoreTest, only_a_missing_blob_is_not_found) {
  reply(404, {{"x-ms-error-code", "BlobNotFound"}});
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().code, ErrorCode::kNotFound);
  reply(
      404, {},
      "\xef\xbb\xbf<?xml "
      "version=\"1.0\"?><Error><Code>ContainerNotFound</Code><Message>No.\nTime</Message></Error>");
  Error error = world.run(store->get("k", Deadline::never())).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr("ContainerNotFound: No."), Not(HasSubstr("Time"))));
  reply(404, {}, "<html>");
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().code, ErrorCode::kUnavailable);
  reply(404, {{"x-ms-error-code", "BlobNotFound"}});
  EXPECT_TRUE(world.run(store->remove("k", Deadline::never())));
}

TEST_F(AzureStoreTest, a_busy_store_says_when_to_come_again) {
  reply(503, {{"x-ms-error-code", "ServerBusy"}, {"retry-after", "3"}});
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().retry_after_ms, 3000u);
  reply(503, {{"x-ms-error-code", "ServerBusy"}});
  EXPECT_EQ(world.run(store->get("k", Deadline::never())).error().retry_after_ms, kPauseUnsaidMs);
}

std::string list_xml(const std::vector<std::string>& names, const std::string& marker) {
  std::string out = "<?xml version=\"1.0\"?><EnumerationResults><Blobs>";
  for (const auto& name : names) {
    out += "<Blob><Name>" + name +
           "</Name><Properties><Last-Modified>Fri, 26 Jun 2015 23:39:12 GMT"
           "</Last-Modified><Content-Length>1</Content-Length></Properties></Blob>";
  }
  return out + "</Blobs><NextMarker>" + marker + "</NextMarker></EnumerationResults>";
}

// Azure goes on only from its own markers.
TEST_F(AzureStoreTest, a_walk_costs_one_request_a_page) {
  ListRequest request;
  request.prefix = "p/";
  request.keys_max = 2;
  std::vector<std::string> seen;
  reply(200, {}, list_xml({"p/1", "p/2"}, "m1"));
  reply(200, {}, list_xml({"p/3", "p/4"}, "m2"));
  reply(200, {}, list_xml({"p/5"}, ""));
  while (true) {
    auto page = world.run(store->list(request, Deadline::never()));
    ASSERT_TRUE(page) << page.error().message;
    for (const auto& object : page->objects) seen.push_back(object.key);
    if (!page->more) break;
    request.start_after = page->next_start_after;
  }
  EXPECT_THAT(seen, ElementsAre("p/1", "p/2", "p/3", "p/4", "p/5"));
  ASSERT_EQ(transport->calls.size(), 3u);
  EXPECT_THAT(transport->calls[1].url, AllOf(HasSubstr("marker=m1"), HasSubstr("maxresults=2")));
  EXPECT_THAT(transport->calls[2].url, HasSubstr("marker=m2"));
}

TEST_F(AzureStoreTest, a_key_that_nobody_was_given_is_found_from_the_beginning) {
  ListRequest request;
  request.prefix = "p/";
  request.keys_max = 2;
  request.start_after = "p/3";
  reply(200, {}, list_xml({"p/1", "p/2", "p/3"}, "m1"));
  reply(200, {}, list_xml({"p/4", "p/5", "p/6"}, ""));
  auto page = world.run(store->list(request, Deadline::never()));
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_THAT(transport->calls[0].url,
              AllOf(HasSubstr("maxresults=2000"), Not(HasSubstr("marker"))));
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_TRUE(page->more);
  // Goes on with the page that was cut, not from the beginning.
  request.start_after = page->next_start_after;
  reply(200, {}, list_xml({"p/4", "p/5", "p/6"}, ""));
  page = world.run(store->list(request, Deadline::never()));
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_THAT(transport->calls.back().url, HasSubstr("marker=m1"));
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "p/6");
}

TEST_F(AzureStoreTest, a_walk_that_another_store_began_goes_on_here) {
  ListRequest request;
  request.start_after = std::string("p/3\0", 4) + "0000000000000007";
  reply(200, {}, list_xml({"p/1", "p/3", "p/4"}, ""));
  auto page = world.run(store->list(request, Deadline::never()));
  ASSERT_TRUE(page) << page.error().message;
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "p/4");
}

TEST_F(AzureStoreTest, lists_that_break_the_contract_are_refused) {
  auto error = [&](std::string body) {
    reply(200, {}, std::move(body));
    ListRequest request;
    request.prefix = "p/";
    auto page = world.run(store->list(request, Deadline::never()));
    return page ? "" : page.error().message;
  };
  EXPECT_THAT(error(list_xml({"p/2", "p/1"}, "")), HasSubstr("byte order"));
  EXPECT_THAT(error(list_xml({"q/1"}, "")), HasSubstr("ignores 'prefix'"));
  EXPECT_THAT(error("<html/>"), HasSubstr("html"));
  EXPECT_THAT(error("no xml"), HasSubstr("XML"));
  EXPECT_EQ(error(list_xml({"p/1/"}, "")), "");  // a directory marker of somebody else
}

TEST_F(AzureStoreTest, secrets_do_not_show_and_what_is_missing_does) {
  const std::string bad_key = "not-base64-secret";
  EXPECT_THAT(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_STORAGE_KEY", bad_key}}),
              AllOf(HasSubstr("base64"), Not(HasSubstr(bad_key))));
  EXPECT_THAT(open({}), HasSubstr("AZURE_STORAGE_ACCOUNT"));
  EXPECT_THAT(open({{"AZURE_STORAGE_ACCOUNT", "Not/Ok"}}), HasSubstr("Not/Ok"));
  EXPECT_THAT(open({{"AZURE_STORAGE_CONNECTION_STRING", "AccountName=acct;AccountKey"}}),
              AllOf(HasSubstr("NAME=VALUE"), Not(HasSubstr("AccountKey"))));
  EXPECT_THAT(open({{"AZURE_STORAGE_CONNECTION_STRING", "AccountName=acct"}}),
              HasSubstr("AccountKey"));
  EXPECT_THAT(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_STORAGE_SAS_TOKEN", "sv=1"}}),
              HasSubstr("'sig'"));
  EXPECT_THAT(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x"}},
                   "http://store.test"),
              HasSubstr("not https"));
  EXPECT_THAT(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_FEDERATED_TOKEN_FILE", "/f"}}),
              HasSubstr("AZURE_TENANT_ID"));
  EXPECT_THAT(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"IDENTITY_ENDPOINT", "http://x"}}),
              HasSubstr("IDENTITY_HEADER"));
}

TEST_F(AzureStoreTest, connection_strings_name_account_key_and_endpoint) {
  const std::string string = "DefaultEndpointsProtocol=https;AccountName=other;AccountKey=" + kKey +
                             ";EndpointSuffix=core.chinacloudapi.cn";
  ASSERT_EQ(open({{"AZURE_STORAGE_CONNECTION_STRING", string}}), "");
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://other.blob.core.chinacloudapi.cn/cells/k");
  ASSERT_EQ(open({{"AZURE_STORAGE_CONNECTION_STRING",
                   "BlobEndpoint=https://b.test;SharedAccessSignature=sv=2021&sig=abc%3D"}}),
            "");
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "https://b.test/cells/k?sv=2021&sig=abc%3D");
  ASSERT_EQ(open({{"AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true"}}), "");
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(url(), "http://127.0.0.1:10000/devstoreaccount1/cells/k");
}

constexpr const char* kImdsToken =
    R"({"access_token":"tok-1","expires_in":"3599","expires_on":"1700003599","resource":"r"})";

TEST_F(AzureStoreTest, a_virtual_machine_asks_its_metadata_service_once) {
  ASSERT_EQ(open({{"AZURE_STORAGE_ACCOUNT", "acct"}, {"AZURE_CLIENT_ID", "me"}}), "");
  reply(200, {}, kImdsToken);
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(transport->calls[0].url,
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&"
            "resource=https%3A%2F%2Fstorage.azure.com%2F&client_id=me");
  EXPECT_TRUE(transport->calls[0].direct) << "the metadata service is not behind a proxy";
  EXPECT_FALSE(transport->calls[1].direct);
  EXPECT_EQ(transport->header("authorization"), "Bearer tok-1");
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(transport->calls.size(), 3u);
  // A right that is missing does not make the token a bad one.
  reply(403, {{"x-ms-error-code", "AuthorizationPermissionMismatch"}});
  EXPECT_EQ(world.run(store->remove("k", Deadline::never())).error().code, ErrorCode::kForbidden);
  EXPECT_EQ(transport->calls.size(), 4u);
  // A token that is refused is replaced.
  reply(401, {{"x-ms-error-code", "InvalidAuthenticationInfo"}});
  EXPECT_EQ(world.run(store->remove("k", Deadline::never())).error().code, ErrorCode::kForbidden);
  reply(200, {}, R"({"access_token":"tok-2","expires_on":"1700003599"})");
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(transport->header("authorization"), "Bearer tok-2");
}

TEST_F(AzureStoreTest, app_service_and_client_secrets_have_their_own_endpoints) {
  ASSERT_EQ(open({{"AZURE_STORAGE_ACCOUNT", "acct"},
                  {"IDENTITY_ENDPOINT", "http://127.0.0.1:41/msi/token"},
                  {"IDENTITY_HEADER", "header-secret"}}),
            "");
  reply(200, {}, R"({"access_token":"tok","expires_on":"1700003599"})");
  reply(202);
  ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
  EXPECT_EQ(transport->calls[0].url,
            "http://127.0.0.1:41/msi/token?api-version=2019-08-01&"
            "resource=https%3A%2F%2Fstorage.azure.com%2F");
  EXPECT_THAT(transport->calls[0].headers[0],
              ::testing::Pair("x-identity-header", "header-secret"));

  ASSERT_EQ(open({{"AZURE_STORAGE_ACCOUNT", "acct"},
                  {"AZURE_TENANT_ID", "ten"},
                  {"AZURE_CLIENT_ID", "cli"},
                  {"AZURE_CLIENT_SECRET", "s&cret"}}),
            "");
  reply(401, {},
        R"({"error":"invalid_client","error_description":"AADSTS7000215: Invalid.\r\nTrace"})");
  Error error = world.run(store->remove("k", Deadline::never())).error();
  EXPECT_EQ(transport->calls.back().url, "https://login.microsoftonline.com/ten/oauth2/v2.0/token");
  EXPECT_EQ(transport->calls.back().body.view(),
            "grant_type=client_credentials&client_id=cli&scope=https%3A%2F%2Fstorage.azure.com%2F."
            "default&"
            "client_secret=s%26cret");
  EXPECT_EQ(error.code, ErrorCode::kForbidden);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("AADSTS7000215"), Not(HasSubstr("cret&")), Not(HasSubstr("Trace"))));
}

TEST_F(AzureStoreTest, workload_identity_trades_its_token_file_which_may_change) {
  testing::TempDir dir;
  const std::string file = dir.path() + "/token";
  auto write_file = [&](const char* text) { std::ofstream(file) << text; };
  ASSERT_EQ(open({{"AZURE_STORAGE_ACCOUNT", "acct"},
                  {"AZURE_TENANT_ID", "ten"},
                  {"AZURE_CLIENT_ID", "cli"},
                  {"AZURE_AUTHORITY_HOST", "https://login.test"},
                  {"AZURE_FEDERATED_TOKEN_FILE", file}}),
            "");
  Error error = world.run(store->remove("k", Deadline::never())).error();
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("workload identity"), HasSubstr(file), HasSubstr("does not exist")));
  for (const char* jwt : {"first.jwt", "second.jwt"}) {
    write_file(jwt);
    world.run_to_end();
    ASSERT_TRUE(world.run(sleep_task(std::chrono::hours(2))));
    reply(200, {}, R"({"token_type":"Bearer","expires_in":3599,"access_token":"tok"})");
    reply(202);
    ASSERT_TRUE(world.run(store->remove("k", Deadline::never())));
    const HttpCall& call = transport->calls[transport->calls.size() - 2];
    EXPECT_EQ(call.url, "https://login.test/ten/oauth2/v2.0/token");
    EXPECT_THAT(std::string(call.body.view()),
                AllOf(HasSubstr("client-assertion-type%3Ajwt-bearer&client_assertion=" +
                                std::string(jwt))));
  }
}

struct AzuriteTest : ::testing::Test {
  static Azurite& azurite() {
    static Azurite server;
    return server;
  }
  RealWorld real;
  std::shared_ptr<CurlTransport> transport =
      std::make_shared<CurlTransport>(real.io(), real.world());
  std::unique_ptr<AzureStore> open(Environment environment, std::string container) {
    auto made = open_azure(real.world(), transport, std::move(container), "", environment);
    CHECK(made) << made.error().message;
    return std::move(*made);
  }
};

TEST_F(AzuriteTest, passes_the_probe) {
  auto store = open(azurite().environment(), azurite().next_container());
  auto result = real.run(probe_store(real.world(), *store));
  EXPECT_TRUE(result) << result.error().message;
}

TEST_F(AzuriteTest, a_wrong_key_and_a_missing_container_are_named) {
  auto wrong = open(environment_of({{"AZURE_STORAGE_CONNECTION_STRING",
                                     "AccountName=devstoreaccount1;AccountKey=" + kKey +
                                         ";BlobEndpoint=" + azurite().endpoint()}}),
                    "bucket-1");
  Error error = real.run(wrong->get("k", Deadline::never())).error();
  EXPECT_EQ(error.code, ErrorCode::kForbidden) << error.message;
  auto missing = open(azurite().environment(), "not-there");
  error = real.run(missing->get("k", Deadline::never())).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalid) << error.message;
  EXPECT_THAT(error.message, HasSubstr("ContainerNotFound"));
}

// https://learn.microsoft.com/rest/api/storageservices/create-service-sas, version 2020-12-06 and
// later
TEST_F(AzuriteTest, takes_a_shared_access_signature) {
  const std::string container = azurite().next_container();
  const std::string key =
      "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
  const std::string to_sign = "rwdl\n\n2099-01-01T00:00:00Z\n/blob/devstoreaccount1/" + container +
                              "\n\n\n\n2020-12-06\nc\n\n\n\n\n\n\n";
  const std::string sas =
      "sv=2020-12-06&sr=c&sp=rwdl&se=2099-01-01T00%3A00%3A00Z&sig=" +
      percent_encode(base64_encode(hmac_sha256_bytes(*base64_decode(key), to_sign)),
                     Slash::kEncode);
  auto store = open(environment_of({{"AZURE_STORAGE_SERVICE_ENDPOINT", azurite().endpoint()},
                                    {"AZURE_STORAGE_SAS_TOKEN", sas}}),
                    container);
  auto result = real.run(probe_store(real.world(), *store));
  EXPECT_TRUE(result) << result.error().message;
  auto listed = real.run(list_all(*store, "", Deadline::never()));
  EXPECT_TRUE(listed) << listed.error().message;
}

}  // namespace
}  // namespace celld
