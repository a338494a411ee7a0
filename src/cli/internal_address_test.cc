#include "cli/internal_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace celld {
namespace {

using ::testing::HasSubstr;

TEST(InternalAddress, what_other_nodes_can_be_told) {
  for (const char* good :
       {"10.0.0.4:8788", "[fd00::4]:1", "127.0.0.1:65535", "node-4:80",
        "node-4.cells.internal:8788", "4.cells:80", "xn--zellen-cta.example:80"}) {
    EXPECT_EQ(check_advertised(good), "") << good;
  }
  EXPECT_EQ(check_advertised(std::string(63, 'a') + ":80"), "");
}

TEST(InternalAddress, what_other_nodes_cannot_be_told) {
  for (const char* bad : {"",
                          "10.0.0.4",
                          "10.0.0.4:",
                          "10.0.0.4:0",
                          "10.0.0.4:65536",
                          "10.0.0.4:80x",
                          "10.0.0.4:-1",
                          ":80",
                          "fd00::4:80",
                          "[fd00::4]",
                          "[10.0.0.4]:80",
                          "[]:80",
                          "10.0.0.256:80",
                          "1.2.3:80",
                          "0.0.0.0:80",
                          "[::]:80",
                          "[::ffff:0.0.0.0]:80",
                          "224.0.0.1:80",
                          "255.255.255.255:80",
                          "[ff02::1]:80",
                          "-a:80",
                          "a-:80",
                          "a..b:80",
                          "a.:80",
                          ".a:80",
                          "a_b:80",
                          "a b:80",
                          "http://a:80",
                          "a/b:80",
                          "a@b:80",
                          "a\nb:80"}) {
    EXPECT_NE(check_advertised(bad), "") << bad;
  }
  EXPECT_NE(check_advertised(std::string(64, 'a') + ":80"), "");
  std::string long_name;
  while (long_name.size() < 254) long_name += "a.";
  EXPECT_NE(check_advertised(long_name + "a:80"), "");
}

TEST(InternalAddress, which_addresses_are_public) {
  for (const char* inside :
       {"10.255.0.1:1", "172.16.0.1:1", "172.31.255.255:1", "192.168.1.1:1", "169.254.1.1:1",
        "100.64.0.1:1", "100.127.255.255:1", "127.8.8.8:1", "[::1]:1", "[fc00::1]:1", "[fdff::1]:1",
        "[fe80::1]:1", "[::ffff:10.0.0.1]:1", "example.com:1"}) {
    EXPECT_FALSE(is_public_address(inside)) << inside;
  }
  for (const char* outside :
       {"8.8.8.8:1", "11.0.0.1:1", "172.15.0.1:1", "172.32.0.1:1", "192.169.1.1:1", "100.63.0.1:1",
        "100.128.0.1:1", "[2001:db8::1]:1", "[fec0::1]:1", "[::2]:1", "[::ffff:8.8.8.8]:1"}) {
    EXPECT_TRUE(is_public_address(outside)) << outside;
  }
}

// What check_addresses() says of `listen`, `internal` (empty: not given) and `advertise`.
std::string check(const char* listen, const char* internal, const char* advertise,
                  bool unsafe = false) {
  NodeAddresses all;
  all.listen = parse_listen_address(listen).value();
  all.internal_given = *internal != '\0';
  if (all.internal_given) all.internal.listen = parse_listen_address(internal).value();
  all.internal.advertise = advertise;
  all.unsafe_public = unsafe;
  return check_addresses(all);
}

TEST(InternalAddress, addresses_that_go_together) {
  EXPECT_EQ(check("127.0.0.1:8787", "", ""), "");
  EXPECT_EQ(check("127.0.0.2:8787", "", ""), "");
  EXPECT_EQ(check("[::1]:8787", "", ""), "");
  EXPECT_EQ(check("0.0.0.0:8787", "127.0.0.1:0", ""), "");
  EXPECT_EQ(check("0.0.0.0:8787", "10.0.0.4:8788", ""), "");
  EXPECT_EQ(check("0.0.0.0:8787", "0.0.0.0:8788", "10.0.0.4:8788"), "");
  EXPECT_EQ(check("0.0.0.0:8787", "[::]:8788", "node-4:8788"), "");
  EXPECT_EQ(check("0.0.0.0:8787", "8.8.8.8:8788", "", true), "");
  EXPECT_EQ(check("0.0.0.0:8787", "8.8.8.8:8788", "10.0.0.4:8788"), "");
}

TEST(InternalAddress, the_internal_side_is_not_exposed_by_accident) {
  EXPECT_THAT(check("127.0.0.1:8787", "", "10.0.0.4:8788"),
              HasSubstr("--advertise 10.0.0.4:8788 needs --internal-listen"));
  EXPECT_THAT(check("0.0.0.0:8787", "", ""), HasSubstr("--internal-listen"));
  EXPECT_THAT(check("[::]:8787", "", ""), HasSubstr("--internal-listen"));
  EXPECT_THAT(check("10.0.0.4:8787", "", ""), HasSubstr("--internal-listen"));
  EXPECT_THAT(check("0.0.0.0:8787", "0.0.0.0:8788", ""), HasSubstr("--advertise"));
  EXPECT_THAT(check("0.0.0.0:8787", "[::]:8788", ""), HasSubstr("--advertise"));
  EXPECT_THAT(check("0.0.0.0:8787", "8.8.8.8:8788", ""),
              HasSubstr("8.8.8.8:8788, which is a public address"));
  EXPECT_THAT(check("0.0.0.0:8787", "[2001:db8::1]:8788", ""), HasSubstr("[2001:db8::1]:8788"));
  EXPECT_THAT(check("0.0.0.0:8787", "0.0.0.0:8788", "8.8.8.8:8788"),
              HasSubstr("--unsafe-public-advertise"));
}

}  // namespace
}  // namespace celld
