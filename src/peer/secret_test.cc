#include "peer/secret.h"

#include <gtest/gtest.h>

#include "core/testing/fleet.h"

namespace celld::testing {
namespace {

constexpr std::string_view kHex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

std::string record_with(std::string_view key) {
  return "{\"version\":1,\"key\":\"" + std::string(key) + "\"}";
}

TEST(PeerSecretTest, the_record_is_read_as_it_is_written) {
  std::string text = record_with(kHex);
  Result<PeerSecret> secret = decode_peer_auth(text);
  ASSERT_TRUE(secret) << secret.error().message;
  EXPECT_EQ(secret->view()[0], 0);
  EXPECT_EQ(secret->view()[31], 31);
  EXPECT_EQ(encode_peer_auth(*secret), text);
}

TEST(PeerSecretTest, anything_else_is_refused_without_showing_it) {
  std::string upper(kHex);
  upper[21] = 'A';
  for (const std::string& text :
       {std::string(), std::string("{}"), record_with(upper), record_with(kHex.substr(1)),
        record_with(std::string(kHex) + "0"), "{\"version\":1,\"key\":\"" + std::string(kHex) + "\",\"more\":1}"}) {
    Result<PeerSecret> secret = decode_peer_auth(text);
    ASSERT_FALSE(secret) << text;
    EXPECT_EQ(secret.error().code, ErrorCode::kCorrupt) << secret.error().message;
    EXPECT_TRUE(secret.error().message.starts_with(kPeerAuthKey)) << secret.error().message;
    EXPECT_EQ(secret.error().message.find("0a0b"), std::string::npos) << secret.error().message;
  }
  Result<PeerSecret> newer = decode_peer_auth("{\"version\":2,\"key\":\"\"}");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, ErrorCode::kUnsupported);
}

struct ObtainTest : ::testing::Test {
  Fleet fleet{1};
  TestNodeWorld node{fleet.world};
  SimStore store{fleet.world, node, fleet.bucket};
  Bucket bucket{node, store, seconds(2), [] { return false; }};
  Result<PeerSecret> obtain() { return fleet.run(obtain_peer_secret(bucket, node.deadline_in(seconds(20)))); }
};

TEST_F(ObtainTest, the_first_creates_it_and_the_next_reads_it) {
  Result<PeerSecret> first = obtain();
  ASSERT_TRUE(first) << first.error().message;
  Result<PeerSecret> second = obtain();
  ASSERT_TRUE(second);
  EXPECT_TRUE(*first == *second);
  EXPECT_EQ(fleet.bucket.get(std::string(kPeerAuthKey))->body.view(), encode_peer_auth(*first));
}

TEST_F(ObtainTest, the_loser_of_a_race_takes_the_winners) {
  std::string winner = record_with(kHex);
  store.lose_request = [&](const std::string& op, const std::string& key) {
    if (op == "put_if" && !fleet.bucket.get(key)) fleet.bucket.put(key, Blob(winner));
    return false;
  };
  Result<PeerSecret> secret = obtain();
  ASSERT_TRUE(secret) << secret.error().message;
  EXPECT_EQ(encode_peer_auth(*secret), winner);
}

TEST_F(ObtainTest, a_create_whose_reply_is_lost_is_ours) {
  int lost = 0;
  store.lose_reply = [&](const std::string& op, const std::string&) { return op == "put_if" && lost++ < 1; };
  Result<PeerSecret> secret = obtain();
  ASSERT_TRUE(secret) << secret.error().message;
  EXPECT_EQ(fleet.bucket.get(std::string(kPeerAuthKey))->body.view(), encode_peer_auth(*secret));
}

TEST_F(ObtainTest, a_damaged_record_stops_the_node_and_is_not_replaced) {
  fleet.bucket.put(std::string(kPeerAuthKey), Blob("{}"));
  EXPECT_FALSE(obtain());
  EXPECT_EQ(fleet.bucket.get(std::string(kPeerAuthKey))->body.view(), "{}");
}

}  // namespace
}  // namespace celld::testing
