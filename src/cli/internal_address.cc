#include "cli/internal_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>

namespace celld {
namespace {

constexpr size_t kNameBytesMax = 253;
constexpr size_t kLabelBytesMax = 63;

// In the form of IPv6; IPv4 is mapped into it.
using Address = std::array<uint8_t, 16>;

std::optional<Address> address_of(const std::string& host) {
  Address out{};
  if (::inet_pton(AF_INET6, host.c_str(), out.data()) == 1) return out;
  in_addr v4;
  if (::inet_pton(AF_INET, host.c_str(), &v4) != 1) return std::nullopt;
  out[10] = out[11] = 0xff;
  std::memcpy(out.data() + 12, &v4, 4);
  return out;
}

bool is_v4(const Address& a) {
  return std::all_of(a.begin(), a.begin() + 10, [](uint8_t b) { return b == 0; }) && a[10] == 0xff && a[11] == 0xff;
}

bool begins_with(const Address& a, size_t from, std::initializer_list<uint8_t> bytes) {
  return std::equal(bytes.begin(), bytes.end(), a.begin() + static_cast<ptrdiff_t>(from));
}

bool is_loopback(const Address& a) {
  return is_v4(a) ? a[12] == 127 : begins_with(a, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
}

bool is_unspecified(const Address& a) {
  size_t from = is_v4(a) ? 12 : 0;
  return std::all_of(a.begin() + static_cast<ptrdiff_t>(from), a.end(), [](uint8_t b) { return b == 0; });
}

bool is_multicast_or_broadcast(const Address& a) { return is_v4(a) ? a[12] >= 224 : a[0] == 0xff; }

bool is_private(const Address& a) {
  if (is_loopback(a)) return true;
  if (!is_v4(a)) return (a[0] & 0xfe) == 0xfc || (a[0] == 0xfe && (a[1] & 0xc0) == 0x80);
  return a[12] == 10 || (a[12] == 172 && (a[13] & 0xf0) == 16) || begins_with(a, 12, {192, 168}) ||
         begins_with(a, 12, {169, 254}) || (a[12] == 100 && (a[13] & 0xc0) == 64);
}

bool is_label_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

bool is_dns_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  bool only_numbers = true;  // like an address with a digit too many
  while (true) {
    std::string_view label = name.substr(0, name.find('.'));
    if (label.empty() || label.size() > kLabelBytesMax || label.front() == '-' || label.back() == '-') return false;
    if (!std::ranges::all_of(label, is_label_character)) return false;
    if (!std::ranges::all_of(label, [](char c) { return c >= '0' && c <= '9'; })) only_numbers = false;
    if (label.size() == name.size()) return !only_numbers;
    name.remove_prefix(label.size() + 1);
  }
}

// Without the brackets. The port is 0 when there is none, or none that is one.
std::pair<std::string, uint16_t> split(const std::string& text) {
  size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, 0};
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (!host.contains(':')) return {"", 0};
  } else if (host.contains(':')) {
    return {"", 0};
  }
  uint16_t port = 0;
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data() + colon + 1, last, port);
  return {host, error == std::errc() && end == last ? port : uint16_t{0}};
}

}  // namespace

std::string check_advertised(const std::string& text) {
  auto [host, port] = split(text);
  if (port == 0) return fmt::format("'{}' is not HOST:PORT, such as 10.0.0.4:8788 or [fd00::4]:8788", text);
  auto address = address_of(host);
  if (!address) {
    if (is_dns_name(host)) return "";
    return fmt::format("'{}' names neither an IP address nor a host", text);
  }
  if (is_unspecified(*address)) return fmt::format("'{}': other nodes cannot connect to that address", text);
  if (is_multicast_or_broadcast(*address)) return fmt::format("'{}' is no address of one machine", text);
  return "";
}

bool is_public_address(const std::string& host_and_port) {
  auto address = address_of(split(host_and_port).first);
  return address && !is_private(*address) && !is_unspecified(*address);
}

std::string check_addresses(const NodeAddresses& addresses) {
  const InternalOptions& internal = addresses.internal;
  if (!internal.advertise.empty() && !addresses.internal_given) {
    return fmt::format("--advertise {} needs --internal-listen: the address on which this node is reached there",
                       internal.advertise);
  }
  Address listen = address_of(addresses.listen.ip).value_or(Address{});
  if (!is_loopback(listen) && !addresses.internal_given) {
    return fmt::format(
        "--listen {} can be reached from other machines, so say where other nodes reach this one: "
        "--internal-listen IP:PORT of a network that only they are on, or --internal-listen 127.0.0.1:0 when "
        "there are none on other machines",
        addresses.listen.ip);
  }
  Address address = address_of(internal.listen.ip).value_or(Address{});
  std::string told = internal.advertise;
  if (told.empty()) {
    if (is_unspecified(address)) {
      return fmt::format("--internal-listen {} is every address of this machine: say with --advertise HOST:PORT "
                         "which of them other nodes are to use",
                         internal.listen.ip);
    }
    const std::string& ip = internal.listen.ip;
    told = fmt::format("{}:{}", ip.contains(':') ? "[" + ip + "]" : ip, internal.listen.port);
  }
  if (is_public_address(told) && !addresses.unsafe_public) {
    return fmt::format("other nodes would reach this one at {}, which is a public address: what they say to each "
                       "other is signed but not encrypted. Use a private network, or --unsafe-public-advertise",
                       told);
  }
  return "";
}

}  // namespace celld
