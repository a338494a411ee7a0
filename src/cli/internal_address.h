// Where other nodes reach this one, and the rules that keep that side from being exposed by accident.
#pragma once

#include <string>

#include "cli/options.h"

namespace celld {

// "HOST:PORT" with an IP address (IPv6 in brackets) or a DNS name, which is not resolved. Empty when
// other nodes can be told it, else the reason why not.
std::string check_advertised(const std::string& text);

// Whether the address is one that the whole internet may reach: none of loopback, 10/8, 172.16/12,
// 192.168/16, 169.254/16, 100.64/10, ::1, fe80::/10 and fc00::/7. A name is not.
bool is_public_address(const std::string& host_and_port);

// What is wrong with the addresses of a node taken together, and what to do about it; empty: nothing.
struct NodeAddresses {
  ListenAddress listen;
  InternalOptions internal;
  bool internal_given = false;  // rather than the default
  bool unsafe_public = false;   // --unsafe-public-advertise
};
std::string check_addresses(const NodeAddresses& addresses);

}  // namespace celld
