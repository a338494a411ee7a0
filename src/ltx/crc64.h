// CRC-64/GO-ISO: the checksum of LTX files and journal slots.
#pragma once

#include <cstdint>
#include <span>

namespace celld {

// The checksum of everything that gave `previous`, followed by `bytes`; start with 0.
// crc64("123456789") is 0xb90956c775a41001. Any thread.
uint64_t crc64(uint64_t previous, std::span<const uint8_t> bytes);

}  // namespace celld
