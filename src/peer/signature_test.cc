#include "peer/signature.h"

#include <gtest/gtest.h>

namespace celld {
namespace {

PeerSecret secret_of(uint8_t seed) {
  std::array<uint8_t, PeerSecret::kBytes> bytes;
  bytes.fill(seed);
  return PeerSecret(bytes);
}

constexpr int64_t kNow = 1'700'000'000'000;

struct SignatureTest : ::testing::Test {
  PeerSecret secret = secret_of(7);
  PeerChecker checker{secret, NodeId("b"), 4};
  std::string method = "POST";
  std::string target = "/cell?x=1";
  std::string headers = "x-celld-deadline\n500\ncookie\na=b\n";
  PeerStamp stamp{NodeId("a"), NodeId("b"), WallMs{kNow}, {1, 2, 3}};

  std::string with_signature(const PeerSecret& by) {
    std::string value = sign_peer_request(by, PeerRequest{method, target, headers}, stamp);
    return headers + std::string(kPeerSignatureHeader) + "\n" + value + "\n";
  }
  std::string signed_block() { return with_signature(secret); }
  // How the checker refuses it; nothing when it does not.
  std::optional<PeerRefusal> refusal(std::string_view block, int64_t now = kNow) {
    auto who = checker.check(PeerRequest{method, target, block}, WallMs{now});
    if (who) return std::nullopt;
    text = who.error().text;
    return who.error().reason;
  }
  std::string text;
};

TEST_F(SignatureTest, a_signed_request_tells_who_sent_it) {
  std::string block = signed_block();
  auto who = checker.check(PeerRequest{method, target, block}, WallMs{kNow});
  ASSERT_TRUE(who) << who.error().text;
  EXPECT_EQ(*who, NodeId("a"));
}

TEST_F(SignatureTest, headers_of_the_connection_may_change_on_the_way) {
  std::string block = signed_block();
  EXPECT_EQ(refusal("connection\nkeep-alive\nhost\nelsewhere\n" + block + "content-length\n3\n"), std::nullopt);
}

TEST_F(SignatureTest, a_change_of_method_target_or_any_header_is_refused) {
  std::string block = signed_block();
  method = "PUT";
  EXPECT_EQ(refusal(block), PeerRefusal::kSignature);
  method = "POST";
  target += "1";
  EXPECT_EQ(refusal(block), PeerRefusal::kSignature);
  target.pop_back();
  EXPECT_EQ(refusal("cookie\nmore\n" + block), PeerRefusal::kSignature);
  std::string changed = block;
  changed.replace(changed.find("500"), 3, "900");
  EXPECT_EQ(refusal(changed), PeerRefusal::kSignature);
  EXPECT_EQ(refusal(block), std::nullopt) << "what was refused has not used up the nonce";
}

TEST_F(SignatureTest, what_is_stamped_is_signed) {
  std::string block = signed_block();
  for (std::string_view from : {" a ", " b ", "1700000000000", "010203"}) {
    std::string changed = block;
    size_t at = changed.find(from);
    ASSERT_NE(at, changed.npos);
    char& c = changed[at + from.size() / 2];
    c = c == 'a' || c == 'b' ? 'c' : (c == '9' ? '8' : '9');
    EXPECT_EQ(refusal(changed), PeerRefusal::kSignature) << from;
  }
}

TEST_F(SignatureTest, another_secret_is_refused_and_told_nothing_of_clocks_or_nodes) {
  stamp.target = NodeId("elsewhere");
  stamp.time.value -= 3'600'000;
  EXPECT_EQ(refusal(with_signature(secret_of(8))), PeerRefusal::kSignature);
  EXPECT_EQ(text.find("ms"), text.npos);
  EXPECT_EQ(text.find("node"), text.npos);
}

TEST_F(SignatureTest, no_signature_two_of_them_and_garbage_are_told_apart_from_a_wrong_one) {
  EXPECT_EQ(refusal(headers), PeerRefusal::kUnsigned);
  EXPECT_EQ(refusal(""), PeerRefusal::kUnsigned);
  std::string block = signed_block();
  EXPECT_EQ(refusal(block + std::string(kPeerSignatureHeader) + "\nx\n"), PeerRefusal::kMalformed);
  std::string twice = block + block.substr(headers.size());
  EXPECT_EQ(refusal(twice), PeerRefusal::kMalformed) << "two right ones too";
  for (std::string_view value : {"", " ", "1", "1 a b 1 2 3", "2 a b 1 2 3"}) {
    EXPECT_EQ(refusal(std::string(kPeerSignatureHeader) + "\n" + std::string(value) + "\n"), PeerRefusal::kMalformed);
  }
}

TEST_F(SignatureTest, a_request_for_another_node_is_refused_and_names_both) {
  stamp.target = NodeId("elsewhere");
  EXPECT_EQ(refusal(signed_block()), PeerRefusal::kWrongNode);
  EXPECT_NE(text.find("elsewhere"), text.npos);
}

TEST_F(SignatureTest, thirty_seconds_of_skew_are_taken_and_no_more) {
  std::string block = signed_block();
  EXPECT_EQ(refusal(block, kNow + 30'001), PeerRefusal::kClock);
  EXPECT_NE(text.find("30001 ms behind"), text.npos) << text;
  EXPECT_EQ(refusal(block, kNow - 30'001), PeerRefusal::kClock);
  EXPECT_NE(text.find("30001 ms ahead"), text.npos) << text;
  EXPECT_EQ(refusal(block, kNow + 30'000), std::nullopt);
  stamp.nonce[0] = 9;
  EXPECT_EQ(refusal(signed_block(), kNow - 30'000), std::nullopt);
}

TEST_F(SignatureTest, a_replay_is_refused_for_as_long_as_its_time_counts) {
  std::string block = signed_block();
  EXPECT_EQ(refusal(block, kNow - 30'000), std::nullopt);
  for (int64_t now : {kNow - 30'000, kNow, kNow + 30'000}) EXPECT_EQ(refusal(block, now), PeerRefusal::kReplayed);
  EXPECT_EQ(refusal(block, kNow + 30'001), PeerRefusal::kClock);
}

TEST_F(SignatureTest, a_clock_that_is_set_back_lets_no_replay_through) {
  std::string block = signed_block();
  EXPECT_EQ(refusal(block), std::nullopt);
  stamp.time.value += 3'600'000;
  EXPECT_EQ(refusal(signed_block(), kNow + 3'600'000), std::nullopt) << "the first nonce is forgotten";
  EXPECT_EQ(refusal(block), PeerRefusal::kReplayed);
  stamp.time.value = kNow + 1;
  stamp.nonce[15] += 1;
  EXPECT_EQ(refusal(signed_block()), std::nullopt) << "what is newer than anything forgotten is taken";
}

TEST_F(SignatureTest, a_full_memory_refuses_what_is_new_and_forgets_nothing_that_counts) {
  std::string first = signed_block();
  EXPECT_EQ(refusal(first), std::nullopt);
  for (uint8_t i = 2; i <= 4; ++i) {
    stamp.nonce[0] = i;
    EXPECT_EQ(refusal(signed_block()), std::nullopt);
  }
  stamp.nonce[0] = 5;
  std::string fifth = signed_block();
  EXPECT_EQ(refusal(fifth), PeerRefusal::kFull);
  EXPECT_EQ(refusal(first), PeerRefusal::kReplayed);
  stamp.time.value += 30'001;
  EXPECT_EQ(refusal(signed_block(), kNow + 30'001), std::nullopt) << "room again after the window";
}

TEST(Nonces, of_a_session_each_number_is_taken_once_in_any_order) {
  NonceMemory memory(1);
  WallMs now{kNow};
  auto enter = [&](uint64_t number) { return memory.enter(now, peer_nonce(7, number), now); };
  constexpr uint64_t kW = NonceMemory::kWindow;
  for (uint64_t n : {uint64_t{5}, uint64_t{1}, uint64_t{0}, uint64_t{70}, uint64_t{64}, kW - 1, kW + 4}) {
    EXPECT_EQ(enter(n), NonceMemory::Answer::kFresh) << n;
    EXPECT_EQ(enter(n), NonceMemory::Answer::kSeen) << n;
  }
  EXPECT_EQ(enter(4), NonceMemory::Answer::kSeen) << "too old to be told apart";
  EXPECT_EQ(enter(6), NonceMemory::Answer::kFresh) << "its bit is not the one of kWindow + 6";
  EXPECT_EQ(enter(kW + 6), NonceMemory::Answer::kFresh) << "and the other way round";
  EXPECT_EQ(enter(70), NonceMemory::Answer::kSeen);
  EXPECT_EQ(enter(10 * kW), NonceMemory::Answer::kFresh);
  for (uint64_t n = 9 * kW + 1; n < 10 * kW; ++n) ASSERT_EQ(enter(n), NonceMemory::Answer::kFresh) << n;
  for (uint64_t n = 9 * kW; n <= 10 * kW; ++n) ASSERT_EQ(enter(n), NonceMemory::Answer::kSeen) << n;
  EXPECT_EQ(enter(UINT64_MAX), NonceMemory::Answer::kFresh);
  EXPECT_EQ(enter(UINT64_MAX), NonceMemory::Answer::kSeen);
  EXPECT_EQ(memory.enter(now, peer_nonce(8, 1), now), NonceMemory::Answer::kFull);
}

}  // namespace
}  // namespace celld
